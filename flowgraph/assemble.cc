#include "flowgraph/assemble.h"

#include <algorithm>

namespace feedline::flow {
namespace {

// The rows [first, first + count) of a list of runs.
std::vector<RowRun> cut(const std::vector<RowRun>& runs, int64_t first, int64_t count) {
  std::vector<RowRun> out;
  for (const RowRun& run : runs) {
    if (count == 0) break;
    if (first >= run.count) {
      first -= run.count;
      continue;
    }
    const auto taken = static_cast<uint32_t>(std::min<int64_t>(count, run.count - first));
    out.push_back({run.chunk, run.first + static_cast<uint32_t>(first), taken});
    count -= taken;
    first = 0;
  }
  return out;
}

}  // namespace

Assembler::Assembler(const Plan& plan, uint64_t first_epoch, bool deliver_before_error)
    : plan_(plan), deliver_before_error_(deliver_before_error), epoch_(first_epoch) {}

void Assembler::add(const ChunkRef& chunk, std::vector<std::vector<BatchRows>>& out) {
  if (failed_) return;
  for (uint32_t row = 0; row < chunk->rows();) {
    const auto taken =
        static_cast<uint32_t>(std::min<int64_t>(plan_.global_batch - pending_rows_, chunk->rows() - row));
    pending_.push_back({chunk, row, taken});
    pending_rows_ += taken;
    row += taken;
    if (pending_rows_ == plan_.global_batch) emit(pending_rows_, out);
  }

  const bool data_ends = chunk->ends_epoch && !plan_.data.raised.empty();
  if (chunk->first_error || data_ends) {
    if (deliver_before_error_ && pending_rows_ > 0) emit(pending_rows_, out);
    pending_.clear();
    failed_ = true;
    emit_marker(BatchRows::Kind::failure, chunk,
                std::make_shared<const Error>(chunk->first_error ? *chunk->first_error : plan_.data.raised.front()),
                out);
    return;
  }
  if (!chunk->ends_epoch) return;
  if (pending_rows_ > 0 && plan_.spec.last_batch_policy != LastBatchPolicy::drop) emit(pending_rows_, out);
  pending_.clear();
  pending_rows_ = 0;
  emit_marker(BatchRows::Kind::end_of_epoch, chunk, nullptr, out);
  epoch_++;
  step_ = 0;
}

void Assembler::emit(int64_t samples, std::vector<std::vector<BatchRows>>& out) {
  // Good rows before an error go out as they are: shared evenly, none repeated where there are enough.
  const LastBatchPolicy policy =
      plan_.spec.last_batch_policy == LastBatchPolicy::drop ? LastBatchPolicy::partial : plan_.spec.last_batch_policy;
  for (int replica = 0; replica < plan_.replicas; replica++) {
    const Share share = share_of(policy, samples, plan_.global_batch, replica, plan_.replicas);
    BatchRows batch{
        .kind = BatchRows::Kind::batch, .epoch = epoch_, .step = step_, .rows = share.rows, .runs = {}, .error = {}};
    batch.runs = cut(pending_, share.first, share.valid);
    if (share.rows > share.valid) {
      const RowRun& nearest = batch.runs.empty() ? pending_.back() : batch.runs.back();
      batch.runs.push_back(
          {nearest.chunk, nearest.first + nearest.count - 1, static_cast<uint32_t>(share.rows - share.valid), true});
    }
    out[static_cast<size_t>(replica)].push_back(std::move(batch));
  }
  pending_.clear();
  pending_rows_ = 0;
  step_++;
}

void Assembler::emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error,
                            std::vector<std::vector<BatchRows>>& out) {
  for (auto& of_replica : out)
    of_replica.push_back(
        {.kind = kind, .epoch = epoch_, .step = step_, .rows = 0, .runs = {{chunk, 0, 0}}, .error = error});
}

}  // namespace feedline::flow
