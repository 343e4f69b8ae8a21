#include "flowgraph/feed/try_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "flowgraph/feed/sample_reader.h"
#include "flowgraph/parse/absent_features.h"
#include "flowgraph/parse/formula_columns.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/plan/row_writers.h"

namespace feedline::flow {
namespace {

constexpr uint64_t most_files = 128, most_bytes = uint64_t{256} << 20;
// The maximum number of records whose rows are made if making a row takes long, as decoding a picture does. So a trial
// takes a second or two.
constexpr uint64_t most_long_rows = 256;

class Trial {
 public:
  Trial(const PipelineSpec& spec, const Tables& tables, const DataSet& data, uint64_t files)
      : spec_(spec),
        data_(data),
        parser_(record_parser(spec)),
        formulas_(spec),
        writers_(spec, tables),
        absent_(spec.features, *parser_) {
    for (size_t output = 0; output < spec.outputs.size(); output++)
      if (is_made(output) && writers_.of(output)->takes_long())
        all_made_of_each_ = std::max<uint64_t>(1, most_long_rows / files);
    tried_.errors = data.raised;
    tried_.raised = spec.on_error == OnError::raise;
  }

  void file(const DataFile& file, uint64_t count);
  TriedRecords result() && {
    tried_.absent = absent_.errors("that was tried");
    return std::move(tried_);
  }

 private:
  bool is_made(size_t output) const noexcept { return writers_.of(output) && !spec_.outputs[output].internal; }
  void record(const DataFile& file, const io::RecordView& record, uint64_t offset, uint64_t number, bool makes_all);
  template <typename OnFailure>
  void make_row(std::span<const Column> columns, bool makes_all, const OnFailure& on_failure);
  void note(Error error);

