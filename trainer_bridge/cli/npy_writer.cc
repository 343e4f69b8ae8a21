#include "trainer_bridge/cli/npy_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/syscall_hooks.h"

namespace feedline::cli {
namespace {

struct OpenOp {
  static constexpr const char* name = "npy open";
  static constexpr int error = EACCES;
};
struct WriteOp {
  static constexpr const char* name = "npy write";
  static constexpr int error = ENOSPC;
};
struct ReadOp {
  static constexpr const char* name = "npy read";
  static constexpr int error = EIO;
};
struct SyncOp {
  static constexpr const char* name = "npy sync";
  static constexpr int error = EIO;
};
struct RenameOp {
  static constexpr const char* name = "npy rename";
  static constexpr int error = EACCES;
};

// Room for 8 axes; the format asks for a multiple of 64.
constexpr size_t header_bytes = 320;
constexpr size_t buffer_bytes = size_t{1} << 20;

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

std::atomic<unsigned> serial = 0;  // two writers of this process may have the same path

const char* descr(DType dtype) {
  constexpr std::array<const char*, dtype_count> names = {"",    "",    "|b1", "|u1", "|i1", "<u2", "<i2",
                                                          "<u4", "<i4", "<i8", "<f2", "<u2", "<f4", "<f8"};
  return names[static_cast<size_t>(dtype)];
}

std::string header(DType dtype, const Shape& shape) {
  std::string axes;
  for (const int64_t axis : shape) axes += fmt::format("{}, ", axis);
  if (shape.rank() > 1) axes.resize(axes.size() - 2);  // a tuple of one keeps its comma
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr(dtype), axes);
  text.resize(header_bytes - 11, ' ');
  constexpr size_t length = header_bytes - 10;
  std::string header("\x93NUMPY\x01\x00", 8);
  header += {static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + text + '\n';
}

}  // namespace

NpyWriter::NpyWriter(std::string path, DType dtype, Shape row_shape)
    : path_(std::move(path)),
      temporary_(fmt::format("{}.{}.{}.partial", path_, getpid(), serial++)),
      dtype_(dtype),
      row_shape_(row_shape) {
  if (const int error = injected<OpenOp>()) fail("create", error);
  file_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("create", errno);
}

NpyWriter::~NpyWriter() {
  if (file_ < 0) return;
  ::close(file_);
  unlink(temporary_.c_str());
}

void NpyWriter::fail(const char* what, int error) const {
  Place place;
  place.file = path_;
  throw Error(Category::io_error, fmt::format("cannot {} it: {}", what, std::strerror(error)), std::move(place));
}

void NpyWriter::append(int64_t rows, std::span<const std::byte> elements) {
  rows_ += rows;
  if (buffer_.size() + elements.size() > buffer_bytes) flush();
  if (elements.size() > buffer_bytes) {
    write_at(header_bytes + written_, elements);
    written_ += elements.size();
  } else {
    buffer_.insert(buffer_.end(), elements.begin(), elements.end());
  }
}

void NpyWriter::flush() {
  write_at(header_bytes + written_, buffer_);
  written_ += buffer_.size();
  buffer_.clear();
}

void NpyWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (const int error = injected<WriteOp>()) fail("write", error);
    const ssize_t count = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void NpyWriter::read_back(uint64_t begin, std::span<std::byte> out) {
  flush();
  for (uint64_t offset = header_bytes + begin; !out.empty();) {
    if (const int error = injected<ReadOp>()) fail("read back", error);
    const ssize_t count = pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("read back", count < 0 ? errno : EIO);  // somebody cut the file
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void NpyWriter::close() {
  flush();
  const std::string text = header(dtype_, row_shape_.with_rows(rows_));
  write_at(0, std::as_bytes(std::span(text)));
  if (const int error = injected<SyncOp>()) fail("sync", error);
  if (fsync(file_) != 0) fail("sync", errno);
  if (const int error = injected<RenameOp>()) fail("rename", error);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  ::close(file_);
  file_ = -1;
}

}  // namespace feedline::cli
