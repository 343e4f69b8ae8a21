// Indexes on disk: what was written is read back, and no other content is accepted as an index.
#include "io/index/index_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/syscall_hooks.h"
#include "io/deflate.h"
#include "io/frames.h"
#include "io/index/index_check.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "support/own_cache.h"
#include "support/same_index.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr size_t header_bytes = 168;

// Returns where the index of a file lies beside it.
std::string beside(const std::string& path) { return io::index_place(path, "", 0); }

// Returns a file of 100 records of 500 bytes. A flipped bit damages one of them, zeros damage others.
std::string damaged_file() {
  std::string file;
  for (int i = 0; i < 100; i++) file += frame(std::string(500, static_cast<char>(i)));
  file[516 * 10 + 100] ^= 1;
  file.replace(516 * 50, 700, 700, '\0');
  return file;
}

// An index in a folder of its own, for one test to spoil.
struct Fixture {
  TempDir dir;
  std::string data_path, index_path = dir.file("a.feedline-index");
  io::CountOptions options{.stride = 1000};
  io::FileId data;
  io::FileIndex index;

  explicit Fixture(const std::string& content = damaged_file()) : data_path(dir.write("a", content)) {
    data = io::stat_file(data_path);
    index = io::count_records(data_path, options);
    io::write_index(index_path, index, data, options);
  }
  std::string refusal() const {
    const io::IndexFile read = io::read_index(index_path, data, options);
    CHECK_FALSE(read.index);
    return read.refused;
  }
};

void mend_checksum(std::string& bytes) {
  const uint32_t crc = io::crc32c(bytes_of(bytes).subspan(16));
  std::memcpy(bytes.data() + 12, &crc, 4);
}

template <typename T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

SyscallHook& hook(const std::string& name) {
  for (SyscallHook* each : SyscallHook::all())
    if (name == each->name()) return *each;
  throw std::runtime_error("no hook " + name);
}

}  // namespace

TEST_CASE("an index comes back as it was written") {
  const Fixture f;
  REQUIRE(f.index.bad.size() == 2);
  const io::IndexFile read = io::read_index(f.index_path, f.data, f.options);
  CHECK(read.refused.empty());
  REQUIRE(read.index);
  check_same(*read.index, f.index);
  CHECK(f.index.memory_bytes() > 0);
  const uint64_t of_bad = read.index->bad.capacity() * sizeof(io::BadRegion);
  CHECK(read.index->memory_bytes() ==
        f.index.entries.size() * sizeof(io::IndexEntry) + f.index.sums.size() * 8 + of_bad);
  CHECK(io::index_bytes(f.index, f.data, f.options) == content_of(f.index_path));
  const io::FileIndex copy = *read.index;  // shares the tables
  CHECK(copy.entries.begin() == read.index->entries.begin());
}

TEST_CASE("an index that is changed after it was read stays what was checked") {
  Fixture f;
  f.options.stride = 16;  // an index of several pages
  f.index = io::count_records(f.data_path, f.options);
  io::write_index(f.index_path, f.index, f.data, f.options);
  const io::IndexFile read = io::read_index(f.index_path, f.data, f.options);
  REQUIRE(read.index);
  const auto size = static_cast<std::streamsize>(std::filesystem::file_size(f.index_path));
  std::fstream(f.index_path, std::ios::in | std::ios::out | std::ios::binary)
      .write(std::string(static_cast<size_t>(size), '\xff').data(), size);
  check_same(*read.index, f.index);
}

