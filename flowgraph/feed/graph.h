// The oneTBB flow graph that carries out a plan.
//
//   kick -> [read] ~~> I/O thread ~~> [inflate]? -> [parse] -> [in order] -> [assemble] -> [unpack r] -> Delivery ->
//   next(r)
//     ^                                                                          |             ^  |
//     +------------------- slots: when a chunk's last row is written ------------+-------------+  |
//                                  output buffers: when a batch is released ---------------------+
//
// Messages are handles: a chunk, the batches that a chunk completes, or an empty kick. Slots and output buffers bound
// everything; the two kicks are the only ways back, beside that of [assemble], which tells [read] that the steps have
// gone on. For a GPU they are batches of packed rows (flowgraph/batch/packing.h), which an Upload takes further.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "feedline/batch.h"
#include "feedline/io_options.h"
#include "feedline/stage_report.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

struct GraphOptions {
  std::vector<DeviceId> copied_to;  // by replica of the plan: where its batches are wanted; they are made on the host
  IoOptions io;
  Walk::Start start;
  bool deliver_before_error = false;
};

/// Counters since the start. Exact when nothing is running.
struct GraphReport {
  uint64_t bytes_read = 0;
  uint64_t layout_hits = 0;
  uint64_t parsed = 0;
  uint64_t errors_total = 0;
  std::vector<Error> errors;
  std::vector<StageReport> stages;
};

/// Runs from construction to destruction, which may come at any moment and leaves no thread, descriptor or slot behind.
class Graph {
 public:
  /// Keeps a reference to the plan. Throws Error where memory, threads or the read backend cannot be had.
  Graph(const Plan& plan, const GraphOptions& options);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Delivery& delivery() noexcept;

  /// Nothing new begins and every next() wakes; from any thread.
  void stop() noexcept;

  /// LAZY: of all files, once an epoch has ended; else null.
  const std::vector<io::FileIndex>* counted() const noexcept;

  std::string backend() const;
  GraphReport report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::flow
