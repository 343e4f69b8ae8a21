// The oneTBB flow graph that carries out a plan.
//
// kick -> [read] ~> I/O thread ~> [inflate]? -> [parse] -> [in order] -> [assemble] -> [unpack r] -> Delivery -> next()
//   ^                                                                                     |  ^                     |
//   +---- slots: when the last row of a chunk is written ---------------------------------+  |                     |
//                                             output buffers: when a batch is released ------+---------------------+
//
// Messages are handles: a chunk, the batches that a chunk completes, or an empty kick. A kick says that a slot (the
// memory of a chunk) or an output buffer is free again. The pools of slots and output buffers bound everything
// (backpressure). Only three kinds of messages go backwards: the two kicks, and a kick by which [assemble] tells [read]
// that the next step needs more chunks. For a GPU the batches are packed (flowgraph/batch/packing.h), and an Upload
// unpacks them there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "feedline/batch.h"
#include "feedline/counters.h"
#include "feedline/io_options.h"
#include "feedline/stage_report.h"
#include "flowgraph/chunk/cache_store.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

struct GraphOptions {
  // Indexed by the number of a replica in the plan: the device to which this replica's batches are copied later. The
  // graph makes the batches in host memory.
  std::vector<DeviceId> copied_to;
  IoOptions io;
  Walk::Start start = {};
  bool deliver_before_error = false;
  CacheStore* cache = nullptr;  // must outlive the graph; null if the plan has no cache
};

/// Runs a feed from its construction to its destruction. A Graph may be destroyed at any moment. Then no thread, file
/// descriptor or memory stays in use, except the memory of batches that the program still holds.
class Graph {
 public:
  /// Keeps a reference to the plan. Throws Error if memory, threads or the read backend cannot be obtained.
  Graph(const Plan& plan, const GraphOptions& options);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Delivery& delivery() noexcept;

  /// Lets no stage begin new work, and makes every next() throw Error stalled. May be called from any thread.
  void stop() noexcept;

  /// With index.mode LAZY, returns the indexes of all files once an epoch has ended. Otherwise returns null.
  const std::vector<io::FileIndex>* counted() const noexcept;

  std::string backend() const;
  /// Adds to `counters` how many bytes were read since the start, and how many records were parsed, were bad, and were
  /// found in the cache. The numbers are exact only while no stage runs.
  void add_to(Counters& counters) const;
  std::vector<StageReport> stages() const;
  /// Returns the errors of the first bad records, at most ErrorLog::kept.
  std::vector<Error> errors() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::flow
