// Stores of entries: in memory and on a disk, with several threads and processes, failing calls and killed writers.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/draws.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "feedline/log.h"
#include "io/cache/disk_entries.h"
#include "io/cache/memory_entries.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/skip.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::io;
using feedline::test::find_hook;
using feedline::test::TempDir;

namespace {

constexpr uint64_t most_bytes = 5000;

// The content of an entry: any bytes, of a length that its number decides.
std::vector<std::byte> content_of(uint64_t entry) {
  Draws draws(key_of({7, entry}));
  std::vector<std::byte> bytes(1 + draws.below(most_bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draws.next());
  return bytes;
}

std::vector<std::byte> scratch_memory() { return std::vector<std::byte>(most_bytes); }

bool put(EntryStore& store, uint64_t entry, std::span<std::byte> scratch) {
  const auto content = content_of(entry);
  const auto place = store.claim(entry, content.size(), scratch);
  if (place.empty()) return false;
  std::memcpy(place.data(), content.data(), content.size());
  store.keep(entry, place);
  return true;
}

enum class Found { nothing, right, wrong };
Found found(EntryStore& store, uint64_t entry, std::span<std::byte> scratch) {
  const auto bytes = store.find(entry, scratch);
  if (bytes.empty()) return Found::nothing;
  return std::ranges::equal(bytes, content_of(entry)) ? Found::right : Found::wrong;
}

/// Entries with neighbouring numbers, and the bytes that they must have.
struct Run {
  Run(uint64_t first_, size_t count) : first(first_) {
    for (uint64_t entry = first; entry < first + count; entry++) {
      const auto content = content_of(entry);
      sizes.push_back(content.size());
      bytes.insert(bytes.end(), content.begin(), content.end());
    }
  }
  void put(EntryStore& store) { store.keep_run(first, sizes, bytes); }
  /// Returns how many of the entries are found, and ~0 if a byte of them is wrong.
  size_t found(EntryStore& store) const {
    std::vector<std::byte> into(bytes.size());
    const size_t count = store.find_run(first, sizes, into);
    const auto size = std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(count), uint64_t{0});
    return std::ranges::equal(std::span(into).first(size), std::span(bytes).first(size)) ? count : ~size_t{0};
  }

  uint64_t first;
  std::vector<uint64_t> sizes;
  std::vector<std::byte> bytes;
};

struct Memory {
  Memory(uint64_t entries, uint64_t bytes)
      : block(new (std::align_val_t(64)) std::byte[MemoryEntries::table_bytes(entries) + bytes]()),
        store(entries, {block.get(), MemoryEntries::table_bytes(entries) + bytes}) {}
  struct Free {
    void operator()(std::byte* block) const { operator delete[](block, std::align_val_t(64)); }
  };
  std::unique_ptr<std::byte[], Free> block;
  MemoryEntries store;
};

constexpr uint64_t content_key = 99;

struct Disk {
  Disk(const std::string& path, EntryLayout layout, uint64_t content = content_key,
       uint64_t bytes_of_sync = DiskEntries::usual_sync)
      : memory(layout.entries), store(path, content, layout, memory, bytes_of_sync) {}
  std::vector<std::byte> memory;
  DiskEntries store;
};

class Lines {
 public:
  Lines() : before_(set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); })) {}
  ~Lines() { set_log_sink(before_); }
  std::vector<std::string> lines;

 private:
  LogSink before_;
};

void check_claims(EntryStore& store) {
  auto scratch = scratch_memory();
  CHECK(found(store, 3, scratch) == Found::nothing);
  CHECK(put(store, 3, scratch));
  CHECK(found(store, 3, scratch) == Found::right);
  CHECK_FALSE(put(store, 3, scratch));
  CHECK(found(store, 4, scratch) == Found::nothing);

  REQUIRE_FALSE(store.claim(4, 100, scratch).empty());
  CHECK(store.claim(4, 100, scratch).empty());
  CHECK(store.find(4, scratch).empty());
  store.give_up(4);
  CHECK(store.find(4, scratch).empty());
  CHECK(store.claim(4, 100, scratch).empty());
  CHECK(store.kept_entries() == 1);
  CHECK(store.kept_bytes() == content_of(3).size());
}

