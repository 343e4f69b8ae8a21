#include "flowgraph/table/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/audit.h"
#include "base/byte_size.h"
#include "base/format_count.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "feedline/error.h"
#include "gpu/device/queue.h"

namespace feedline::flow {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are used as they lie in the file");

constexpr uint64_t most_row_bytes = (uint64_t{1} << 31) - 1;
constexpr uint64_t bytes_to_gpu_at_once = 16 << 20;

constexpr std::pair<std::string_view, DType> types[] = {
    {"f2", DType::float16}, {"f4", DType::float32}, {"f8", DType::float64}, {"b1", DType::boolean},
    {"u1", DType::uint8},   {"u2", DType::uint16},  {"u4", DType::uint32},  {"i1", DType::int8},
    {"i2", DType::int16},   {"i4", DType::int32},   {"i8", DType::int64},
};

[[noreturn]] void refuse(const io::SourceFile& file, const std::string& why) {
  throw Error(Category::bad_pipeline, why, Place::of_file(file.path()));
}

DType dtype_of(const io::SourceFile& file, const io::NpyHeader& header) {
  const std::string_view descr = header.descr;
  const auto found = std::ranges::find(types, descr.substr(1), &std::pair<std::string_view, DType>::first);
  if (found == std::end(types))
    refuse(file, fmt::format("its elements have the type '{}'; save the array as float16 to float64, int8 to int64, "
                             "uint8 to uint32, or bool",
                             descr));
  if (descr[0] == '>' && header.element_bytes > 1)
    refuse(file, fmt::format("its elements are big-endian ('{}'); save array.astype('<{}')", descr, descr.substr(1)));
  return found->second;
}

// Throws Error bad_pipeline unless each name is an INT64 in decimal digits, as std::to_chars writes it.
void check_numbers(const io::SourceFile& file, const KeyMap& names, uint64_t rows) {
  for (uint64_t row = 0; row < rows; row++) {
    const KeyMap::Key name = names.name(row);
    const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::array<char, 20> again;
    if (error != std::errc() || end != text.data() + text.size() ||
        text != std::string_view(again.data(), std::to_chars(again.data(), again.data() + again.size(), number).ptr))
      refuse(file, fmt::format("line {} is {}, but the feature is INT64; write a number of 64 bits there, in decimal "
                               "digits without spaces, a plus sign or leading zeros, or declare the feature as BYTES",
                               row + 1, quoted(name)));
  }
}

Shape shape_of(const io::SourceFile& file, const io::NpyHeader& header) {
  if (header.row_shape.size() > Shape::max_rank)
    refuse(file, fmt::format("its rows have {} axes, but a tensor has at most {}; save an array with fewer axes",
                             header.row_shape.size(), Shape::max_rank));
  return Shape(header.row_shape);
}

// The reads that one call of Table::read() has submitted together.
struct Reading {
  Mutex mutex;
  Condition done;
  size_t left = 0;  // reads that have not ended; set before they are submitted, and guarded from then on
  int error = 0;    // errno of a read that failed; 0: none has failed

  static void end(void* tag, int error) {
    auto& reading = *static_cast<Reading*>(tag);
    const Lock lock(reading.mutex);
    if (error) reading.error = error;
    if (--reading.left == 0)
      reading.done.notify_one();  // while the lock is held, because the waiter destroys the object
  }
  int wait() {
    Lock lock(mutex);
    done.wait(lock, [this] { return left == 0; });
    return error;
  }
};

}  // namespace

std::string TableSpec::name() const {
  return std::filesystem::path(is_vocabulary() ? keys_path : path).filename().string();
}

Table::Table(TableSpec spec) : spec_(std::move(spec)) {
  if (spec_.is_vocabulary()) return;
  file_ = io::all_files().open(spec_.path);
  header_ = io::read_npy_header(*file_, most_row_bytes);
  const DType dtype = dtype_of(*file_, header_);
  const Shape row_shape = shape_of(*file_, header_);
  if (header_.rows == 0)
    refuse(*file_, "the array has no rows, so nothing can be looked up; save an array that has rows");
  const bool is_known = spec_.dtype != DType::unset;
  if (is_known && (spec_.dtype != dtype || spec_.row_shape != row_shape || spec_.rows != header_.rows))
    refuse(*file_, fmt::format("has changed while the feed was made: it had {} of {} {}, and has {} of {} {}; start "
                               "again",
                               format_count(spec_.rows, "row"), feedline::name(spec_.dtype), to_string(spec_.row_shape),
                               format_count(header_.rows, "row"), feedline::name(dtype), to_string(row_shape)));
  spec_.dtype = dtype;
  spec_.row_shape = row_shape;
  spec_.rows = header_.rows;
}

