#include "tool/convert/npy_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "tool/convert/convert.h"

namespace feedline::cli {
namespace {

constexpr uint64_t most_header_bytes = 64 << 10;
constexpr size_t buffer_bytes = 1 << 20;
constexpr uint64_t most_row_bytes = uint64_t{255} << 20;  // a record has at most 256 MiB

/// Takes one Python literal after another from the front of a header, which is a dictionary of strings, booleans and
/// tuples of numbers. Every member returns false if something else follows.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool symbol(char c) {
    skip_space();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool string(std::string& value) {
    skip_space();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return false;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return false;
    value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool boolean(bool& value) {
    skip_space();
    value = text_.starts_with("True");
    if (!value && !text_.starts_with("False")) return false;
    text_.remove_prefix(value ? 4 : 5);
    return true;
  }
  bool tuple(std::vector<int64_t>& values) {
    if (!symbol('(')) return false;
    while (!symbol(')')) {
      skip_space();
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      if (!text_.empty() && text_[0] == 'L') text_.remove_prefix(1);  // Python 2 writes long numbers in this way
      values.push_back(value);
      if (symbol(',')) continue;
      if (!symbol(')')) return false;
      break;
    }
    return true;
  }

 private:
  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n\t"), text_.size())); }
  std::string_view text_;
};

}  // namespace

NpyReader::NpyReader(std::string path) : file_(std::move(path)) {
  std::array<uint8_t, 12> begin{};
  const size_t have = std::min<uint64_t>(begin.size(), file_.size());
  file_.read_at(0, std::as_writable_bytes(std::span(begin)).first(have));
  if (have < 10 || !std::equal(begin.begin(), begin.begin() + 6, reinterpret_cast<const uint8_t*>("\x93NUMPY")))
    refuse("is not an .npy file");
  if (begin[6] < 1 || begin[6] > 3)
    refuse(fmt::format("has version {} of the .npy format; versions 1 to 3 can be read", begin[6]));
  const size_t start = begin[6] == 1 ? 10 : 12;
  uint64_t length = begin[8] | begin[9] << 8;
  if (start == 12) length |= static_cast<uint64_t>(begin[10]) << 16 | static_cast<uint64_t>(begin[11]) << 24;
  if (have < start || length > most_header_bytes || length > file_.size() - start)
    refuse("its header is cut short, or longer than 64 KiB");
  std::string header(length, '\0');
  file_.read_at(start, std::as_writable_bytes(std::span(header)));
  position_ = start + length;
  parse(header);

  uint64_t bytes = 0;
  if (__builtin_mul_overflow(rows_, row_bytes(), &bytes) || bytes != file_.size() - position_)
    refuse(fmt::format("has {} bytes of elements, but its header says {} rows of {} bytes", file_.size() - position_,
                       rows_, row_bytes()));
}

void NpyReader::refuse(const std::string& why) const { refuse_input(file_.path(), why); }

void NpyReader::parse(std::string_view header) {
  Literal text(header);
  bool fortran = false, good = text.symbol('{'), has_descr = false, has_order = false, has_shape = false;
  std::vector<int64_t> shape;
  while (good && !text.symbol('}')) {
    std::string key;
    good = text.string(key) && text.symbol(':');
    if (good && key == "descr") {
      if (!text.string(descr_)) refuse("its elements are structures; save each field as a separate array");
      has_descr = true;
    } else if (good && key == "fortran_order") {
      good = has_order = text.boolean(fortran);
    } else if (good && key == "shape") {
      shape.clear();
      good = has_shape = text.tuple(shape);
    } else {
      good = false;
    }
    if (good && !text.symbol(',')) {
      good = text.symbol('}');
      break;
    }
  }
  if (!good || !has_descr || !has_order || !has_shape)
    refuse("its header is not one of an .npy file: a dictionary of descr, fortran_order and shape");

  const char* const end = descr_.data() + descr_.size();
  const bool known = descr_.size() >= 3 && std::string_view("<>|=").find(descr_[0]) != std::string_view::npos &&
                     std::string_view("biufcSV").find(descr_[1]) != std::string_view::npos;
  if (!known || std::from_chars(descr_.data() + 2, end, element_bytes_).ptr != end || element_bytes_ == 0 ||
      element_bytes_ > most_row_bytes)
    refuse(fmt::format("its elements have the type '{}', which is not known; save the array as numbers", descr_));
  if (shape.empty()) refuse("is a single value, without rows; save an array with at least one axis");
  if (fortran && shape.size() > 1)
    refuse("is in Fortran order, column by column; save numpy.ascontiguousarray(array) instead");
  rows_ = static_cast<uint64_t>(shape[0]);
  row_shape_.assign(shape.begin() + 1, shape.end());
  for (const int64_t axis : row_shape_) {
    if (axis == 0) refuse("its rows are empty, because an axis has length 0; save an array that has elements");
    if (static_cast<uint64_t>(axis) > most_row_bytes / element_bytes_ / row_elements_)
      refuse("a row has more than 255 MiB, the most that a record may have");
    row_elements_ *= static_cast<uint64_t>(axis);
  }
}

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

}  // namespace feedline::cli
