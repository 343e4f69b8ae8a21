// A backend of any kind, memory for its reads, files with known content, and the result of each read.
#pragma once

#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <ostream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "io/read/backends.h"
#include "support/temp_dir.h"

namespace feedline::io::test {

/// Returns the byte at an offset of a file. A wrong byte shows where it comes from.
inline char content_at(uint32_t file, uint64_t offset) {
  uint64_t x = (uint64_t{file} << 40 ^ offset >> 3) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  return static_cast<char>(x >> (offset & 7) * 8);
}

inline std::string content(uint32_t file, uint64_t size) {
  std::string bytes(size, '\0');
  for (uint64_t i = 0; i < size; i++) bytes[i] = content_at(file, i);
  return bytes;
}

inline std::vector<FileId> write_files(const feedline::test::TempDir& dir, const std::vector<uint64_t>& sizes) {
  std::vector<FileId> files;
  for (uint32_t i = 0; i < sizes.size(); i++)
    files.push_back(stat_file(dir.write("shard-" + std::to_string(i), content(i, sizes[i]))));
  return files;
}

struct Mode {
  const char* name;
  bool uring;
  Toggle direct;
  bool registered = false;
};
inline std::ostream& operator<<(std::ostream& out, const Mode& mode) { return out << mode.name; }

inline const std::vector<Mode> all_modes = {
    {"uring", true, Toggle::off},
    {"uring O_DIRECT", true, Toggle::automatic},
    {"uring registered", true, Toggle::off, true},
    {"uring O_DIRECT registered", true, Toggle::automatic, true},
    {"pread", false, Toggle::off},
    {"pread O_DIRECT", false, Toggle::automatic},
};

inline std::unique_ptr<ReadBackend> make_backend(const Mode& mode, std::shared_ptr<FileTable> files,
                                                 const BackendOptions& options, ReadDone done) {
  return mode.uring ? make_uring_backend(std::move(files), options, std::move(done))
                    : make_pread_backend(std::move(files), options, std::move(done));
}

inline bool io_uring_allowed() {
  static const bool allowed = [] {
    try {
      make_uring_backend(std::make_shared<FileTable>(std::vector<FileId>{}, Toggle::off), {}, [](void*, int) {});
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }();
  return allowed;
}

/// Returns those of all_modes that this machine supports.
inline std::vector<Mode> modes() {
  std::vector<Mode> found;
  for (const Mode& mode : all_modes)
    if (!mode.uring || io_uring_allowed()) found.push_back(mode);
  return found;
}

/// Slots of page-aligned memory.
class Slots {
 public:
  Slots(size_t count, size_t bytes) : count_(count), bytes_(bytes) {
    void* memory = mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
  }
  ~Slots() { munmap(base_, count_ * bytes_); }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  size_t count() const { return count_; }
  size_t bytes() const { return bytes_; }
  std::byte* operator[](size_t i) const { return base_ + i * bytes_; }
  std::span<std::byte> all() const { return {base_, count_ * bytes_}; }

 private:
  size_t count_, bytes_;
  std::byte* base_;
};

struct Range {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;
};

inline Range random_range(std::mt19937_64& random, const std::vector<FileId>& files, uint64_t longest) {
  const auto file = static_cast<uint32_t>(random() % files.size());
  const uint64_t offset = random() % files[file].size;
  return {file, offset, 1 + random() % std::min(longest, files[file].size - offset)};
}

/// The results of reads, each known by its number.
class Outcomes {
 public:
  explicit Outcomes(size_t count) : outcomes_(count) {}

  ReadDone done() {
    return [this](void* tag, int error) { note(reinterpret_cast<size_t>(tag), error); };
  }
  void note(size_t number, int error) {
    {
      const std::lock_guard lock(mutex_);
      outcomes_[number].error = error;
      if (++outcomes_[number].times == 1) complete_++;
      // Notifies while the lock is held, unlike the library: the test may destroy this object as soon as the last
      // result is in.
      changed_.notify_all();
    }
  }
  void wait_for(size_t complete) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete_ >= complete; });
  }
  size_t complete() {
    const std::lock_guard lock(mutex_);
    return complete_;
  }
  int error(size_t number) {
    const std::lock_guard lock(mutex_);
    return outcomes_[number].error;
  }
  int times(size_t number) {
    const std::lock_guard lock(mutex_);
    return outcomes_[number].times;
  }

 private:
  struct Outcome {
    int error = -1, times = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outcome> outcomes_;
  size_t complete_ = 0;
};

