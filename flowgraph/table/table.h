// A table: an .npy file whose rows are looked up by their number or by their name. Or a vocabulary: only names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "feedline/device.h"
#include "feedline/tensor.h"
#include "flowgraph/table/key_map.h"
#include "flowgraph/table/table_spec.h"
#include "gpu/device/memory.h"
#include "io/npy_header.h"
#include "io/read/source.h"

namespace feedline::flow {

/// The rows lie in the file, or are resident in memory of this process or of GPUs. Rows in the file are read through
/// the page cache, which all processes of a machine share, or past it if the file is larger than the memory. The file
/// is never mapped: with a mapping, a file that is cut short or a disk that fails would end the process. Without a
/// mapping, that is an Error. A Table is immutable once it is open, and used by several threads at a time.
class Table {
 public:
  static constexpr size_t most_at_once = 64;  // the maximum number of rows in one read()

  /// Opens the file and reads its header. Throws Error io_error if it cannot be read. Throws Error bad_pipeline if it
  /// is not an .npy file in C order, if its elements are not numbers in little-endian order, or if `spec` already has
  /// what the header said and the header says something different now. A vocabulary has no such file.
  explicit Table(TableSpec spec);

  /// Reads the names of the rows, and the rows if they are to be resident in memory of the host. `gpus` says that the
  /// rows of an on_device table are resident on GPUs, and not on the host. Does nothing the second time. Throws the
  /// Errors of KeyMap, and Error if a file cannot be read or has changed. Throws Error bad_pipeline if the table takes
  /// more than `memory_limit` bytes, or if it is a vocabulary without names, with an empty one, or with more than
  /// KeyMap::most_names, or if a name that must be a number (TableSpec::number_names) is none.
  ///
  /// `how.direct` says when rows are read past the page cache. With `automatic`, they are read past the page cache if
  /// the file is larger than the memory that this process may use. If there is no page cache for the file, they always
  /// are.
  void open(uint64_t memory_limit, const IoOptions& how = {}, bool gpus = false);

  /// Returns the spec, completed by what the file's header says.
  const TableSpec& spec() const noexcept { return spec_; }
  /// Returns how many rows the table has; of an open vocabulary, how many names.
  uint64_t rows() const noexcept { return header_.rows; }
  size_t row_bytes() const noexcept { return header_.row_bytes; }

  bool is_open() const noexcept { return open_; }
  /// Returns how many bytes of memory the table takes. Precondition of this function and of all below: the table is
  /// open.
  uint64_t memory_bytes() const noexcept { return memory_bytes_; }
  /// Returns the names of the rows. Precondition: the spec has a file of names.
  const KeyMap& keys() const noexcept { return *keys_; }
  /// Returns a hash of type, shape and names, by which ranks compare their tables.
  uint64_t digest() const noexcept { return digest_; }

  /// Returns how many bytes of scratch memory read() needs for each row. The memory must be aligned to
  /// scratch_alignment bytes.
  size_t scratch_bytes() const noexcept;
  static constexpr size_t scratch_alignment = io::block_bytes;

  /// Sets at[i] to where row rows[i] lies, in `scratch` or in the table's own memory. A row that comes several times in
  /// succession is read once. If rows[i] is below 0, it stands for no row, and at[i] points to row_bytes() bytes of any
  /// content. Throws Error io_error if the file cannot be read, or has changed since it was opened. Precondition: there
  /// are at most most_at_once rows, all below rows(); `scratch` has scratch_bytes() bytes for each of them; an
  /// on_device table was opened without `gpus`; the table is no vocabulary.
  void read(std::span<const int64_t> rows, std::span<std::byte> scratch, std::span<const std::byte*> at) const;

  /// Returns whether read_ahead() does anything. Precondition of both: the table is no vocabulary.
  bool reads_ahead() const noexcept { return !resident_ && !on_gpus_ && !backend_; }
  /// Begins to bring the row into the page cache. Precondition: row < rows().
  void read_ahead(uint64_t row) const noexcept;

  /// Returns the number that stands for a row of an on_device table in a packed batch (flowgraph/batch/packing.h). In
  /// the memory of such a table a row of zeros comes before the rows. So 0 stands for no row, and 1 + r for row r.
  static int64_t arrival_number(int64_t row) noexcept { return 1 + row; }
  /// Returns the row that an arrival_number() stands for, in the memory of the host. Precondition: the table is
  /// on_device, and was opened without `gpus`.
  const std::byte* arrival_row(int64_t number) const noexcept {
    return memory_.bytes().data() + static_cast<uint64_t>(number) * header_.row_bytes;
  }
  /// Returns memory of the GPU, which holds a row of zeros and then the rows. The first call for each GPU reads the
  /// rows from the file. Throws Error device_error if the GPU has no room or fails, and Error io_error if the file
  /// cannot be read or has changed. Precondition: the table is on_device.
  std::shared_ptr<const std::byte> on_gpu(DeviceId gpu) const;

  /// Returns a line about the table for people: "img_feats.npy: 8,091 rows of FLOAT32 [2048], 63.2 MiB, ...", or of a
  /// vocabulary "words.txt: 8,091 names".
  std::string text() const;

 private:
  void open_rows(const IoOptions& how, uint64_t resident_bytes);
  uint64_t offset_of(uint64_t row) const noexcept { return header_.elements_at + row * header_.row_bytes; }
  std::string where() const;

  TableSpec spec_;
  std::shared_ptr<const io::SourceFile> file_;  // null: a vocabulary
  io::NpyHeader header_;                        // a vocabulary has only `rows`
  std::optional<KeyMap> keys_;
  gpu::Memory memory_;                        // the rows, if resident on the host; if on_device, after a row of zeros
  std::unique_ptr<io::ReadBackend> backend_;  // reads rows past the page cache; null: no row is read in this way
  uint64_t memory_bytes_ = 0, digest_ = 0;
  uint64_t first_row_ = 0;  // bytes before the first row in memory_: those of the row of zeros, if there is one
  bool open_ = false;
  bool resident_ = false, on_gpus_ = false;  // whether the rows are on the host; only on GPUs
  mutable Mutex mutex_;
  mutable std::map<int, std::shared_ptr<const std::byte>> copies_ FEEDLINE_GUARDED_BY(mutex_);  // by GPU
};

/// The tables of a pipeline, in the order of PipelineSpec::tables. A table that is not open is null.
using Tables = std::vector<std::shared_ptr<const Table>>;

}  // namespace feedline::flow
