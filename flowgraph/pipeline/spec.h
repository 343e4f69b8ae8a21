// A pipeline after validation: plain values with the defaults filled in. Later stages refuse a pipeline only for
// reasons that depend on the data.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/pipeline.h"
#include "feedline/records.h"
#include "feedline/tensor.h"
#include "flowgraph/formula/expression.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/pipeline/file_list.h"
#include "flowgraph/rows/cache_spec.h"
#include "flowgraph/rows/row_spec.h"
#include "flowgraph/table/table_spec.h"
#include "io/index/index.h"
#include "unpack/unpack_spec.h"

namespace feedline::flow {

enum class FeatureKind : uint8_t { fixed, variable, fixed_sequence, ragged };

/// The map of a record in which a feature lies.
enum class Where : uint8_t {
  features,      // of an Example
  context,       // of a SequenceExample
  feature_list,  // the feature lists of a SequenceExample: a record has steps, and each step has values
};

struct FeatureSpec {
  std::string name;            // the name that outputs and formulas use
  std::string key;             // the key in the record, which is bytes
  DType dtype = DType::unset;  // bytes, float32 or int64
  FeatureKind kind = FeatureKind::fixed;
  Where where = Where::features;
  // For kind fixed: the shape of a record's values; in a feature list its first axis is the number of steps. For
  // fixed_sequence: the shape of one step.
  Shape shape;
  int64_t length = -1;    // for BYTES: the size of every value; -1: any size
  std::string length_of;  // the name of the output whose decode_raw sets `length`; empty: there is no such output
  // For the kinds variable, ragged and fixed_sequence: the maximum number of values in a record. For a variable or
  // ragged feature in a feature list (nested()), it is also the maximum number of steps. A record with more is refused
  // (wrong_count). -1: no limit.
  int64_t max_values = -1;
  bool required = false;  // not for kind fixed: a record that lacks the feature is refused (missing_feature)

  // For kind fixed: the values for a record that lacks the feature, as many as `shape` has elements. If there are none,
  // every record must have the feature. For fixed_sequence: the padding value. If the pipeline names none, the padding
  // is 0 or empty.
  std::vector<float> default_floats;
  std::vector<int64_t> default_ints;
  std::vector<std::string> default_bytes;
  bool has_default = false;

  bool in_list() const noexcept { return where == Where::feature_list; }
  /// Returns whether a row has steps, each of which may have any number of values.
  bool nested() const noexcept { return in_list() && (kind == FeatureKind::variable || kind == FeatureKind::ragged); }
  /// Returns whether a record may lack the feature.
  bool may_lack() const noexcept { return kind == FeatureKind::fixed ? has_default : !required; }
  /// Returns the key as messages name it. In a SequenceExample, prefix() comes before the key: "context/KEY".
  std::string place() const { return std::string(prefix()) + key; }
  /// Returns the text that comes before the key in place(): the name of the map in which the key lies. Returns an empty
  /// text for an Example.
  std::string_view prefix() const noexcept;
};

/// What FeatureSpec::prefix() returns for a feature in the context, and for a feature in the feature lists.
inline constexpr std::string_view context_prefix = "context/", feature_lists_prefix = "feature_lists/";

enum class RecordType : uint8_t { example, sequence_example, raw };

enum class IndexMode : uint8_t { build, require, lazy };

struct IndexSpec {
  IndexMode mode = IndexMode::build;
  std::string dir;  // absolute path; empty: beside the data, or in the user's cache folder
  uint64_t stride = io::default_stride;
  // True if the pipeline has an `index` that asks for an index of each file. The indexes of small files are then
  // stored, too. An `index` with mode LAZY asks for that only if it has a `dir`, because people write LAZY to start at
  // once.
  bool given = false;
};

/// One end of a range of records: a number of records, or a part of all records.
struct RangeEnd {
  static constexpr uint64_t all = 100'000'000;
  uint64_t value = 0;  // a number of records, or millionths of a per cent
  bool percent = false;
};

struct SourceSpec {
  std::string name;
  // Absolute paths, each at most once. Globs are expanded, and the files of each glob are sorted. Excluded files are
  // removed.
  std::vector<std::string> files;
  Compression compression = Compression::automatic;
  RecordType record_type = RecordType::example;
  uint64_t record_limit = io::default_record_limit;
  IndexSpec index;
  RangeEnd begin, end{RangeEnd::all, true};
  uint32_t num_shards = 1, shard_id = 0;
};

/// The features @record, @file, @offset and @source, all int64, and two more that exist only in the feed that evaluates
/// the filter (PipelineSpec::filter): `audit` and `value`. `audit` is the row's audit term times its file's key
/// (base/audit.h). `value` is the value of a feature as a number: an INT64 itself, or hash64() of BYTES.
enum class Reserved : uint8_t { record, file, offset, source, audit, value };

/// A column of a chunk from which dense outputs are made.
struct ColumnRef {
  enum class Kind : uint8_t { feature, expression, reserved };
  Kind kind = Kind::feature;
  // Index into PipelineSpec::features or ::expressions. If `what` is Reserved::value: the feature whose value it is.
  int number = -1;
  Reserved what = Reserved::record;  // which reserved feature, if `kind` is reserved
  bool operator==(const ColumnRef&) const = default;
};

/// Says how each row of a dense output, or a part of each row, is made from a column.
struct DenseJob {
  ColumnRef column;
  /// Says how rows are made from the values of a feature, if making them can fail. Such an output has only this job.
  /// nullopt: rows cannot fail, and `unpack` says how they are made.
  std::optional<RowSpec> rows = std::nullopt;
  /// Says how one value is unpacked. A value is the bytes of a BYTES feature, or all numbers that a record has for a
  /// feature of numbers, as they lie in memory.
  unpack::UnpackSpec unpack;
  size_t values = 1;  // values in a record; they are written one after another
  size_t offset = 0;  // bytes from the beginning of a row
  bool operator==(const DenseJob&) const = default;
};

/// An output. Either it is dense and `jobs` write it, or it passes through a feature whose size varies from record to
/// record.
struct OutputSpec {
  std::string name;
  DType dtype = DType::unset;  // dtype of the tensor; bytes: the tensors are NAME.bytes and NAME.offsets
  Shape shape;                 // of one row; if padded, of one step; if variable, of one value
  std::vector<DenseJob> jobs;  // a stack has one job for each feature; other dense outputs have a single job
  // If it is not dense:
  int feature = -1;
  std::optional<unpack::UnpackSpec> unpack_value;  // says how a single number is cast and normalised
  // Says how a step of the tensor is made from a BYTES value of the feature, if the output is padded and its steps are
  // pictures. The padding is then zeros. nullopt: the steps are the feature's values as they are.
  std::optional<RowSpec> steps;
  // If true, the tensors are NAME.values and NAME.row_splits, or for bytes NAME.bytes, NAME.offsets and
  // NAME.row_splits. If the feature is nested, NAME.step_splits comes before NAME.row_splits.
  bool variable = false;
  bool padded = false;  // of a fixed_sequence: the tensor is [rows, longest of the batch, shape...]
  bool internal = false;