TEST_CASE("a file that cannot be an index is refused before it is read") {
  const Fixture f;
  const std::string good = content_of(f.index_path);
  hook("read").fail_nth_call(2);  // the header can be read, nothing after it
  const auto refusal_of = [&](const std::string& header, uint64_t size) {
    f.dir.write("a.feedline-index", header);
    std::filesystem::resize_file(f.index_path, size);
    const std::string refusal = f.refusal();
    CHECK(hook("read").pending());
    return refusal;
  };
  const uint64_t huge = uint64_t{1} << 40;  // a sparse file
  CHECK(refusal_of("", huge) == "is not an index of feedline");
  hook("read").fail_nth_call(2);
  CHECK(refusal_of(good.substr(0, header_bytes), huge).find("cut short or damaged") != std::string::npos);
  // A header that states the size which the file has.
  for (const size_t at : {120, 128, 136, 144, 152, 160}) {
    std::string header = good.substr(0, header_bytes);
    const uint64_t row = at == 120 ? 16 : at == 128 ? 8 : at == 136 ? 32 : at == 152 ? 40 : 1, rows = huge / row;
    uint64_t before = 0;
    std::memcpy(&before, header.data() + at, 8);
    put(header, at, rows);
    INFO(at);
    hook("read").fail_nth_call(2);
    CHECK(refusal_of(header, good.size() + (rows - before) * row).find("is damaged: its header says ") !=
          std::string::npos);
  }
  hook("read").fail_nth_call(0);
  std::filesystem::remove(f.index_path);
  REQUIRE(mkfifo(f.index_path.c_str(), 0600) == 0);  // has no writer
  CHECK(f.refusal() == "is not a regular file");
}

TEST_CASE("an index of an empty file, of a file without records, of a compressed one") {
  for (const std::string& content : {std::string(), std::string(700, 'x')}) {
    const Fixture f(content);
    const io::IndexFile read = io::read_index(f.index_path, f.data, f.options);
    INFO(read.refused);
    REQUIRE(read.index);
    check_same(*read.index, f.index);
    CHECK(read.index->records == 0);
  }
  const std::string gzip = std::string(FEEDLINE_GOLDEN) + "/chess/gzip.tfrecord";
  const TempDir dir;
  const io::FileId data = io::stat_file(gzip);
  const io::FileIndex index = io::count_records(gzip, {});
  CHECK(index.compression == Compression::gzip);
  io::write_index(dir.file("i"), index, data, {});
  const io::IndexFile read = io::read_index(dir.file("i"), data, {});
  REQUIRE(read.index);
  check_same(*read.index, index);
  // The found compression may also be asked for by name; another one may not.
  CHECK(io::read_index(dir.file("i"), data, {.compression = Compression::gzip}).index);
  CHECK_FALSE(io::read_index(dir.file("i"), data, {.compression = Compression::none}).index);
}

namespace {

// Returns records of a few MiB that deflate, but not to nothing.
std::string many_records() {
  std::mt19937 random(1);
  std::string file;
  while (file.size() < 5 << 20)
    file +=
        frame(std::string(200 + random() % 2000, static_cast<char>('a' + random() % 20)) + random_text(300, random));
  return file;
}

}  // namespace

TEST_CASE("an index of a compressed file has the places from which it can be inflated") {
  const std::string records = many_records();
  for (const int window_bits : {31, 15}) {
    const Fixture f(deflated(records, window_bits, 1));
    CHECK(f.index.stream_size == records.size());
    REQUIRE(f.index.seek_points.size() >= 3);
    const io::IndexFile read = io::read_index(f.index_path, f.data, f.options);
    INFO(read.refused);
    REQUIRE(read.index);
    check_same(*read.index, f.index);
    CHECK(read.index->memory_bytes() == f.index.entries.size() * 16 + f.index.sums.size() * 8 +
                                            f.index.seek_points.size() * 40 + f.index.windows.size());
    CHECK(std::filesystem::file_size(f.index_path) == header_bytes + read.index->memory_bytes());
    uint64_t before = 0;
    std::vector<std::byte> window(io::deflate_window);
    for (size_t number = 1; number <= f.index.seek_points.size(); number++) {
      const io::SeekPoint& point = read.index->seek_points[number - 1].point;
      CHECK(point.offset - std::exchange(before, point.offset) >= io::seek_spacing(f.options.stride));
      CHECK(point.member_size == point.offset);
      REQUIRE(io::inflate_window(read.index->window_of(number), io::deflate_window,
                                 std::span<std::byte, io::deflate_window>(window)));
      CHECK((text_of(window) == std::string_view(records).substr(point.offset - window.size(), window.size())));
    }
  }
  // At a stride of 32 KiB points lie 2 MiB apart.
  const TempDir dir;
  const std::string path = dir.write("a", deflated(records, 31, 1));
  const size_t points = io::count_records(path, {.stride = 1 << 15}).seek_points.size();
  CHECK(points >= 1);
  CHECK(points <= 2);
  // A file below a MiB has none, and a plain one neither.
  dir.write("a", deflated(records.substr(0, 1 << 19), 31, 1));
  CHECK(io::count_records(path, {}).seek_points.empty());
  dir.write("a", records);
  CHECK(io::count_records(path, {}).seek_points.empty());
}

