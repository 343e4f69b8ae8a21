// Tables by RFC 4180, row by row, also in UTF-8 with a byte order mark, and with bare line feeds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace feedline::cli {

/// Not thread-safe. Memory: a buffer of 1 MiB, or the longest row.
class CsvReader {
 public:
  struct Cell {
    std::string_view text;  // without its quotes
    bool quoted = false;
  };

  /// Throws Error io_error, as next() does.
  explicit CsvReader(const std::string& path);

  /// The next row, the header among them; valid until the next call. Lines without a character are passed over. False:
  /// the end. Throws Error bad_pipeline, with the line, where quotes are not as RFC 4180 has them, or a row has more
  /// than 255 MiB.
  bool next(std::vector<Cell>& cells);

  /// Of the row's begin; the first is 1.
  uint64_t line() const noexcept { return row_line_; }
  /// Bytes of the file read so far.
  uint64_t position() const noexcept { return file_position_; }

 private:
  struct Piece {
    size_t begin, end;  // in rewritten_ or buffer_
    bool quoted, rewritten;
  };
  bool more();
  [[noreturn]] void refuse(uint64_t line, const char* why) const;
  bool scan_row();
  bool scan_quoted(size_t& at, bool last);

  io::InputFile file_;
  uint64_t file_position_ = 0;
  std::string buffer_;     // of the file, from the row on
  size_t next_ = 0;        // in it: behind the row
  std::string rewritten_;  // cells with doubled quotes, one behind another
  std::vector<Piece> pieces_;
  uint64_t line_ = 1, row_line_ = 1;
};

}  // namespace feedline::cli