// Several threads find and keep all entries at the same time.
void check_threads(EntryStore& store) {
  const uint64_t entries = store.entries();
  std::atomic<uint64_t> wrong{0}, kept{0};
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < 4; thread++)
    threads.emplace_back([&, thread] {
      auto scratch = scratch_memory();
      for (int pass = 0; pass < 3; pass++)
        for (uint64_t i = 0; i < entries; i++) {
          const uint64_t entry = (i * 7 + thread * entries / 4) % entries;
          if (i % 5 == 0) {  // every fifth time a run
            Run run(entry, 1 + std::min<size_t>(entries - 1 - entry, i % 100));
            const size_t done = run.found(store);
            wrong += done > run.sizes.size();
            if (done < run.sizes.size()) run.put(store);
            continue;
          }
          switch (found(store, entry, scratch)) {
            case Found::wrong:
              wrong++;
              break;
            case Found::nothing:
              kept += put(store, entry, scratch);
              break;
            case Found::right:
              break;
          }
        }
    });
  threads.clear();
  CHECK(wrong == 0);
  CHECK(kept <= entries);
  CHECK(store.kept_entries() == entries);
  auto scratch = scratch_memory();
  for (uint64_t entry = 0; entry < entries; entry++) REQUIRE(found(store, entry, scratch) == Found::right);
}

// Keeps entries in a child process until it is killed, then looks at what is left. Returns how many entries are.
uint64_t kill_once(const std::string& path, const EntryLayout& layout, std::mt19937& random) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::unique_ptr<Disk> disk = std::make_unique<Disk>(path, layout, content_key, 1 << 16);
    auto scratch = scratch_memory();
    [[maybe_unused]] const auto told = write(pipe_ends[1], "b", 1);
    for (uint64_t entry = 0; entry < layout.entries; entry++) {
      put(disk->store, entry, scratch);
      if (entry % 3 == 0) Run(entry, std::min<size_t>(layout.entries - entry, 7)).put(disk->store);
    }
    _exit(0);  // without the destructor, which syncs
  }
  close(pipe_ends[1]);
  char begun;
  REQUIRE(read(pipe_ends[0], &begun, 1) == 1);
  close(pipe_ends[0]);
  usleep(static_cast<useconds_t>(random() % 3000));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  Disk disk(path, layout);
  auto scratch = scratch_memory();
  uint64_t there = 0;
  for (uint64_t entry = 0; entry < layout.entries; entry++) {
    const Found it = found(disk.store, entry, scratch);
    REQUIRE(it != Found::wrong);
    there += it == Found::right;
  }
  for (uint64_t entry = 0; entry < layout.entries; entry += 50) put(disk.store, entry, scratch);
  return there;
}

void kill_often(int times) {
  const TempDir dir;
  std::mt19937 random(4);
  const EntryLayout layout{1000, 4 << 20};
  std::set<uint64_t> counts;
  for (int i = 0; i < times; i++) {
    if (i % 20 == 0) std::filesystem::remove(dir.file("x.feedline-cache"));
    counts.insert(kill_once(dir.file("x.feedline-cache"), layout, random));
  }
  CHECK(counts.size() > 1);
  // A whole run after all that keeps every entry.
  std::filesystem::remove(dir.file("x.feedline-cache"));
  Disk disk(dir.file("x.feedline-cache"), layout);
  check_threads(disk.store);
}

}  // namespace

TEST_CASE("an entry in memory is written once") {
  Memory memory(10, 1 << 20);
  check_claims(memory.store);
}

TEST_CASE("an entry on a disk is written once") {
  const TempDir dir;
  Disk disk(dir.file("x.feedline-cache"), {10, 1 << 20});
  check_claims(disk.store);
}

