// Names of a table's rows, or of a vocabulary: what a file of names says, beside a slow, simple reading of it. A table
// of one row more or less is refused.
// covers: flowgraph/table/key_map.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/table/key_map.h"
#include "require.h"

namespace {

using namespace feedline;
using test::require;

/// A file in memory.
class Bytes final : public io::SourceFile {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> into) const override {
    require(offset + into.size() <= bytes_.size(), "bytes after the end are read");
    bytes_.copy(reinterpret_cast<char*>(into.data()), into.size(), offset);
  }
  uint64_t version() const noexcept override { return 0; }
  void check_unchanged() const override {}

 private:
  std::string_view bytes_;
  std::string path_ = "names";
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    text = end == text.npos ? "" : text.substr(end + 1);
  }
  return lines;
}

/// Returns a name as messages have it. Its bytes beyond ASCII are text or not.
std::string quoted(std::string_view name, bool is_text) {
  std::string text = "'";
  for (const char byte : name.substr(0, 200)) {
    const auto c = static_cast<unsigned char>(byte);
    const bool is_plain = c < 0x80 ? c >= ' ' && c < 0x7f && c != '\'' && c != '\\' : is_text;
    char hexadecimal[8];
    std::snprintf(hexadecimal, sizeof hexadecimal, "\\x%02x", c);
    text += is_plain ? std::string(1, byte) : hexadecimal;
  }
  return text + (name.size() > 200 ? "'... (" + std::to_string(name.size()) + " bytes)" : "'");
}

/// Returns how a table with this many rows is refused; nothing if it is not.
std::string refusal(std::string_view text, uint64_t rows) {
  try {
    const flow::KeyMap map(Bytes(text), rows);
    return "";
  } catch (const Error& error) {
    require(error.category() == Category::bad_pipeline && error.place().file == "names", "a refusal without the file");
    return error.message();
  }
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void check_other_numbers_of_rows(std::string_view text, size_t lines) {
  for (const size_t rows : {lines + 1, lines - 1})
    require(rows == SIZE_MAX || refusal(text, rows)
                                    .starts_with("the file has " + counted(lines, "line") + ", but the table has " +
                                                 counted(rows, "row") + ";"),
            "a table of another number of rows has names");
  const uint64_t most = uint64_t{1} << 31;
  require(refusal(text, most + 1).starts_with("the table has " + std::to_string(most + 1) + " rows, but only the rows"),
          "too many rows");
  uint64_t slots = 1;
  while (slots <= 2 * lines) slots *= 2;
  require(flow::KeyMap::memory_bytes(text.size(), lines) == text.size() + 8 * (lines + 1) + 8 * slots, "memory");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> lines = lines_of(text);
  require(flow::KeyMap::count_lines(Bytes(text)) == lines.size(), "another number of lines");
  if (text.starts_with("\xEF\xBB\xBF")) {
    require(refusal(text, lines.size()).starts_with("the file begins with a byte order mark"), "a mark is in a name");
    return 0;
  }
  check_other_numbers_of_rows(text, lines.size());
  std::map<std::string, int64_t> rows;
  for (size_t i = 0; i < lines.size(); i++) {
    const auto [first, is_new] = rows.emplace(lines[i], static_cast<int64_t>(i));
    if (is_new) continue;
    const std::string why = refusal(text, lines.size()), where = " is on line " + std::to_string(first->second + 1) +
                                                                 " and on line " + std::to_string(i + 1) + ";";
    require(why.starts_with("the name " + quoted(lines[i], true) + where) ||
                why.starts_with("the name " + quoted(lines[i], false) + where),
            "a name that comes twice is not refused, or as another");
    return 0;
  }
  const flow::KeyMap map(Bytes(text), lines.size());
  for (size_t i = 0; i < lines.size(); i++)
    require(std::ranges::equal(map.name(i), std::as_bytes(std::span(lines[i]))), "a row has another name");
  for (std::string name : lines)
    for (const int64_t change : {0, 1}) {
      if (change && !name.empty()) name.back() = static_cast<char>(name.back() + 1);
      const flow::KeyMap::Key key = std::as_bytes(std::span(name));
      int64_t row = -2;
      map.find({&key, 1}, {&row, 1});
      const auto found = rows.find(name);
      require(row == (found == rows.end() ? -1 : found->second), "a name is of another row");
    }
  return 0;
}
