#include "tool/reshard/shuffle_buckets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/file.h"
#include "io/records/crc32c.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

using FolderOp = HookedCall<"bucket folder", EACCES>;
using OpenOp = HookedCall<"bucket open", EMFILE>;
using WriteOp = HookedCall<"bucket write", ENOSPC>;
using SyncOp = HookedCall<"bucket sync", EIO>;

/// What precedes each record's payload in a bucket file.
struct Header {
  uint64_t key;
  uint32_t size, stored_crc;
};
static_assert(sizeof(Header) == io::frame_bytes, "a bucket is as large as its records in their files");

Descriptor open_bucket(const std::string& path, int flags) {
  int error = injected<OpenOp>();
  Descriptor opened(error ? -1 : open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!opened && !error) error = errno;
  if (error) throw io::io_failure(path, "cannot be opened", error);
  return opened;
}

/// Appends the bytes to the file, which is open only during this call.
void write_all(const std::string& path, std::span<const std::byte> bytes) {
  const Descriptor file = open_bucket(path, O_WRONLY | O_CREAT | O_APPEND);
  while (!bytes.empty()) {
    int error = injected<WriteOp>();
    const ssize_t count = error ? -1 : write(file.fd(), bytes.data(), bytes.size());
    if (count < 0 && !error) error = errno;
    if (count < 0 && error == EINTR) continue;
    if (count < 0) throw io::io_failure(path, "cannot be written", error);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void sync(const std::string& path) {
  const Descriptor file = open_bucket(path, O_RDONLY);
  int error = injected<SyncOp>();
  if (!error && fsync(file.fd()) != 0) error = errno;
  if (error) throw io::io_failure(path, "cannot be synced", error);
}

}  // namespace

std::string bucket_path(const std::string& folder, uint64_t bucket) {
  return fmt::format("{}/bucket-{:05}", folder, bucket);
}

struct BucketWriter::Bucket {
  void append(std::span<const std::byte> more) FEEDLINE_REQUIRES(mutex) {
    write_all(path, more);
    bytes += more.size();
  }

  std::string path;
  Mutex mutex;
  std::vector<std::byte> buffer FEEDLINE_GUARDED_BY(mutex);
  uint64_t bytes FEEDLINE_GUARDED_BY(mutex) = 0;  // bytes in the file
};

BucketWriter::BucketWriter(std::string folder, std::vector<uint64_t> bounds, uint64_t buffer_bytes)
    : folder_(std::move(folder)),
      bounds_(std::move(bounds)),
      buffer_bytes_(std::clamp<size_t>(buffer_bytes / bounds_.size(), 4 << 10, 4 << 20)),
      buckets_(std::make_unique<Bucket[]>(bounds_.size())) {
  for (size_t i = 0; i < bounds_.size(); i++) buckets_[i].path = bucket_path(folder_, i);
  std::error_code error(injected<FolderOp>(), std::generic_category());
  if (!error) fs::remove_all(folder_, error);
  if (!error) fs::create_directory(folder_, error);
  if (error) throw io::io_failure(folder_, "cannot be created", error.value());
}

BucketWriter::~BucketWriter() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(folder_, ignored);
}

void BucketWriter::add(uint64_t key, const io::RecordView& record) {
  const auto bound = std::upper_bound(bounds_.begin(), bounds_.end(), key);
  Bucket& bucket = buckets_[static_cast<size_t>(bound - bounds_.begin()) - 1];
  const Header header{key, record.size, record.stored_crc};
  const auto head = std::as_bytes(std::span(&header, 1));
  const std::span payload(record.data, record.size);

  const Lock lock(bucket.mutex);
  std::vector<std::byte>& buffer = bucket.buffer;
  buffer.reserve(buffer_bytes_);
  if (buffer.size() + head.size() + payload.size() > buffer_bytes_) {
    bucket.append(buffer);
    buffer.clear();
  }
  buffer.insert(buffer.end(), head.begin(), head.end());
  if (buffer.size() + payload.size() <= buffer_bytes_) {
    buffer.insert(buffer.end(), payload.begin(), payload.end());
  } else {
    bucket.append(buffer);
    buffer.clear();
    bucket.append(payload);
  }
}

std::vector<uint64_t> BucketWriter::finish() {
  std::vector<uint64_t> sizes(bounds_.size());
  tbb::parallel_for(size_t{0}, bounds_.size(), [&](size_t i) {
    Bucket& bucket = buckets_[i];
    const Lock lock(bucket.mutex);
    bucket.append(std::exchange(bucket.buffer, {}));
    sync(bucket.path);
    sizes[i] = bucket.bytes;
  });
  sync(folder_);
  finished_ = true;
  return sizes;
}

void BucketReader::read(const BucketFile& bucket, uint64_t memory,
                        const std::function<void(std::span<const std::byte>)>& on_record) {
  const io::InputFile file(bucket.path);
  const auto damaged = [&] {
    throw Error(Category::bad_data_crc, "the temporary file is damaged: split again with a different --out or --name",
                Place::of_file(bucket.path));
  };
  if (file.size() != bucket.bytes || bucket.records > bucket.bytes / sizeof(Header)) damaged();
  const bool whole = bucket_memory(bucket.bytes, bucket.records) <= memory;
  if (whole && capacity_ < bucket.bytes) {
    buffer_.reset();  // frees the old buffer before the new one is allocated
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(bucket.bytes);
    capacity_ = bucket.bytes;
  }
  if (whole) file.read_at(0, {buffer_.get(), bucket.bytes});
  const auto header_at = [&](uint64_t offset) {
    Header header;
    if (bucket.bytes - offset < sizeof header) damaged();
    if (whole)
      std::memcpy(&header, buffer_.get() + offset, sizeof header);
    else
      file.read_at(offset, std::as_writable_bytes(std::span(&header, 1)));
    if (bucket.bytes - offset - sizeof header < header.size) damaged();
    return header;
  };

  entries_.clear();
  entries_.reserve(bucket.records);
  for (uint64_t offset = 0; offset < bucket.bytes;) {
    const Header header = header_at(offset);
    entries_.push_back({header.key, offset});
    offset += sizeof header + header.size;
  }
  if (entries_.size() != bucket.records) damaged();
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });

  for (const Entry& entry : entries_) {
    const Header header = header_at(entry.offset);
    const uint64_t begin = entry.offset + sizeof header;
    std::span<const std::byte> payload;
    if (whole) {
      payload = {buffer_.get() + begin, header.size};
    } else {
      record_.resize(header.size);
      file.read_at(begin, record_);
      payload = record_;
    }
    if (io::mask_crc(io::crc32c(payload)) != header.stored_crc) damaged();
    on_record(payload);
  }
}

}  // namespace feedline::tool
