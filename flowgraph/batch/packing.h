// What travels in place of a batch's tensors: its rows as they are stored, 194 bytes of bit planes as 194 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "gpu/unpack/unpack.h"

namespace feedline::flow {

/// The same feed with other outputs: the columns from which its outputs are unpacked, so that whoever is given a batch of
/// these columns can make the feed's batch. An output that is not dense is an output of both.
struct Packing {
  struct Job {
    int column = -1;  // in spec.outputs
    DenseJob job;     // unpacks a row of that column; its own `column` is not set
  };
  struct Output {
    int passed_through = -1;  // not dense: in spec.outputs
    std::vector<Job> jobs;    // dense; none for an internal output
  };
  PipelineSpec spec;
  std::vector<Output> outputs;  // by output of the feed
};
Packing pack(const PipelineSpec& spec);

/// Packed batches -> batches, both in one buffer: the packed tensors, and behind them those that are unpacked. What is
/// delivered as it is stored lies among the packed ones. Immutable.
class PackedBatches {
 public:
  /// facts: of a plan of pack(spec).spec. Keeps neither.
  PackedBatches(const PipelineSpec& spec, const FeedFacts& facts);

  uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  /// Rows of a batch, at most.
  int64_t rows() const noexcept { return rows_ / frames_; }
  /// What the packed tensors take of it, at its beginning.
  uint64_t packed_bytes() const noexcept { return packed_bytes_; }
  /// The packed tensors of a buffer, as FeedFacts::tensors; their shapes are for whoever fills them to say.
  const std::vector<BatchTensor>& packed() const noexcept { return packed_; }

  /// Of a buffer: names, dtypes and places of its tensors.
  BatchContent content(std::byte* memory) const;
  /// From the shapes of the packed tensors, and content.rows: those of all tensors.
  void set_shapes(const std::vector<Shape>& packed, BatchContent& content) const;
  /// From the packed tensors of a buffer in host memory: the others. Blocks of rows side by side in the calling
  /// thread's arena.
  void unpack(BatchBuffer& buffer) const;

  /// Rows of a column into a tensor, or into a part of each of its rows: for each row of the batch, frame and value.
  struct Job {
    size_t column = 0, column_stride = 0;  // of packed(); bytes from row to row
    uint64_t offset = 0;                   // in the buffer, of the first element that it writes
    size_t stride = 0;                     // bytes from row to row
    int64_t rows = 1;                      // for each row of the batch
    gpu::UnpackSpec spec;
  };
  const std::vector<Job>& jobs() const noexcept { return jobs_; }

  /// Where each output comes from, for people: as it is stored, or unpacked from a column.
  struct Origin {
    std::string name, column;
    bool stored;
  };
  const std::vector<Origin>& origins() const noexcept { return origins_; }

 private:
  struct Tensor {
    std::string name;
    DType dtype = DType::unset;
    Shape shape = {};     // dense: of a row
    bool dense = false;   // else it has the shape of its column
    size_t column = 0;    // of packed_: where it lies, or that it is unpacked from
    bool stored = true;   // it lies there
    uint64_t offset = 0;  // not stored: in the buffer
  };
  void add(const OutputSpec& output, const Packing::Output& packed);
  size_t column_of(int output) const;
  size_t column_row_bytes(size_t column) const;

  std::vector<BatchTensor> packed_;
  std::vector<Tensor> tensors_;
  std::vector<Origin> origins_;
  std::vector<Job> jobs_;
  std::vector<gpu::Unpacker> unpackers_;  // of the jobs
  int64_t frames_, rows_;
  bool windows_;
  uint64_t packed_bytes_, buffer_bytes_;
  int64_t rows_per_task_ = 1;
};

}  // namespace feedline::flow
