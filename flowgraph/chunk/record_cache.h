// Caches the records of chunks: copies the records that are in the cache into the slot of a chunk, and puts records
// that were read into the cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "flowgraph/chunk/cache_store.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/plan/plan.h"

namespace feedline::flow {

/// Looks tickets up in a store, piece by piece (flowgraph/data/file_pieces.h). Thread-safe; a chunk belongs to the
/// thread that passes it to a method.
class RecordCache {
 public:
  /// Keeps references to `plan` and `store`. Precondition: the plan's cache is one of records, not of pictures.
  RecordCache(const Plan& plan, io::EntryStore& store) : plan_(plan), store_(store) {}

  /// Returns whether all pieces of a ticket are in the store. Pieces on a disk may still turn out to be damaged.
  bool has(const Ticket& ticket) const noexcept;

  /// A part of an extent that was not found.
  struct Missing {
    size_t extent = 0;                // its index in the ticket
    uint64_t offset = 0, length = 0;  // bytes of the file, or of its inflated stream
  };
  /// Copies the pieces that are found in the store to their places in the chunk, and returns what is missing.
  /// Precondition: Chunk::extents is set.
  std::vector<Missing> fetch(Chunk& chunk);
  /// Counts all rows of a ticket as not found, without looking them up.
  void count_missing(const Ticket& ticket) noexcept { not_found_ += ticket.rows; }

  /// Puts into the store those pieces of a chunk that the plan has chosen for it and that are not in it yet. Each piece
  /// is first verified as a whole. A piece with a bad record is not stored: it is read again in every epoch.
  /// Precondition: all bytes of the chunk are in memory.
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
