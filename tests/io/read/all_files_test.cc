// Sources by scheme: which of them a name belongs to, and reads of files of several at once.
#include <latch>

#include "io/read/source.h"
#include "support/catch.h"
#include "support/memory_source.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("a scheme is what stands before ://, in lower-case letters, digits, + - and .") {
  CHECK(io::scheme_of("s3://bucket/part") == "s3");
  CHECK(io::scheme_of("git+ssh://x") == "git+ssh");
  for (const char* path : {"", "s3", "s3:/x", "/a/s3://x", "3s://x", "S3://x", "://x", "a b://x"})
    CHECK(io::scheme_of(path).empty());
  const MemorySource source({});
  const Mounted mounted(source);
  CHECK(!io::is_path("memory://c"));
  CHECK(io::absolute_name("/a/b", "memory://c/../d") == "memory://c/../d");
  CHECK(io::absolute_name("/a/b", "none://c/../d") == "/a/b/none:/d");  // no source has it
  CHECK(io::absolute_name("/a/b", "../d") == "/a/d");
  CHECK(io::absolute_name("/a/b", "/d/./e") == "/d/e");
}

TEST_CASE("a scheme has one source") {
  const MemorySource source({});
  const Mounted mounted(source);
  const auto add = [](const std::string& scheme) {
    io::register_source(scheme, std::make_unique<const MemorySource>(MemorySource::Files()));
  };
  CHECK_THROWS_WITH(add("memory"), Catch::Contains("'memory' has a source already"));
  for (const char* scheme : {"", "file", "S3", "s3:", "3s"})
    CHECK_THROWS_WITH(add(scheme), Catch::Contains("is not a valid scheme of a source"));
}

TEST_CASE("a name without a source is that of a local file") {
  const TempDir folder;
  const std::string path = folder.write("a", "bytes");
  CHECK(io::all_files().stat(path).size == 5);
  CHECK(io::all_files().open(path)->size() == 5);
  CHECK(io::all_files().list(folder.path(), "*").files == std::vector<std::string>{path});
  CHECK_THROWS_WITH(io::all_files().stat("none://a"), Catch::Contains("none://a"));
}

TEST_CASE("a backend reads files of several sources, each by its own") {
  const TempDir folder;
  const MemorySource source({{"memory://a", "0123456789"}, {"memory://b", "abcdefghij"}});
  const Mounted mounted(source);
  const std::vector<std::string> names = {folder.write("x", "ABCDEFGHIJ"), "memory://b",
                                          folder.write("y", "KLMNOPQRST"), "memory://a"};
  const std::vector<std::string> contents = {"ABCDEFGHIJ", "abcdefghij", "KLMNOPQRST", "0123456789"};
  std::vector<io::FileId> files;
  for (const std::string& name : names) files.push_back(io::all_files().stat(name));

  constexpr size_t count = 100;  // more than are submitted at once
  std::latch left(count);
  std::atomic<int> failed = 0;
  const auto backend = io::all_files().make_read_backend(files, {}, [&](void*, int error) {
    failed += error != 0;
    left.count_down();
  });
  CHECK_THAT(backend->description(), Catch::Contains(", and memory"));
  struct alignas(io::block_bytes) Block {
    std::byte bytes[io::block_bytes];
  };
  std::vector<Block> blocks(count);
  std::vector<io::Read> reads;
  for (size_t i = 0; i < count; i++)
    reads.push_back({static_cast<uint32_t>(i / 3 % 4), i % 7, 1 + i % 3, blocks[i].bytes, nullptr});
  backend->submit(reads);
  left.wait();
  CHECK(failed == 0);
  for (size_t i = 0; i < count; i++) {
    const auto* const at = reinterpret_cast<const char*>(blocks[i].bytes) + reads[i].offset;
    CHECK(std::string(at, reads[i].length) == contents[reads[i].file].substr(reads[i].offset, reads[i].length));
  }
  CHECK(backend->opening() == 0);
  io::Read cached = reads[0];
  CHECK(backend->read_cached(cached).value_or(0) == 0);
  backend->stop();
}

TEST_CASE("a file that is missing from one of several sources is an error of its reads") {
  const TempDir folder;
  const MemorySource source(MemorySource::Files{{"memory://a", "0123456789"}});
  const Mounted mounted(source);
  const std::string path = folder.write("x", "ABCDEFGHIJ");
  const std::vector<io::FileId> files = {io::all_files().stat("memory://a"), io::all_files().stat(path)};
  std::filesystem::remove(path);
  std::latch left(2);
  std::atomic<int> errors[2] = {};
  const auto backend = io::all_files().make_read_backend(files, {}, [&](void* tag, int error) {
    *static_cast<std::atomic<int>*>(tag) = error;
    left.count_down();
  });
  alignas(io::block_bytes) std::byte blocks[2][io::block_bytes];
  const io::Read reads[] = {{0, 0, 5, blocks[0], &errors[0]}, {1, 0, 5, blocks[1], &errors[1]}};
  backend->submit(reads);
  left.wait();
  CHECK(errors[0] == 0);
  CHECK(errors[1] == ENOENT);
}
