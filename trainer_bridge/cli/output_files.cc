#include "trainer_bridge/cli/output_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gpu/unpack.h"

namespace feedline::cli {
namespace {

/// What fills the place of a step that a record does not have: the feature's padding value, as this output delivers it.
std::vector<std::byte> padding_of(const flow::FeatureSpec& feature, const flow::OutputSpec& output) {
  const int64_t pad_int = feature.default_ints.empty() ? 0 : feature.default_ints.front();
  const float pad_float = feature.default_floats.empty() ? 0.0f : feature.default_floats.front();
  const auto* value = feature.dtype == DType::int64 ? reinterpret_cast<const std::byte*>(&pad_int)
                                                    : reinterpret_cast<const std::byte*>(&pad_float);
  const std::vector<const std::byte*> values(static_cast<size_t>(output.shape.elements()), value);
  std::vector<std::byte> step(values.size() * size_of(output.dtype));
  gpu::Unpacker (*output.unpack_value)(values, step.data());
  return step;
}

std::span<const std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<const std::byte*>(tensor.data), tensor.size_bytes()};
}

}  // namespace

std::string file_name(std::string_view output) {
  std::string name;
  for (const char c : output) {
    const auto byte = static_cast<unsigned char>(c);
    const bool harmless = c != '/' && c != '%' && byte >= 0x20 && byte != 0x7f && !(c == '.' && name.empty());
    name += harmless ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return name;
}

OutputFiles::OutputFiles(const std::string& folder, const flow::PipelineSpec& spec, const flow::OutputSpec& output)
    : folder_(folder), name_(output.name), padded_(output.padded), step_shape_(output.shape) {
  if (output.dtype == DType::bytes) {
    open(".bytes", DType::uint8, {});
    open(".offsets", DType::int64, {}).append(1, std::as_bytes(std::span(&bytes_, 1)));
    has_offsets_ = true;
    values_of_row_ = output.shape.elements();
  } else if (output.padded) {
    padding_ = padding_of(spec.features[static_cast<size_t>(std::get<flow::FromFeature>(output.from).feature)], output);
    open("", output.dtype, output.shape.with_rows(0));
  } else {
    open(output.variable ? ".values" : "", output.dtype, output.shape);
  }
  if (output.variable) {
    open(".row_splits", DType::int64, {}).append(1, std::as_bytes(std::span(&values_, 1)));
    has_splits_ = true;
  }
}

NpyWriter& OutputFiles::open(const std::string& suffix, DType dtype, const Shape& row_shape) {
  const char* bits = dtype == DType::bfloat16 ? ".bf16" : "";
  const auto path = std::filesystem::path(folder_) / fmt::format("{}{}{}.npy", file_name(name_), suffix, bits);
  return *files_.emplace_back(std::make_unique<NpyWriter>(path.string(), dtype, row_shape));
}

std::vector<std::string> OutputFiles::names() const {
  std::vector<std::string> names;
  for (const auto& file : files_) names.push_back(std::filesystem::path(file->path()).filename().string());
  return names;
}

std::vector<OutputFiles::Range> OutputFiles::valid_rows(const Batch& batch) {
  const auto valid = batch.at("@valid").as<const bool>();
  std::vector<Range> ranges;
  for (int64_t row = 0; row < batch.rows(); row++) {
    if (!valid[static_cast<size_t>(row)]) continue;
    if (ranges.empty() || ranges.back().end != row) ranges.push_back({row, row});
    ranges.back().end = row + 1;
  }
  return ranges;
}

void OutputFiles::append(const Batch& batch) {
  const std::string main = name_ + (has_offsets_ ? ".bytes" : has_splits_ ? ".values" : "");
  const auto splits = has_splits_ ? batch.at(name_ + ".row_splits").as<const int64_t>() : std::span<const int64_t>();
  for (const Range& rows : valid_rows(batch)) {
    Range values{rows.begin * values_of_row_, rows.end * values_of_row_};
    if (has_splits_) values = append_splits(splits, rows);
    if (has_offsets_) {
      append_bytes(batch, values);
    } else {
      append_rows(batch.at(main), has_splits_ ? values : rows);
    }
  }
}

void OutputFiles::append_rows(const TensorView& tensor, Range rows) {
  const int64_t count = rows.end - rows.begin;
  const size_t row_bytes = tensor.shape[0] ? tensor.size_bytes() / static_cast<size_t>(tensor.shape[0]) : 0;
  if (padded_) pieces_.push_back({count, tensor.shape[1]});
  files_[0]->append(count, bytes_of(tensor).subspan(static_cast<size_t>(rows.begin) * row_bytes,
                                                    static_cast<size_t>(count) * row_bytes));
}

OutputFiles::Range OutputFiles::append_splits(std::span<const int64_t> splits, Range rows) {
  const int64_t before = splits[static_cast<size_t>(rows.begin)];
  std::vector<int64_t> ends;
  for (int64_t row = rows.begin; row < rows.end; row++) {
    ends.push_back(values_ + splits[static_cast<size_t>(row) + 1] - before);
  }
  values_ = ends.back();
  files_.back()->append(rows.end - rows.begin, std::as_bytes(std::span(ends)));
  return {before, splits[static_cast<size_t>(rows.end)]};
}

void OutputFiles::append_bytes(const Batch& batch, Range values) {
  const auto offsets = batch.at(name_ + ".offsets").as<const int64_t>();
  const int64_t begin = offsets[static_cast<size_t>(values.begin)], end = offsets[static_cast<size_t>(values.end)];
  std::vector<int64_t> ends;
  for (int64_t value = values.begin; value < values.end; value++) {
    ends.push_back(bytes_ + offsets[static_cast<size_t>(value) + 1] - begin);
  }
  bytes_ += end - begin;
  files_[0]->append(
      end - begin,
      bytes_of(batch.at(name_ + ".bytes")).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  files_[1]->append(values.end - values.begin, std::as_bytes(std::span(ends)));
}

void OutputFiles::pad_to_longest() {
  int64_t longest = 0;
  for (const Piece& piece : pieces_) longest = std::max(longest, piece.steps);
  const std::unique_ptr<NpyWriter> pieces = std::move(files_[0]);
  files_.clear();
  NpyWriter& whole = open("", pieces->dtype(), step_shape_.with_rows(longest));
  std::vector<std::byte> row(static_cast<size_t>(longest) * padding_.size());
  uint64_t from = 0;
  for (const Piece& piece : pieces_) {
    const auto filled = static_cast<size_t>(piece.steps) * padding_.size();
    for (size_t i = filled; i < row.size(); i++) row[i] = padding_[(i - filled) % padding_.size()];
    for (int64_t i = 0; i < piece.rows; i++, from += filled) {
      pieces->read_back(from, std::span(row).first(filled));
      whole.append(1, row);
    }
  }
}

void OutputFiles::close() {
  if (padded_) pad_to_longest();
  for (const auto& file : files_) file->close();
}

void write_valid_mask(const std::string& folder, const std::string& name, int64_t rows) {
  NpyWriter file((std::filesystem::path(folder) / (file_name(name) + ".npy")).string(), DType::boolean, {});
  const std::vector<std::byte> ones(static_cast<size_t>(rows), std::byte{1});
  file.append(rows, ones);
  file.close();
}

}  // namespace feedline::cli