TEST_CASE("threads share the entries") {
  Memory memory(500, 4 << 20);
  check_threads(memory.store);
  const TempDir dir;
  Disk disk(dir.file("x.feedline-cache"), {500, 4 << 20});
  check_threads(disk.store);
}

TEST_CASE("a run of entries is found as far as it is there") {
  const TempDir dir;
  Memory memory(200, 2 << 20);
  Disk disk(dir.file("x.feedline-cache"), {200, 2 << 20});
  auto scratch = scratch_memory();
  for (EntryStore* store : {static_cast<EntryStore*>(&memory.store), static_cast<EntryStore*>(&disk.store)}) {
    Run run(10, 150);
    CHECK(run.found(*store) == 0);
    CHECK(put(*store, 40, scratch));  // does not lie beside the others
    REQUIRE_FALSE(store->claim(60, 100, scratch).empty());
    run.put(*store);
    CHECK(store->kept_entries() == 149);
    CHECK(run.found(*store) == 50);
    CHECK(Run(61, 99).found(*store) == 99);
    CHECK(found(*store, 61, scratch) == Found::right);
    Run other = run;
    other.sizes[3]++;
    CHECK(store->find_run(other.first, other.sizes, other.bytes) == 3);
    CHECK(store->find_run(10, {}, {}) == 0);
  }
}

TEST_CASE("a run on a disk is written at once, read at once, and is there in the next run") {
  const TempDir dir;
  SyscallHook& reads = *find_hook("read from a cache");
  for (const bool is_first : {true, false}) {
    Disk disk(dir.file("x.feedline-cache"), {64, 1 << 20});
    Run run(0, 64);
    if (is_first) run.put(disk.store);
    reads.fail_nth_call(3);
    CHECK(run.found(disk.store) == 64);
    CHECK(reads.pending());  // one read of the table, and one of the data
    for (uint64_t entry = 0; entry < 64; entry++) CHECK(disk.store.has(entry));
    CHECK(reads.pending());  // has() need not look again at what was found valid
    reads.fail_nth_call(0);
  }
}

TEST_CASE("a run of another process is not found before it is synced, and not written again") {
  const TempDir dir;
  const std::string path = dir.file("x.feedline-cache");
  const EntryLayout layout{40, 1 << 20};
  Disk next(path, layout);
  Run run(0, 40);
  {
    Disk one(path, layout), other(path, layout);
    Run(10, 20).put(one.store);
    CHECK(run.found(other.store) == 0);
    run.put(other.store);
    CHECK(other.store.kept_entries() == 20);
    CHECK(run.found(other.store) == 10);
    CHECK(Run(10, 20).found(one.store) == 20);
  }
  CHECK(run.found(next.store) == 40);
}

TEST_CASE("one damaged entry of a run costs that entry") {
  const TempDir dir;
  const std::string path = dir.file("x.feedline-cache");
  Run run(0, 20);
  {
    Disk disk(path, {20, 1 << 20});
    run.put(disk.store);
  }
  const auto at = EntryFile::table_bytes(20) + run.sizes[0] + run.sizes[1];  // within entry 2
  const int fd = open(path.c_str(), O_RDWR);
  const auto other = static_cast<std::byte>(~std::to_integer<int>(run.bytes[run.sizes[0] + run.sizes[1]]));
  REQUIRE(pwrite(fd, &other, 1, static_cast<off_t>(at)) == 1);
  close(fd);
  Disk disk(path, {20, 1 << 20});
  CHECK(run.found(disk.store) == 2);
  CHECK(Run(3, 17).found(disk.store) == 17);
  CHECK_FALSE(disk.store.has(2));
}

