#include "flowgraph/feed/bad_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mul_div.h"
#include "base/mutex.h"
#include "flowgraph/data/error_limits.h"

namespace feedline::flow {
namespace {

Error ends_feed(const std::string& limit, const Error& last) {
  return Error(last.category(), fmt::format("{}; the last one: {}", limit, last.message()), last.place());
}

}  // namespace

// Returns a message that says which limit of the pipeline's `errors` is exceeded; nullopt if none is. `bad` is how many
// bad records the feed has met. Added to these are the records that were left out when the data was counted. (A file
// that SKIP_FILE left out counts as one failure, but not as a bad record.) Whole files are counted, but the feed may
// choose only some of their records as samples. So the failure rate is computed with the same share of the records that
// were left out.
std::optional<std::string> BadRecords::exceeded_limit(uint64_t bad) const {
  const DataSet& data = schedule_.data;
  const uint64_t skipped = data.skipped_total;
  const uint64_t records = schedule_.spec.on_error == OnError::skip_file
                               ? 0
                               : mul_div(skipped, data.samples, std::max<uint64_t>(1, data.records));
  auto limit = exceeds_max_failures(schedule_.spec, bad + skipped);
  if (!limit) limit = exceeds_failure_rate(schedule_.spec, bad + records, data.samples + records, "records");
  return limit;
}

// Notes a bad record. Returns the Error that ends the feed if the record exceeds a limit of `errors`.
std::optional<Error> BadRecords::note(const Error& error) {
  in_chunks_.note(error);
  const auto limit = exceeded_limit(in_chunks_.total());
  return limit ? std::optional(ends_feed(*limit, error)) : std::nullopt;
}

void BadRecords::note(Chunk& chunk) {
  for (const std::vector<BadRecord>* records : {&chunk.passed_over, &chunk.bad})
    for (const BadRecord& bad : *records)
      if (auto end = note(bad.error)) return chunk.end_before(static_cast<uint32_t>(bad.row), std::move(*end));
}

void BadRecords::settle(StepOutcome& step) {
  const Lock lock(step.mutex);
  if (std::exchange(step.settled, true)) return;
  std::ranges::sort(step.failed, {}, &BadRecord::row);
  const auto end_at = [&](int64_t row, Error error) {
    step.end = std::move(error);
    step.end_row = row;
  };
  const auto limit = [&] { return exceeded_limit(step.bad_before + in_steps_.total()); };
  for (const BadRecord& bad : step.failed) {
    if (schedule_.spec.on_error == OnError::raise) return end_at(bad.row, bad.error);
    in_steps_.note(bad.error);
    last_in_steps_ = bad.error;
    if (const auto exceeded = limit()) return end_at(bad.row, ends_feed(*exceeded, bad.error));
  }
  // Bad records of chunks that were parsed after the last failed row may exceed a limit together with the failed rows.
  if (!last_in_steps_) return;
  if (const auto exceeded = limit()) end_at(0, ends_feed(*exceeded, *last_in_steps_));
}

std::vector<Error> BadRecords::first() const {
  std::vector<Error> first = in_chunks_.first();
  for (Error& error : in_steps_.first())
    if (first.size() < ErrorLog::kept) first.push_back(std::move(error));
  return first;
}

}  // namespace feedline::flow
