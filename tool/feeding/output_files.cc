#include "tool/feeding/output_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace feedline::tool {
namespace {

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

OutputFiles::OutputFiles(const std::string& folder, const ElementSpec& element)
    : folder_(folder),
      tensors_(element.tensors()),
      nested_(element.kind == ElementSpec::Kind::nested),
      padded_(element.kind == ElementSpec::Kind::padded),
      step_shape_(element.shape),
      padding_(element.padding) {
  if (element.dtype == DType::bytes) {
    open(DType::uint8, {});
    open(DType::int64, {}).append(1, std::as_bytes(std::span(&bytes_, 1)));
    has_offsets_ = true;
    values_of_row_ = element.shape.elements();
  } else {
    open(element.dtype, element.shape);
  }
  has_splits_ = nested_ || element.kind == ElementSpec::Kind::ragged;
  while (files_.size() < tensors_.size()) open(DType::int64, {}).append(1, std::as_bytes(std::span(&values_, 1)));
}

NpyWriter& OutputFiles::open(DType dtype, const Shape& row_shape) {
  const char* bits = dtype == DType::bfloat16 ? ".bf16" : "";
  const auto path = std::filesystem::path(folder_) / fmt::format("{}{}.npy", file_name(tensors_[files_.size()]), bits);
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
  // A row has one element of @valid, or one for each record of its window.
  const size_t frames = batch.rows() > 0 ? valid.size() / static_cast<size_t>(batch.rows()) : 1;
  for (int64_t row = 0; row < batch.rows(); row++) {
    const auto of_row = valid.subspan(static_cast<size_t>(row) * frames, frames);
    if (std::find(of_row.begin(), of_row.end(), true) == of_row.end()) continue;
    if (ranges.empty() || ranges.back().end != row) ranges.push_back({row, row});
    ranges.back().end = row + 1;
  }
  return ranges;
}

int64_t OutputFiles::values_in(const Batch& batch) const {
  return has_offsets_ ? batch.at(tensors_[1]).shape[0] - 1 : batch.at(tensors_[0]).shape.elements();
}

void OutputFiles::append(const Batch& batch) {
  for (const Range& rows : valid_rows(batch)) {
    const int64_t width = padded_ ? values_in(batch) / batch.rows() : values_of_row_;
    if (padded_) pieces_.push_back({rows.end - rows.begin, width});
    Range values{rows.begin * width, rows.end * width};
    if (nested_)
      values =
          append_splits(batch, tensors_.size() - 2, append_splits(batch, tensors_.size() - 1, rows, steps_), values_);
    else if (has_splits_)
      values = append_splits(batch, tensors_.size() - 1, rows, values_);
    if (has_offsets_) {
      append_bytes(batch, values);
    } else {
      append_rows(batch.at(tensors_[0]), has_splits_ ? values : rows);
    }
  }
}

void OutputFiles::append_rows(const TensorView& tensor, Range rows) {
  const int64_t count = rows.end - rows.begin;
  const size_t row_bytes = tensor.shape[0] ? tensor.size_bytes() / static_cast<size_t>(tensor.shape[0]) : 0;
  files_[0]->append(count, bytes_of(tensor).subspan(static_cast<size_t>(rows.begin) * row_bytes,
                                                    static_cast<size_t>(count) * row_bytes));
}

OutputFiles::Range OutputFiles::append_splits(const Batch& batch, size_t tensor, Range rows, int64_t& total) {
  const auto splits = batch.at(tensors_[tensor]).as<const int64_t>();
  const int64_t before = splits[static_cast<size_t>(rows.begin)], after = splits[static_cast<size_t>(rows.end)];
  std::vector<int64_t> ends;
  for (int64_t row = rows.begin; row < rows.end; row++)
    ends.push_back(total + splits[static_cast<size_t>(row) + 1] - before);
  total += after - before;
  files_[tensor]->append(rows.end - rows.begin, std::as_bytes(std::span(ends)));
  return {before, after};
}

void OutputFiles::append_bytes(const Batch& batch, Range values) {
  const auto offsets = batch.at(tensors_[1]).as<const int64_t>();
  const int64_t begin = offsets[static_cast<size_t>(values.begin)], end = offsets[static_cast<size_t>(values.end)];
  std::vector<int64_t> ends;
  for (int64_t value = values.begin; value < values.end; value++) {
    ends.push_back(bytes_ + offsets[static_cast<size_t>(value) + 1] - begin);
  }
  bytes_ += end - begin;
  files_[0]->append(
      end - begin,
      bytes_of(batch.at(tensors_[0])).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  files_[1]->append(values.end - values.begin, std::as_bytes(std::span(ends)));
}

void OutputFiles::pad_to(int64_t width) {
  const std::unique_ptr<NpyWriter> pieces = std::move(files_.front());
  files_.clear();
  NpyWriter& whole = open(pieces->dtype(), {});
  std::vector<std::byte> row(static_cast<size_t>(width) * padding_.size());
  uint64_t from = 0;
  for (const Piece& piece : pieces_) {
    const auto filled = static_cast<size_t>(piece.width) * padding_.size();
    for (size_t i = filled; i < row.size(); i++) row[i] = padding_[i % padding_.size()];
    for (int64_t i = 0; i < piece.rows; i++, from += filled) {
      pieces->read_back(from, std::span(row).first(filled));
      whole.append(1, row);
    }
  }
}

void OutputFiles::pad_bytes_to(int64_t width) {
  const auto bytes = std::move(files_[0]), offsets = std::move(files_[1]);
  files_.clear();
  open(DType::uint8, {});
  bytes_ = 0;
  open(DType::int64, {}).append(1, std::as_bytes(std::span(&bytes_, 1)));
  std::vector<std::byte> row;
  uint64_t from = 0;  // a byte position in the offsets of the pieces
  for (const Piece& piece : pieces_) {
    std::vector<int64_t> ends(static_cast<size_t>(piece.width) + 1);
    for (int64_t i = 0; i < piece.rows; i++, from += static_cast<uint64_t>(piece.width) * sizeof(int64_t)) {
      offsets->read_back(from, std::as_writable_bytes(std::span(ends)));
      const int64_t begin = ends.front();
      row.resize(static_cast<size_t>(ends.back() - begin));
      bytes->read_back(static_cast<uint64_t>(begin), row);
      std::vector<int64_t> padded;
      for (size_t value = 1; value < ends.size(); value++) padded.push_back(bytes_ + ends[value] - begin);
      for (int64_t value = piece.width; value < width; value++) {
        row.insert(row.end(), padding_.begin(), padding_.end());
        padded.push_back(bytes_ + static_cast<int64_t>(row.size()));
      }
      bytes_ += static_cast<int64_t>(row.size());
      files_[0]->append(static_cast<int64_t>(row.size()), row);
      files_[1]->append(width, std::as_bytes(std::span(padded)));
    }
  }
}

void OutputFiles::close() {
  if (padded_) {
    int64_t longest = 0;
    for (const Piece& piece : pieces_) longest = std::max(longest, piece.width);
    const auto shorter = [&](const Piece& piece) { return piece.width < longest; };
    const bool differ = std::any_of(pieces_.begin(), pieces_.end(), shorter);
    if (differ) has_offsets_ ? pad_bytes_to(longest) : pad_to(longest);
    if (!has_offsets_)
      files_[0]->set_row_shape(step_shape_.with_rows(longest / std::max<int64_t>(1, step_shape_.elements())));
  }
  for (const auto& file : files_) file->close();
}

}  // namespace feedline::tool
