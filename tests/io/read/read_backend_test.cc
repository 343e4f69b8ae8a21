// What every backend promises, tested with each backend in each way of reading.
#include "io/read/read_backend.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <semaphore>
#include <thread>

#include "backend_rig.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::TempDir;

namespace {

const std::vector<uint64_t> sizes = {1, 511, 512, 513, 4095, 4096, 4097, 100'000, (1 << 20) + 3};

Mode any_mode() { return GENERATE(from_range(modes())); }

void set_mtime(const std::string& path, int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

/// Returns whether the file's system can read without waiting for a disk: when it is told so, or because it has none.
bool can_read_without_waiting(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte = 0;
  const iovec memory{&byte, 1};
  struct statfs system {};
  const bool can = preadv2(fd, &memory, 1, 0, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP ||
                   (fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC);
  close(fd);
  return can;
}

}  // namespace

TEST_CASE("every way of reading that this machine has is tested") {
  if (!io_uring_allowed()) feedline::test::skip("io_uring is refused: only pread is tested");
  CHECK(modes().size() == (io_uring_allowed() ? 6 : 2));
}

TEST_CASE("any range of any file arrives exactly, where the contract says") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, sizes);
  Rig rig(mode, files);
  std::mt19937_64 random(1);
  std::vector<Range> ranges;
  for (int i = 0; i < 600; i++) ranges.push_back(random_range(random, files, i % 3 ? 256 << 10 : 5000));
  for (uint32_t file = 0; file < files.size(); file++) {
    const uint64_t size = files[file].size, longest = std::min<uint64_t>(size, 256 << 10);
    ranges.insert(ranges.end(), {{file, 0, longest}, {file, size - longest, longest}, {file, size - 1, 1}});
  }
  CHECK(rig.read(ranges) == std::vector<int>(ranges.size(), 0));
}

TEST_CASE("a file that ends early is ENODATA, one that changed is ESTALE") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {100'000, 100'000, 100'000, 100'000});
  Rig rig(mode, files);
  CHECK(rig.read(Range{0, 0, 100'000}) == 0);  // opens the file
  for (uint32_t file : {0u, 1u}) {
    std::filesystem::resize_file(files[file].uri, 50'000);
    CHECK(rig.read({{file, 0, 100'000}, {file, 40'000, 20'000}, {file, 60'000, 10}, {file, 50'000, 1}}) ==
          std::vector<int>(4, ENODATA));
    CHECK(rig.read(Range{file, 0, 1000}) == ESTALE);
  }
  set_mtime(files[2].uri, 12345);
  CHECK(rig.read(Range{2, 0, 1000}) == ESTALE);
  CHECK(rig.read(Range{3, 5, 1000}) == 0);
  std::ofstream(files[3].uri, std::ios::app) << "more";
  CHECK(rig.read(Range{3, 5, 1000}) == ESTALE);
}

TEST_CASE("a file that cannot be opened is an error of its reads alone") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  auto files = write_files(dir, {5000, 5000});
  std::filesystem::remove(files[0].uri);
  Rig rig(mode, files);
  CHECK(rig.read({{0, 0, 10}, {1, 0, 5000}, {0, 0, 10}}) == std::vector<int>{ENOENT, 0, ENOENT});
  dir.write("shard-0", content(0, 5000));  // the file is looked up again, and is another one now
  set_mtime(files[0].uri, 99);
  CHECK(rig.read(Range{0, 0, 10}) == ESTALE);
}

TEST_CASE("what is not a regular file any more is an error, and is not waited for") {
  for (const Mode& mode : modes()) {
    INFO(mode);
    const TempDir dir;
    const auto files = write_files(dir, {5000, 5000, 5000, 5000});
    for (const size_t file : {0, 1, 3}) std::filesystem::remove(files[file].uri);
    REQUIRE(mkfifo(files[0].uri.c_str(), 0600) == 0);  // has no writer
    std::filesystem::create_symlink("/dev/zero", files[1].uri);
    std::filesystem::create_directory(files[3].uri);
    Rig rig(mode, files);
    CHECK(rig.read({{0, 0, 10}, {1, 0, 10}, {2, 0, 5000}, {0, 0, 10}}) == std::vector<int>{ESTALE, ESTALE, 0, ESTALE});
    Rig cached(mode, files);
    for (const uint32_t file : {0u, 1u, 3u}) {
      const auto over = cached.backend->read_cached(read_of({file, 0, 10}, cached.memory[0], 0));
      CHECK(over.value_or(ESTALE) == ESTALE);
      CHECK(cached.read(Range{file, 0, 10}) == ESTALE);
    }
  }
}

TEST_CASE("a file that may not be read is EACCES") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {5000});
  REQUIRE(chmod(files[0].uri.c_str(), 0) == 0);
  const int code = feedline::test::in_child([&] {
    if (geteuid() == 0 && (chmod(dir.path().c_str(), 0755) != 0 || setresuid(65534, 65534, 65534) != 0)) return 77;
    return Rig(mode, files).read(Range{0, 0, 10}) == EACCES ? 0 : 1;
  });
  if (code == 77) return feedline::test::skip("cannot become another user");
  CHECK(code == 0);
}

TEST_CASE("many files are read through few descriptors") {
  const Mode mode = any_mode();
  INFO(mode);
  constexpr uint32_t count = 400;
  const TempDir dir;
  const auto files = write_files(dir, std::vector<uint64_t>(count, 100));
  const size_t before = feedline::test::open_descriptors();
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit few{256, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  Rig rig(mode, files, 100, 48, 16, FileTable::default_capacity());
  std::vector<Range> ranges;
  for (uint32_t i = 0; i < 2 * count; i++) ranges.push_back({i * 37 % count, i % 50, 1 + i % 50});
  const std::vector<int> results = rig.read(ranges);
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(results == std::vector<int>(ranges.size(), 0));
  CHECK(feedline::test::open_descriptors() == before + 64 + (mode.uring ? 2 : 0));  // the ring and its eventfd
}

TEST_CASE("reads are submitted from many threads at once") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {300'000, 5000});
  constexpr size_t threads = 6, each = 300;
  Rig rig(mode, files, 3000, threads * each, 8);
  Outcomes outcomes(threads * each);
  rig.on_done = [&](size_t number, int error) { outcomes.note(number, error); };
  std::vector<Range> ranges;
  std::mt19937_64 random(2);
  for (size_t i = 0; i < threads * each; i++) ranges.push_back(random_range(random, files, 3000));
  std::vector<std::thread> submitters;
  for (size_t t = 0; t < threads; t++)
    submitters.emplace_back([&, t] {
      for (size_t i = t * each; i < (t + 1) * each; i++) {
        const Read read = read_of(ranges[i], rig.memory[i], i);
        rig.backend->submit({&read, 1});
      }
    });
  for (std::thread& submitter : submitters) submitter.join();
  outcomes.wait_for(threads * each);
  size_t wrong = 0;
  for (size_t i = 0; i < ranges.size(); i++)
    wrong += outcomes.error(i) != 0 || outcomes.times(i) != 1 || !is_exact(ranges[i], rig.memory[i]);
  CHECK(wrong == 0);
}

TEST_CASE("a completion submits the next read, and wakes nobody for it") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {300'000});
  constexpr size_t total = 2000, at_once = 4;
  Rig rig(mode, files, 3000, at_once, 4);
  Outcomes outcomes(total);
  std::mt19937_64 random(3);
  std::vector<Range> ranges;
  for (size_t i = 0; i < total; i++) ranges.push_back(random_range(random, files, 3000));
  const auto submit = [&](size_t number) {
    const Read read = read_of(ranges[number], rig.memory[number % at_once], number);
    rig.backend->submit({&read, 1});
  };
  SyscallHook* const wake = feedline::test::find_hook("eventfd write");
  std::atomic<bool> begun{false};
  std::atomic<size_t> wrong{0};
  rig.on_done = [&](size_t number, int error) {
    if (error || !is_exact(ranges[number], rig.memory[number % at_once])) wrong++;
    if (number == 0) {
      begun.wait(false);                 // the wake-up by the first submit is over
      if (wake) wake->fail_nth_call(1);  // otherwise another call would use up the failure
      for (size_t i = 1; i <= at_once; i++) submit(i);
    } else if (number + at_once < total) {
      submit(number + at_once);
    }
    outcomes.note(number, error);
  };
  submit(0);
  begun = true;
  begun.notify_one();
  outcomes.wait_for(total);
  CHECK(wrong == 0);
  if (!wake) return;  // built without io_uring
  CHECK(wake->pending());
  wake->fail_nth_call(0);
}

TEST_CASE("stop at any moment: all reads complete once, nothing is touched afterwards, nothing is left") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {300'000, 300'000, 5000});
  const size_t descriptors = feedline::test::open_descriptors(), threads = feedline::test::threads();
  std::mt19937_64 random(4);
  size_t unfinished = 0, wrong = 0, cancelled = 0, touched = 0;
  for (int round = 0; round < 500; round++) {
    constexpr size_t count = 24;
    const Slots memory(count, 28 << 10);
    Outcomes outcomes(count + 1);
    BackendOptions options;
    options.depth = 1 + static_cast<unsigned>(random() % 20);
    if (mode.registered) options.memory = memory.all();
    auto backend =
        make_backend(mode, std::make_shared<FileTable>(files, mode.direct, 2 + random() % 4), options, outcomes.done());
    std::vector<Range> ranges;
    for (size_t i = 0; i < count; i++) ranges.push_back(random_range(random, files, 20'000));
    const size_t cut = random() % count;
    const auto submit = [&](size_t begin, size_t end) {
      std::vector<Read> reads;
      for (size_t i = begin; i < end; i++) reads.push_back(read_of(ranges[i], memory[i], i));
      backend->submit(reads);
    };
    submit(0, cut);
    outcomes.wait_for(random() % (cut + 1));
    std::thread submitter([&] { submit(cut, count); });
    std::thread other;
    if (random() % 4 == 0) other = std::thread([&] { backend->stop(); });
    if (random() % 2 == 0) std::this_thread::yield();
    backend->stop();
    submitter.join();
    if (other.joinable()) other.join();
    unfinished += outcomes.complete() != count;
    std::memset(memory.all().data(), 0x77, memory.all().size());
    const Read late = read_of(ranges[0], memory[0], count);
    backend->submit({&late, 1});
    wrong += outcomes.error(count) != ECANCELED;
    backend->stop();
    backend.reset();
    touched += memory.all()[0] != std::byte{0x77} ||
               std::memcmp(memory.all().data(), memory.all().data() + 1, memory.all().size() - 1) != 0;
    for (size_t i = 0; i < count; i++) {
      cancelled += outcomes.error(i) == ECANCELED;
      wrong += outcomes.times(i) != 1 || (outcomes.error(i) != 0 && outcomes.error(i) != ECANCELED);
    }
  }
  CHECK(unfinished == 0);
  CHECK(wrong == 0);
  CHECK(touched == 0);
  CHECK(cancelled > 0);
  CHECK(feedline::test::open_descriptors() == descriptors);
  CHECK(feedline::test::threads_settle_at(threads));
}

TEST_CASE("destruction stops") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, {300'000});
  const Slots memory(20, 256 << 10);
  Outcomes outcomes(20);
  {
    const auto backend = make_backend(mode, std::make_shared<FileTable>(files, mode.direct), {}, outcomes.done());
    for (size_t i = 0; i < 20; i++) {
      const Read read = read_of({0, i, 200'000}, memory[i], i);
      backend->submit({&read, 1});
    }
  }
  CHECK(outcomes.complete() == 20);
}

TEST_CASE("the backend's threads have names and leave signals to the program") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  Rig rig(mode, write_files(dir, {1000}));
  REQUIRE(rig.read(Range{0, 0, 1000}) == 0);
  size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != (mode.uring ? "feedline-uring" : "feedline-pread")) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line))
      if (line.starts_with("SigBlk:")) found += (std::stoull(line.substr(8), nullptr, 16) >> (SIGTERM - 1)) & 1;
  }
  CHECK(found >= 1);
}

TEST_CASE("files are looked at before they are read") {
  const TempDir dir;
  const FileId id = stat_file(dir.write("a", "12345"));
  CHECK(id.size == 5);
  set_mtime(id.uri, 7);
  CHECK(stat_file(id.uri).version == 7'000'000'000);
  CHECK_THROWS_WITH(stat_file(dir.file("none")), Catch::Contains("No such file") && Catch::Contains("none"));
  CHECK_THROWS_WITH(stat_file(dir.path()), Catch::Contains("folder"));
}

TEST_CASE("the backend is chosen, and says what it is") {
  const TempDir dir;
  auto files = write_files(dir, {1000});
  BackendOptions options;
  const auto describe = [&] { return make_read_backend(files, options, [](void*, int) {})->description(); };
  options.backend = BackendKind::pread;
  CHECK(describe() == "pread (page cache)");
  options.direct = Toggle::on;
  CHECK(describe() == "pread (O_DIRECT)");
  if (!io_uring_allowed()) return;
  options.backend = BackendKind::uring;
  CHECK(describe() == "io_uring (O_DIRECT)");
  options = {};
  CHECK(describe() == "io_uring (page cache)");
  files.push_back({"/larger than memory", uint64_t{1} << 60, 0});
  CHECK(describe() == "io_uring (O_DIRECT where the file system has it)");
}

TEST_CASE("memory is registered after as many reads as asked for") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  BackendOptions options;
  const Slots memory(1, 4096);
  options.memory = memory.all();
  options.register_after_reads = 2;
  std::binary_semaphore done{0};
  const auto backend = make_uring_backend(std::make_shared<FileTable>(write_files(dir, {1000}), Toggle::off), options,
                                          [&](void*, int error) { error == 0 ? done.release() : std::abort(); });
  for (const char* registered : {"", "", ", registered buffers", ", registered buffers"}) {
    const Read read{.file = 0, .offset = 0, .length = 1000, .buffer = memory[0]};
    backend->submit({&read, 1});
    done.acquire();
    CHECK(backend->description() == std::string("io_uring (page cache") + registered + ")");
  }
}

TEST_CASE("what lies in the page cache is read at once, and else not at all") {
  const Mode mode = any_mode();
  INFO(mode);
  const TempDir dir;
  const auto files = write_files(dir, sizes);
  Rig rig(mode, files);
  const auto cached = [&](const Range& range) {
    const auto over = rig.backend->read_cached(read_of(range, rig.memory[0], 0));
    if (over == 0) CHECK(is_exact(range, rig.memory[0]));
    return over;
  };
  std::mt19937_64 random(3);
  if (mode.direct != Toggle::off) {
    CHECK_FALSE(cached(random_range(random, files, 5000)));
    return;
  }
  if (!can_read_without_waiting(files[0].uri)) {
    CHECK_FALSE(cached({0, 0, 1}));
    return feedline::test::skip("the files' system has no reads that do not wait");
  }
  for (int i = 0; i < 300; i++) {
    for (const char* disturbed : {"read short", "read interrupted"})
      if (i % 5 == 0) feedline::test::find_hook(disturbed)->fail_nth_call(1);
    CHECK(cached(random_range(random, files, 256 << 10)) == 0);
  }
  feedline::test::find_hook("read cached")->fail_nth_call(1);
  CHECK_FALSE(cached({0, 0, 1}));
  feedline::test::find_hook("read")->fail_nth_call(1);
  CHECK(cached({0, 0, 1}) == EIO);
  std::filesystem::resize_file(files[7].uri, 50'000);
  CHECK(cached({7, 0, 100'000}) == ENODATA);
  CHECK(cached({7, 0, 1000}) == ESTALE);
  std::filesystem::remove(files[2].uri);
  Rig other(mode, files);
  CHECK(other.backend->read_cached(read_of({2, 0, 10}, other.memory[0], 0)) == ENOENT);

  // A backend with a single descriptor.
  Rig few(mode, files, 1000, 4, 4, 1);
  CHECK_FALSE(few.backend->read_cached(read_of({0, 0, 1}, few.memory[0], 0)));
  CHECK(few.read(Range{0, 0, 1}) == 0);
}
