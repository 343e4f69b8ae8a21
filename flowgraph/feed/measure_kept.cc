#include "flowgraph/feed/measure_kept.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/mul_div.h"
#include "flowgraph/feed/sample_reader.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/rows/row_writer.h"
#include "io/cache/entry_store.h"

namespace feedline::flow {
namespace {

constexpr uint64_t most_samples = 512;

class Measurement {
 public:
  Measurement(const PipelineSpec& spec, const DataSet& data)
      : spec_(spec), data_(data), parser_(record_parser(spec)), parts_(spec) {
    for (const CacheParts::Part& part : parts_.parts)
      writers_.push_back(make_row_writer(*spec.outputs[static_cast<size_t>(part.output)].row_spec(), {}));
  }

  bool varies() const {
    return std::ranges::any_of(parts_.parts, [](const CacheParts::Part& part) { return part.step.bytes == 0; });
  }

  // Looks at up to `most_samples` samples at equal distances. In a compressed file, looks at the first samples instead,
  // because a later sample can be reached only by inflating all bytes before it.
  KeptSizes measure() {
    const uint64_t some = std::min(data_.samples, most_samples);
    // `first`: the number of the file's first sample. `next`: which of the `some` samples is wanted next.
    uint64_t first = 0, next = 0;
    for (const DataFile& file : data_.files) {
      const uint64_t samples = file.samples.samples();
      std::vector<uint64_t> wanted;
      for (; next < some && next * data_.samples / some < first + samples; next++)
        wanted.push_back(file.compressed() ? wanted.size() : next * data_.samples / some - first);
      first += samples;
      if (wanted.empty()) continue;
      SampleReader reader(data_, spec_.sources[file.source], file);
      for (const uint64_t sample : wanted)
        if (reader.find(file.samples.record(sample), false) == SampleReader::Found::record) add(reader.record());
    }
    return sizes(some == data_.samples);
  }

 private:
  void add(const io::RecordView& record) {
    std::vector<std::byte> memory(parser_->arena_bound(1, record.size));
    Arena arena(memory);
    const auto session = parser_->begin({.rows = 1, .payload_bytes = record.size}, arena);
    std::vector<RowError> errors;
    session->parse({&record, 1}, errors);
    uint64_t bytes = 0;
    for (size_t p = 0; p < parts_.parts.size(); p++) {
      const CacheParts::Part& part = parts_.parts[p];
      if (part.step.bytes > 0 || !errors.empty()) continue;
      const auto& value = session->columns()[static_cast<size_t>(part.feature)].as<BytesRef>()[0];
      bytes += round_up(writers_[p]->kept_bytes({value.data, value.size}), io::entry_alignment);
    }
    sizes_.push_back(static_cast<double>(bytes));
  }

  KeptSizes sizes(bool are_all) const {
    if (sizes_.empty()) return {};
    const auto count = static_cast<double>(sizes_.size());
    double sum = 0, squares = 0;
    for (const double size : sizes_) sum += size;
    for (const double size : sizes_) squares += (size - sum / count) * (size - sum / count);
    const double spread = std::sqrt(squares / count);
    return {.mean = sum / count, .error = are_all ? 0 : spread / std::sqrt(count), .spread = spread};
  }

  const PipelineSpec& spec_;
  const DataSet& data_;
  const std::unique_ptr<const RecordParser> parser_;
  const CacheParts parts_;
  std::vector<std::unique_ptr<const RowWriter>> writers_;  // by part
  std::vector<double> sizes_;
};

}  // namespace

KeptSizes measure_kept(const PipelineSpec& spec, const DataSet& data) {
  Measurement measurement(spec, data);
  return measurement.varies() ? measurement.measure() : KeptSizes();
}

}  // namespace feedline::flow
