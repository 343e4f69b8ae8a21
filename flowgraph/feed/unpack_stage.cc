#include "flowgraph/feed/unpack_stage.h"

#include <algorithm>
#include <iterator>

#include "base/mutex.h"

namespace feedline::flow {

void UnpackStage::add(std::vector<BatchRows>&& batches) {
  std::ranges::move(batches, std::back_inserter(waiting_));
  run();
}

void UnpackStage::run() {
  begin_batches();
  deliver_done();
  if (!waiting_.empty() && pending_.empty()) delivery_.out_of_buffers(replica_);
}

void UnpackStage::begin_batches() {
  for (; !waiting_.empty() && !ended_; waiting_.pop_front()) {
    if (waiting_.front().kind != BatchRows::Kind::batch) {
      pending_.emplace_back(std::move(waiting_.front()), *this, nullptr);
      continue;
    }
    const auto buffer = ring_->pool().take();
    if (!buffer) return;
    pending_.emplace_back(std::move(waiting_.front()), *this, *buffer);
    outlets_.write(&pending_.back());
  }
}

void UnpackStage::write(Pending& batch) {
  std::vector<BadRecord> failed = writer_.write(batch.rows, *batch.buffer);
  const std::shared_ptr<StepOutcome> outcome = batch.rows.outcome;
  if (outcome && !failed.empty()) {
    const Lock lock(outcome->mutex);
    std::move(failed.begin(), failed.end(), std::back_inserter(outcome->failed));
  }
  batch.done = true;  // from here on another thread may deliver and destroy `batch`
  if (!outcome) return outlets_.run(replica_);
  if (--outcome->unwritten > 0) return;
  for (int replica = 0; replica < plan_.replicas; replica++) outlets_.run(replica);
}

void UnpackStage::deliver_done() {
  std::vector<Ready> done;
  for (; !ended_ && !pending_.empty() && pending_.front().done; pending_.pop_front()) {
    Pending& next = pending_.front();
    if (next.rows.outcome && !settled(next, done)) break;
    done.push_back({.error = next.rows.error, .keeps = next.rows.brought_by, .end = std::move(next.rows.end)});
    if (next.buffer) {
      done.back().passes = next.buffer->passes;
      done.back().batch = ring_->share(next.buffer);
    }
    counters_.waiting--;
  }
  if (done.empty()) return;
  delivery_.put_all(replica_, done);
  wait_for_many_buffers();
}

// Returns whether the batch can be delivered: all batches of its step are written, and their bad rows are allowed. If
// the bad rows are not allowed, adds the Error that ends the feed to `done`.
bool UnpackStage::settled(Pending& batch, std::vector<Ready>& done) {
  StepOutcome& outcome = *batch.rows.outcome;
  if (outcome.unwritten > 0) return false;
  bad_records_.settle(outcome);
  if (!outcome.end) return true;
  ended_ = true;
  outlets_.end();
  if (deliver_before_error_) {
    if (const auto shorter = rows_before(outcome.end_row, batch.rows, replica_, plan_)) {
      writer_.write(*shorter, *batch.buffer);
      done.push_back({.batch = ring_->share(batch.buffer), .passes = batch.buffer->passes});
    }
  }
  done.push_back({.error = std::make_shared<const Error>(*outcome.end)});
  return false;
}

// As long as every replica has batches ready, makes the pool notify this stage only when many buffers are free. If any
// replica has no ready batch, one free buffer must be enough again. If that is so already, the last line of this
// function sees to it. If it becomes so later, the function that was given to Delivery::on_shortage() does.
void UnpackStage::wait_for_many_buffers() {
  const size_t size = ring_->pool().size(), others = size - std::min<size_t>(ring_->held + 1, size);
  ring_->pool().set_enough(std::max<size_t>(1, others / 2));
  if (delivery_.shortage()) ring_->pool().set_enough(1);
}

}  // namespace feedline::flow