  /// Compares outputs of pipelines with the same `features` and `tables`, which they name by number.
  bool operator==(const OutputSpec&) const = default;
  bool dense() const noexcept { return !jobs.empty(); }
  uint64_t row_bytes() const noexcept { return static_cast<uint64_t>(shape.elements()) * size_of(dtype); }
  /// If rows can fail when they are made, returns how they are made; if the output is padded, how the steps of rows are
  /// made. Returns null if rows cannot fail.
  const RowSpec* row_spec() const noexcept {
    const std::optional<RowSpec>& spec = dense() ? jobs[0].rows : steps;
    return spec ? &*spec : nullptr;
  }
  /// Returns what a cache can keep of the output, or why it can keep nothing. Returns nullopt if the pipeline has no
  /// cache of pictures, or if the output is not made from pictures.
  std::optional<KeptStep> kept_step() const;
};

/// A formula. The expressions of a pipeline are in an order in which each reads only those before it.
struct ExpressionSpec {
  std::string output;
  Program program;
  /// Returns the type of the column that the formula makes.
  DType dtype() const noexcept { return program.type() == Program::Type::int64 ? DType::int64 : DType::float64; }
  struct Input {
    // An input is a scalar feature, or what a different output delivers (`out.NAME`). An int64 feature stays int64. A
    // float32 feature is widened to float64. What a different output delivers becomes float64: it is unpacked from a
    // feature by `unpack`, or it is the value of an expression, rounded to `dtype`.
    int feature = -1;
    int expression = -1;
    std::optional<unpack::UnpackSpec> unpack;  // its `out` is `dtype`
    DType dtype = DType::unset;                // dtype of the feature or of the output that is read
  };
  std::vector<Input> inputs;  // in the order of program.inputs()
};

/// Says how the files of a pass are interleaved, which works as tf.data's interleave does. If `cycle_length` is 1, the
/// files come one after another.
struct InterleaveSpec {
  uint32_t cycle_length = 1;
  uint64_t block_length = std::numeric_limits<uint64_t>::max();
  bool on() const noexcept { return cycle_length > 1; }
};

/// Windows: a sample consists of several records, called its frames. It has `size` frames, which are `stride` records
/// apart. The next sample begins `shift` records after the beginning of this one.
struct WindowSpec {
  int64_t size = 0, shift = 1, stride = 1;
  bool drop_remainder = true;  // false: windows at the end of a file may lack frames; filler rows take their place
  bool across_files = false;
  std::string key;  // a feature's name: no window reaches across a change of its value; empty: no feature
};

enum class ShuffleMode : uint8_t { none, block, global, buffer };

struct ShuffleSpec {
  ShuffleMode mode = ShuffleMode::none;
  int64_t buffer_size = 0;
  // If not 0, this counts in place of buffer_size: how many bytes of samples are mixed at a time, in all lanes
  // together.
  uint64_t buffer_bytes = 0;
  uint64_t block_bytes = 256 << 10;
  uint64_t seed = 0;
  bool reshuffle_each_epoch = true;
  bool shuffle_files = false;  // BUFFER: the order of files is shuffled, too
  int lanes = 0;               // 0: the largest divisor of the global batch size up to 64
};

enum class MixtureStop : uint8_t { first_exhausted, all_exhausted, cycle_until_all, cycle_forever };

struct MixtureSpec {
  static constexpr uint32_t whole = (1 << 24) - 1;  // the sum of all shares, apart from rounding