TEST_CASE("a run whose read fails is read entry by entry, and one that cannot be written is not there") {
  const TempDir dir;
  auto scratch = scratch_memory();
  {
    const Lines log;
    Disk disk(dir.file("read.feedline-cache"), {20, 1 << 20});
    Run run(0, 20);
    run.put(disk.store);
    for (const int call : {1, 2}) {
      find_hook("read from a cache")->fail_nth_call(call);
      CHECK(run.found(disk.store) == 20);
    }
    CHECK(log.lines.empty());
  }
  // Entries are claimed, room is taken, and the data and the rows of the table are written.
  const std::pair<const char*, int> calls[] = {
      {"lock of a cache", 1},   {"read from a cache", 1}, {"write to a cache", 1}, {"lock of a cache", 2},
      {"read from a cache", 2}, {"write to a cache", 2},  {"write to a cache", 3}, {"write to a cache", 4}};
  for (const auto& [name, call] : calls) {
    CAPTURE(name, call);
    const Lines log;
    Disk disk(dir.file("write.feedline-cache"), {20, 1 << 20});
    find_hook(name)->fail_nth_call(call);
    Run(0, 20).put(disk.store);
    CHECK_FALSE(find_hook(name)->pending());
    CHECK(disk.store.kept_entries() == 0);
    for (uint64_t entry = 0; entry < 20; entry++) CHECK(found(disk.store, entry, scratch) == Found::nothing);
    CHECK(log.lines.size() == 1);
  }
  Disk disk(dir.file("write.feedline-cache"), {20, 1 << 20});
  CHECK(Run(0, 20).found(disk.store) == 0);
}

TEST_CASE("what has no room is not kept, and smaller entries still are") {
  const TempDir dir;
  Memory memory(4, 256);
  Disk disk(dir.file("x.feedline-cache"), {4, 256});
  auto scratch = scratch_memory();
  for (EntryStore* store : {static_cast<EntryStore*>(&memory.store), static_cast<EntryStore*>(&disk.store)}) {
    const auto keep = [&](uint64_t entry, uint64_t bytes) {
      const auto place = store->claim(entry, bytes, scratch);
      CHECK_FALSE(store->has(entry));
      if (!place.empty()) store->keep(entry, place);
      CHECK(store->has(entry) == !store->find(entry, scratch).empty());
      return store->has(entry);
    };
    CHECK(keep(0, 100));  // takes 128
    CHECK_FALSE(keep(1, 129));
    CHECK(keep(2, 128));
    CHECK_FALSE(keep(3, 1));
  }
}

TEST_CASE("entries on a disk are there in the next run, and in other processes once they are synced") {
  const TempDir dir;
  const std::string path = dir.file("folder/x.feedline-cache");
  const EntryLayout layout{20, 1 << 20};
  auto scratch = scratch_memory();
  {
    Disk one(path, layout), other(path, layout);
    CHECK(put(one.store, 5, scratch));
    CHECK(found(other.store, 5, scratch) == Found::nothing);
    CHECK_FALSE(put(other.store, 5, scratch));
  }
  Disk next(path, {30, 2 << 20});  // the layout is that of the file
  CHECK(next.store.entries() == 20);
  CHECK(found(next.store, 5, scratch) == Found::right);
  CHECK(EntryFile::layout_of(path, content_key) == layout);
  CHECK_FALSE(EntryFile::layout_of(path, content_key + 1).has_value());
}

TEST_CASE("a file with other content is made anew") {
  const TempDir dir;
  auto scratch = scratch_memory();
  for (const uint64_t content : {1, 2}) {
    Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20}, content);
    CHECK(found(disk.store, 5, scratch) == Found::nothing);
    CHECK(put(disk.store, 5, scratch));
  }
}

