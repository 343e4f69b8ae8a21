// Stores the values of features in columns, whatever message of a record holds them.
//
// A parser of records finds the Features and FeatureLists, and says which feature of the pipeline each belongs to. This
// unit checks their values against the pipeline, stores them, and words the errors, for every record type that has
// Features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/feature_list.h"
#include "flowgraph/parse/feature_message.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/rows/row_error.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Says what form the value of a map's entry has in a record, and so what its payload is. From `nothing` on, the value
/// is a Feature that has at most one list, in one run.
enum class Payload : uint8_t {
  unread,     // the feature is not wanted: the payload is the whole value
  steps,      // the whole value is a FeatureList
  nothing,    // a Feature without a kind
  bytes,      // one bytes value
  floats,     // one packed run of floats
  one_float,  // one float that is not packed
  varints,    // one packed run of int64
  varint,     // one int64 that is not packed
};

/// Returns how many bytes a row of the feature's column takes.
uint32_t row_bytes(const FeatureSpec& feature);

/// Says what a feature of the pipeline demands of a record's values, in the form that parsers need. Keeps a pointer to
/// the FeatureSpec, which must outlive it.
struct FeatureTarget {
  explicit FeatureTarget(const FeatureSpec& feature);

  /// Returns the maximum number of arena bytes that the lists of values need for each byte of payload. It is 2 for
  /// nested floats because of empty steps: such a step has 2 bytes of payload, and its element of StepsRef::ends takes
  /// 4 bytes.
  uint64_t arena_per_byte() const noexcept { return fixed ? 0 : kind == ListKind::float32 ? (nested ? 2 : 1) : 8; }
  /// Returns how many bytes the ends of max_values steps take: a multiple of 8, or 0 if the feature is not nested.
  /// Precondition: bounded().
  uint64_t ends_bytes() const noexcept;
  /// Returns how many bytes the list of a row takes: the ends of max_values steps, then max_values values. This is a
  /// multiple of 8, or 0 if the feature is fixed. Precondition: bounded().
  uint64_t list_bytes() const noexcept;
  /// Returns whether max_values bounds the values of a row, and is so small that their bytes can be computed.
  // Bound may be equal, farther: no test can notice, because lists of so many values take more than any payloads.
  bool bounded() const noexcept { return fixed || max_values <= uint64_t{1} << 32; }

  const FeatureSpec* spec;
  ListKind kind;
  bool fixed;
  bool in_list;           // its values are the steps of a FeatureList
  bool nested;            // steps may differ in length: a row of the column is a StepsRef
  uint32_t row_size = 0;  // bytes of one row of the column
  uint64_t elements = 1;  // fixed: values per row; fixed_sequence: values per step; otherwise 1
  uint64_t step_values;   // in_list: values that each step must have, or `any_count`
  uint64_t max_values;    // if not fixed: the maximum number of values in a row; if nested, also of steps
  uint64_t length;        // bytes that every bytes value must have, or `any_length`
};

/// The columns of the features for one chunk, filled row by row. Only one thread may use it at a time.
class FeatureValues {
 public:
  /// Returns the names of the features that a record has, for the error about a feature that it lacks.
  using FeatureNames = std::vector<std::string> (*)(const io::RecordView& record);

  /// Takes a column for each target from the arena. The targets and the arena must outlive this object. The targets'
  /// specs must outlive the columns, too, because the default values lie in them. `per_byte` is the maximum number of
  /// arena bytes that the lists of values need for each byte of the records.
  FeatureValues(std::span<const FeatureTarget> targets, FeatureNames feature_names, const ChunkRecords& records,
                uint64_t per_byte, Arena& arena);

  /// Returns an upper bound of the arena bytes that `rows` rows need: the columns, plus up to `per_byte` bytes for each
  /// byte of the records, for the lists of values. `payload_bytes` is the total size of the records.
  static uint64_t arena_bound(std::span<const FeatureTarget> targets, uint64_t per_byte, uint64_t rows,
                              uint64_t payload_bytes) noexcept;

  /// Returns whether the steps of a feature need not be counted before begin_steps(), because every list has room for
  /// the maximum number of steps.
  bool has_rooms() const noexcept { return has_rooms_; }

  std::span<const Column> columns() const noexcept { return columns_; }

  /// Begins a row: no feature has values in it so far.
  void begin_row(uint32_t row) noexcept {
    row_ = row;
    for (uint64_t& bits : good_) bits = 0;
  }

  /// Stores the payload of a Feature in the current row. Returns false if the payload does not fit the feature's
  /// FeatureTarget. Then the feature's row is unspecified, and the caller must read the Feature again by
  /// begin_values(), add_feature() and end_values(). Precondition: the 10 bytes before the payload may be read;
  /// `payload` is not Payload::unread.
  bool store(size_t feature, Payload payload, const uint8_t* p, uint32_t size);

