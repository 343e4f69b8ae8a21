// The cache of a feed: its memory, and its store of entries, which lie in this memory or in a file.
#pragma once

#include <memory>

#include "flowgraph/plan/cache_plan.h"
#include "gpu/device/memory.h"
#include "io/cache/entry_store.h"

namespace feedline::flow {

/// Holds what a CachePlan has planned. It outlives the graphs of a feeder. So what was cached can still be used after
/// set_state() has replaced the graph.
class CacheStore {
 public:
  /// Allocates the memory, or opens the cache file and removes unused files of older runs that the new one replaces. If
  /// the plan's cache is off, or if the disk refuses, logs one line and has no store. Throws Error io_error if the
  /// system does not have this memory.
  explicit CacheStore(const CachePlan& plan);

  /// Null if nothing is cached.
  io::EntryStore* store() const noexcept { return store_.get(); }

 private:
  gpu::Memory memory_;
  std::unique_ptr<io::EntryStore> store_;
};

}  // namespace feedline::flow