TEST_CASE("an index whose seek points contradict themselves or the file is refused") {
  const Fixture f(deflated(many_records(), 31, 1));
  const std::string good = content_of(f.index_path);
  const size_t count = f.index.seek_points.size(),
               points = header_bytes + 16 * f.index.entries.size() + 8 * f.index.sums.size(),
               last = points + 40 * (count - 1);
  REQUIRE(count >= 3);
  const io::SeekPoint& first = f.index.seek_points[0].point;
  const std::string damaged = "is damaged: ", contradicts = "contradicts itself or the file: ", size = "has ";
  struct Change {
    size_t at;
    uint64_t value;
    std::string refusal;  // how it begins
  };
  const std::vector<Change> changes = {
      {points + 40, first.offset - 1, contradicts},  // offsets do not ascend
      {last, f.index.stream_size + 1, contradicts},  // past the end of the stream
      {points, f.index.seek_points[1].point.offset + 1, contradicts},
      {points + 8, 0, contradicts},               // at the first bit of the file
      {points + 40 + 8, first.bit, contradicts},  // bits do not ascend
      {last + 8, 8 * f.data.size, contradicts},   // past the end of the file
      {last + 8, UINT64_MAX, contradicts},
      {points + 16, first.offset + 1, contradicts},   // a member that begins before the file
      {points + 24, uint64_t{1} << 32, contradicts},  // a check of more than 32 bits
      {points + 32, UINT64_MAX, contradicts},         // windows that lie nowhere
      {points + 32, f.index.windows.size() + 1, contradicts},
      {points + 40 + 32, 0, contradicts},
      {last + 32, f.index.windows.size() - 1, contradicts},
      {last + 32, f.index.windows.size() + 1, contradicts},
      {152, count + 1, size},
      {152, count - 1, size},
      {152, f.index.stream_size / (1 << 20) + 1, damaged},  // more than there can be
      {160, f.index.windows.size() + 1, size},
      {160, count * io::most_window_bytes + 1, damaged},
      {32, uint64_t{1} << 32, damaged},  // a plain file has none
  };
  for (const auto& [at, value, refusal] : changes) {
    std::string spoiled = good;
    put(spoiled, at, value);
    mend_checksum(spoiled);
    f.dir.write("a.feedline-index", spoiled);
    INFO(at << " " << value);
    CHECK_THAT(f.refusal(), Catch::StartsWith(refusal));
  }
  // Whether the stream can be inflated from there shows when it is inflated.
  for (const size_t at : {points + 8, points + 16, points + 24}) {
    uint64_t value = 0;
    std::memcpy(&value, good.data() + at, 8);
    std::string other = good;
    put(other, at, value - 1);
    mend_checksum(other);
    f.dir.write("a.feedline-index", other);
    INFO(at);
    CHECK(io::read_index(f.index_path, f.data, f.options).index);
  }
  // An index from other ranks may be made up in any way.
  io::FileIndex many = f.index;
  const std::vector<io::SeekEntry> more(10, f.index.seek_points[0]);
  many.seek_points = more;
  CHECK_THAT(io::contradiction(many, f.data.size, io::default_record_limit), Catch::Contains("it has 10 seek points"));
}