  /// Returns a FoundValues to which the caller adds the values of a feature. `payload` is the maximum number of bytes
  /// that all these values together can have.
  FoundValues begin_values(size_t feature, uint64_t payload);
  /// Checks the values that were found for a feature and puts them into its row. If they do not fit its FeatureTarget,
  /// end_row() refuses the record.
  void end_values(size_t feature, const FoundValues& found);

  /// Stores the FeatureList [p, end) in the current row, and checks it as end_steps() does. `depth` is how many levels
  /// of messages may still be opened inside it. Returns false if protobuf would refuse the list; then the feature's row
  /// is unspecified. Precondition: the 6 bytes before `p` may be read.
  bool store_steps(size_t feature, const uint8_t* p, const uint8_t* end, int depth);

  /// Returns a FoundSteps to which the caller adds the steps of a feature in a list. All FeatureLists of the feature
  /// together have `payload` bytes. If the feature is nested and has_rooms() is false, they have `steps` steps;
  /// otherwise `steps` is 0.
  FoundSteps begin_steps(size_t feature, uint64_t payload, uint64_t steps);
  /// Checks the steps that were found for a feature and puts them into its row. If they do not fit its FeatureTarget,
  /// end_row() refuses the record.
  void end_steps(size_t feature, const FoundSteps& found);

  /// Returns whether all_features() has a bit for every feature.
  bool few_features() const noexcept { return good_.size() == 1; }
  /// Returns a bit for each feature: bit f is feature number f. Precondition: few_features().
  uint64_t all_features() const noexcept { return ~(~uint64_t{0} << targets_.size()); }
  /// Notes that the caller has stored valid values of these features in their columns. Bit f is feature number f, so
  /// this is for the first 64 features only.
  void mark_good(uint64_t features) noexcept { good_[0] |= features; }

  /// Ends a row. Fills in defaults, or no values, for the features that the record lacks. If a feature has wrong
  /// values, or if the record lacks one that it must have (FeatureSpec::may_lack()), adds an error and returns false.
  bool end_row(const io::RecordView& record, std::vector<RowError>& errors) {
    if (few_features() && good_[0] == all_features()) [[likely]]
      return true;
    return fill_in(record, errors);
  }
  /// Ends a row whose record is malformed or damaged.
  void refuse_row() noexcept { lacking_rows_++; }

  /// Returns for each feature, by its number, whether any record had it, even if its values were refused. `rows` is the
  /// number of rows so far, including those that were filled without begin_row() because their records had every
  /// feature.
  std::vector<bool> seen(uint32_t rows) const;
  /// Returns for each feature, by its number, in how many rows it has its default, or no values, because the record
  /// lacks it.
  std::span<const uint64_t> lacking() const noexcept { return lacking_; }

 private:
  /// Says what was wrong with a feature's values in the last row in which they were wrong.
  struct Flaw {
    uint32_t row = ~uint32_t{0};
    ListKind found = ListKind::unset;
    uint64_t count = 0;
    uint64_t length = any_length;
    uint64_t steps = 0;                 // how many there are, if the feature is in a list
    std::optional<uint64_t> step = {};  // the step that `found`, `count` and `length` are about
    bool names_told = false;            // an error has listed the names of a record that lacks this feature
  };

  template <typename T>
  T* row_of(size_t feature) const noexcept {
    return reinterpret_cast<T*>(columns_[feature].as<std::byte>() + uint64_t{row_} * targets_[feature].row_size);
  }
  void set_good(size_t feature) noexcept { good_[feature / 64] |= uint64_t{1} << feature % 64; }
  void clear_good(size_t feature) noexcept { good_[feature / 64] &= ~(uint64_t{1} << feature % 64); }
  static std::optional<uint64_t> room_bytes(std::span<const FeatureTarget> targets, uint64_t rows) noexcept;
  void* reserve(ListKind kind, uint64_t count);
  std::byte* room_of(size_t feature);
  void trim(void* end) noexcept;
  bool fill_in(const io::RecordView& record, std::vector<RowError>& errors);
  RowError describe(size_t feature, const io::RecordView& record);
  static std::string describe_count(const FeatureTarget& target, const Flaw& flaw);

  std::span<const FeatureTarget> targets_;
  FeatureNames feature_names_;
  Arena& arena_;
  // True if each list of a row has room for max_values values. Repeated entries of a record share this room. Without
  // rooms, each entry takes the memory that its payload needs.
  bool has_rooms_ = false;
  struct Room {
    uint32_t row = ~uint32_t{0};
    std::byte* begin = nullptr;
  };
  std::vector<Room> rooms_;  // by feature: the room that was taken last
  std::vector<Column> columns_;
  std::vector<uint64_t> good_;  // bits: the features of which this record has valid values
  std::vector<uint64_t> seen_;  // bits: the features that were found in the records that lacking_rows_ counts
  // The number of rows whose record lacked a feature, had a flawed one, or was malformed or damaged. All other records
  // had every feature.
  uint32_t lacking_rows_ = 0;
  std::vector<uint64_t> lacking_;
  std::vector<Flaw> flaws_;
  uint32_t row_ = 0;
};

}  // namespace feedline::flow
