#include "tool/convert/npy_reader.h"

#include <algorithm>
#include <utility>

namespace feedline::tool {
namespace {

constexpr size_t buffer_bytes = 1 << 20;
constexpr uint64_t most_npy_row_bytes = uint64_t{255} << 20;  // a record has at most 256 MiB

}  // namespace

NpyReader::NpyReader(std::string path)
    : file_(std::move(path)), header_(io::read_npy_header(file_, most_npy_row_bytes)), position_(header_.elements_at) {}

std::span<const std::byte> NpyReader::next() {
  if (taken_ == buffer_.size()) {
    const uint64_t row = row_bytes(), left = file_.size() - position_;
    const uint64_t wanted = std::max<uint64_t>(buffer_bytes / row * row, row);
    buffer_.resize(std::min(wanted, left));
    file_.read_at(position_, buffer_);
    position_ += buffer_.size();
    taken_ = 0;
  }
  taken_ += row_bytes();
  return std::span(buffer_).subspan(taken_ - row_bytes(), row_bytes());
}

}  // namespace feedline::tool
