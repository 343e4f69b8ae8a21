#include "tool/feeding/npy_writer.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>

namespace feedline::tool {
namespace {

// The size of a file's header in bytes. The format requires a multiple of 64. This one has room for a shape of 8 axes.
constexpr size_t header_bytes = 320;
constexpr size_t buffer_bytes = size_t{1} << 20;

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

const char* descr(DType dtype) {
  constexpr std::array<const char*, dtype_count> names = {"",    "",    "|b1", "|u1", "|i1", "<u2", "<i2",
                                                          "<u4", "<i4", "<i8", "<f2", "<u2", "<f4", "<f8"};
  return names[static_cast<size_t>(dtype)];
}

std::string header(DType dtype, const Shape& shape) {
  std::string axes;
  for (const int64_t axis : shape) axes += fmt::format("{}, ", axis);
  if (shape.rank() > 1) axes.resize(axes.size() - 2);  // a Python tuple with one element keeps its comma
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr(dtype), axes);
  text.resize(header_bytes - 11, ' ');
  constexpr size_t length = header_bytes - 10;
  std::string header("\x93NUMPY\x01\x00", 8);
  header += {static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + text + '\n';
}

}  // namespace

NpyWriter::NpyWriter(std::string path, DType dtype, Shape row_shape)
    : file_(std::move(path)), dtype_(dtype), row_shape_(row_shape) {}

void NpyWriter::append(int64_t rows, std::span<const std::byte> elements) {
  rows_ += rows;
  if (buffer_.size() + elements.size() > buffer_bytes) flush();
  if (elements.size() > buffer_bytes) {
    file_.write_at(header_bytes + written_, elements);
    written_ += elements.size();
  } else {
    buffer_.insert(buffer_.end(), elements.begin(), elements.end());
  }
}

void NpyWriter::flush() {
  file_.write_at(header_bytes + written_, buffer_);
  written_ += buffer_.size();
  buffer_.clear();
}

void NpyWriter::read_back(uint64_t begin, std::span<std::byte> out) {
  flush();
  file_.read_at(header_bytes + begin, out);
}

void NpyWriter::close() {
  flush();
  const std::string text = header(dtype_, row_shape_.with_rows(rows_));
  file_.write_at(0, std::as_bytes(std::span(text)));
  file_.publish();
}

}  // namespace feedline::tool