  MixtureStop stop = MixtureStop::first_exhausted;
  std::vector<uint32_t> shares = {};  // for each source: its weight as a number of parts of `whole`, at least 1
  std::optional<Reweighted> reweighted = std::nullopt;
};
/// Returns MixtureSpec::shares for these weights. Throws Error bad_pipeline if a weight is not a positive number, or is
/// too small a part of the whole.
std::vector<uint32_t> shares_of(const std::vector<double>& weights);

enum class LastBatchPolicy : uint8_t { drop, partial, pad };
enum class OnError : uint8_t { raise, skip_record, skip_file };
/// Says what to do about a feature that no record of the first epoch has.
enum class AbsentFeature : uint8_t { warn, error, ignore };

struct PipelineSpec {
  /// The feed that evaluates `filter` and `window.key` before the plan is made. Samples are kept if its output `filter`
  /// (float64) is not 0. Its outputs `@file` and `@audit` say from which file each row is, and what the row adds to the
  /// audit. If there is a window.key, its output `@key` shows where the key changes. Null if there is neither a filter
  /// nor a window.key.
  std::shared_ptr<const PipelineSpec> filter;
  /// The text of filter, window.key, record_type and features. The filter's result depends on this text, on the data
  /// with the samples that are chosen from it, and on `on_error`.
  std::string filter_text;
  std::vector<SourceSpec> sources;
  std::vector<FeatureSpec> features;  // with record_type RAW there is only the feature `record`
  std::vector<ExpressionSpec> expressions;
  std::vector<OutputSpec> outputs;  // in the pipeline's order, including internal ones
  std::vector<TableSpec> tables;    // where outputs look rows or names up, each table once
  std::optional<CacheSpec> cache;
  InterleaveSpec interleave;
  std::optional<WindowSpec> window;
  std::optional<MixtureSpec> mixture;
  ShuffleSpec shuffle;
  int64_t repeat = 1;             // passes over the data in an epoch; -1: without end; -1 if epoch_steps is set
  int64_t epoch_steps = 0;        // not 0: an epoch has this many steps, wherever passes end
  bool allow_empty = false;       // an epoch may have no step
  int64_t global_batch_size = 0;  // either this or batch_size_per_replica is set, and the other is 0
  int64_t batch_size_per_replica = 0;
  LastBatchPolicy last_batch_policy = LastBatchPolicy::drop;
  std::string valid_mask;  // name of the mask's output; empty: there is none
  OnError on_error = OnError::raise;
  int64_t max_failures = -1;  // -1: any number is allowed
  double max_failure_rate = 1.0;
  AbsentFeature absent_feature = AbsentFeature::warn;
  uint64_t memory_limit = 0;  // bytes
  uint64_t device_limit = 0;  // bytes of each GPU; 0: as much as it has
  // 0: as many as the CPUs that this process may use, shared with the other ranks on this machine.
  int threads = 0;
  std::vector<int> cpu_set;  // empty: any CPU
  int host_prefetch = 2;
  bool more_small_batches = true;  // host_prefetch is not set: more batches are prefetched if they are small
  int device_prefetch = 0;         // 0: not set
  bool peer_access = true;         // GPUs that are given the same rows copy them from one another, if they can
  WrittenStages written_stages = {};

  std::vector<std::string> warnings;  // for example, features that no output names

  /// Returns whether a row may fail when it is made.
  bool rows_can_fail() const noexcept;
};

/// Returns the pipeline as plain values. Checks everything that can be checked with only the pipeline and the list of
/// files. Throws Error bad_pipeline, which names the field and says what to write instead. Fields that this version
/// does not support yet are refused by name.
PipelineSpec validate(const Pipeline& pipeline, const ListFiles& list = list_files);

}  // namespace feedline::flow
