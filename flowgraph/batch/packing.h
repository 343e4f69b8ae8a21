// Packed batches: the form in which batches are sent between ranks and copied to GPUs. Rows are packed as records store
// them, and unpacked where they arrive. For example, 194 bytes of bit planes are sent as 194 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/table/table.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// A second pipeline, made from the original one. Its outputs are the columns from which the original outputs are
/// unpacked. So an original batch can be made from nothing but a packed batch, on another rank or on a GPU. Outputs
/// that are not dense (ragged values, strings) are the same in both pipelines.
struct Packing {
  struct Job {
    int column = -1;            // index into spec.outputs
    unpack::UnpackSpec unpack;  // unpacks one value of the column
    size_t values = 1;          // the number of values in a row of the column; they are written one after another
    size_t offset = 0;          // bytes from the beginning of a row of the output
    // For a lookup, an index into spec.tables: the column has numbers of the table's rows (Table::arrival_number()),
    // and these rows are unpacked.
    std::optional<size_t> table = std::nullopt;
  };
  struct Output {
    int passed_through = -1;  // not dense: index into spec.outputs
    std::vector<Job> jobs;    // dense: how the output is unpacked; an internal output has no jobs
  };
  PipelineSpec spec;            // the second pipeline
  std::vector<Output> outputs;  // for each output of the original pipeline
};
Packing pack(const PipelineSpec& spec);

/// Makes batches from packed batches. Both are in one buffer: first the packed tensors, then the unpacked ones. A
/// tensor that needs no unpacking is one of the packed tensors. Immutable.
class PackedBatches {
 public:
  /// `facts` must be the facts of a plan of pack(spec).spec. Keeps no reference to either. `tables` are the tables of
  /// the pipeline; only unpack() needs them. Throws Error bad_pipeline if a batch has more than most_batch_bytes.
  PackedBatches(const PipelineSpec& spec, const FeedFacts& facts, Tables tables = {});

  uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  /// Returns the maximum number of rows of a batch, where a window counts as one row.
  int64_t rows() const noexcept { return rows_ / frames_; }
  /// Returns how many bytes the packed tensors take at the beginning of a buffer.
  uint64_t packed_bytes() const noexcept { return packed_bytes_; }
  /// Returns the packed tensors of a buffer, as FeedFacts::tensors has them. Their shapes in a batch are known only to
  /// the code that fills the buffer.
  const std::vector<BatchTensor>& packed() const noexcept { return packed_; }

  /// Returns the content of a buffer that begins at `memory`: names, dtypes and addresses of its tensors.
  BatchContent content(std::byte* memory) const;
  /// Returns whether a batch of `rows` samples can have packed tensors of these shapes. They then fit into a buffer.
  bool can_have(const std::vector<Shape>& packed, int64_t rows) const noexcept;
  /// Throws Error bad_pipeline unless the content that the rank `from` sent for the packed tensors of a buffer can be
  /// used: offsets and splits ascend from 0 to the number of elements that they divide, a BOOL is 0 or 1, and tables
  /// have the rows that are named. Precondition: can_have(packed, rows).
  void check_arrived(const std::byte* memory, const std::vector<Shape>& packed, int64_t rows, int from) const;
  /// Sets the shapes of all tensors, from the shapes of the packed tensors and content.rows.
  void set_shapes(const std::vector<Shape>& packed, BatchContent& content) const;
  /// Unpacks the packed tensors of a buffer in host memory into its other tensors. Precondition: the rows of tables lie
  /// in memory of the host. Works on blocks of rows in parallel in the calling thread's arena.
  void unpack(BatchBuffer& buffer) const;

  /// Says how the rows of a column are unpacked into a tensor, or into a part of each row of a tensor. Here each value
  /// of each frame of a sample is a row.
  struct Job {
    size_t column = 0, column_stride = 0;  // index into packed(); bytes from row to row
    uint64_t offset = 0;                   // where in the buffer it writes its first element
    size_t stride = 0;                     // bytes from row to row, in the tensor
    int64_t rows = 1;                      // the number of rows for each sample of the batch
    unpack::UnpackSpec spec;
    std::optional<size_t> table = std::nullopt;  // for a lookup: index into the pipeline's tables
  };
  const std::vector<Job>& jobs() const noexcept { return jobs_; }
  /// Throws Error bad_pipeline if the job's column has the number of a row that the job's table does not have. The
  /// column lies at the address `column`; the rank `from` has sent it for a batch of `rows` samples.
  void check_table_rows(const Job& job, const std::byte* column, int64_t rows, int from) const;
  /// Returns the TableSpec of a job's table. Precondition: the job has a table.
  const TableSpec& table_of(const Job& job) const { return table_specs_[*job.table]; }

  /// Says how an output is made, for messages. If `stored` is true, the output is the packed column `column`,
  /// unchanged. Otherwise it is unpacked from that column (if from several columns, `column` is the first of them) or,
  /// if `table` is not empty, from rows of the table in the file `table`.
  struct Origin {
    std::string name, column;
    bool stored;
    std::string table = {};
  };
  const std::vector<Origin>& origins() const noexcept { return origins_; }

 private:
  struct Tensor {
    std::string name;
    DType dtype = DType::unset;
    Shape shape = {};     // dense: the shape of one row
    bool dense = false;   // false: the tensor has the shape of its column
    size_t column = 0;    // index into packed_: the column that is the tensor, or from which it is unpacked
    bool stored = true;   // the column is the tensor
    uint64_t offset = 0;  // not stored: offset of the tensor in the buffer
  };
  void add(const OutputSpec& output, const Packing::Output& packed);
  size_t column_of(int output) const;

  std::vector<BatchTensor> packed_;
  std::vector<Tensor> tensors_;
  std::vector<Origin> origins_;
  std::vector<Job> jobs_;
  std::vector<unpack::Unpacker> unpackers_;  // one for each job
  std::vector<TableSpec> table_specs_;
  Tables tables_;
  int64_t frames_, rows_;
  bool windows_;
  uint64_t packed_bytes_, buffer_bytes_;
  int64_t rows_per_task_ = 1;
};

}  // namespace feedline::flow
