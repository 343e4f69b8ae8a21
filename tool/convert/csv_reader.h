// Reads tables (RFC 4180) row by row. A table may also have a UTF-8 byte order mark, bare line feeds, and a delimiter
// that is not the comma.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace feedline::tool {

/// Reads one table. Takes a buffer of 1 MiB, or of the longest row if that is larger. Not thread-safe.
class CsvReader {
 public:
  struct Cell {
    std::string_view text;  // without its quotes
    bool quoted = false;
  };

  /// `delimiter` stands between two cells, and must be neither a quote nor a line end. `file` must outlive the reader.
  /// Throws Error io_error, as next() does, if the file cannot be read.
  explicit CsvReader(const io::InputFile& file, char delimiter = ',');

  /// Reads the next row (the header is a row, too); the cells are valid until the next call. Skips empty lines. Returns
  /// false at the end. Throws Error bad_pipeline, with the line, if quotes do not follow RFC 4180 or a row has more
  /// than 255 MiB.
  bool next(std::vector<Cell>& cells);

  /// Returns the line on which the row begins; the first line is 1.
  uint64_t line() const noexcept { return row_line_; }
  /// Returns how many bytes of the file have been read so far.
  uint64_t position() const noexcept { return file_position_; }

 private:
  struct Piece {
    size_t begin, end;  // where the cell lies, in rewritten_ or buffer_
    bool quoted, rewritten;
  };
  bool more();
  [[noreturn]] void refuse(uint64_t line, const char* why) const;
  bool scan_row();
  bool scan_quoted(size_t& at, bool last);

  const io::InputFile& file_;
  const std::string ends_;  // the characters that end a cell without quotes; the delimiter is the first
  uint64_t file_position_ = 0;
  std::string buffer_;     // a part of the file that contains the whole current row
  size_t next_ = 0;        // the offset in buffer_ of the end of the current row
  std::string rewritten_;  // cells that had doubled quotes, one after another
  std::vector<Piece> pieces_;
  uint64_t line_ = 1, row_line_ = 1;
};

}  // namespace feedline::tool
