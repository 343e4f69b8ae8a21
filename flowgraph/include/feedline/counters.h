// Lists what a feed counts. Each counter and gauge is declared once, in the list below. The report, its JSON, the
// metrics and the page of the monitor, and the table in docs/monitor.md are made from this list.
#pragma once

#include <cstdint>

namespace feedline {

/// The list. Each line is counter(name, type, unit, help) or gauge(name, type, unit, help). A counter grows from 0
/// since the feeder was made, or since set_state(), set_epoch() or set_weights() last moved it. A gauge is the value at
/// the moment of the report. The unit is "bytes", "ratio" (0 to 1) or empty; if it is not empty, it is also the last
/// word of the name.
///
/// To add a counter or a gauge, write a line here, and the line that sets it where it is counted: in an
/// add_to(Counters&) of the flow graph.
// clang-format off
#define FEEDLINE_COUNTERS(counter, gauge) \
  gauge(epoch, uint64_t, "", "The epoch of the replica that is furthest behind.") \
  gauge(step, int64_t, "", "Steps of this epoch that the replica furthest behind has received.") \
  gauge(epoch_steps, int64_t, "", "Steps of an epoch; -1 if epochs have no end, or if their end is not known yet.") \
  gauge(replicas, int, "", "Replicas of this rank.") \
  gauge(threads, int, "", "Threads of the feed on this rank; 0 if another rank reads for this rank.") \
  gauge(planned_bytes, uint64_t, "bytes", "Host memory planned for the feed; 0 if another rank reads for this rank.") \
  counter(steps, uint64_t, "", "Steps that all replicas have received.") \
  counter(records, uint64_t, "", "Samples that were delivered, without filler.") \
  counter(filler_rows, uint64_t, "", "Rows that were padding or replaced a bad record.") \
  counter(dropped_samples, uint64_t, "", "Samples that last_batch_policy DROP left out of the finished epochs.") \
  counter(bad_records, uint64_t, "", "Bad records, damaged regions and bad files, also those found by counting.") \
  counter(differing_epochs, uint64_t, "", "Epochs whose data did not come exactly once; should be 0.") \
  counter(layout_hits, uint64_t, "", "Records with the same byte layout as the record before.") \
  counter(decode_warnings, uint64_t, "", "Warnings of libjpeg and libpng about pictures that could be decoded.") \
  counter(read_bytes, uint64_t, "bytes", "Bytes read from files, without the counting pass.") \
  counter(needed_bytes, uint64_t, "bytes", "Parsed records times the mean record size in the files; 0 with LAZY.") \
  counter(sent_bytes, uint64_t, "bytes", "Bytes of rows sent to other ranks, counted for each rank.") \
  counter(received_bytes, uint64_t, "bytes", "Bytes of rows received from other ranks.") \
  counter(uploaded_bytes, uint64_t, "bytes", "Bytes copied from the host to GPUs.") \
  counter(between_gpus_bytes, uint64_t, "bytes", "Bytes copied between the GPUs of this process (REPLICATE).") \
  counter(cache_hits, uint64_t, "", "Rows or records found in the cache, including those that were read ahead.") \
  counter(cache_misses, uint64_t, "", "Rows or records not found in the cache, including those that were read ahead.") \
  gauge(cache_entries, uint64_t, "", "Pieces of files, or pictures, that the feeder has put into the cache.") \
  gauge(cache_bytes, uint64_t, "bytes", "Bytes that the feeder has put into the cache.") \
  gauge(data_readiness_ratio, double, "ratio", "The share of next() calls that found their batch ready.") \
  gauge(next_wait_ratio, double, "ratio", "The share of its time that the trainer has waited in next().")
// clang-format on

/// The values, under the names of the list.
struct Counters {
#define FEEDLINE_MEMBER(name, type, unit, help) type name = 0;
  FEEDLINE_COUNTERS(FEEDLINE_MEMBER, FEEDLINE_MEMBER)
#undef FEEDLINE_MEMBER
};

/// The list's entry for one counter or gauge.
struct CounterInfo {
  const char* name;
  const char* unit;
  const char* help;
  bool grows;  // true: a counter; false: a gauge
};

/// Calls visit(CounterInfo, value) for each counter and gauge, in the order of the list.
template <typename Visit>
void for_each_counter(const Counters& counters, Visit&& visit) {
#define FEEDLINE_COUNTER(name, type, unit, help) visit(CounterInfo{#name, unit, help, true}, counters.name);
#define FEEDLINE_GAUGE(name, type, unit, help) visit(CounterInfo{#name, unit, help, false}, counters.name);
  FEEDLINE_COUNTERS(FEEDLINE_COUNTER, FEEDLINE_GAUGE)
#undef FEEDLINE_COUNTER
#undef FEEDLINE_GAUGE
}

}  // namespace feedline
