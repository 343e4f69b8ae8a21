#include "io/read/file_table.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "backend_rig.h"
#include "io/read/read_operation.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::TempDir;

namespace {

int first_byte(int fd) {
  char byte = 0;
  return pread(fd, &byte, 1, 0) == 1 ? byte : -1;
}

// Opens a file and gives it back.
FileTable::Lease touch(FileTable& table, uint32_t file) {
  FileTable::Lease lease;
  REQUIRE(table.acquire(file, lease) == 0);
  REQUIRE(first_byte(lease.fd) == content_at(file, 0));
  table.release(lease);
  return lease;
}

std::set<std::string> open_files(const TempDir& dir) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the entry of the iterator's own descriptor
    const auto target = std::filesystem::read_symlink(entry, gone);
    if (target.parent_path() == dir.path()) names.insert(target.filename());
  }
  return names;
}

bool is_direct(int fd) { return fcntl(fd, F_GETFL) & O_DIRECT; }

}  // namespace

TEST_CASE("the file unused for longest makes room") {
  const TempDir dir;
  FileTable table(write_files(dir, {9, 9, 9, 9, 9}), Toggle::off, 3);
  for (uint32_t file : {0u, 1u, 2u, 0u}) touch(table, file);
  CHECK(open_files(dir) == std::set<std::string>{"shard-0", "shard-1", "shard-2"});
  touch(table, 3);
  CHECK(open_files(dir) == std::set<std::string>{"shard-0", "shard-2", "shard-3"});
  touch(table, 4);
  CHECK(open_files(dir) == std::set<std::string>{"shard-0", "shard-3", "shard-4"});
}

TEST_CASE("a file in use stays open while others come and go") {
  const TempDir dir;
  FileTable table(write_files(dir, {9, 9, 9, 9, 9}), Toggle::off, 2);
  FileTable::Lease held;
  REQUIRE(table.acquire(0, held) == 0);
  for (uint32_t file : {1u, 2u, 3u, 4u, 1u}) touch(table, file);
  CHECK(first_byte(held.fd) == content_at(0, 0));
  CHECK(touch(table, 0).fd == held.fd);
  table.release(held);
}

TEST_CASE("when the program has used up its descriptors, idle files are closed for the one wanted") {
  const TempDir dir;
  FileTable table(write_files(dir, {9, 9, 9}), Toggle::off, 8);
  SyscallHook* const open = feedline::test::find_hook("open");
  FileTable::Lease lease;
  open->fail_nth_call(1);
  CHECK(table.acquire(0, lease) == EMFILE);  // the table holds no file that it could close
  touch(table, 0);
  touch(table, 1);
  open->fail_nth_call(1);
  touch(table, 2);
  CHECK_FALSE(open->pending());
  CHECK(open_files(dir) == std::set<std::string>{"shard-1", "shard-2"});
  touch(table, 0);
}

TEST_CASE("threads share files, and each reads the one it asked for") {
  const TempDir dir;
  FileTable table(write_files(dir, std::vector<uint64_t>(20, 9)), Toggle::off, 6);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; t++)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 3000; i++) {
        const auto file = static_cast<uint32_t>(random() % 20);
        FileTable::Lease lease;
        if (table.acquire(file, lease) || first_byte(lease.fd) != content_at(file, 0) || table.verify(lease)) wrong++;
        table.release(lease);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a quarter of the allowed descriptors is used, 256 at most") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto capacity_under = [&](rlim_t soft) {
    const rlimit limit{soft, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const size_t capacity = FileTable::default_capacity();
    setrlimit(RLIMIT_NOFILE, &before);
    return capacity;
  };
  CHECK(capacity_under(256) == 64);
  CHECK(capacity_under(3) == 1);
  CHECK(capacity_under(std::min<rlim_t>(before.rlim_max, 4096)) == 256);
}

