#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "io/frames.h"
#include "io/output_file.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t files_in(const TempDir& dir) {
  const std::filesystem::directory_iterator entries(dir.path());
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

std::vector<std::string> some_payloads() {
  std::mt19937 random(1);
  std::vector<std::string> payloads;
  for (int i = 0; i < 300; i++) payloads.push_back(random_text(i % 50 == 0 ? 700'000 : random() % 3000, random));
  payloads.emplace_back();
  return payloads;
}

}  // namespace

TEST_CASE("a written file holds the records, framed, and nothing before close") {
  const TempDir dir;
  const auto payloads = some_payloads();
  std::string expected;
  {
    RecordWriter writer(dir.file("a.tfrecord"));
    for (const std::string& payload : payloads) {
      writer.write(bytes_of(payload));
      expected += frame(payload);
    }
    CHECK_FALSE(std::filesystem::exists(dir.file("a.tfrecord")));
    CHECK(writer.records() == payloads.size());
    CHECK(writer.bytes() == expected.size());
    writer.close();
    CHECK(files_in(dir) == 1);
    CHECK_THROWS_AS(writer.write({}), Error);
    CHECK_THROWS_AS(writer.close(), Error);
  }
  CHECK(content(dir.file("a.tfrecord")) == expected);
  CHECK(files_in(dir) == 1);
}

TEST_CASE("a gzip file reads back") {
  const TempDir dir;
  const auto payloads = some_payloads();
  RecordWriter writer(dir.file("a.gz"), {.compression = Compression::gzip});
  for (const std::string& payload : payloads) writer.write(bytes_of(payload));
  writer.close();

  RecordReader reader(dir.file("a.gz"));
  CHECK(reader.compression() == Compression::gzip);
  Record record;
  for (const std::string& payload : payloads) {
    REQUIRE(reader.next(record) == ReadResult::record);
    REQUIRE(text_of(record.payload) == payload);
  }
  CHECK(reader.next(record) == ReadResult::end);
}

TEST_CASE("files without records are whole files") {
  const TempDir dir;
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const std::string path = dir.file("empty" + std::to_string(static_cast<int>(compression)));
    RecordWriter(path, {.compression = compression}).close();
    CHECK(std::filesystem::file_size(path) == (compression == Compression::none ? 0 : 20));
    RecordReader reader(path, {.compression = compression});
    Record record;
    CHECK(reader.next(record) == ReadResult::end);
  }
}

TEST_CASE("without close() no file is written, and an existing one stays") {
  const TempDir dir;
  dir.write("a", "old");
  {
    RecordWriter writer(dir.file("a"));
    writer.write(bytes_of("new"));
    CHECK(files_in(dir) == 2);
  }
  CHECK(files_in(dir) == 1);
  CHECK(content(dir.file("a")) == "old");
  RecordWriter writer(dir.file("a"));
  writer.close();
  CHECK(content(dir.file("a")).empty());
}

TEST_CASE("a folder that is not there, a compression that is not written") {
  const TempDir dir;
  CHECK_THROWS_AS(RecordWriter(dir.file("none/a")), Error);
  CHECK_THROWS_AS(RecordWriter(dir.file("a"), {.compression = Compression::zlib}), Error);
  CHECK(files_in(dir) == 0);
}

TEST_CASE("what is no regular file is not replaced") {
  const TempDir dir;
  REQUIRE(mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink("pipe", dir.file("link"));
  for (const char* name : {"pipe", "link", "."})
    CHECK_THROWS_WITH(RecordWriter(dir.file(name)), Catch::Contains("exists and is not a regular file"));
  CHECK(std::filesystem::is_fifo(dir.file("pipe")));
  CHECK(std::filesystem::is_symlink(dir.file("link")));
}

TEST_CASE("a payload that no reader takes is refused, and the writer goes on") {
  const TempDir dir;
  const size_t bytes = size_t{1} << 32;
  void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  RecordWriter writer(dir.file("a"));
  writer.write(bytes_of("before"));
  try {
    writer.write({static_cast<const std::byte*>(memory), bytes});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::record_too_large);
    CHECK(error.message() ==
          "record 1 would have a payload of 4294967296 bytes, but readers accept at most 4294967295 bytes");
  }
  munmap(memory, bytes);
  writer.write(bytes_of("after"));
  writer.close();
  CHECK(content(dir.file("a")) == frame("before") + frame("after"));
}

TEST_CASE("a full disk is an error and leaves nothing") {
  const TempDir dir;
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit little = before;
  little.rlim_cur = 1 << 20;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
  const auto write = [&] {
    RecordWriter writer(dir.file("a"));
    const std::string payload(100'000, 'x');
    for (int i = 0; i < 20; i++) writer.write(bytes_of(payload));
    writer.close();
  };
  CHECK_THROWS_AS(write(), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(files_in(dir) == 0);
}

TEST_CASE("what killed writers have left is removed, and nothing that is still written or is no such file") {
  const TempDir dir;
  const std::string path = dir.file("a");
  const pid_t killed = fork();
  if (killed == 0) {
    new io::OutputFile(path);  // its destructor does not run
    _exit(0);
  }
  REQUIRE(waitpid(killed, nullptr, 0) == killed);
  const std::string left = fmt::format("{}.{}-", path, killed);
  const auto is_left = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      if (entry.path().string().starts_with(left)) return true;
    return false;
  };
  REQUIRE(is_left());
  io::OutputFile written(path);
  for (const char* other : {"b.12-0.feedline-part", "a.b.12-0.feedline-part", "a.part", "a.12.part",
                            "a.x-0.feedline-part", "a.12-.feedline-part", "a"})
    dir.write(other, "kept");
  io::remove_unfinished(dir.file("b.c"));
  CHECK(is_left());
  CHECK(files_in(dir) == 9);
  io::remove_unfinished(path);
  CHECK_FALSE(is_left());
  CHECK(files_in(dir) == 8);
  io::remove_unfinished(std::string(dir.path()), [](std::string_view name) { return name == "b"; });
  CHECK(files_in(dir) == 7);
  written.write(bytes_of("new"));
  written.publish();
  CHECK(content(path) == "new");
  io::remove_unfinished(dir.file("none/a"));
}

TEST_CASE("whichever call fails: the whole file or none, and no temporary one") {
  size_t failures = 0;
  std::string expected;
  std::mt19937 random(2);
  std::vector<std::string> payloads;
  for (int i = 0; i < 6; i++) {
    payloads.push_back(random_text(200'000, random));
    expected += frame(payloads.back());
  }
  for (const Compression compression : {Compression::none, Compression::gzip})
    for (SyscallHook* hook : SyscallHook::all())
      for (int64_t n = 1;; n++) {
        INFO(hook->name() << " " << n);
        const TempDir dir;
        hook->fail_nth_call(n);
        bool threw = false;
        try {
          RecordWriter writer(dir.file("a"), {.compression = compression});
          for (const std::string& payload : payloads) writer.write(bytes_of(payload));
          writer.close();
        } catch (const Error& error) {
          threw = true;
          CHECK(error.category() == Category::io_error);
          CHECK(error.place().file == dir.file("a"));
        }
        const bool fired = !hook->pending();
        hook->fail_nth_call(0);
        const bool there = std::filesystem::exists(dir.file("a"));
        CHECK(files_in(dir) == (there ? 1 : 0));
        if (!threw) CHECK(there);
        if (there && compression == Compression::none) CHECK((content(dir.file("a")) == expected));
        if (!fired) {
          CHECK_FALSE(threw);
          break;
        }
        failures++;
      }
  std::printf("failures injected while writing: %zu\n", failures);
  CHECK(failures > 30);
}