TEST_CASE("a wrong byte on the disk is never found") {
  const TempDir dir;
  const std::string path = dir.file("x.feedline-cache");
  const EntryLayout layout{20, 1 << 20};
  auto scratch = scratch_memory();
  std::mt19937 random(3);
  for (int i = 0; i < 200; i++) {
    std::filesystem::remove(path);
    {
      Disk disk(path, layout);
      for (uint64_t entry = 0; entry < layout.entries; entry++) put(disk.store, entry, scratch);
    }
    const auto size = std::filesystem::file_size(path);
    const int fd = open(path.c_str(), O_RDWR);
    const auto at = static_cast<off_t>(i % 2 == 0 ? random() % 8192 : random() % size);
    unsigned char byte = 0;
    REQUIRE(pread(fd, &byte, 1, at) == 1);
    byte ^= static_cast<unsigned char>(1 << random() % 8);
    REQUIRE(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
    Disk disk(path, layout);
    for (uint64_t entry = 0; entry < layout.entries; entry++)
      REQUIRE(found(disk.store, entry, scratch) != Found::wrong);
  }
}

TEST_CASE("a full disk ends the writing with one line, and what is there is still found") {
  const TempDir dir;
  const Lines log;
  auto scratch = scratch_memory();
  Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
  CHECK(put(disk.store, 1, scratch));
  find_hook("write to a cache")->fail_nth_call(1);
  put(disk.store, 2, scratch);
  CHECK(found(disk.store, 2, scratch) == Found::nothing);
  CHECK_FALSE(put(disk.store, 3, scratch));
  CHECK(found(disk.store, 1, scratch) == Found::right);
  REQUIRE(log.lines.size() == 1);
  CHECK(log.lines[0].find("No space left on device; what this file holds already is still used, but nothing more is "
                          "added") != std::string::npos);
}

TEST_CASE("a file that is cut ends the writing with one line, and what is left is still found") {
  const TempDir dir;
  const std::string path = dir.file("x.feedline-cache");
  // Within the last entry, before all entries, and within the table.
  for (const uint64_t left :
       {EntryFile::table_bytes(20) + content_of(0).size(), EntryFile::table_bytes(20), uint64_t{4096}}) {
    std::filesystem::remove(path);
    const Lines log;
    auto scratch = scratch_memory();
    Disk disk(path, {20, 1 << 20});
    for (uint64_t entry = 0; entry < 4; entry++) CHECK(put(disk.store, entry, scratch));
    std::filesystem::resize_file(path, left);
    CHECK(found(disk.store, 0, scratch) == (left > EntryFile::table_bytes(20) ? Found::right : Found::nothing));
    for (uint64_t entry = 1; entry < 4; entry++) CHECK(found(disk.store, entry, scratch) == Found::nothing);
    CHECK_FALSE(put(disk.store, 5, scratch));
    Run(6, 4).put(disk.store);
    CHECK(Run(6, 4).found(disk.store) == 0);
    REQUIRE(log.lines.size() == 1);
    CHECK_THAT(log.lines[0], Catch::EndsWith("cannot be read: the file has become shorter; what this file holds "
                                             "already is still used, but nothing more is added"));
  }
}

TEST_CASE("a run of a file that is cut is found up to there") {
  const TempDir dir;
  const Lines log;
  Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
  Run run(0, 20);
  run.put(disk.store);
  std::filesystem::resize_file(dir.file("x.feedline-cache"),
                               EntryFile::table_bytes(20) + run.sizes[0] + run.sizes[1] + run.sizes[2] - 1);
  CHECK(run.found(disk.store) == 2);
  CHECK(log.lines.size() == 1);
  CHECK(Run(3, 17).found(disk.store) == 0);
  CHECK(log.lines.size() == 1);
}

TEST_CASE("what could not be synced is not there in the next run") {
  const TempDir dir;
  const Lines log;
  auto scratch = scratch_memory();
  {
    Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
    CHECK(put(disk.store, 1, scratch));
    find_hook("fdatasync of a cache")->fail_nth_call(1);
  }
  CHECK(log.lines.size() == 1);
  Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
  CHECK(found(disk.store, 1, scratch) == Found::nothing);
  CHECK(put(disk.store, 1, scratch));
}

TEST_CASE("a file that cannot be opened, made or locked is an error that names it") {
  const TempDir dir;
  for (const char* name : {"open a cache", "write to a cache", "lock of a cache"}) {
    find_hook(name)->fail_nth_call(1);
    std::filesystem::remove(dir.file("x.feedline-cache"));
    const size_t before = test::open_descriptors();
    if (std::string_view(name) == "lock of a cache") {  // refused as if another process had it: then another try fails
      find_hook(name)->fail_nth_call(2);
    }
    try {
      Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
      FAIL("no error: " << name);
    } catch (const Error& error) {
      CHECK(error.category() == Category::io_error);
      CHECK(error.place().file == dir.file("x.feedline-cache"));
    }
    CHECK(test::open_descriptors() == before);
  }
  Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
  find_hook("write short to a cache")->fail_nth_call(1);
  auto scratch = scratch_memory();
  CHECK(put(disk.store, 1, scratch));
  CHECK(found(disk.store, 1, scratch) == Found::right);
  find_hook("read from a cache")->fail_nth_call(1);
  CHECK(found(disk.store, 1, scratch) == Found::nothing);
  CHECK(EntryFile::free_bytes(dir.file("not/there"), "a-") > 0);
  CHECK_THROWS_WITH(EntryFile::free_bytes(dir.file("x.feedline-cache/below/it"), "a-"),
                    Catch::Contains("the folder cannot be made"));
}

TEST_CASE("locks of a cache are of single bytes, as flock() would be of the whole file on NFS") {
  const TempDir dir;
  const Disk disk(dir.file("x.feedline-cache"), {20, 1 << 20});
  struct stat status {};
  REQUIRE(stat(dir.file("x.feedline-cache").c_str(), &status) == 0);
  std::ifstream locks("/proc/locks");  // "1: OFDLCK ADVISORY READ -1 fe:00:4711 1 1"
  if (!locks) return test::skip("/proc/locks cannot be read");
  std::vector<std::string> found;
  for (std::string line; std::getline(locks, line);)
    if (line.find(fmt::format(":{} ", status.st_ino)) != std::string::npos) found.push_back(line);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], Catch::Contains("OFDLCK") && Catch::Contains("READ") && Catch::EndsWith(" 1 1"));
}

