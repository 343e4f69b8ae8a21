#include "flowgraph/assemble.h"

#include <algorithm>

namespace feedline::flow {

Assembler::Assembler(const Plan& plan, const Walk::Start& start, bool deliver_before_error)
    : plan_(plan), deliver_before_error_(deliver_before_error), walk_(plan, start, true) {
  end_.first_step = start.step;
  if (plan.data.lazy)
    arriving_.emplace(plan.steps, start.epoch);
  else
    walk_.next(step_, nullptr);
}

void Assembler::add(const ChunkRef& chunk, Out& out) {
  if (failed_) return;
  chunks_.push_back({.chunk = chunk, .has_filler = !chunk->filler.empty()});
  cut_short_ = cut_short_ || chunk->first_error.has_value();
  if (arriving_) arriving_->add(*chunk);
  while (arriving_ ? arriving_->next(step_) : step_.tickets <= first_ticket_ + chunks_.size()) {
    if (!step_.ends_epoch)
      emit(chunk, out);
    else if (plan_.data.raised.empty())
      emit_marker(BatchRows::Kind::end_of_epoch, chunk, nullptr, out);
    else
      fail(chunk, plan_.data.raised.front(), out);
    if (failed_) return chunks_.clear();
    let_go();
    if (!arriving_) walk_.next(step_, nullptr);
  }
}

void Assembler::let_go() {
  for (const uint64_t ticket : step_.finished) chunks_[ticket - first_ticket_].chunk.reset();
  const auto first =
      std::find_if(chunks_.begin(), chunks_.end(), [](const Held& held) { return held.chunk != nullptr; });
  first_ticket_ += static_cast<uint64_t>(first - chunks_.begin());
  chunks_.erase(chunks_.begin(), first);
}

void Assembler::emit(const ChunkRef& newest, Out& out) {
  const auto bad =
      std::find_if(cut_short_ ? step_.rows.begin() : step_.rows.end(), step_.rows.end(),
                   [&](const TicketRows& rows) { return rows.first + rows.count > chunk_of(rows)->rows(); });
  if (bad != step_.rows.end()) {
    const Chunk& chunk = *chunk_of(*bad);
    bad->count = chunk.rows() - std::min(chunk.rows(), bad->first);
    step_.rows.erase(bad + (bad->count > 0 ? 1 : 0), step_.rows.end());
    if (deliver_before_error_) emit_unfinished(out);
    return fail(newest, *chunk.first_error, out);
  }
  if (step_.kind != Steps::Kind::dropped) {
    for (int replica = 0; replica < plan_.replicas; replica++)
      emit_batch(replica, steps().of_replica(step_.kind, replica), out);
  } else if (plan_.data.raised.empty()) {
    note_dropped();
  } else if (deliver_before_error_) {
    emit_unfinished(out);
  }
}

// The rows of a step that cannot be made whole, shared evenly.
void Assembler::emit_unfinished(Out& out) {
  int64_t rows_so_far = 0;
  const int64_t first = step_.rows.empty() ? 0 : step_.rows.front().at;
  for (TicketRows& rows : step_.rows) {
    rows.at = plan_.frames > 1 ? rows.at - first : rows_so_far;
    rows_so_far = rows.at + rows.count;
  }
  const int64_t samples = rows_so_far / plan_.frames;
  if (samples == 0) return;
  for (int replica = 0; replica < plan_.replicas; replica++)
    emit_batch(replica, {samples * replica / plan_.replicas, samples * (replica + 1) / plan_.replicas}, out);
}

// Places without a sample repeat the row before them, or else the one behind; a batch has one row at least.
void Assembler::emit_batch(int replica, const Rows& samples, Out& out) {
  const Rows wanted{samples.first * plan_.frames, samples.last * plan_.frames};
  BatchRows batch{.kind = BatchRows::Kind::batch,
                  .epoch = step_.epoch,
                  .step = static_cast<uint64_t>(step_.step),
                  .rows = std::max(plan_.frames, wanted.count()),
                  .runs = {},
                  .chunks = {},
                  .error = {},
                  .end = {}};
  batches_++;
  const auto add = [&](const TicketRows& rows, uint32_t first, int64_t count, bool padding, int64_t at) {
    Held& held = chunks_[rows.ticket - first_ticket_];
    if (held.batch != batches_) {
      held.batch = batches_;
      batch.chunks.push_back(held.chunk);
    }
    batch.runs.push_back({held.chunk.get(), first, static_cast<uint32_t>(count), padding, held.has_filler, at});
    if (!padding && held.has_filler) note_bad(*held.chunk, first, static_cast<uint32_t>(count));
  };
  auto rows = std::upper_bound(step_.rows.begin(), step_.rows.end(), wanted.first,
                               [](int64_t at, const TicketRows& r) { return at < r.at + r.count; });
  batch.runs.reserve(std::min(static_cast<size_t>(step_.rows.end() - rows), static_cast<size_t>(batch.rows)));
  int64_t at = 0;
  const auto pad_until = [&](int64_t end) {
    if (at >= end) return;
    const TicketRows& nearest = rows == step_.rows.begin() ? *rows : rows[-1];
    add(nearest, rows == step_.rows.begin() ? nearest.first : nearest.first + nearest.count - 1, end - at, true, at);
    at = end;
  };
  for (; rows != step_.rows.end() && rows->at < wanted.last; ++rows) {
    const int64_t first = std::max(wanted.first, rows->at), last = std::min(wanted.last, rows->at + rows->count);
    pad_until(first - wanted.first);
    add(*rows, rows->first + static_cast<uint32_t>(first - rows->at), last - first, false, at);
    at += last - first;
  }
  pad_until(batch.rows);
  out[static_cast<size_t>(replica)].push_back(std::move(batch));
}

void Assembler::note_dropped() {
  for (const TicketRows& rows : step_.rows) {
    const Chunk& chunk = *chunk_of(rows);
    for (uint32_t row = rows.first; row < rows.first + rows.count; row++)
      if (!std::binary_search(chunk.filler.begin(), chunk.filler.end(), row)) end_.dropped += chunk.audit_terms()[row];
    note_bad(chunk, rows.first, rows.count);
  }
}

// Those of the rows that became filler.
void Assembler::note_bad(const Chunk& chunk, uint32_t first, uint32_t count) {
  const auto begin = chunk.filler.begin(), end = chunk.filler.end();
  for (auto row = std::lower_bound(begin, end, first); row != end && *row - first < count; ++row) {
    const BadTerm& bad = chunk.bad_terms[static_cast<size_t>(row - begin)];
    end_.bad += bad.as_stored;
    end_.lost += bad.lost;
    if (bad.as_computed != bad.as_stored && end_.doubts.size() <= EpochLedger::doubts_tried)
      end_.doubts.push_back(bad.as_computed - bad.as_stored);
  }
}

void Assembler::fail(const ChunkRef& chunk, const Error& error, Out& out) {
  failed_ = true;
  emit_marker(BatchRows::Kind::failure, chunk, std::make_shared<const Error>(error), out);
}

void Assembler::emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error, Out& out) {
  end_.epoch = step_.epoch;
  if (arriving_) end_.counted = chunk->ticket.audit;
  for (auto& of_replica : out)
    of_replica.push_back({.kind = kind,
                          .epoch = step_.epoch,
                          .step = static_cast<uint64_t>(step_.step),
                          .rows = 0,
                          .runs = {},
                          .chunks = {chunk},
                          .error = error,
                          .end = end_});
  end_ = {};
}

}  // namespace feedline::flow