  const PipelineSpec& spec_;
  const DataSet& data_;
  const std::unique_ptr<const RecordParser> parser_;
  const Formulas formulas_;
  const RowWriters writers_;
  // The number of records of each file of which all rows are made. Of further records, only the rows that do not take
  // long are made.
  uint64_t all_made_of_each_ = std::numeric_limits<uint64_t>::max();
  std::vector<std::byte> row_, scratch_;
  AbsentFeatures absent_;
  uint64_t bytes_left_ = most_bytes;
  TriedRecords tried_;
};

void Trial::file(const DataFile& file, uint64_t count) {
  const SourceSpec& source = spec_.sources[file.source];
  if (!data_.lazy) count = std::min(count, file.samples.samples());
  if (count == 0 || bytes_left_ == 0) return;
  SampleReader reader(data_, source, file);
  tried_.files++;
  for (uint64_t sample = 0; sample < count; sample++) {
    const uint64_t before = reader.bytes_read();
    const auto found = reader.find(data_.lazy ? sample : file.samples.record(sample), spec_.on_error == OnError::raise);
    if (found == SampleReader::Found::end) return;
    // find() returns damage only if the data was not counted. Otherwise counting has reported it.
    if (found == SampleReader::Found::damage) return note(reader.damage().error(file.id.uri));
    bytes_left_ -= std::min(bytes_left_, reader.bytes_read() - before);
    if (bytes_left_ == 0) return;
    record(file, reader.record(), reader.offset(), reader.number(), sample < all_made_of_each_);
  }
}

void Trial::record(const DataFile& file, const io::RecordView& record, uint64_t offset, uint64_t number,
                   bool makes_all) {
  std::vector<std::byte> memory(parser_->arena_bound(1, record.size) + formulas_.arena_bound(1));
  Arena arena(memory);
  const auto session =
      parser_->begin({.rows = 1, .payload_bytes = record.size, .kept_free = formulas_.arena_bound(1)}, arena);
  std::vector<RowError> errors;
  session->parse({&record, 1}, errors);
  tried_.records++;
  absent_.add(session->seen(), {&record, 1});
  const auto place_of = [&](std::string feature) {
    return Place{file.id.uri, static_cast<int64_t>(offset), static_cast<int64_t>(number), std::move(feature)};
  };
  std::optional<Error> refused;
  if (!errors.empty()) {
    RowError& error = errors.front();
    refused.emplace(error.category, std::move(error.message),
                    place_of(error.feature < 0 ? "" : spec_.features[static_cast<size_t>(error.feature)].name));
  } else {
    std::vector<Column> results;
    formulas_.evaluate(session->columns(), 1, arena, results, [&](uint32_t, size_t expression) {
      if (!refused)
        refused.emplace(Category::wrong_value, formula_failure, place_of(spec_.expressions[expression].output));
    });
    if (!refused) {
      make_row(session->columns(), makes_all, [&](int feature, RowError&& failure) {
        if (!refused)
          refused.emplace(failure.category, std::move(failure.message),
                          place_of(spec_.features[static_cast<size_t>(feature)].name));
      });
    }
  }
  if (makes_all || refused) tried_.made++;
  if (!refused) return;
  tried_.failed++;
  note(std::move(*refused));
}

// Makes the rows that a feed would make of the record by row writers; only those that do not take long if `makes_all`
// is false. Calls on_failure(feature, failure) for the first row that fails.
template <typename OnFailure>
void Trial::make_row(std::span<const Column> columns, bool makes_all, const OnFailure& on_failure) {
  for (size_t o = 0; o < spec_.outputs.size(); o++) {
    const OutputSpec& output = spec_.outputs[o];
    const RowWriter* const writer = writers_.of(o);
    if (!is_made(o) || (!makes_all && writer->takes_long())) continue;
    const bool is_padded = output.steps.has_value();
    const size_t each = is_padded ? 0 : output.jobs[0].values;
    const int number = is_padded ? output.feature : output.jobs[0].column.number;
    const FeatureSpec& feature = spec_.features[static_cast<size_t>(number)];
    const Column& column = columns[static_cast<size_t>(number)];
    std::vector<std::span<const std::byte>> values;
    if (is_padded) {
      const ValuesRef steps = values_of(feature, column, 0);
      for (uint64_t step = 0; step < steps.count; step++) {
        const BytesRef& bytes = static_cast<const BytesRef*>(steps.values)[step];
        values.push_back({bytes.data, bytes.size});
      }
    } else {
      for (size_t i = 0; i < each; i++)
        values.push_back(each == 1 ? stored_value(feature, column, 0) : value_at(feature.dtype, column, i));
    }
    const size_t bytes = is_padded ? output.row_bytes() : output.row_bytes() / each;
    row_.resize(bytes);
    scratch_.resize(writer->scratch_bytes());
    for (size_t i = 0; i < values.size(); i++) {
      RowOutcome outcome;
      writer->write({&values[i], 1}, {}, row_.data(), bytes, scratch_, outcome);
      if (outcome.failed.empty()) continue;
      RowError& failure = outcome.failed.front();
      if (each != 1)  // the words of BatchWriter
        failure.message =
            fmt::format("{} {}: {}", is_padded || writer->takes_long() ? "step" : "value", i, failure.message);
      return on_failure(number, std::move(failure));
    }
  }
}

void Trial::note(Error error) {
  const bool known = std::any_of(tried_.errors.begin(), tried_.errors.end(), [&](const Error& other) {
    return other.category() == error.category() && other.place().feature == error.place().feature;
  });
  if (!known) tried_.errors.push_back(std::move(error));
}

}  // namespace

TriedRecords try_records(const PipelineSpec& spec, const Tables& tables, const DataSet& data, uint64_t of_each_file) {
  const uint64_t files = data.files.size(), some = std::min(files, most_files);
  Trial trial(spec, tables, data, std::max<uint64_t>(1, some));
  for (uint64_t i = 0; i < some; i++) trial.file(data.files[i * files / some], of_each_file);
  return std::move(trial).result();
}

}  // namespace feedline::flow
