// The names of a table's rows, or of a vocabulary. Finds the number of a row by its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace feedline::flow {

/// A file of names, one on a line, as a hash table. The name of row i is line i + 1. A line ends with "\n" or "\r\n",
/// which the last line may lack. Names are bytes, and each comes once. Immutable.
class KeyMap {
 public:
  using Key = std::span<const std::byte>;
  static constexpr uint64_t most_names = uint64_t{1} << 31;

  /// Returns how many lines the file has. Throws Error io_error if it cannot be read.
  static uint64_t count_lines(const io::SourceFile& file);

  /// Reads the file. Throws Error io_error if it cannot be read, or has changed since it was opened. Throws Error
  /// bad_pipeline if the file does not have `rows` lines, has a name twice, or begins with a byte order mark. The error
  /// about a name that comes twice has the numbers of both lines.
  KeyMap(const io::SourceFile& file, uint64_t rows);

  /// Returns how many bytes of memory a KeyMap takes for a file of `file_bytes` bytes with the names of `rows` rows.
  static uint64_t memory_bytes(uint64_t file_bytes, uint64_t rows) noexcept;

  /// Sets rows[i] to the number of the row that keys[i] names, or to -1 if there is no such row. Allocates nothing.
  /// Precondition: `keys` and `rows` have the same size, at most 256.
  void find(std::span<const Key> keys, std::span<int64_t> rows) const noexcept;

  Key name(uint64_t row) const noexcept;

  /// Returns a hash of all names in their order.
  uint64_t digest() const noexcept { return digest_; }

 private:
  struct Bucket {
    uint32_t tag = 0;    // the upper half of the hash
    uint32_t after = 0;  // 1 + the number of the row; 0: the bucket is empty
  };

  void find_lines(const io::SourceFile& file, uint64_t rows);
  void insert(uint32_t row, const io::SourceFile& file);

  std::vector<std::byte> text_;
  std::vector<uint64_t> begins_;  // where each line begins in text_, and where one more line would begin
  std::vector<Bucket> buckets_;   // their number is a power of two; at most half of them are in use
  uint64_t digest_ = 0;
};

/// Returns a key for messages: its text in quotes, with \xNN for bytes that are not text. A long key is cut.
std::string quoted(KeyMap::Key key);

}  // namespace feedline::flow