void Table::open(uint64_t memory_limit, const IoOptions& how, bool gpus) {
  if (open_) return;
  on_gpus_ = spec_.on_device && gpus;
  resident_ = spec_.resident || (spec_.on_device && !gpus);
  first_row_ = spec_.on_device ? header_.row_bytes : 0;
  std::shared_ptr<const io::SourceFile> names;
  try {
    if (!spec_.keys_path.empty()) names = io::all_files().open(spec_.keys_path);
    // Text that is larger than the limit by itself is not read.
    if (!file_ && names->size() <= memory_limit) spec_.rows = header_.rows = KeyMap::count_lines(*names);
  } catch (const Error& error) {
    throw Error(error.category(), fmt::format("{}.keys_file: {}", file_ ? "lookup" : "vocabulary", error.message()),
                error.place());
  }
  const uint64_t names_bytes = names ? KeyMap::memory_bytes(names->size(), header_.rows) : 0,
                 rows_bytes = resident_ ? first_row_ + header_.rows * header_.row_bytes : 0;
  memory_bytes_ = names_bytes + rows_bytes;
  if (!file_ && memory_bytes_ > memory_limit)
    refuse(*names, fmt::format("the names take {} of memory, but memory.limit is {}; raise memory.limit",
                               format_byte_size(memory_bytes_), format_byte_size(memory_limit)));
  if (!file_ && (header_.rows == 0 || header_.rows > KeyMap::most_names))
    refuse(*names, fmt::format("the file has {}; a vocabulary has 1 to {} names, each on its own line",
                               format_count(header_.rows, "line"), KeyMap::most_names));
  if (memory_bytes_ > memory_limit)
    refuse(*file_, fmt::format("the table takes {} of memory ({} for rows, {} for names), but memory.limit is {}; {}",
                               format_byte_size(memory_bytes_), format_byte_size(rows_bytes),
                               format_byte_size(names_bytes), format_byte_size(memory_limit),
                               rows_bytes > 0 ? fmt::format("leave out lookup.{}, or raise memory.limit",
                                                            spec_.on_device ? "on_device" : "resident")
                                              : "raise memory.limit, or look rows up by number"));
  digest_ = hash64(header_.descr);
  for (const int64_t axis : spec_.row_shape.with_rows(static_cast<int64_t>(header_.rows)))
    digest_ = mix64(digest_ ^ static_cast<uint64_t>(axis));
  if (names) {
    keys_.emplace(*names, header_.rows);
    if (spec_.number_names) check_numbers(*names, *keys_, header_.rows);
    digest_ = mix64(digest_ ^ keys_->digest());
  }
  if (file_) {
    open_rows(how, rows_bytes);
  } else if (!spec_.number_names) {  // an empty name is no number
    const KeyMap::Key empty;
    int64_t line = -1;
    keys_->find({&empty, 1}, {&line, 1});
    if (line >= 0) refuse(*names, fmt::format("line {} is empty; remove it, or write a name there", line + 1));
  }
  open_ = true;
}

void Table::open_rows(const IoOptions& how, uint64_t resident_bytes) {
  if (resident_) {
    memory_ = gpu::Memory(resident_bytes);
    file_->read_at(header_.elements_at, memory_.bytes().subspan(first_row_, resident_bytes - first_row_));
  }
  file_->check_unchanged();
  const bool suits_page_cache =
      how.direct == Toggle::off || (how.direct == Toggle::automatic && file_->size() <= usable_memory());
  if (!resident_ && !on_gpus_ && !(file_->has_page_cache() && suits_page_cache)) {
    io::BackendOptions options;
    options.backend = how.backend;
    options.direct = how.direct;
    backend_ =
        io::all_files().make_read_backend({{file_->path(), file_->size(), file_->version()}}, options, Reading::end);
  }
}

