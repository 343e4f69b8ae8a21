#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "io/deflate.h"
#include "io/frames.h"
#include "io/index/count_records.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/skip.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

struct Failure {
  Category category;
  uint64_t offset, length, record;
  bool operator==(const Failure&) const = default;
};

struct Outcome {
  std::vector<std::string> payloads;
  std::vector<Failure> failures;
};

Outcome read_all(const std::string& path, const RecordReader::Options& options = {}) {
  Outcome outcome;
  RecordReader reader(path, options);
  Record record;
  for (uint64_t expected = 0;;) {
    switch (reader.next(record)) {
      case ReadResult::record:
        CHECK(record.number == outcome.payloads.size());
        CHECK(record.offset == expected);
        CHECK(record.stored_crc == io::mask_crc(io::crc32c(record.payload)));
        expected += record.payload.size() + 16;
        outcome.payloads.emplace_back(text_of(record.payload));
        break;
      case ReadResult::error: {
        const auto skipped = reader.skipped();
        const Place& place = reader.error().place();
        CHECK(skipped.offset == expected);
        CHECK(place ==
              Place{path, static_cast<int64_t>(skipped.offset), static_cast<int64_t>(outcome.payloads.size()), ""});
        outcome.failures.push_back(
            {reader.error().category(), skipped.offset, skipped.length, outcome.payloads.size()});
        expected += skipped.length;
        break;
      }
      case ReadResult::end:
        CHECK(reader.next(record) == ReadResult::end);
        CHECK(reader.file_position() == reader.file_size());
        return outcome;
    }
  }
}

}  // namespace