inline void* tag_of(size_t number) { return reinterpret_cast<void*>(number); }

inline Read read_of(const Range& range, std::byte* buffer, size_t number) {
  return {range.file, range.offset, range.length, buffer, tag_of(number)};
}

/// Returns whether the bytes of the range lie at the place that the contract defines, and are right.
inline bool is_exact(const Range& range, const std::byte* buffer) {
  const std::byte* at = buffer + range.offset % block_bytes;
  for (uint64_t i = 0; i < range.length; i++)
    if (static_cast<char>(at[i]) != content_at(range.file, range.offset + i)) return false;
  return true;
}

/// A backend and memory of `slots` slots for reads of up to `longest` bytes.
class Rig {
 public:
  Rig(const Mode& mode, std::vector<FileId> files, uint64_t longest = 256 << 10, size_t slots = 48, unsigned depth = 16,
      size_t open_files = 64)
      : table(std::make_shared<FileTable>(std::move(files), mode.direct, open_files)),
        memory(slots, Read::capacity_for(block_bytes - 1, longest) + block_bytes),  // one more block, to stay untouched
        backend(make_backend(mode, table, options(mode, depth),
                             [this](void* tag, int error) { on_done(reinterpret_cast<size_t>(tag), error); })) {}

  /// Reads all ranges, a slot each, as many at a time as there are slots. Returns an errno for each; -1 if a read
  /// brought wrong bytes, -2 if it wrote past its capacity, -3 if it did not complete exactly once.
  std::vector<int> read(const std::vector<Range>& ranges) {
    std::vector<int> results;
    for (size_t first = 0; first < ranges.size(); first += memory.count()) {
      const size_t count = std::min(memory.count(), ranges.size() - first);
      std::memset(memory.all().data(), canary, memory.all().size());
      Outcomes outcomes(count);
      on_done = [&](size_t number, int error) { outcomes.note(number, error); };
      std::vector<Read> reads;
      for (size_t i = 0; i < count; i++) reads.push_back(read_of(ranges[first + i], memory[i], i));
      backend->submit(reads);
      outcomes.wait_for(count);
      for (size_t i = 0; i < count; i++) {
        int result = outcomes.error(i);
        if (result == 0 && !is_exact(ranges[first + i], memory[i])) result = -1;
        if (!is_behind_untouched(ranges[first + i], memory[i])) result = -2;
        if (outcomes.times(i) != 1) result = -3;
        results.push_back(result);
      }
    }
    return results;
  }
  int read(const Range& range) { return read(std::vector{range}).front(); }

  static constexpr int canary = 0x5a;
  std::shared_ptr<FileTable> table;
  Slots memory;
  std::function<void(size_t number, int error)> on_done;
  std::unique_ptr<ReadBackend> backend;

 private:
  BackendOptions options(const Mode& mode, unsigned depth) const {
    BackendOptions made;
    made.depth = depth;
    if (mode.registered) made.memory = memory.all();
    return made;
  }
  bool is_behind_untouched(const Range& range, const std::byte* buffer) const {
    for (size_t i = Read::capacity_for(range.offset, range.length); i < memory.bytes(); i++)
      if (buffer[i] != std::byte{canary}) return false;
    return true;
  }
};

}  // namespace feedline::io::test
