// The memory of a feed on one rank: every count and every byte, computed before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mul_div.h"
#include "flowgraph/plan/row_writers.h"
#include "flowgraph/plan/schedule.h"

namespace feedline::flow {

/// The alignment, in bytes, of the tensors in a batch buffer, which is what DLPack asks for. Threads of a GPU that
/// write neighbouring elements then write whole cache lines.
inline constexpr uint64_t tensor_alignment = 256;

/// The maximum number of bytes of a batch. It is far beyond any memory, but so small that the bytes of any number of
/// batches can be added up in 64 bits.
inline constexpr uint64_t most_batch_bytes = uint64_t{1} << 44;

/// One tensor of a batch buffer.
struct BatchTensor {
  /// The part of its output that the tensor holds. A dense output is one tensor, `dense`; a variable output is several.
  enum class Part : uint8_t { dense, padded, values, bytes, offsets, step_splits, row_splits, valid };
  std::string name;  // "board"; "tags.values"; "@valid"
  Part part = Part::dense;
  int output = -1;  // index in PipelineSpec::outputs; -1: the valid mask
  DType dtype = DType::unset;
  Shape shape;            // dense: the shape of a row; padded: of one step of the row's sequence; else: of a value
  uint64_t offset = 0;    // bytes from the beginning of the buffer, a multiple of tensor_alignment
  uint64_t capacity = 0;  // bytes

  /// Returns the bytes of a row of a dense tensor.
  size_t row_bytes() const noexcept { return static_cast<size_t>(shape.elements()) * size_of(dtype); }
};

/// Returns the tensors of a pipeline's batches in the order in which they lie in a buffer, without offsets and
/// capacities.
std::vector<BatchTensor> tensors_of(const PipelineSpec& spec);

/// Returns how many batch buffers of `batch_bytes` bytes a replica has if the pipeline does not say how many batches to
/// prefetch, and memory.limit allows that many. There are many buffers if batches are small, so that the feed rarely
/// wakes a thread while the trainer is slow.
uint64_t most_batches_ahead(uint64_t batch_bytes) noexcept;

/// A line of what `check` prints as the memory plan.
struct MemoryLine {
  std::string what;
  uint64_t count = 1;
  uint64_t bytes = 0;  // bytes of one of the `count` things
};

/// The graph works in two kinds of memory, both allocated once. A slot holds one chunk, that is, some neighbouring
/// records of a file, while it is read, parsed and written into batches; its arena holds the columns that parsing
/// makes. A batch buffer holds the finished tensors of one replica for one step.
struct MemoryPlan {
  /// Plans the bytes of a slot and of a batch. fit() then chooses the numbers of slots and batches.
  explicit MemoryPlan(const Schedule& schedule);

  /// Chooses as many slots and batches as memory.limit allows. `writers` and `tables` are the feed's, and `more` is the
  /// memory that the feed takes outside of the graph. Throws Error bad_pipeline if memory.limit is too small.
  void fit(const Schedule& schedule, const RowWriters& writers, const Tables& tables,
           const std::vector<MemoryLine>& more);

  uint64_t step_chunks = 0;  // the maximum number of chunks in use at once (Schedule::chunks_of_step())
  uint32_t slots = 0;
  // The slots in use while all reads come from the page cache: few, so that their memory stays in the CPU's caches.
  uint32_t slots_of_page_cache = 0;
  // The maximum number of chunks that are read in addition to the chunks that the next step needs. The first number
  // holds while reads come from the page cache, the second while they come from a disk.
  uint64_t read_ahead = 0, read_ahead_of_disk = 0;
  uint64_t slot_data_bytes = 0;   // of each slot: room for the bytes as they are read
  uint64_t slot_arena_bytes = 0;  // of each slot: room for the columns that parsing makes
  uint32_t buffers_per_replica = 0;
  std::vector<BatchTensor> tensors;
  uint64_t buffer_bytes = 0;  // of each batch buffer
  bool lends = false;         // a batch is one row, and its tensors may point into the slot, to save a copy
  // The number of file inflaters (0: there is no compressed file), and of those that may be open for more chunks.
  uint32_t inflaters = 0, open_inflaters = 0;
  uint64_t scratch_bytes = 0;  // scratch memory of each thread for row writers (flowgraph/rows/row_writer.h)
  std::vector<MemoryLine> lines;

  /// Returns the maximum number of chunks whose slots stay in use because tensors of batches point into them: one for
  /// each batch buffer if `lends`, otherwise 0.
  uint64_t lent_chunks(int replicas) const noexcept {
    return lends ? static_cast<uint64_t>(replicas) * buffers_per_replica : 0;
  }
  uint64_t bytes() const noexcept;

 private:
  void plan_slots(const Schedule& schedule);
  void plan_outputs(const Schedule& schedule);
};

}  // namespace feedline::flow