TEST_CASE("records of every size come back from plain and compressed files") {
  const TempDir dir;
  std::mt19937 random(1);
  std::vector<std::string> payloads;
  std::string file;
  for (const size_t size : {0, 1, 229, 65536, 262144 - 28, 262144, 262145, 700'000, 3, 2'800'000, 5'000'000, 0, 17}) {
    payloads.push_back(random_text(size, random));
    file += frame(payloads.back());
  }
  for (int i = 0; i < 5000; i++) {
    payloads.push_back(random_text(random() % 400, random));
    file += frame(payloads.back());
  }
  for (const std::string& path :
       {dir.write("plain", file), dir.write("gzip", gzipped(file)), dir.write("zlib", deflated(file, 15)),
        dir.write("members", gzipped(file.substr(0, 1'000'000)) + gzipped("") + gzipped(file.substr(1'000'000)))}) {
    const Outcome outcome = read_all(path);
    CHECK((outcome.payloads == payloads));
    CHECK(outcome.failures.empty());
  }
}

TEST_CASE("damage in a plain file is reported where it is, and the rest is read") {
  const TempDir dir;
  const std::string a = frame("first"), b = frame("the second one"), c = frame("third");
  std::string damaged = b;
  damaged[15] ^= 1;
  CHECK(read_all(dir.write("data", a + damaged + c)).failures ==
        std::vector<Failure>{{Category::bad_data_crc, a.size(), b.size(), 1}});
  damaged = b;
  damaged[3] ^= 64;
  const Outcome length = read_all(dir.write("length", a + damaged + c));
  CHECK(length.failures == std::vector<Failure>{{Category::bad_length_crc, a.size(), b.size(), 1}});
  CHECK(length.payloads == std::vector<std::string>{"first", "third"});
  CHECK(read_all(dir.write("cut", a + b.substr(0, 20))).failures ==
        std::vector<Failure>{{Category::truncated_data, a.size(), 20, 1}});
  CHECK(read_all(dir.write("header", a + b.substr(0, 7))).failures ==
        std::vector<Failure>{{Category::truncated_length, a.size(), 7, 1}});
  CHECK(read_all(dir.write("large", a + frame(std::string(100, 'x')) + c), {.record_limit = 99}).failures ==
        std::vector<Failure>{{Category::record_too_large, a.size(), 116, 1}});
  CHECK(read_all(dir.write("huge", a + frame_header(uint64_t{1} << 63) + c)).failures ==
        std::vector<Failure>{{Category::record_too_large, a.size(), 12 + c.size(), 1}});
  CHECK(read_all(dir.write("garbage", "this is no TFRecord at all, but a text")).failures ==
        std::vector<Failure>{{Category::bad_length_crc, 0, 38, 0}});
}

TEST_CASE("damage in a compressed file") {
  const TempDir dir;
  const std::string a = frame("first"), b = frame("the second one"), c = frame("third");
  std::string damaged = b;
  damaged[15] ^= 1;
  const Outcome data = read_all(dir.write("data", gzipped(a + damaged + c)));
  CHECK(data.failures == std::vector<Failure>{{Category::bad_data_crc, a.size(), b.size(), 1}});
  CHECK(data.payloads == std::vector<std::string>{"first", "third"});

  damaged = b;
  damaged[1] ^= 4;
  const Outcome length = read_all(dir.write("length", gzipped(a + damaged + c)));
  CHECK(length.failures == std::vector<Failure>{{Category::bad_length_crc, a.size(), b.size(), 1}});
  CHECK(length.payloads == std::vector<std::string>{"first", "third"});

  // Nothing says where the next record begins, and a stream cannot be read backwards: the rest is one bad region.
  damaged.replace(0, 12, 12, '\0');
  CHECK(read_all(dir.write("zeroed", gzipped(a + damaged + c))).failures ==
        std::vector<Failure>{{Category::bad_length_crc, a.size(), b.size() + c.size(), 1}});

  CHECK(read_all(dir.write("large", gzipped(a + frame(std::string(100, 'x')) + c)), {.record_limit = 99}).failures ==
        std::vector<Failure>{{Category::record_too_large, a.size(), 116, 1}});
  CHECK(read_all(dir.write("huge", gzipped(a + frame_header(~uint64_t{0}) + c))).failures ==
        std::vector<Failure>{{Category::record_too_large, a.size(), 12 + c.size(), 1}});
  CHECK(read_all(dir.write("cut inside", gzipped(a + b.substr(0, 20)))).failures ==
        std::vector<Failure>{{Category::truncated_data, a.size(), 20, 1}});

  // Damage to the stream itself: the records that came out of it are good, and the stream's error follows them.
  std::string checksum = gzipped(a + b + c);
  checksum[checksum.size() - 8] ^= 1;
  const Outcome trailer = read_all(dir.write("trailer", checksum));
  CHECK(trailer.payloads.size() == 3);
  CHECK(trailer.failures == std::vector<Failure>{{Category::bad_compression, a.size() + b.size() + c.size(), 0, 3}});
  CHECK(read_all(dir.write("told", a), {.compression = Compression::gzip}).failures ==
        std::vector<Failure>{{Category::bad_compression, 0, 0, 0}});
}

TEST_CASE("a file of another format is told by its first bytes, with what to do") {
  const TempDir dir;
  const auto said = [&](const std::string& content, const RecordReader::Options& options = {}) {
    RecordReader reader(dir.write("a", content), options);
    Record record;
    if (reader.next(record) != ReadResult::error) return std::string("no error");
    CHECK(reader.error().place() == Place{dir.file("a"), 0, 0, ""});
    return reader.error().message();
  };
  const std::string rest(600, '\xa5'), zero(1, '\0');
  std::string tar(600, '\0');
  tar.replace(0, 5, "a.jpg").replace(257, 5, "ustar");
  const std::string mds = little_endian(uint32_t{2}) + little_endian(uint32_t{41}) + little_endian(uint32_t{50}) +
                          little_endian(uint32_t{60}) + R"({"column_names": ["a"]})" + rest;
  const std::pair<std::string, const char*> formats[] = {
      {"\x28\xb5\x2f\xfd" + rest, "zstd has compressed; decompress it with `zstd -d`"},
      {"\x04\x22\x4d\x18" + rest, "lz4 has compressed"},
      {std::string("\xff\x06\0\0sNaPpY", 10) + rest, "snappy has compressed"},
      {"BZh91AY&SY" + rest, "bzip2 has compressed"},
      {"\xfd"
       "7zXZ" +
           zero + rest,
       "xz has compressed"},
      {tar, "a tar archive; `feedline convert webdataset`"},
      {"PAR1\x15\x04" + rest, "a Parquet file; `python -m feedline convert parquet`"},
      {"ARROW1" + zero + zero + rest, "an Arrow file"},
      {"\xff\xff\xff\xff" + little_endian(uint32_t{0x250}) + rest, "a stream of Arrow"},
      {"\x89HDF\r\n\x1a\n" + rest, "an HDF5 file"},
      {"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f" + std::string(8, '\0') + rest, "an ArrayRecord file"},
      {"\x93NUMPY\x01" + zero + rest, "an array of NumPy; `feedline convert npy`"},
      {"PK\x03\x04" + rest, "a zip archive"},
      {"\xff\xd8\xff\xe0" + rest, "a picture; `feedline convert images`"},
      {"\x89PNG\r\n\x1a\n" + rest, "a picture; `feedline convert images`"},
      {mds, "a shard of MosaicML Streaming (MDS)"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of Git LFS"},
      {"name,age\nAda,36\n", "text; `feedline convert csv`"},
      {std::string(511, 'a') + "\xc3\xa4 more", "text; `feedline convert csv`"},  // a character that is cut
  };
  for (const auto& [content, what] : formats) {
    INFO(what);
    for (const std::string& file : {content, gzipped(content)}) {  // also inside of gzip, as .tar.gz
      const std::string message = said(file);
      CHECK(message.find(": the file is not a TFRecord file, but looks like ") != std::string::npos);
      CHECK(message.find(what) != std::string::npos);
    }
    // Only the beginning of a file says what it is.
    CHECK(read_all(dir.write("b", frame("record") + content)).payloads.size() == 1);
    RecordReader reader(dir.file("b"));
    Record record;
    CHECK(reader.next(record) == ReadResult::record);
    CHECK(reader.next(record) == ReadResult::error);
    CHECK(reader.error().message().find("looks like") == std::string::npos);
  }
  CHECK(said(rest).find(": the file is damaged, or is not a TFRecord file") != std::string::npos);
  CHECK(said(std::string(600, '\xff')).find("is damaged, or is not") != std::string::npos);
  CHECK(said(gzipped("x"), {.compression = Compression::none}).find("looks like gzip, but") != std::string::npos);
  CHECK(said(gzipped(gzipped("x"))).find(": it was compressed twice; decompress it once") != std::string::npos);
}

TEST_CASE("a length in a header allocates no memory by itself") {
  const TempDir dir;
  // By its header the record has 200 MiB, which is within the limit; how many bytes a compressed file holds is not
  // known.
  const std::string path = dir.write("long", gzipped(frame("a") + frame_header(200 << 20) + "some bytes"));
  const Outcome outcome = read_all(path);
  CHECK(outcome.failures == std::vector<Failure>{{Category::truncated_data, 17, 22, 1}});
}

TEST_CASE("files that cannot be opened") {
  const TempDir dir;
  CHECK_THROWS_AS(RecordReader(dir.file("none")), Error);
  CHECK_THROWS_AS(RecordReader(dir.path()), Error);
  REQUIRE(mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  CHECK_THROWS_AS(RecordReader(dir.file("pipe")), Error);  // and does not wait for a writer
}

TEST_CASE("a file that another program has leased is opened once it is given back") {
  const TempDir dir;
  const std::string path = dir.write("a", frame("a"));
  static int leased;
  leased = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fcntl(leased, F_SETLEASE, F_WRLCK) == 0) {
    const auto before = std::signal(SIGIO, [](int) { fcntl(leased, F_SETLEASE, F_UNLCK); });
    CHECK(read_all(path).payloads.size() == 1);
    std::signal(SIGIO, before);
  } else {
    skip("the file system of temporary files has no leases");
  }
  close(leased);
}

TEST_CASE("a file that becomes shorter while it is read is an error") {
  const TempDir dir;
  std::string file;
  for (int i = 0; i < 1000; i++) file += frame(std::string(1000, 'x'));
  const std::string path = dir.write("a", file);
  RecordReader reader(path);
  Record record;
  REQUIRE(reader.next(record) == ReadResult::record);
  std::filesystem::resize_file(path, 300'000);
  const auto rest = [&] {
    while (reader.next(record) == ReadResult::record) continue;
  };
  CHECK_THROWS_WITH(rest(), Catch::Contains("it had 1016000 bytes, and ends at or before byte "));
}

TEST_CASE("after a failed read a plain file goes on, and a compressed one fails again") {
  const TempDir dir;
  std::mt19937 random(2);
  std::string file;
  for (int i = 0; i < 1000; i++) file += frame(random_text(1000, random));
  for (const std::string& path : {dir.write("plain", file), dir.write("gzip", gzipped(file))}) {
    RecordReader reader(path);
    Record record;
    size_t records = 0;
    const auto rest = [&] {
      while (reader.next(record) == ReadResult::record) records++;
      return records;
    };
    find_hook("read")->fail_nth_call(2);
    CHECK_THROWS_AS(rest(), Error);
    if (reader.compression() == Compression::none)
      CHECK(rest() == 1000);
    else
      CHECK_THROWS_AS(rest(), Error);
  }
}

TEST_CASE("the rest of a cut record is not read") {
  const TempDir dir;
  RecordReader reader(dir.write("a", frame("a") + frame(std::string(600'000, 'x')).substr(0, 500'000)));
  Record record;
  CHECK(reader.next(record) == ReadResult::record);
  find_hook("read")->fail_nth_call(1);
  CHECK(reader.next(record) == ReadResult::error);
  find_hook("read")->fail_nth_call(0);
  CHECK(reader.skipped().length == 500'000);
  CHECK(reader.next(record) == ReadResult::end);
  CHECK(reader.file_position() == reader.file_size());
}

TEST_CASE("whichever call fails while reading: the same records, or io_error") {
  const TempDir dir;
  std::string file, damaged;
  for (int i = 0; i < 100; i++) file += frame(std::string(5000, static_cast<char>(i)));
  damaged = file;
  damaged[200'000] ^= 1;
  size_t failures = 0;
  for (const std::string& path :
       {dir.write("plain", file), dir.write("gzip", gzipped(file)), dir.write("damaged", damaged)})
    for (SyscallHook* hook : SyscallHook::all())
      for (int64_t n = 1;; n++) {
        INFO(hook->name() << " " << n);
        hook->fail_nth_call(n);
        bool threw = false;
        try {
          const io::FileIndex index = io::count_records(path, {});
          CHECK(index.records + index.bad.size() == 100);
        } catch (const Error& error) {
          threw = true;
          CHECK(error.category() == Category::io_error);
          CHECK(error.place().file == path);
        }
        const bool fired = !hook->pending();
        hook->fail_nth_call(0);
        if (!fired) {
          CHECK_FALSE(threw);
          break;
        }
        failures++;
      }
  std::printf("failures injected while reading: %zu\n", failures);
  CHECK(failures > 20);
}
