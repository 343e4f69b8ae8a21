// Chunks that a cache of records keeps: what is found is copied into the slot, and what was read is kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "flowgraph/chunk/cache_store.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/plan/plan.h"

namespace feedline::flow {

/// Looks tickets up in a store, piece by piece. Thread-safe; a chunk belongs to the thread that calls with it.
class RecordCache {
 public:
  /// Keeps references to both. Precondition: the plan's cache is one of records.
  RecordCache(const Plan& plan, io::EntryStore& store) : plan_(plan), store_(store) {}

  /// Returns whether all pieces of a ticket are in the store. Those on a disk may still turn out to be damaged.
  bool has(const Ticket& ticket) const noexcept;

  /// A part of an extent that was not found.
  struct Missing {
    size_t extent = 0;                // its index in the ticket
    uint64_t offset = 0, length = 0;  // bytes of the file, or of its inflated stream
  };
  /// Copies the pieces that are found to where they belong, and returns what is missing. Precondition: Chunk::extents
  /// is set.
  std::vector<Missing> fetch(Chunk& chunk);
  /// Counts the rows of a ticket that is not looked up.
  void count_missing(const Ticket& ticket) noexcept { not_found_ += ticket.rows; }

  /// Keeps those pieces of a chunk that was read that are to be kept and are not there yet. Each is verified as a whole
  /// before: one with a bad record is read again in every epoch. Precondition: all bytes of the chunk are there.
  void keep(Chunk& chunk);

  /// Returns how many rows were found, and how many were not.
  uint64_t found() const noexcept { return found_; }
  uint64_t not_found() const noexcept { return not_found_; }

 private:
  const Plan& plan_;
  io::EntryStore& store_;
  std::atomic<uint64_t> found_{0}, not_found_{0};
};

}  // namespace feedline::flow
