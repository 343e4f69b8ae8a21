#include "tool/convert/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "tool/convert/convert.h"

namespace feedline::tool {
namespace {

constexpr size_t read_bytes = 1 << 20;
constexpr size_t most_csv_row_bytes = size_t{255} << 20;

}  // namespace

CsvReader::CsvReader(const io::InputFile& file, char delimiter)
    : file_(file), ends_(std::string(1, delimiter) + "\r\n\"") {
  more();
  if (buffer_.starts_with(byte_order_mark)) next_ = byte_order_mark.size();
}

/// Reads more of the file into the buffer, and removes what is before next_. Returns false at the end of the file.
bool CsvReader::more() {
  buffer_.erase(0, next_);
  next_ = 0;
  if (buffer_.size() > most_csv_row_bytes)
    refuse(row_line_, "the row has more than 255 MiB, too much for a record; check that all quotes are closed");
  const size_t have = buffer_.size(),
               size = std::min<uint64_t>(std::max(read_bytes, have), file_.size() - file_position_);
  buffer_.resize(have + size);
  file_.read_at(file_position_, std::as_writable_bytes(std::span(buffer_)).subspan(have));
  file_position_ += size;
  return size > 0;
}

void CsvReader::refuse(uint64_t line, const char* why) const {
  refuse_input(file_.path(), fmt::format("line {}: {}", line, why));
}

bool CsvReader::next(std::vector<Cell>& cells) {
  for (;;) {
    while (next_ < buffer_.size() && (buffer_[next_] == '\n' || buffer_[next_] == '\r'))
      line_ += buffer_[next_++] == '\n';
    if (next_ < buffer_.size()) break;
    if (!more()) return false;
  }
  row_line_ = line_;
  while (!scan_row()) more();
  cells.clear();
  for (const Piece& piece : pieces_)
    cells.push_back(
        {std::string_view(piece.rewritten ? rewritten_ : buffer_).substr(piece.begin, piece.end - piece.begin),
         piece.quoted});
  return true;
}

/// Stores the cells of the row that begins at next_ in pieces_, and sets next_ to the end of the row. Returns false if
/// the buffer ends before the end of the row is known.
bool CsvReader::scan_row() {
  const bool last = file_position_ == file_.size();
  pieces_.clear();
  rewritten_.clear();
  line_ = row_line_;
  size_t at = next_;
  do {
    if (at == buffer_.size() && !last) return false;
    if (at < buffer_.size() && buffer_[at] == '"') {
      if (!scan_quoted(at, last)) return false;
    } else {
      const size_t end = std::min(buffer_.find_first_of(ends_, at), buffer_.size());
      if (end == buffer_.size() && !last) return false;
      if (end < buffer_.size() && buffer_[end] == '"')
        refuse(line_,
               "a quote is inside a cell that does not begin with a quote; put the whole cell in quotes, and write "
               "each quote inside the cell twice: \"\"");
      pieces_.push_back({at, end, false, false});
      at = end;
    }
  } while (at < buffer_.size() && buffer_[at] == ends_[0] && ++at);
  next_ = at;  // next() skips the line end
  return true;
}

/// Scans a quoted cell: moves `at` from the opening quote to the place after the closing one. Returns false if the
/// buffer ends before the closing quote is known. `last`: the buffer ends with the file.
bool CsvReader::scan_quoted(size_t& at, bool last) {
  const uint64_t opened = line_;
  const size_t begin = ++at, rewritten_begin = rewritten_.size();
  for (size_t from = begin;;) {
    const size_t quote = buffer_.find('"', at);
    if (quote == std::string::npos && last)
      refuse(opened,
             "a quote is opened here and never closed; close the quote or, if the quote belongs to the text, put the "
             "whole cell in quotes and write the quote inside the cell twice: \"\"");
    if (quote == std::string::npos || (quote + 1 == buffer_.size() && !last)) return false;
    line_ += static_cast<uint64_t>(std::count(&buffer_[at], &buffer_[quote], '\n'));
    at = quote + 1;
    if (at < buffer_.size() && buffer_[at] == '"') {  // a doubled quote stands for one quote
      rewritten_.append(buffer_, from, at - from);
      from = ++at;
      continue;
    }
    if (at < buffer_.size() && buffer_[at] != ends_[0] && buffer_[at] != '\r' && buffer_[at] != '\n')
      refuse(line_,
             "a closing quote must be followed by a delimiter or the end of the line; if the quote belongs to the "
             "text, write the quote twice: \"\"; if the delimiter is not a comma, use --delimiter");
    const bool rewritten = from != begin;
    if (rewritten) rewritten_.append(buffer_, from, quote - from);
    pieces_.push_back(rewritten ? Piece{rewritten_begin, rewritten_.size(), true, true}
                                : Piece{begin, quote, true, false});
    return true;
  }
}

}  // namespace feedline::tool