size_t Table::scratch_bytes() const noexcept {
  if (resident_) return 0;
  return backend_ ? io::Read::capacity_for(io::block_bytes - 1, header_.row_bytes) : header_.row_bytes;
}

void Table::read(std::span<const int64_t> rows, std::span<std::byte> scratch, std::span<const std::byte*> at) const {
  std::array<io::Read, most_at_once> reads;
  Reading reading;
  for (size_t i = 0; i < rows.size(); i++) {
    const uint64_t row = static_cast<uint64_t>(std::max<int64_t>(0, rows[i])), offset = offset_of(row);
    std::byte* const to = scratch.data() + i * scratch_bytes();
    if (resident_) {
      at[i] = memory_.bytes().data() + first_row_ + row * header_.row_bytes;
    } else if (i > 0 && (rows[i] < 0 || rows[i] == rows[i - 1])) {
      at[i] = at[i - 1];
    } else if (backend_) {
      at[i] = to + offset % io::block_bytes;
      if (rows[i] >= 0) reads[reading.left++] = {0, offset, header_.row_bytes, to, &reading};
    } else {
      at[i] = to;
      if (rows[i] >= 0) file_->read_at(offset, {to, header_.row_bytes});
    }
  }
  if (reading.left > 0) {
    backend_->submit(std::span(reads).first(reading.left));
    if (const int error = reading.wait())
      throw Error(Category::io_error, io::read_error_message(error), Place::of_file(file_->path()));
  } else if (!resident_) {
    file_->check_unchanged();
  }
}

void Table::read_ahead(uint64_t row) const noexcept { file_->read_ahead(offset_of(row), header_.row_bytes); }

std::shared_ptr<const std::byte> Table::on_gpu(DeviceId gpu) const {
  const Lock lock(mutex_);
  std::shared_ptr<const std::byte>& copy = copies_[gpu.ordinal];
  if (copy) return copy;
  const uint64_t bytes = spec_.device_bytes();
  try {
    gpu::Memory memory(std::min(bytes, bytes_to_gpu_at_once));
    const std::shared_ptr<gpu::Queue> queue = gpu::cuda_queue(gpu);
    std::byte* const rows = queue->allocate(bytes);
    memory.pin_for(gpu);
    for (uint64_t done = 0; done < bytes;) {
      const std::span<std::byte> some = memory.bytes().first(std::min(bytes - done, memory.bytes().size()));
      const size_t zeros = std::min<uint64_t>(some.size(), first_row_ - std::min(done, first_row_));
      std::ranges::fill(some.first(zeros), std::byte{0});
      if (zeros < some.size()) file_->read_at(header_.elements_at + done + zeros - first_row_, some.subspan(zeros));
      queue->copy(rows + done, some.data(), some.size());
      queue->wait();
      done += some.size();
    }
    file_->check_unchanged();
    copy = std::shared_ptr<const std::byte>(queue, rows);
  } catch (const Error& error) {
    if (error.category() != Category::device_error) throw;
    throw Error(error.category(),
                fmt::format("the table cannot be copied to GPU {}, where it takes {}: {}; if the GPU has too little "
                            "memory, leave out lookup.on_device",
                            gpu.ordinal, format_byte_size(bytes), error.message()),
                Place::of_file(file_->path()));
  }
  return copy;
}

std::string Table::where() const {
  if (on_gpus_) return "resident on each GPU";
  if (resident_) return "resident";
  return backend_ ? "read by " + backend_->description() : "read through the page cache";
}

std::string Table::text() const {
  if (!file_) return fmt::format("{}: {}", spec_.name(), format_count(header_.rows, "name"));
  return fmt::format("{}: {} of {} {}, {}, {}{}", spec_.name(), format_count(spec_.rows, "row"),
                     feedline::name(spec_.dtype), to_string(spec_.row_shape),
                     format_byte_size(header_.rows * header_.row_bytes), where(), keys_ ? ", by name" : ", by number");
}

}  // namespace feedline::flow
