// Runs a plan on one thread: what flowgraph/feed does with a graph, done one thing after another. Chunks and batches lie
// in blocks of memory whose surroundings AddressSanitizer guards.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "draw.h"
#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/batch/epoch_ledger.h"
#include "flowgraph/chunk/file_inflater.h"
#include "flowgraph/chunk/lazy_reader.h"
#include "flowgraph/chunk/record_cache.h"
#include "flowgraph/feed/bad_records.h"
#include "flowgraph/plan/reader_memory.h"
#include "flowgraph/plan/ticket_queue.h"
#include "support/memory_source.h"

namespace feedline::test {

inline std::string pipeline_text;  // of what is fed, for failures

#define MUST_HOLD(condition)                                                                                       \
  do {                                                                                                             \
    if (!(condition)) {                                                                                            \
      std::fprintf(stderr, "%s\n%s:%d: this does not hold: %s\n", feedline::test::pipeline_text.c_str(), __FILE__, \
                   __LINE__, #condition);                                                                          \
      std::abort();                                                                                                \
    }                                                                                                              \
  } while (false)

struct Tensor {
  std::string name;
  DType dtype = DType::unset;
  Shape shape;
  std::string bytes;
  bool operator==(const Tensor&) const = default;
};

/// A copy of what a replica is given.
struct Got {
  uint64_t epoch = 0;
  int64_t step = 0, rows = 0, valid = 0;
  std::vector<Tensor> tensors;
  bool operator==(const Got&) const = default;
  const Tensor& at(const std::string& name) const {
    const auto tensor = std::ranges::find(tensors, name, &Tensor::name);
    MUST_HOLD(tensor != tensors.end());
    return *tensor;
  }
};

struct RunOptions {
  flow::Walk::Start start = {};
  uint64_t epochs = 1;
  size_t most_steps = 100;  // over all epochs
  bool deliver_before_error = false;
  size_t gap = 0;                  // that of Arena; 0: a chunk has exactly the memory that its records may need
  uint64_t fails_at = UINT64_MAX;  // the number of the ticket whose read fails
  bool forged = false;             // an index is wrong
  bool may_differ = false;         // a compressed stream was damaged afterwards, and may have other records
  flow::CacheStore* cache = nullptr;
};

struct Run {
  std::vector<std::vector<Got>> batches;  // by replica
  std::optional<Error> error;             // with which it ended
  uint64_t bad = 0;                       // the bad records that it noted
  std::optional<EpochAudit> audit;        // of the last epoch
};

/// Reads the chunks of a plan, one after another.
class ChunkReader {
 public:
  ChunkReader(const flow::Plan& plan, const MemorySource& source, const RunOptions& options)
      : plan_(plan),
        source_(source),
        options_(options),
        tickets_(plan, options.start),
        inflaters_(plan.spec.sources.size()) {
    if (plan.data.lazy) lazy_.emplace(plan);
    if (options.cache && options.cache->store() && plan.cache->pieces())
      records_.emplace(plan, *options.cache->store());
  }

  /// Returns the next chunk, parsed; null if there is none.
  flow::ChunkRef next() {
    flow::ChunkRef chunk;
    if (lazy_) {
      chunk = make_chunk(plan_.memory.slot_data_bytes, plan_.memory.slot_arena_bytes);
      lazy_->fill(*chunk);
    } else {
      flow::Ticket* const ticket = tickets_.front();
      if (!ticket) return nullptr;
      const uint64_t bytes = flow::slot_bytes(*ticket), scratch = scratch_bytes(*ticket);
      MUST_HOLD(bytes <= plan_.memory.slot_data_bytes);
      chunk = make_chunk(bytes, scratch);
      std::swap(chunk->ticket, *ticket);
      tickets_.pop();
      read(chunk);
    }
    chunk->sequence = sequence_++;
    chunk->parse(plan_);
    return chunk;
  }

 private:
  struct Slot {
    Slot(size_t data_bytes, size_t scratch_bytes, size_t gap)
        : data(std::make_unique_for_overwrite<std::byte[]>(data_bytes)),
          scratch(std::make_unique_for_overwrite<std::byte[]>(scratch_bytes)),
          chunk(0, {data.get(), data_bytes}, {scratch.get(), scratch_bytes}, gap) {}
    std::unique_ptr<std::byte[]> data, scratch;  // they end where their bytes end
    flow::Chunk chunk;
  };

  flow::ChunkRef make_chunk(size_t data_bytes, size_t scratch_bytes) const {
    auto slot = std::make_shared<Slot>(data_bytes, scratch_bytes, options_.gap);
    // Not the slot's own count: the chunk's reference to itself would keep the slot.
    return {&slot->chunk, [slot](flow::Chunk*) mutable { slot.reset(); }};
  }

  /// Returns the bytes that the columns of a ticket's records take at most, and no more than are planned; and those of
  /// gaps beside them.
  uint64_t scratch_bytes(const flow::Ticket& ticket) const {
    const uint64_t rows = ticket.rows;
    const uint64_t columns = rows * (sizeof(io::RecordView) + sizeof(uint64_t)) + alignof(io::RecordView) +
                             plan_.parser->arena_bound(rows, ticket.payload_bytes()) + plan_.formulas.arena_bound(rows);
    const uint64_t takes = 8 + plan_.spec.expressions.size() + (1 + 4 * rows) * (1 + plan_.spec.features.size());
    return std::min(columns, plan_.memory.slot_arena_bytes) + options_.gap * takes;
  }

  void read(const flow::ChunkRef& chunk) {
    const flow::Ticket& ticket = chunk->ticket;
    const bool inflates = ticket.inflates;
    std::byte* at = chunk->data().data();
    ASAN_POISON_MEMORY_REGION(at, chunk->data().size());
    for (const flow::Extent& extent : ticket.extents) {
      chunk->extents.push_back(inflates ? at : at + extent.offset % io::block_bytes);
      ASAN_UNPOISON_MEMORY_REGION(chunk->extents.back(), extent.length);
      at += inflates ? extent.length : io::Read::capacity_for(extent.offset, extent.length);
    }
    const bool fails = sequence_ == options_.fails_at && !ticket.extents.empty();
    if (inflates) {
      if (records_ && records_->has(ticket) && records_->fetch(*chunk).empty()) return;
      inflate(chunk, fails ? EIO : 0);
    } else if (fails) {
      chunk->failed =
          Error(Category::io_error, "the disk fails", Place::of_file(plan_.data.files[ticket.extents[0].file].id.uri));
    } else {
      std::vector<flow::RecordCache::Missing> missing;
      for (size_t e = 0; !records_ && e < ticket.extents.size(); e++)
        missing.push_back({e, ticket.extents[e].offset, ticket.extents[e].length});
      if (records_) missing = records_->fetch(*chunk);
      for (const auto& [extent, offset, length] : missing)
        source_.open(plan_.data.files[ticket.extents[extent].file].id.uri)
            ->read_at(offset, chunk->bytes_at(extent, offset, length));
    }
    if (records_ && !chunk->failed) records_->keep(*chunk);
  }

  struct Inflating {
    std::vector<std::byte> memory;
    std::vector<std::pair<uint32_t, flow::FileInflater::Input*>> asked;
    bool done = false, idle = true;
    std::optional<flow::FileInflater> inflater;
  };

  /// Reads what the inflater asks for, until it is done.
  void serve(Inflating& open, const bool& done, int error) const {
    while (!done) {
      MUST_HOLD(!open.asked.empty());
      const auto [from, input] = open.asked.front();
      open.asked.erase(open.asked.begin());
      source_.open(plan_.data.files[from].id.uri)->read_at(input->offset, {input->buffer, input->length});
      if (open.inflater->arrived(*input, error)) open.inflater->run();
    }
  }

  void inflate(const flow::ChunkRef& chunk, int error) {
    const flow::Ticket& ticket = chunk->ticket;
    const uint32_t file = ticket.extents[0].file;
    Inflating& open = inflaters_[plan_.data.files[file].source];
    if (open.idle || ticket.scattered || !open.inflater->continues_with(ticket)) {
      if (!open.idle && open.inflater->finish()) open.inflater->run();
      serve(open, open.idle, 0);
      open.memory.resize(flow::inflater_memory_bytes);
      if (!open.inflater)
        open.inflater.emplace(
            plan_, open.memory,
            flow::FileInflater::Callbacks{
                .read = [&open](uint32_t of, flow::FileInflater::Input& input) { open.asked.emplace_back(of, &input); },
                .done = [&open](const flow::ChunkRef&) { open.done = true; },
                .idle = [&open](flow::FileInflater*) { open.idle = true; }});
      open.idle = false;
      if (!ticket.scattered) open.inflater->open(file, ticket.extents[0].offset);
    }
    open.done = false;
    if (open.inflater->add(chunk)) open.inflater->run();
    serve(open, open.done, error);
    if (ticket.scattered && open.inflater->finish()) open.inflater->run();
  }

  const flow::Plan& plan_;
  const MemorySource& source_;
  const RunOptions& options_;
  uint64_t sequence_ = 0;
  flow::TicketQueue tickets_;
  std::deque<Inflating> inflaters_;  // by source
  std::optional<flow::LazyReader> lazy_;
  std::optional<flow::RecordCache> records_;
};

/// Writes batches of a plan into one buffer, and sees that nothing beside their tensors is written.
class BatchMaker {
 public:
  BatchMaker(const flow::Plan& plan, const flow::BatchWriter& writer)
      : plan_(plan), writer_(writer), memory_(plan.memory.buffer_bytes) {
    buffer_.memory = memory_.data();
    for (const flow::BatchTensor& tensor : plan.memory.tensors)
      buffer_.content.tensors.push_back(
          {tensor.name, {buffer_.memory + tensor.offset, tensor.dtype, tensor.shape.with_rows(0)}});
  }

  const flow::BatchBuffer& buffer() const { return buffer_; }

  std::vector<flow::BadRecord> write(const flow::BatchRows& rows) {
    std::ranges::fill(memory_.span(), OutputBlock::untouched);
    std::vector<flow::BadRecord> failed = writer_.write(rows, buffer_);
    uint64_t at = 0;  // the bytes before it have been looked at, or are a tensor's
    const auto look = [&](uint64_t end) {
      const std::byte* const begin = buffer_.memory + at;
      if (at < end) MUST_HOLD(*begin == OutputBlock::untouched && std::memcmp(begin, begin + 1, end - at - 1) == 0);
      at = end;
    };
    for (size_t t = 0; t < plan_.memory.tensors.size(); t++) {
      const auto& [name, tensor, lent] = buffer_.content.tensors[t];
      MUST_HOLD(tensor.size_bytes() <= plan_.memory.tensors[t].capacity);
      look(plan_.memory.tensors[t].offset);
      if (!lent) at += tensor.size_bytes();
    }
    look(plan_.memory.buffer_bytes);
    return failed;
  }

  /// Returns a copy of the batch that was written last.
  Got copy() const {
    const BatchContent& content = buffer_.content;
    Got got{content.epoch, static_cast<int64_t>(content.step), content.rows, content.valid_count, {}};
    for (const auto& [name, tensor, lent] : content.tensors)
      got.tensors.push_back({name, tensor.dtype, tensor.shape,
                             std::string(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes())});
    return got;
  }

 private:
  const flow::Plan& plan_;
  const flow::BatchWriter& writer_;
  OutputBlock memory_;
  flow::BatchBuffer buffer_;
};

/// Feeds a plan until its epochs end, or with an error.
inline Run run(const flow::Plan& plan, const MemorySource& source, const RunOptions& options) {
  const auto replicas = static_cast<size_t>(plan.replicas);
  ChunkReader reader(plan, source, options);
  flow::Assembler assembler(plan, options.start, options.deliver_before_error);
  flow::BadRecords bad(plan);
  flow::EpochLedger ledger(replicas, plan.expected_audit, plan.ranks.world_size == 1,
                           options.start.epoch > 0 || options.start.step > 0);
  const flow::BatchWriter writer(plan, options.cache);
  std::deque<BatchMaker> makers;
  for (size_t r = 0; r < replicas; r++) makers.emplace_back(plan, writer);
  Run run;
  run.batches.resize(replicas);
  std::vector<std::vector<flow::BatchRows>> out(replicas);
  uint64_t ended = 0;
  const auto goes_on = [&] {
    return ended < options.epochs && run.batches[0].size() < options.most_steps && !run.error;
  };
  while (goes_on()) {
    const flow::ChunkRef chunk = reader.next();
    MUST_HOLD(chunk);
    writer.read_ahead(*chunk);
    bad.note(*chunk);
    assembler.add(chunk, out);
    MUST_HOLD(assembler.failed() ||
              assembler.held() + plan.memory.lent_chunks(plan.replicas) < plan.memory.slots_of_page_cache);
    for (size_t i = 0; i < out[0].size() && goes_on(); i++) {
      const flow::BatchRows& first = out[0][i];
      if (first.kind == flow::BatchRows::Kind::failure) {
        run.error = *first.error;
        break;
      }
      if (first.kind == flow::BatchRows::Kind::end_of_epoch) {
        ended++;
        for (size_t r = 0; r < replicas; r++) ledger.ended(r, out[r].at(i).end);
        continue;
      }
      flow::StepOutcome* const outcome = first.outcome.get();
      if (outcome) outcome->bad_before = bad.in_chunks();
      for (size_t r = 0; r < replicas; r++) {
        std::vector<flow::BadRecord> failed = makers[r].write(out[r].at(i));
        MUST_HOLD(outcome || failed.empty());
        if (!outcome) continue;
        const Lock lock(outcome->mutex);
        outcome->failed.insert(outcome->failed.end(), failed.begin(), failed.end());
      }
      if (outcome) bad.settle(*outcome);
      if (outcome && outcome->end) run.error = *outcome->end;
      for (size_t r = 0; r < replicas; r++) {
        if (run.error) {
          if (!options.deliver_before_error) break;
          const auto shorter = flow::rows_before(outcome->end_row, out[r][i], static_cast<int>(r), plan);
          if (!shorter) break;
          makers[r].write(*shorter);
        }
        const flow::BatchBuffer& buffer = makers[r].buffer();
        ledger.delivered(r, {buffer.content.audit, buffer.content.bad_audit}, buffer.passes);
        run.batches[r].push_back(makers[r].copy());
      }
    }
    for (auto& batches : out) batches.clear();
  }
  MUST_HOLD(options.forged || options.may_differ || ledger.differing() == 0);
  run.audit = ledger.last();
  run.bad = bad.total();
  return run;
}

}  // namespace feedline::test
