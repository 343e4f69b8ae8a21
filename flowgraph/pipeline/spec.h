// A pipeline after validation: plain values, defaults filled in, nothing left to refuse but what only the data can
// tell.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "feedline/pipeline.h"
#include "feedline/records.h"
#include "feedline/tensor.h"
#include "flowgraph/formula/expression.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/pipeline/file_list.h"
#include "gpu/unpack/unpack_spec.h"
#include "io/index/index.h"

namespace feedline::flow {

enum class FeatureKind : uint8_t { fixed, variable, fixed_sequence, ragged };

struct FeatureSpec {
  std::string name;            // what outputs and formulas call it
  std::string key;             // in the record: bytes
  DType dtype = DType::unset;  // bytes, float32 or int64
  FeatureKind kind = FeatureKind::fixed;
  Shape shape;              // fixed: of the values; fixed_sequence: of one step
  int64_t length = -1;      // bytes: of every value; -1: any
  int64_t max_values = -1;  // variable, ragged, fixed_sequence: more in a record are wrong_count; -1: any number

  // fixed: for a record without it: as many as shape has elements, or none: then it must be there.
  // fixed_sequence: one padding value (0 or empty where the pipeline names none).
  std::vector<float> default_floats;
  std::vector<int64_t> default_ints;
  std::vector<std::string> default_bytes;
  bool has_default = false;
};

enum class RecordType : uint8_t { example, raw };

enum class IndexMode : uint8_t { build, require, lazy };

struct IndexSpec {
  IndexMode mode = IndexMode::build;
  std::string dir;  // absolute; empty: beside the data, or in the user's cache folder
  uint64_t stride = io::default_stride;
  bool given = false;  // the pipeline speaks of it: then indexes of small files are kept, too
};

/// One end of a range of records: a number, or a part of them.
struct RangeEnd {
  static constexpr uint64_t all = 100'000'000;
  uint64_t value = 0;  // or millionths of a per cent
  bool percent = false;
};

struct SourceSpec {
  std::string name;
  std::vector<std::string> files;  // absolute; globs expanded, sorted within a glob, excludes gone; each at most once
  Compression compression = Compression::automatic;
  RecordType record_type = RecordType::example;
  uint64_t record_limit = io::default_record_limit;
  IndexSpec index;
  RangeEnd begin, end{RangeEnd::all, true};
  uint32_t num_shards = 1, shard_id = 0;
};

/// @record @file @offset @source, all int64. For the filter only: the row's audit term times its file's key
/// (base/audit.h); and a number for a feature's value, of INT64 itself, of BYTES hash64().
enum class Reserved : uint8_t { record, file, offset, source, audit, value };

/// A column of a chunk from which dense outputs are made.
struct ColumnRef {
  enum class Kind : uint8_t { feature, expression, reserved };
  Kind kind = Kind::feature;
  int number = -1;                   // in PipelineSpec::features or ::expressions; reserved: the feature of `value`
  Reserved what = Reserved::record;  // of kind reserved
};

/// Unpacks a column into each row of a dense output, or into a part of each row.
struct DenseJob {
  ColumnRef column;
  /// Unpacks one value. A value is the bytes of a bytes feature; otherwise all numbers of a record, as they lie in memory.
  gpu::UnpackSpec unpack;
  size_t values = 1;  // of a record; they are written one after another
  size_t offset = 0;  // bytes from the beginning of a row
};

/// An output is either dense, and written by `jobs`, or it passes a feature through whose size varies from record to
/// record.
struct OutputSpec {
  std::string name;
  DType dtype = DType::unset;  // of the tensor; bytes: NAME.bytes and NAME.offsets
  Shape shape;                 // of a row; of one value where variable
  std::vector<DenseJob> jobs;  // one, or one for each feature of a stack
  // Not dense:
  int feature = -1;
  std::optional<gpu::UnpackSpec> unpack_value;  // of a single number of it: cast and normalize
  bool variable = false;  // NAME.values and NAME.row_splits, or NAME.bytes, NAME.offsets and NAME.row_splits
  bool padded = false;    // fixed_sequence: [rows, longest of the batch, shape...]
  bool internal = false;