TEST_CASE("the index of a compressed file that is cut short is read again") {
  const std::string file = deflated(many_records(), 31, 1);
  for (const size_t cut : {file.size() - 1, file.size() - 8, file.size() - 100, file.size() / 2, file.size() / 2 + 1}) {
    const Fixture f(file.substr(0, cut));
    CHECK(f.index.bad.size() == 1);
    CHECK(f.index.seek_points.size() >= 1);
    const io::IndexFile read = io::read_index(f.index_path, f.data, f.options);
    INFO(cut << " " << read.refused);
    REQUIRE(read.index);
    check_same(*read.index, f.index);
  }
}

TEST_CASE("an index has at most a thousandth of its file") {
  const TempDir dir;
  std::mt19937 random(1);
  std::string file;
  while (file.size() < 16 << 20) file += frame(std::string(random() % 500, 'x'));
  const std::string path = dir.write("a", file);
  io::write_index(dir.file("i"), io::count_records(path, {}), io::stat_file(path), {});
  CHECK(std::filesystem::file_size(dir.file("i")) * 1000 <= file.size());
}

TEST_CASE("an index of something else is refused, with the reason") {
  const Fixture f;
  const auto why = [&](io::FileId data, const io::CountOptions& options) {
    const io::IndexFile read = io::read_index(f.index_path, data, options);
    CHECK_FALSE(read.index);
    return read.refused;
  };
  io::FileId data = f.data;
  data.size++;
  CHECK(why(data, f.options) == "was made for a file of 51600 bytes, but the file has 51601");
  data = f.data;
  data.version++;
  CHECK(why(data, f.options).find("written to") != std::string::npos);
  io::CountOptions options = f.options;
  options.stride = 2000;
  CHECK(why(f.data, options) == "was made with a stride of 1000 bytes, but the stride is 2000 bytes now");
  options = f.options;
  options.record_limit = 99;
  CHECK(why(f.data, options).find("record_limit") != std::string::npos);
  options = f.options;
  options.compression = Compression::gzip;
  CHECK(why(f.data, options).find("compression") != std::string::npos);
}

TEST_CASE("a file that is no index is refused; a missing one is not an error") {
  Fixture f;
  std::filesystem::remove(f.index_path);
  CHECK(f.refusal().empty());
  f.dir.write("a.feedline-index", "");
  CHECK(f.refusal() == "is not an index of feedline");
  f.dir.write("a.feedline-index", std::string(1000, 'x'));
  CHECK(f.refusal() == "is not an index of feedline");
  std::filesystem::remove(f.index_path);
  std::filesystem::create_directory(f.index_path);
  CHECK(f.refusal().find("regular file") != std::string::npos);
}

TEST_CASE("an index with any byte changed, added or missing is refused") {
  const Fixture f;
  const std::string good = content_of(f.index_path);
  for (size_t at = 0; at < good.size(); at++) {
    std::string spoiled = good;
    spoiled[at] ^= static_cast<char>(1 << at % 8);
    f.dir.write("a.feedline-index", spoiled);
    INFO(at);
    CHECK_FALSE(f.refusal().empty());
  }
  for (size_t size = 0; size < good.size(); size += 7) {
    f.dir.write("a.feedline-index", good.substr(0, size));
    CHECK_FALSE(f.refusal().empty());
  }
  f.dir.write("a.feedline-index", good + "x");
  CHECK(f.refusal().find("cut short") != std::string::npos);
  for (const char version : {'\1', '\3'}) {
    std::string other = good;
    other[8] = version;
    f.dir.write("a.feedline-index", other);
    CHECK(f.refusal() ==
          fmt::format("has format version {}, but this version of feedline reads 2", static_cast<int>(version)));
  }
}

