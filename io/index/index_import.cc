#include "io/index/index_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "io/file.h"

namespace feedline::io {
namespace {

// Reads the lines of a text file.
class Lines {
 public:
  explicit Lines(const std::string& path) : file_(path) {}

  // Sets `line` to the next line without its newline. Returns false if there is none. A line that is longer than the
  // buffer comes in pieces, which does no harm: two numbers never make such a long line.
  bool next(std::string_view& line) {
    size_t length = text_.find('\n', begin_);
    if (length == std::string::npos && read_ < file_.size()) {
      text_.erase(0, begin_);
      begin_ = 0;
      const size_t have = text_.size(), more = std::min<uint64_t>(64 << 10, file_.size() - read_);
      text_.resize(have + more);
      file_.read_at(read_, std::as_writable_bytes(std::span(text_).subspan(have)));
      read_ += more;
      length = text_.find('\n', have);
    }
    if (length == std::string::npos) length = text_.size();
    if (begin_ >= text_.size()) return false;
    line = std::string_view(text_).substr(begin_, length - begin_);
    begin_ = length + 1;
    return true;
  }

 private:
  const InputFile file_;
  std::string text_;
  size_t begin_ = 0;
  uint64_t read_ = 0;
};

struct Line {
  uint64_t offset, length;
};
std::optional<Line> parse(std::string_view text) {
  Line line{};
  const char* const end = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), end, line.offset);
  if (error != std::errc() || space == end || *space != ' ') return std::nullopt;
  const auto [after, second_error] = std::from_chars(space + 1, end, line.length);
  if (second_error != std::errc() || after != end || line.length > UINT64_MAX - line.offset) return std::nullopt;
  return line;
}

}  // namespace

std::string differs_from_idx(const std::string& idx_file, const FileIndex& index) {
  if (index.compression != Compression::none) return "is of a compressed file, which tfrecord2idx cannot read";
  Lines lines(idx_file);
  uint64_t number = 0, records = 0, end = 0;
  auto entry = index.entries.begin();
  auto bad = index.bad.begin();
  for (std::string_view text; lines.next(text);) {
    number++;
    const auto line = parse(text);
    if (!line && text.ends_with('\r') && parse(text.substr(0, text.size() - 1)))
      return fmt::format(
          "line {} ends with a carriage return; write the lines as tfrecord2idx does, with only a newline", number);
    if (!line)
      return fmt::format("line {}: '{}' is not an offset and a length", number,
                         text.substr(0, std::min<size_t>(text.size(), 40)));
    if (line->offset != end)
      return fmt::format("line {}: offset {}, but the line before ends at {}", number, line->offset, end);
    end = line->offset + line->length;
    while (bad != index.bad.end() && bad->offset + bad->length <= line->offset) ++bad;
    if (bad != index.bad.end() && bad->offset <= line->offset) continue;
    while (entry != index.entries.end() && entry->record < records) ++entry;
    if (entry != index.entries.end() && entry->record == records && entry->offset != line->offset)
      return fmt::format("line {}: offset {}, but record {} begins at {}", number, line->offset, records,
                         entry->offset);
    records++;
  }
  if (records != index.records)
    return fmt::format("it has {} good records, but the file has {}", records, index.records);
  if (index.bad.empty() && end != index.end)
    return fmt::format("its last line ends at offset {}, but the last record ends at {}", end, index.end);
  return "";
}

}  // namespace feedline::io
