#include "flowgraph/batch/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "flowgraph/batch/empty_epoch.h"

namespace feedline::flow {
namespace {

// Renumbers the rows of a step that cannot be completed: they begin at 0 and, unless samples are windows, have no gaps.
// Adds to `moved` the former number of the first row. Returns how many whole samples the rows make.
int64_t close_up(std::vector<TicketRows>& step, int64_t frames, int64_t& moved) {
  int64_t rows_so_far = 0;
  const int64_t first = step.empty() ? 0 : step.front().at;
  moved += first;
  for (TicketRows& rows : step) {
    rows.at = frames > 1 ? rows.at - first : rows_so_far;
    rows_so_far = rows.at + rows.count;
  }
  return rows_so_far / frames;
}

// Returns which of `samples` samples a replica is given if all replicas share the samples evenly.
Rows even_share(int64_t samples, int replica, int replicas) {
  return {samples * replica / replicas, samples * (replica + 1) / replicas};
}

}  // namespace

std::optional<BatchRows> rows_before(int64_t end, const BatchRows& batch, int replica, const Schedule& schedule) {
  auto step = std::make_shared<StepRows>(*batch.of_step);
  step->finished.clear();
  auto cut = std::find_if(step->rows.begin(), step->rows.end(),
                          [&](const TicketRows& rows) { return rows.at + rows.count > end; });
  if (cut != step->rows.end() && cut->at < end) {
    cut->count = static_cast<uint32_t>(end - cut->at);
    ++cut;
  }
  step->rows.erase(cut, step->rows.end());
  const int64_t samples = close_up(step->rows, schedule.frames, step->moved);
  if (samples == 0) return std::nullopt;
  const Rows share = even_share(samples, replica, schedule.replicas);
  BatchRows shorter = batch;
  shorter.of_step = std::move(step);
  shorter.wanted = {share.first * schedule.frames, share.last * schedule.frames};
  shorter.rows = std::max(schedule.frames, shorter.wanted.count());
  return shorter;
}

Assembler::Assembler(const Schedule& schedule, const Walk::Start& start, bool deliver_before_error)
    : schedule_(schedule), deliver_before_error_(deliver_before_error), walk_(schedule, start, true) {
  end_.first_step = start.step;
  if (schedule.spec.absent_feature != AbsentFeature::ignore) absent_.emplace(schedule.spec.features, *schedule.parser);
  if (schedule.data.lazy)
    arriving_.emplace(schedule.steps, start.epoch);
  else
    walk_.next(step_, nullptr);
}

void Assembler::add(const ChunkRef& chunk, Out& out) {
  if (failed_) return;
  chunks_.push_back({.chunk = chunk, .has_filler = !chunk->bad.empty()});
  held_++;
  cut_short_ = cut_short_ || chunk->first_error.has_value();
  note_lacking(*chunk);
  if (absent_) absent_->add(chunk->seen(), chunk->records().first(chunk->rows()));
  if (arriving_) arriving_->add(*chunk);
  while (arriving_ ? arriving_->next(step_) : step_.tickets <= first_ticket_ + chunks_.size()) {
    if (!step_.ends_epoch)
      emit(chunk, out);
    else if (schedule_.data.raised.empty())
      end_epoch(chunk, out);
    else
      fail(chunk, schedule_.data.raised.front(), out);
    if (failed_) return;
    if (!arriving_) walk_.next(step_, nullptr);
  }
}

// Removes from chunks_ the chunks that no later step uses, and returns them.
std::vector<ChunkRef> Assembler::finish() {
  std::vector<ChunkRef> finished = std::exchange(dropped_, {});
  for (const uint64_t ticket : step_.finished) finished.push_back(std::move(chunks_[ticket - first_ticket_].chunk));
  held_ -= step_.finished.size();
  step_.finished.clear();
  const auto first =
      std::find_if(chunks_.begin(), chunks_.end(), [](const Held& held) { return held.chunk != nullptr; });
  first_ticket_ += static_cast<uint64_t>(first - chunks_.begin());
  chunks_.erase(chunks_.begin(), first);
  return finished;
}

std::shared_ptr<const StepRows> Assembler::share_rows(const Rows& of_rank, int64_t moved) {
  auto step = std::make_shared<StepRows>();
  step->moved = moved;
  const size_t rows = step_.rows.size();
  step->rows = std::exchange(step_.rows, {});
  step_.rows.reserve(rows);  // the next step most likely has as many
  step->first_ticket = first_ticket_;
  step->chunks.reserve(step_.tickets - first_ticket_);
  for (uint64_t ticket = first_ticket_; ticket < step_.tickets; ticket++) {
    const Held& held = chunks_[ticket - first_ticket_];
    step->chunks.push_back(held.chunk.get());
    step->has_filler = step->has_filler || held.has_filler;
  }
  // If this rank has no sample in the step, its filler is made from a row of another rank. If that row's record is bad,
  // the other rank counts it. So bad records are counted here only in rows that belong to this rank.
  if (step->has_filler)
    for (const TicketRows& run : step->rows)
      if (run.at < of_rank.last && run.at + run.count > of_rank.first)
        note_bad(*step->chunk_of(run), run.first, run.count);
  step->finished = finish();
  return step;
}

void Assembler::emit(const ChunkRef& newest, Out& out) {
  const auto bad =
      std::find_if(cut_short_ ? step_.rows.begin() : step_.rows.end(), step_.rows.end(),
                   [&](const TicketRows& rows) { return rows.first + rows.count > chunk_of(rows)->rows(); });
  if (bad != step_.rows.end()) {
    const Chunk& chunk = *chunk_of(*bad);
    const Error error = *chunk.first_error;  // a copy: emitting the rows may free the chunk
    bad->count = chunk.rows() - std::min(chunk.rows(), bad->first);
    step_.rows.erase(bad + (bad->count > 0 ? 1 : 0), step_.rows.end());
    if (deliver_before_error_) emit_unfinished(out);
    return fail(newest, error, out);
  }
  if (step_.kind != Steps::Kind::dropped) {
    emit_batches([&](int replica) { return steps().of_replica(step_.kind, replica); }, out);
  } else if (deliver_before_error_ && !schedule_.data.raised.empty()) {
    emit_unfinished(out);
  } else {
    if (schedule_.data.raised.empty()) note_dropped();
    dropped_ = finish();
  }
}

// Emits the rows of a step that cannot be completed. The replicas share them evenly.
void Assembler::emit_unfinished(Out& out) {
  int64_t moved = 0;
  const int64_t samples = close_up(step_.rows, schedule_.frames, moved);
  if (samples == 0) {
    dropped_ = finish();  // kept alive, because earlier steps, not written yet, may refer to them
    return;
  }
  emit_batches([&](int replica) { return even_share(samples, replica, schedule_.replicas); }, out, moved);
}

// Emits a batch of the step for each replica, with the samples that samples_of(replica) returns. `moved` becomes
// StepRows::moved.
template <typename SamplesOf>
void Assembler::emit_batches(const SamplesOf& samples_of, Out& out, int64_t moved) {
  const Rows of_rank{samples_of(0).first * schedule_.frames,
                     samples_of(schedule_.replicas - 1).last * schedule_.frames};
  const auto step = share_rows(of_rank, moved);
  const auto outcome = schedule_.spec.rows_can_fail() ? std::make_shared<StepOutcome>(schedule_.replicas) : nullptr;
  for (int replica = 0; replica < schedule_.replicas; replica++) {
    const Rows samples = samples_of(replica);
    const Rows wanted{samples.first * schedule_.frames, samples.last * schedule_.frames};
    out[static_cast<size_t>(replica)].push_back({.kind = BatchRows::Kind::batch,
                                                 .epoch = step_.epoch,
                                                 .step = static_cast<uint64_t>(step_.step),
                                                 .of_step = step,
                                                 .wanted = wanted,
                                                 .rows = std::max(schedule_.frames, wanted.count()),
                                                 .outcome = outcome});
  }
}

void Assembler::end_epoch(const ChunkRef& chunk, Out& out) {
  if (const auto error = absent_feature()) return fail(chunk, *error, out);
  if (arriving_ && !schedule_.spec.allow_empty)
    if (const auto samples = arriving_->too_few()) return fail(chunk, empty_epoch(schedule_, *samples), out);
  emit_marker(BatchRows::Kind::end_of_epoch, chunk, nullptr, out);
}

// Warns of the features that no record of the epoch had. Returns the error that ends the feed, if the pipeline asks for
// one.
std::optional<Error> Assembler::absent_feature() {
  if (!absent_ || end_.first_step > 0) return std::nullopt;
  const std::vector<Error> errors = absent_->errors(
      fmt::format("of epoch {}{}", step_.epoch, schedule_.ranks.world_size > 1 ? " that this rank reads" : ""));
  absent_.reset();
  const bool raise = schedule_.spec.absent_feature == AbsentFeature::error && !errors.empty();
  for (size_t i = raise ? 1 : 0; i < errors.size(); i++) log_warning(errors[i].what());
  return raise ? std::optional(errors.front()) : std::nullopt;
}

void Assembler::note_lacking(const Chunk& chunk) {
  end_.lacking.resize(chunk.lacking().size());
  if (chunk.first_error) return;  // its lacking() counts more records than its parsed()
  end_.parsed += chunk.parsed();
  for (size_t feature = 0; feature < end_.lacking.size(); feature++) end_.lacking[feature] += chunk.lacking()[feature];
}

void Assembler::note_dropped() {
  for (const TicketRows& rows : step_.rows) {
    const Chunk& chunk = *chunk_of(rows);
    for (uint32_t row = rows.first; row < rows.first + rows.count; row++)
      if (!chunk.is_bad(row)) end_.dropped += chunk.audit_terms()[row];
    note_bad(chunk, rows.first, rows.count);
  }
}

// Adds to the epoch's sums the records in these rows that were bad and became filler.
void Assembler::note_bad(const Chunk& chunk, uint32_t first, uint32_t count) {
  auto bad = std::ranges::lower_bound(chunk.bad, first, {}, &BadRecord::row);
  for (; bad != chunk.bad.end() && bad->row - first < count; ++bad) {
    end_.bad += bad->audit.as_stored;
    end_.lost += bad->audit.lost;
    if (bad->audit.as_computed != bad->audit.as_stored && end_.doubts.size() <= doubts_tried)
      end_.doubts.push_back(bad->audit.as_computed - bad->audit.as_stored);
  }
}

void Assembler::fail(const ChunkRef& chunk, const Error& error, Out& out) {
  failed_ = true;
  emit_marker(BatchRows::Kind::failure, chunk, std::make_shared<const Error>(error), out);
}

void Assembler::emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error, Out& out) {
  end_.epoch = step_.epoch;
  if (arriving_) end_.counted = chunk->ticket.audit;
  auto step = std::make_shared<StepRows>();
  step->finished = finish();
  if (failed_)
    for (Held& held : std::exchange(chunks_, {})) step->finished.push_back(std::move(held.chunk));
  for (auto& of_replica : out)
    of_replica.push_back({.kind = kind,
                          .epoch = step_.epoch,
                          .step = static_cast<uint64_t>(step_.step),
                          .of_step = step,
                          .brought_by = chunk,
                          .error = error,
                          .end = end_});
  end_ = {};
}

}  // namespace feedline::flow