TEST_CASE("an index with a right checksum and nonsense inside is refused") {
  const Fixture f;
  const std::string good = content_of(f.index_path);
  const size_t entries = header_bytes, sums = entries + 16 * f.index.entries.size(),
               bad = sums + 8 * f.index.sums.size();
  const std::string damaged = "is damaged: ", contradicts = "contradicts itself or the file: ";
  struct Change {
    size_t at;
    uint64_t value;
    std::string refusal;  // how it begins
  };
  const std::vector<Change> changes = {
      {32, uint64_t{9} << 32, damaged},              // compression
      {64, f.index.records + 1, contradicts},        // number of records
      {72, f.index.payload_bytes + 1, contradicts},  // payload bytes
      {80, f.index.largest_record + 1, contradicts},
      {88, 1, contradicts},
      {96, f.index.end + 16, contradicts},
      {104, f.index.stream_size + 1000, damaged},
      {112, f.index.audit + 1, contradicts},
      {entries, 600, contradicts},                  // the first entry lies inside the first record
      {entries + 16 * 5, 1, contradicts},           // entries do not ascend
      {entries + 16 * 5, UINT64_MAX, contradicts},  // past the end of the file
      {entries + 16 * 5 + 8, 0, contradicts},       // record numbers do not ascend
      {entries + 16 * 5 + 8, 1000, contradicts},    // more records than there is room for
      {sums, f.index.sums[0] + 1, contradicts},
      {bad, f.index.bad[0].offset + 16, contradicts},
      {bad + 8, UINT64_MAX, contradicts},
      {bad + 8, f.index.bad[0].length + 16, contradicts},
      {bad + 16, 90, contradicts},
      {bad + 24, 200, damaged},                // category
      {bad + 24, uint64_t{1} << 40, damaged},  // message length
      {bad + 24, 0, damaged},
  };
  for (const auto& [at, value, refusal] : changes) {
    std::string spoiled = good;
    put(spoiled, at, value);
    mend_checksum(spoiled);
    f.dir.write("a.feedline-index", spoiled);
    INFO(at << " " << value);
    CHECK(f.refusal().starts_with(refusal));
  }
  // Numbers of rows that no file can have.
  for (const size_t at : {120, 128, 136, 144, 152, 160})
    for (const uint64_t rows : {uint64_t{0}, UINT64_MAX, UINT64_MAX / 16 + 2}) {
      if (rows == 0 && at >= 152) continue;  // right: the file is not compressed, so it has no seek points
      std::string spoiled = good;
      put(spoiled, at, rows);
      mend_checksum(spoiled);
      f.dir.write("a.feedline-index", spoiled);
      CHECK_FALSE(f.refusal().empty());
    }
}

TEST_CASE("indexes lie beside the data, in a folder that was named, or in the cache") {
  const TempDir dir;
  const OwnCache cache(dir.file("cache"));
  const std::string path = dir.write("a b", damaged_file());
  const io::FileId data = io::stat_file(path);
  const io::FileIndex index = io::count_records(path, {});
  const auto kept_at = [&](const std::string& folder) {
    return io::keep_index(index, data, io::stat_file(path), {}, folder);
  };

  CHECK_FALSE(io::find_index(data, {}, "").index);
  CHECK(kept_at("") == beside(path));
  CHECK(beside(path) == dir.file(".a b.feedline-index"));  // hidden
  io::KeptIndex found = io::find_index(data, {}, "");
  REQUIRE(found.index);
  CHECK(found.path == beside(path));

  const std::string named = dir.file("not/yet/there");
  found = io::find_index(data, {}, named);
  CHECK_FALSE(found.index);
  CHECK_FALSE(found.refused);
  CHECK(found.why.find("there is no " + named) == 0);
  const std::string in_named = kept_at(named);
  CHECK(in_named.rfind(named + "/a b-", 0) == 0);
  CHECK(in_named.ends_with(".feedline-index"));
  CHECK(io::find_index(data, {}, named).path == in_named);
  // Another file of the same name has another place.
  CHECK(io::index_place(dir.file("other/a b"), named, 0) != in_named);

  // The folder of the data cannot be written to.
  std::filesystem::remove(beside(path));
  hook("create").fail_nth_call(1);
  const std::string in_cache = kept_at("");
  CHECK(in_cache.rfind(dir.file("cache/feedline/a b-"), 0) == 0);
  CHECK(io::find_index(data, {}, "").path == in_cache);

  // The cache folder cannot be written to either: the error is that of the first place.
  std::filesystem::remove_all(dir.file("cache"));
  dir.write("cache", "a file");
  hook("create").fail_nth_call(1);
  try {
    kept_at("");
    FAIL("kept");
  } catch (const Error& error) {
    CHECK(error.place().file == beside(path));
  }
}

