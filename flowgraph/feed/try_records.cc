#include "flowgraph/feed/try_records.h"

#include <algorithm>
#include <utility>

#include "flowgraph/feed/sample_reader.h"
#include "flowgraph/parse/absent_features.h"
#include "flowgraph/parse/formula_columns.h"
#include "flowgraph/parse/record_parser.h"

namespace feedline::flow {
namespace {

constexpr uint64_t most_files = 128, most_bytes = uint64_t{256} << 20;

class Trial {
 public:
  Trial(const PipelineSpec& spec, const DataSet& data)
      : spec_(spec), data_(data), parser_(spec), absent_(spec.features, parser_) {
    tried_.errors = data.raised;
    tried_.raised = spec.on_error == OnError::raise;
  }

  void file(const DataFile& file, uint64_t count);
  TriedRecords result() && {
    tried_.absent = absent_.errors("that was tried");
    return std::move(tried_);
  }

 private:
  void record(const DataFile& file, const io::RecordView& record, uint64_t offset, uint64_t number);
  void refuse_rows(std::span<const Column> columns, std::vector<RowError>& errors) const;
  void note(Error error);

  const PipelineSpec& spec_;
  const DataSet& data_;
  const RecordParser parser_;
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
    // Other damage was reported by the counting pass.
    if (found == SampleReader::Found::damage) return note(reader.damage().error(file.id.uri));
    bytes_left_ -= std::min(bytes_left_, reader.bytes_read() - before);
    if (bytes_left_ == 0) return;
    record(file, reader.record(), reader.offset(), reader.number());
  }
}

void Trial::record(const DataFile& file, const io::RecordView& record, uint64_t offset, uint64_t number) {
  std::vector<std::byte> memory(parser_.arena_bound(1, record.size));
  Arena arena(memory);
  RecordParser::Session session(parser_, 1, arena);
  std::vector<RowError> errors;
  session.parse({&record, 1}, errors);
  tried_.records++;
  absent_.add(session.seen(), {&record, 1});
  if (errors.empty()) refuse_rows(session.columns(), errors);
  if (errors.empty()) return;
  tried_.failed++;
  RowError& error = errors.front();
  note(Error(error.category, std::move(error.message),
             {file.id.uri, static_cast<int64_t>(offset), static_cast<int64_t>(number),
              error.feature < 0 ? "" : spec_.features[static_cast<size_t>(error.feature)].name}));
}

// Adds the errors of outputs that can be made of no row of this record.
void Trial::refuse_rows(std::span<const Column> columns, std::vector<RowError>& errors) const {
  for (const OutputSpec& output : spec_.outputs)
    for (const DenseJob& job : output.jobs) {
      if (!job.writer) continue;
      const auto feature = static_cast<size_t>(job.column.number);
      if (auto refusal = job.writer->refusal(stored_value(spec_.features[feature], columns[feature], 0)))
        errors.push_back({0, refusal->category, job.column.number, std::move(refusal->message)});
    }
}

void Trial::note(Error error) {
  const bool known = std::any_of(tried_.errors.begin(), tried_.errors.end(), [&](const Error& other) {
    return other.category() == error.category() && other.place().feature == error.place().feature;
  });
  if (!known) tried_.errors.push_back(std::move(error));
}

}  // namespace

TriedRecords try_records(const PipelineSpec& spec, const DataSet& data, uint64_t of_each_file) {
  Trial trial(spec, data);
  const uint64_t files = data.files.size(), some = std::min(files, most_files);
  for (uint64_t i = 0; i < some; i++) trial.file(data.files[i * files / some], of_each_file);
  return std::move(trial).result();
}

}  // namespace feedline::flow
