// Makes rows of an output in a way that can fail: the data of a picture may be damaged, or a table may lack a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/rows/row_error.h"

namespace feedline::io {
class EntryStore;
}

namespace feedline::flow {

class RowWriter;
class Table;

/// How rows are made from a table by the rank or on the GPU that receives them.
struct GatheredRows {
  std::shared_ptr<const RowWriter> numbers;  // makes what travels: for each row an INT64, its Table::arrival_number()
  std::shared_ptr<const Table> table;        // has the rows from which the job's UnpackSpec makes the output's rows
};

/// What became of a block of rows.
struct RowOutcome {
  std::vector<RowError> failed;  // in ascending order of rows; RowError::feature is -1
  uint64_t warnings = 0;         // of what does not make a row fail, such as small damage of a picture
  uint64_t found = 0;            // rows whose kept part was found in the cache
};

/// Where a writer finds and keeps the part of its rows that is the same in every epoch.
struct KeptRows {
  static constexpr uint64_t none = ~uint64_t{0};
  io::EntryStore& store;
  std::span<const uint64_t> entries;  // by row: the number of its entry; `none` if the row is not kept
  std::span<std::byte> scratch;       // KeptStep::entry_bytes bytes if entries are on a disk; empty if in memory
};

/// Which rows of an epoch a block has. The rows are consecutive, and a sample has `frames` rows. If a writer makes the
/// steps of a row, each step is a block of its own, and `first` is the number of the row's sample.
struct RowNumbers {
  uint64_t epoch = 0, first = 0;
  uint64_t frames = 1;
  const KeptRows* kept = nullptr;  // null: there is no cache
  /// Returns the number of the sample, in its epoch, that row i of the block belongs to.
  uint64_t sample(size_t i) const noexcept { return (first + i) / frames; }
};

/// The part of a writer's work that is the same in every epoch, so that a cache can keep its result.
struct KeptStep {
  std::string text;     // says what is made; writers with the same text make the same bytes from a value
  uint64_t bytes = 0;   // how many bytes are made from each value; 0: that depends on the value
  std::string why_not;  // for people: why nothing can be kept; if it is not empty, the other members are not set
  // The maximum number of bytes in an entry. So much memory is needed while an entry is read from a disk, or made for a
  // disk. 0: no memory is needed, because an entry is the row itself.
  uint64_t entry_bytes = 0;
};

/// Makes the rows of an output, or the steps of its rows, from the values of a feature. A row may fail. Immutable, and
/// used by several threads at a time. Unpacking is not a RowWriter: it cannot fail, and it is described by plain data
/// (unpack::UnpackSpec), because GPUs carry it out, too.
class RowWriter {
 public:
  virtual ~RowWriter() = default;

  /// Returns how many bytes of scratch memory write() needs. MemoryPlan reserves them once for each thread.
  virtual uint64_t scratch_bytes() const noexcept = 0;

  /// Returns how many bytes write() takes from the heap at most.
  virtual uint64_t heap_bytes() const noexcept { return 0; }

  /// Returns whether making a row takes much longer than its size suggests, as with a picture. Each row is then a task
  /// of its own.
  virtual bool takes_long() const noexcept { return false; }

  /// Returns whether read_ahead() does anything.
  virtual bool reads_ahead() const noexcept { return false; }

  /// Begins to read what is needed to make rows from these values soon. Does not wait until it has been read.
  virtual void read_ahead(std::span<const std::span<const std::byte>>) const noexcept {}

  /// Makes the rows of a block. Row i is made from the bytes values[i], and begins at out + i * stride. values[i] is
  /// one value of a feature as the record stores it; numbers are as they lie in memory. Adds to `outcome`. A failed row
  /// may have any bytes. `scratch` has scratch_bytes() bytes. Random choices are a function of `rows`, so that neither
  /// threads nor ranks change them.
  virtual void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out,
                     size_t stride, std::span<std::byte> scratch, RowOutcome& outcome) const = 0;

  /// Returns a writer of stored numbers, from which the job's UnpackSpec makes the same rows. The numbers can then
  /// travel as they are stored. The rank or the GPU that receives them casts and normalises them. Returns null if there
  /// is no such writer.
  virtual std::shared_ptr<const RowWriter> of_stored_numbers() const { return nullptr; }

  /// Returns how rows are gathered by the rank or on the GPU that receives them, from a table that each rank and GPU
  /// has. Returns nullopt if they are not gathered.
  virtual std::optional<GatheredRows> gathered() const { return std::nullopt; }

  /// Returns what a cache can keep of the rows. Null: the pipeline has no cache, or the writer makes nothing that is
  /// worth keeping.
  virtual const KeptStep* kept_step() const noexcept { return nullptr; }
  /// Returns how many bytes are kept of a value; 0 if nothing is kept, because the row will fail.
  virtual uint64_t kept_bytes([[maybe_unused]] std::span<const std::byte> value) const { return 0; }
};

}  // namespace feedline::flow