TEST_CASE("O_DIRECT: off, on, and refused at open or at the first read") {
  const TempDir dir;
  const auto files = write_files(dir, {9});
  FileTable::Lease lease;
  FileTable off(files, Toggle::off), on(files, Toggle::on), automatic(files, Toggle::automatic);
  REQUIRE(off.acquire(0, lease) == 0);
  CHECK(lease.alignment == 1);
  CHECK_FALSE(is_direct(lease.fd));

  SyscallHook* const open = feedline::test::find_hook("open O_DIRECT");
  open->fail_nth_call(1);
  CHECK(on.acquire(0, lease) == EOPNOTSUPP);
  REQUIRE(on.acquire(0, lease) == 0);
  CHECK(lease.alignment >= 1);
  CHECK(block_bytes % lease.alignment == 0);
  CHECK(is_direct(lease.fd));
  CHECK(on.refuse_direct(lease) == EOPNOTSUPP);

  open->fail_nth_call(1);
  REQUIRE(automatic.acquire(0, lease) == 0);
  CHECK(lease.alignment == 1);
  CHECK_FALSE(is_direct(lease.fd));

  FileTable later(files, Toggle::automatic);
  REQUIRE(later.acquire(0, lease) == 0);
  CHECK(is_direct(lease.fd));
  CHECK(later.refuse_direct(lease) == 0);
  CHECK(lease.alignment == 1);
  CHECK_FALSE(is_direct(lease.fd));
  REQUIRE(later.acquire(0, lease) == 0);
  CHECK(lease.alignment == 1);
}

TEST_CASE("reads of an open file wait for its bytes") {
  const TempDir dir;
  const auto files = write_files(dir, {9});
  for (const Toggle direct : {Toggle::off, Toggle::on}) {
    FileTable table(files, direct);
    FileTable::Lease lease;
    REQUIRE(table.acquire(0, lease) == 0);
    CHECK((fcntl(lease.fd, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(is_direct(lease.fd) == (direct == Toggle::on));
  }
}

TEST_CASE("a file that was opened for reads that do not wait is made ready for those that do") {
  const TempDir dir;
  const auto files = write_files(dir, {9, 9});
  FileTable table(files, Toggle::off, 2);
  FileTable::Lease first, second;
  REQUIRE(table.acquire(0, first, false) == 0);
  CHECK((fcntl(first.fd, F_GETFL) & O_NONBLOCK) != 0);
  feedline::test::find_hook("fcntl")->fail_nth_call(1);
  CHECK(table.acquire(0, second) == EINVAL);
  CHECK((fcntl(first.fd, F_GETFL) & O_NONBLOCK) != 0);
  REQUIRE(table.acquire(0, second) == 0);
  CHECK(second.fd == first.fd);
  CHECK((fcntl(first.fd, F_GETFL) & O_NONBLOCK) == 0);
  table.release(second);
  table.release(first);
  CHECK(touch(table, 1).fd != first.fd);  // the failure has left no lease behind
  CHECK(touch(table, 0).fd == first.fd);

  std::filesystem::remove(files[1].uri);
  std::filesystem::create_directory(files[1].uri);
  FileTable other(files, Toggle::off, 2);
  REQUIRE(other.acquire(1, first, false) == 0);
  CHECK(other.acquire(1, second) == ESTALE);
  CHECK(other.verify(first) == ESTALE);
  other.release(first);
}

TEST_CASE("an errno of the kernel that has another meaning here is an I/O error") {
  const TempDir dir;
  FileTable table(write_files(dir, {9}), Toggle::off);
  ReadOperation operation;
  std::byte buffer[16];
  for (const int error : {ENODATA, EOPNOTSUPP, EIO}) {
    REQUIRE(operation.begin(table, read_of({0, 0, 9}, buffer, 0)) == 0);
    CHECK(operation.advance(-error) == EIO);
  }
}

TEST_CASE("where the kernel does not say what O_DIRECT wants, it gets 4096") {
  const TempDir dir;
  FileTable table(write_files(dir, {9}), Toggle::on);
  feedline::test::find_hook("stat")->fail_nth_call(2);  // the first stat asks whether it is a regular file
  FileTable::Lease lease;
  REQUIRE(table.acquire(0, lease) == 0);
  CHECK(lease.alignment == 4096);
}
