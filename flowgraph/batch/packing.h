// What travels in place of a batch's tensors: its rows as they are stored. For example, 194 bytes of bit planes travel
// as 194 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "gpu/unpack/unpack.h"

namespace feedline::flow {

/// A second form of a feed, which delivers rows as they are stored. Its outputs are the columns from which the outputs of
/// the original feed are unpacked, so a batch of the original can be made from a packed batch alone, on another rank or
/// on a GPU. Outputs that are not dense (ragged values, strings) are delivered unchanged by both forms.
struct Packing {
  struct Job {
    int column = -1;         // index into spec.outputs
    gpu::UnpackSpec unpack;  // unpacks one value of that column
    size_t values = 1;       // in a row of it; they are written one after another
    size_t offset = 0;       // bytes from the beginning of a row of the output
  };
  struct Output {
    int passed_through = -1;  // not dense: index into spec.outputs
    std::vector<Job> jobs;    // dense: what unpacks it; an internal output has none
  };
  PipelineSpec spec;
  std::vector<Output> outputs;  // by number of the feed's output
};
Packing pack(const PipelineSpec& spec);

/// Makes batches from packed batches. Both are in one buffer: first the packed tensors, then the unpacked ones. A
/// tensor that is delivered as it is stored is one of the packed tensors. Immutable.
class PackedBatches {
 public:
  /// `facts` must be those of a plan of pack(spec).spec. Keeps neither argument.
  PackedBatches(const PipelineSpec& spec, const FeedFacts& facts);

  uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  /// Returns how many rows a batch has at most.
  int64_t rows() const noexcept { return rows_ / frames_; }
  /// Returns how many bytes the packed tensors take at the beginning of a buffer.
  uint64_t packed_bytes() const noexcept { return packed_bytes_; }
  /// Returns the packed tensors of a buffer, as FeedFacts::tensors has them. Their shapes in a batch are known only to
  /// the code that fills the buffer.
  const std::vector<BatchTensor>& packed() const noexcept { return packed_; }

  /// Returns the content of a buffer that begins at `memory`: names, dtypes and addresses of its tensors.
  BatchContent content(std::byte* memory) const;
  /// Sets the shapes of all tensors, from the shapes of the packed tensors and content.rows.
  void set_shapes(const std::vector<Shape>& packed, BatchContent& content) const;
  /// Makes the other tensors of a buffer in host memory from its packed tensors. Works on blocks of rows in parallel in
  /// the calling thread's arena.
  void unpack(BatchBuffer& buffer) const;

  /// How the rows of a column are unpacked into a tensor, or into a part of each row of a tensor. There is one row for
  /// each row of the batch, frame and value.
  struct Job {
    size_t column = 0, column_stride = 0;  // index into packed(); bytes from row to row
    uint64_t offset = 0;                   // where in the buffer it writes its first element
    size_t stride = 0;                     // bytes from row to row, in the tensor
    int64_t rows = 1;                      // how many for each row of the batch
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
    Shape shape = {};     // dense: of one row
    bool dense = false;   // false: it has the shape of its column
    size_t column = 0;    // index into packed_: the column in which it lies, or from which it is unpacked
    bool stored = true;   // it lies in the column
    uint64_t offset = 0;  // not stored: where it lies in the buffer
  };
  void add(const OutputSpec& output, const Packing::Output& packed);
  size_t column_of(int output) const;
  size_t column_row_bytes(size_t column) const;

  std::vector<BatchTensor> packed_;
  std::vector<Tensor> tensors_;
  std::vector<Origin> origins_;
  std::vector<Job> jobs_;
  std::vector<gpu::Unpacker> unpackers_;  // one for each job
  int64_t frames_, rows_;
  bool windows_;
  uint64_t packed_bytes_, buffer_bytes_;
  int64_t rows_per_task_ = 1;
};

}  // namespace feedline::flow