TEST_CASE("a stale index beside the data does not hide a valid one in the cache, and says why it is refused") {
  const TempDir dir;
  const OwnCache cache(dir.file("cache"));
  const std::string path = dir.write("a", damaged_file());
  const io::FileId data = io::stat_file(path);
  const io::FileIndex index = io::count_records(path, {});
  io::keep_index(index, data, io::stat_file(path), {}, "");
  io::CountOptions other;
  other.stride = 99;
  io::KeptIndex found = io::find_index(data, other, "");
  CHECK(found.refused);
  CHECK(found.why.find(beside(path) + " was made with a stride of 16384 bytes, but the stride is 99 bytes now") == 0);
  hook("create").fail_nth_call(1);
  io::keep_index(io::count_records(path, other), data, io::stat_file(path), other, "");
  CHECK(io::find_index(data, other, "").index);
  CHECK(io::find_index(data, {}, "").index);
}

TEST_CASE("a file that was written to while it was counted has no index") {
  const TempDir dir;
  const std::string path = dir.write("a", damaged_file());
  io::FileId before = io::stat_file(path);
  const io::FileIndex index = io::count_records(path, {});
  before.version--;
  CHECK_THROWS_AS(io::keep_index(index, before, io::stat_file(path), {}, ""), Error);
  CHECK_FALSE(std::filesystem::exists(beside(path)));
}

TEST_CASE("any failing call leaves a whole index or none, and no other file") {
  const TempDir dir;
  const OwnCache cache(dir.file("cache"));
  const std::string path = dir.write("a", damaged_file());
  const io::FileId data = io::stat_file(path);
  const io::FileIndex index = io::count_records(path, {});
  size_t failures = 0;
  for (SyscallHook* each : SyscallHook::all())
    for (int64_t n = 1;; n++) {
      INFO(each->name() << " " << n);
      std::filesystem::remove(beside(path));
      std::filesystem::remove_all(dir.file("cache"));
      each->fail_nth_call(n);
      std::string kept;
      try {
        kept = io::keep_index(index, data, io::stat_file(path), {}, "");
      } catch (const Error& error) {
        CHECK(error.category() == Category::io_error);
      }
      const io::KeptIndex found = io::find_index(data, {}, "");
      if (found.index) check_same(*found.index, index);
      const bool fired = !each->pending();
      each->fail_nth_call(0);
      // A second look finds the stored index, although a call failed before.
      if (!kept.empty()) REQUIRE(io::find_index(data, {}, "").index);
      for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
        const std::string name = entry.path().filename();
        CHECK_FALSE(name.ends_with("-part"));
      }
      if (!fired) {
        CHECK(kept == beside(path));
        CHECK(found.index);
        break;
      }
      failures++;
    }
  std::printf("failures injected while keeping and finding an index: %zu\n", failures);
  CHECK(failures > 10);
}

TEST_CASE("names of indexes") {
  CHECK(io::is_index_name(".a.feedline-index"));
  CHECK(io::is_index_name("a.feedline-index"));  // as feedline 0.1 called it
  CHECK(io::is_index_name("/b/a.tfrecord.feedline-index"));
  CHECK(io::is_index_name("a.feedline-index.123-0.feedline-part"));
  CHECK_FALSE(io::is_index_name("a.feedline-index.tfrecord"));
  CHECK_FALSE(io::is_index_name("/x.feedline-index/a"));
  CHECK_FALSE(io::is_index_name(".feedline-index"));
  CHECK_FALSE(io::is_index_name("feedline-index"));
}
