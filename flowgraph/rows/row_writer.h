// Makes rows of an output in a way that can fail: the data of a picture may be damaged, or a table may lack a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flowgraph/rows/row_error.h"
#include "flowgraph/rows/row_spec.h"
#include "flowgraph/table/table.h"

namespace feedline::io {
class EntryStore;
}

namespace feedline::flow {

/// The result of RowWriter::write() for a block of rows.
struct RowOutcome {
  std::vector<RowError> failed;  // in ascending order of rows; RowError::feature is -1
  uint64_t warnings = 0;         // about faults that fail no row, such as small damage of a picture
  uint64_t found = 0;            // rows whose entry was already in the cache
};

/// The entries of a cache in which a writer finds, and stores, the part of each row that is the same in every epoch.
struct KeptRows {
  static constexpr uint64_t none = ~uint64_t{0};
  io::EntryStore& store;
  std::span<const uint64_t> entries;  // by row: the number of its entry; `none` if the row is not cached
  std::span<std::byte> scratch;       // KeptStep::entry_bytes bytes if entries are on a disk; empty if in memory
};

/// Says which rows of an epoch a block has. The rows are consecutive, and a sample has `frames` rows. If a writer that
/// takes long makes the steps of a row, each step is a block of its own, and `first` is the number of the row's sample.
/// If any other writer makes several values of a row, each value counts as a row of its block, and nothing is said: all
/// members have their defaults. So such a writer makes no random choices and uses no cache.
struct RowNumbers {
  uint64_t epoch = 0, first = 0;
  uint64_t frames = 1;
  const KeptRows* kept = nullptr;  // null: there is no cache
  /// Returns the number of the sample, in its epoch, that row i of the block belongs to.
  uint64_t sample(size_t i) const noexcept { return (first + i) / frames; }
};

/// Makes the rows of an output, or the steps of its rows, from the values of a feature. A row may fail. Immutable, and
/// used by several threads at a time. Unpacking is not a RowWriter: it cannot fail, and it is described by plain data
/// (unpack::UnpackSpec), because GPUs carry it out, too.
class RowWriter {
 public:
  virtual ~RowWriter() = default;

  /// Returns how many bytes of scratch memory write() needs. MemoryPlan reserves them once for each thread.
  virtual uint64_t scratch_bytes() const noexcept = 0;

  /// Returns the maximum number of bytes that write() takes from the heap.
  virtual uint64_t heap_bytes() const noexcept { return 0; }

  /// Returns whether making a row takes much longer than its size suggests, as with a picture. Each row is then a task
  /// of its own, and so is each step of a row.
  virtual bool takes_long() const noexcept { return false; }

  /// Returns whether read_ahead() does anything.
  virtual bool reads_ahead() const noexcept { return false; }

  /// Begins to read what is needed to make rows from these values soon. Does not wait until it has been read.
  virtual void read_ahead(std::span<const std::span<const std::byte>>) const noexcept {}

  /// Makes the rows of a block. Row i is made from the bytes values[i], and begins at out + i * stride. values[i] is
  /// one value of a feature as the record stores it; numbers are as they lie in memory. Adds the result to `outcome`. A
  /// failed row may have any bytes. `scratch` has scratch_bytes() bytes. Random choices are a function of `rows`, so
  /// that neither threads nor ranks change them.
  virtual void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out,
                     size_t stride, std::span<std::byte> scratch, RowOutcome& outcome) const = 0;

  /// Returns how many bytes a cache keeps of a value; 0 if it keeps nothing, because the row will fail.
  virtual uint64_t kept_bytes([[maybe_unused]] std::span<const std::byte> value) const { return 0; }
};

/// Returns the writer of these rows. `tables` are the pipeline's; the tables that the rows name must be open.
std::unique_ptr<const RowWriter> make_row_writer(const RowSpec& rows, const Tables& tables);

}  // namespace feedline::flow