TEST_CASE("a file of something else is left as it is, and so is what a symbolic link names") {
  const TempDir dir;
  const std::string precious = dir.write("precious", "what nobody may lose");
  std::filesystem::create_symlink(precious, dir.file("link"));
  for (const char* name : {"precious", "link"})
    CHECK_THROWS_WITH(EntryFile(dir.file(name), 1, {.entries = 10, .data_bytes = 1000}), Catch::Contains(name));
  std::string left;
  std::getline(std::ifstream(precious), left);
  CHECK(left == "what nobody may lose");
}

TEST_CASE("files that nobody has open are removed, the others are not") {
  const TempDir dir;
  const auto path = [&](const char* name) { return dir.file(name + std::string(EntryFile::suffix)); };
  const EntryLayout layout{20, 1 << 20};
  const auto make = [&](const char* name) { const Disk disk(path(name), layout); };
  make("a-1");
  make("b-1");
  make("a-3");
  dir.write("a-4.other", "");
  const Disk used(path("a-2"), layout);
  dir.write("a-5" + std::string(EntryFile::suffix), std::string(100 << 20, 'x'));
  const uint64_t free = EntryFile::free_bytes(path("a-3"), "none-");
  CHECK(EntryFile::free_bytes(path("a-3"), "a-") > free + (50 << 20));
  CHECK(std::filesystem::exists(path("a-5")));
  EntryFile::remove_unused(path("a-3"), "a-");
  CHECK_FALSE(std::filesystem::exists(path("a-5")));
  CHECK_FALSE(std::filesystem::exists(path("a-1")));
  for (const char* name : {"a-2", "a-3", "b-1"}) CHECK(std::filesystem::exists(path(name)));
  CHECK(std::filesystem::exists(dir.file("a-4.other")));
}

TEST_CASE("a writer that is killed loses entries, and leaves no wrong byte") { kill_often(40); }
TEST_CASE("a writer is killed a thousand times", "[.stress]") { kill_often(1000); }