  bool dense() const noexcept { return !jobs.empty(); }
  uint64_t row_bytes() const noexcept { return static_cast<uint64_t>(shape.elements()) * size_of(dtype); }
};

/// Formulas, in an order in which each needs only those before it.
struct ExpressionSpec {
  std::string output;
  Program program;
  struct Input {
    // A scalar int64 feature (an int64 column), or float32 feature (widened to float64); or what another output
    // delivers, as float64: unpacked by `unpack` from a feature, or an expression's value rounded to `dtype`.
    int feature = -1;
    int expression = -1;
    std::optional<gpu::UnpackSpec> unpack;  // its `out` is `dtype`
    DType dtype = DType::unset;             // of the other output
  };
  std::vector<Input> inputs;  // as program.inputs()
};

/// Of the files of a pass, as tf.data's: one after another, unless `cycle_length` is greater than 1.
struct InterleaveSpec {
  uint32_t cycle_length = 1;
  uint64_t block_length = std::numeric_limits<uint64_t>::max();
  bool on() const noexcept { return cycle_length > 1; }
};

/// A sample is so many records, its frames: `size` of them, `stride` apart; the next begins `shift` behind its
/// beginning.
struct WindowSpec {
  int64_t size = 0, shift = 1, stride = 1;
  bool drop_remainder = true;  // else windows at the end of a file are short, and their missing frames filler
  bool across_files = false;
  std::string key;  // a feature: no window reaches across a change of its value; empty: none
};

enum class ShuffleMode : uint8_t { none, block, global, buffer };

struct ShuffleSpec {
  ShuffleMode mode = ShuffleMode::none;
  int64_t buffer_size = 0;
  uint64_t buffer_bytes = 0;  // in place of buffer_size, where it is not 0; samples that mix, of all lanes together
  uint64_t block_bytes = 256 << 10;
  uint64_t seed = 0;
  bool reshuffle_each_epoch = true;
  bool shuffle_files = false;  // BUFFER: the order of files, too
  int lanes = 0;               // 0: the largest divisor of the global batch up to 64
};

enum class MixtureStop : uint8_t { first_exhausted, all_exhausted, cycle_until_all, cycle_forever };

/// How the sources are mixed.
struct MixtureSpec {
  static constexpr uint32_t whole = (1 << 24) - 1;  // of the weights

  MixtureStop stop = MixtureStop::first_exhausted;
  std::vector<uint32_t> shares = {};  // of each source: its weight in parts of `whole`, at least one
  std::optional<Reweighted> reweighted = std::nullopt;
};
/// Throws Error bad_pipeline for weights that are not positive numbers, or too small a part of the whole.
std::vector<uint32_t> shares_of(const std::vector<double>& weights);

enum class LastBatchPolicy : uint8_t { drop, partial, pad };
enum class OnError : uint8_t { raise, skip_record, skip_file };
/// What is done about a feature that no record of the first epoch has.
enum class AbsentFeature : uint8_t { warn, error, ignore };

struct PipelineSpec {
  /// Of the samples, those are left for which this feed's output `filter` (float64) is not 0; its outputs `@file` and
  /// `@audit` say which row is which, and `@key`, where there is a window.key, when that changes. The text is all that
  /// it depends on beside the data. Null: neither filter nor key.
  std::shared_ptr<const PipelineSpec> filter;
  std::string filter_text;
  std::vector<SourceSpec> sources;
  std::vector<FeatureSpec> features;  // the raw record type has one: `record`
  std::vector<ExpressionSpec> expressions;
  std::vector<OutputSpec> outputs;  // in the pipeline's order, internal ones included
  InterleaveSpec interleave;
  std::optional<WindowSpec> window;
  std::optional<MixtureSpec> mixture;
  ShuffleSpec shuffle;
  int64_t repeat = 1;             // passes over the data in an epoch; -1 without end, as where there are epoch_steps
  int64_t epoch_steps = 0;        // not 0: an epoch is so many steps, wherever passes end
  bool allow_empty = false;       // an epoch may have no step
  int64_t global_batch_size = 0;  // this, or
  int64_t batch_size_per_replica = 0;
  LastBatchPolicy last_batch_policy = LastBatchPolicy::drop;
  std::string valid_mask;  // an output's name, or empty
  OnError on_error = OnError::raise;
  int64_t max_failures = -1;  // -1: any number
  double max_failure_rate = 1.0;
  AbsentFeature absent_feature = AbsentFeature::warn;
  uint64_t memory_limit = 0;  // bytes
  uint64_t device_limit = 0;  // bytes of each GPU; 0: what it has
  int threads = 0;            // 0: the CPUs this process may use, shared with the ranks of this machine
  std::vector<int> cpu_set;   // empty: any
  int host_prefetch = 2;
  bool more_small_batches = true;  // the pipeline does not say how many are prefetched
  int device_prefetch = 2;
  WrittenStages written_stages = {};

  std::vector<std::string> warnings;  // features that no output names, ...
};

/// Checks everything that can be told from the pipeline and the list of files. Throws Error bad_pipeline, naming the
/// field and what to write instead; fields that this version does not have are refused by name.
PipelineSpec validate(const Pipeline& pipeline, const ListFiles& list = list_files);

}  // namespace feedline::flow
