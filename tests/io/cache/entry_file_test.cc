// The bounds of a file of entries. Whatever a disk or another program writes into it, nothing beyond it is read.
#include "io/cache/entry_file.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "fuzz/entry_file_bytes.h"
#include "io/cache/disk_entries.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::io;
using feedline::test::EntryFileBytes;
using feedline::test::TempDir;

namespace {

constexpr uint64_t content = 99, data_bytes = 4096;
constexpr EntryLayout layout{3, data_bytes};

/// A file with one entry, of 64 bytes at the beginning of the data.
struct File {
  File() {
    EntryFile made(path, content, layout);
    int error = 0;
    const std::vector<std::byte> entry(64, std::byte{7});
    REQUIRE(made.claim(1, 1, error) == 1);
    REQUIRE(made.take(entry.size(), error) == 0);
    REQUIRE(made.write(0, entry) == 0);
    const EntryFile::Piece piece{0, entry.size(), crc32c(entry)};
    REQUIRE(made.set_pieces(1, {&piece, 1}) == 0);
    REQUIRE(made.publish(1) == 0);
  }
  EntryFileBytes read() const { return {test::read_file(path)}; }
  void write(const EntryFileBytes& file) const {
    std::ofstream(path, std::ios::binary).write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size()));
  }

  const TempDir dir;
  const std::string path = dir.file("x.feedline-cache");
};

}  // namespace

TEST_CASE("a file is one of entries if it has its whole table, and less than 2^48 of each") {
  const File file;
  const uint64_t table = EntryFileBytes::table_bytes(layout.entries);
  CHECK(EntryFile::table_bytes(layout.entries) == table);
  CHECK(EntryFile::layout_of(file.path, content) == layout);
  const auto layout_with = [&](uint64_t offset, uint64_t number) {
    EntryFileBytes bytes = file.read();
    bytes.set(offset, number);
    bytes.set(32, bytes.header_sum());
    const std::string path = file.dir.file("changed");
    std::ofstream(path, std::ios::binary) << bytes.bytes;
    return EntryFile::layout_of(path, content);
  };
  constexpr uint64_t most = uint64_t{1} << 48;
  CHECK(layout_with(24, most - 1) == EntryLayout{layout.entries, most - 1});
  for (const uint64_t beyond : {most, most + 1, std::numeric_limits<uint64_t>::max()}) {
    CHECK_FALSE(layout_with(24, beyond));
    CHECK_FALSE(layout_with(16, beyond));
  }
  std::filesystem::resize_file(file.path, table);
  CHECK(EntryFile::layout_of(file.path, content) == layout);
  std::filesystem::resize_file(file.path, table - 1);
  CHECK_FALSE(EntryFile::layout_of(file.path, content));
}

TEST_CASE("a pipe or a link is no file of entries") {
  const File file;
  const std::string pipe = file.dir.file("pipe.feedline-cache"), link = file.dir.file("link.feedline-cache");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink(file.path, link);
  CHECK_FALSE(EntryFile::layout_of(pipe, content));  // and does not wait for a writer
  CHECK_FALSE(EntryFile::layout_of(link, content));
  EntryFile::remove_unused(file.dir.file("other"), "link");
  CHECK(std::filesystem::is_symlink(link));
}

TEST_CASE("an entry whose place does not lie within the data is none") {
  constexpr uint64_t far = std::numeric_limits<uint64_t>::max();
  struct Row {
    uint64_t offset, bytes;
    bool is_within;
  };
  for (const Row& row : {Row{0, 64, true},
                         {data_bytes - 64, 64, true},
                         {0, data_bytes, true},
                         {data_bytes, 0, true},
                         {data_bytes - 63, 64, false},
                         {1, data_bytes, false},
                         {0, data_bytes + 1, false},
                         {data_bytes + 1, 0, false},
                         {far, 1, false},
                         {far - 62, 64, false},
                         {64, far - 63, false}}) {
    CAPTURE(row.offset, row.bytes);
    const File file;
    EntryFileBytes bytes = file.read();
    bytes.set(EntryFileBytes::row(1) + 8, row.offset);
    bytes.set(EntryFileBytes::row(1) + 16, row.bytes);
    bytes.set(EntryFileBytes::row(1) + 24, bytes.row_sum(1));
    file.write(bytes);
    const EntryFile opened(file.path, content, layout);
    int error = 0;
    EntryFile::Piece piece;
    CHECK(opened.find(1, true, {&piece, 1}, error) == row.is_within);
    CHECK(error == 0);
  }
}

TEST_CASE("room is taken within the data only, wherever the header says that the rest begins") {
  struct Taken {
    uint64_t next, bytes;
    bool has_room;
  };
  for (const Taken& taken : {Taken{64, 64, true},
                             {data_bytes - 64, 64, true},
                             {data_bytes - 64, 65, false},
                             {data_bytes, 1, false},
                             {data_bytes + 1, 1, false},
                             {data_bytes + 64, 64, false},
                             {std::numeric_limits<uint64_t>::max(), 64, false}}) {
    CAPTURE(taken.next, taken.bytes);
    const File file;
    EntryFile opened(file.path, content, layout);  // which counts anew what is taken
    std::fstream(file.path, std::ios::binary | std::ios::in | std::ios::out)
        .seekp(EntryFileBytes::next_at)
        .write(reinterpret_cast<const char*>(&taken.next), sizeof taken.next);
    int error = 0;
    const auto place = opened.take(taken.bytes, error);
    CHECK(place.has_value() == taken.has_room);
    if (place) CHECK(*place == taken.next);
    CHECK(error == 0);
  }
}

TEST_CASE("an entry may be as large as the memory that it is read or made in") {
  const File file;
  std::vector<std::byte> memory(DiskEntries::memory_bytes(layout.entries)), scratch(64);
  DiskEntries store(file.path, content, layout, memory, 1 << 20);
  CHECK(store.find(1, std::span(scratch).first(63)).empty());
  CHECK(store.find(1, scratch).size() == 64);
  CHECK(store.claim(2, 65, scratch).empty());
  CHECK(store.claim(2, 64, scratch).size() == 64);
}
