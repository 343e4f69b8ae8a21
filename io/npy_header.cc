#include "io/npy_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>

#include "base/byte_size.h"
#include "feedline/error.h"

namespace feedline::io {
namespace {

constexpr uint64_t most_header_bytes = 64 << 10;

[[noreturn]] void refuse(const SourceFile& file, const std::string& why) {
  throw Error(Category::bad_pipeline, why, Place::of_file(file.path()));
}

/// Takes one Python literal after another from the front of a header, which is a dictionary of strings, booleans and
/// tuples of numbers. Every member returns false if the header does not continue with the literal that it takes.
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

// The values that the dictionary of a header states.
struct Said {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

Said parse(const SourceFile& file, std::string_view header) {
  Said said;
  Literal text(header);
  bool good = text.symbol('{'), has_descr = false, has_order = false, has_shape = false;
  while (good && !text.symbol('}')) {
    std::string key;
    good = text.string(key) && text.symbol(':');
    if (good && key == "descr") {
      if (!text.string(said.descr)) refuse(file, "its elements are structures; save each field as a separate array");
      has_descr = true;
    } else if (good && key == "fortran_order") {
      good = has_order = text.boolean(said.fortran);
    } else if (good && key == "shape") {
      said.shape.clear();
      good = has_shape = text.tuple(said.shape);
    } else {
      good = false;
    }
    if (good && !text.symbol(',')) {
      good = text.symbol('}');
      break;
    }
  }
  if (!good || !has_descr || !has_order || !has_shape)
    refuse(file,
           "its header is not the dictionary of an .npy file, with descr, fortran_order and shape; save the array "
           "again with numpy.save");
  return said;
}

NpyHeader check(const SourceFile& file, Said said, uint64_t most_row_bytes) {
  NpyHeader header;
  const std::string& descr = header.descr = std::move(said.descr);
  const char* const end = descr.data() + descr.size();
  const bool known = descr.size() >= 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos &&
                     std::string_view("biufcSV").find(descr[1]) != std::string_view::npos;
  if (!known || std::from_chars(descr.data() + 2, end, header.element_bytes).ptr != end || header.element_bytes == 0 ||
      header.element_bytes > most_row_bytes)
    refuse(file,
           fmt::format("its elements have the type '{}', which is not supported; save the array as numbers", descr));
  if (said.shape.empty()) refuse(file, "is a single value, without rows; save an array with at least one axis");
  if (said.fortran && said.shape.size() > 1)
    refuse(file, "is in Fortran order, column by column; save numpy.ascontiguousarray(array) instead");
  header.rows = static_cast<uint64_t>(said.shape[0]);
  header.row_shape.assign(said.shape.begin() + 1, said.shape.end());
  header.row_bytes = header.element_bytes;
  for (const int64_t axis : header.row_shape) {
    if (axis == 0) refuse(file, "its rows are empty, because an axis has length 0; save an array that has elements");
    if (static_cast<uint64_t>(axis) > most_row_bytes / header.row_bytes)
      refuse(file, fmt::format("a row has more than {}, which is the largest supported size of a row",
                               format_byte_size(most_row_bytes)));
    header.row_bytes *= static_cast<uint64_t>(axis);
  }
  return header;
}

}  // namespace

NpyHeader read_npy_header(const SourceFile& file, uint64_t most_row_bytes) {
  std::array<uint8_t, 12> begin{};
  const size_t have = std::min<uint64_t>(begin.size(), file.size());
  file.read_at(0, std::as_writable_bytes(std::span(begin)).first(have));
  if (have < 10 || !std::equal(begin.begin(), begin.begin() + 6, reinterpret_cast<const uint8_t*>("\x93NUMPY")))
    refuse(file, "is not an .npy file");
  if (begin[6] < 1 || begin[6] > 3)
    refuse(file, fmt::format("has version {} of the .npy format; versions 1 to 3 can be read", begin[6]));
  const size_t start = begin[6] == 1 ? 10 : 12;
  uint64_t length = begin[8] | begin[9] << 8;
  if (start == 12) length |= static_cast<uint64_t>(begin[10]) << 16 | static_cast<uint64_t>(begin[11]) << 24;
  if (have < start || length > most_header_bytes || length > file.size() - start)
    refuse(file, "its header is cut short, or longer than 64 KiB");
  std::string text(length, '\0');
  file.read_at(start, std::as_writable_bytes(std::span(text)));
  NpyHeader header = check(file, parse(file, text), most_row_bytes);
  header.elements_at = start + length;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(header.rows, header.row_bytes, &bytes) || bytes != file.size() - header.elements_at)
    refuse(file, fmt::format("has {} bytes of elements, but its header says {} rows of {} bytes each",
                             file.size() - header.elements_at, header.rows, header.row_bytes));
  return header;
}

}  // namespace feedline::io
