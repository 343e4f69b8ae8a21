// Counts a file in several ranges at once. The index must be equal, field by field, to that of one thread that reads
// from front to back.
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/audit.h"
#include "feedline/records.h"
#include "io/frames.h"
#include "io/index/count_records.h"
#include "io/index/index_check.h"
#include "support/catch.h"
#include "support/same_index.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Random = std::mt19937;

constexpr uint64_t no_ranges = uint64_t{1} << 40;

// Computes the sums by RecordReader, which knows nothing of ranges, entries and sums.
void check_sums(const std::string& path, const io::FileIndex& index, uint64_t record_limit) {
  RecordReader reader(path, {.compression = Compression::none, .record_limit = record_limit});
  std::vector<uint64_t> sums(index.sums.size());
  uint64_t audit = 0, records = 0, smallest = UINT64_MAX, largest = 0;
  Record record;
  for (ReadResult result; (result = reader.next(record)) != ReadResult::end;) {
    if (result == ReadResult::error) continue;
    const uint64_t term = audit_term(record.offset, record.stored_crc);
    audit += term;
    sums.at(record.offset / (index.stride * io::strides_per_group)) += term;
    smallest = std::min<uint64_t>(smallest, record.payload.size());
    largest = std::max<uint64_t>(largest, record.payload.size());
    records++;
  }
  CHECK(index.records == records);
  CHECK(index.audit == audit);
  CHECK(std::equal(sums.begin(), sums.end(), index.sums.begin(), index.sums.end()));
  CHECK(index.smallest_record == (records ? smallest : 0));
  CHECK(index.largest_record == largest);
}

// Counts as 2, 3 or 4 ranks do: each counts a part and tells the others.
void check_parts(const std::string& path, const io::FileIndex& serial, const io::CountOptions& options) {
  const uint64_t size = std::filesystem::file_size(path), parts = 2 + (size + options.range_bytes) % 3;
  INFO(parts << " parts");
  const auto file = std::make_shared<const io::InputFile>(path);
  std::vector<io::IndexBuilder> chains;
  std::atomic<uint64_t> told{0};
  for (uint64_t part = 0; part < parts; part++) {
    MessageWriter out;
    const auto mine = io::count_part(file, size * part / parts, size * (part + 1) / parts, options,
                                     [&](uint64_t bytes) { told += bytes; });
    for (const io::IndexBuilder& chain : mine) chain.put_into(out);
    const std::string message = out.take();
    MessageReader in(message);
    for (size_t i = 0; i < mine.size(); i++) chains.push_back(io::IndexBuilder::get_from(in, options.stride, size));
  }
  CHECK(told == size);
  check_same(io::join_parts(file, chains, options), serial);
}

void check_ranges(const std::string& path, uint64_t range_bytes, uint64_t stride, uint64_t record_limit) {
  io::CountOptions options{.compression = Compression::none, .record_limit = record_limit, .stride = stride};
  options.range_bytes = no_ranges;
  const io::FileIndex serial = io::count_records(path, options);
  check_sums(path, serial, record_limit);
  CHECK(io::contradiction(serial, std::filesystem::file_size(path), record_limit).empty());
  std::atomic<uint64_t> told{0};
  options.range_bytes = range_bytes;
  const io::FileIndex ranges = io::count_records(path, options, [&](uint64_t bytes) { told += bytes; });
  INFO("range " << range_bytes << ", stride " << stride);
  CHECK(told == std::filesystem::file_size(path));
  check_same(ranges, serial);
  check_parts(path, serial, options);
}

std::string records_of(Random& random, size_t count, size_t longest) {
  std::string file;
  for (size_t i = 0; i < count; i++) file += frame(random_text(random() % (longest + 1), random));
  return file;
}

uint32_t crc_of(const std::string& text) { return io::crc32c(bytes_of(text)); }

// Returns a payload in which a record begins that ends with the record around it. One checksum fits both records, so a
// chain that begins inside the payload runs into the true chain.
std::string payload_that_meets(Random& random) {
  const std::string inner = random_text(random() % 60, random);
  const std::string rest = frame_header(inner.size()) + inner;
  // The first four bytes are free: the checksum is an affine function of their bits and takes every value.
  const uint32_t base = crc_of(little_endian(uint32_t{0}) + rest);
  uint32_t wanted = crc_of(inner) ^ base, bytes = 0;
  std::vector<std::pair<uint32_t, uint32_t>> basis;  // a change of the checksum, and the bits that cause it
  for (int bit = 0; bit < 32; bit++) {
    uint32_t bits = uint32_t{1} << bit, change = crc_of(little_endian(bits) + rest) ^ base;
    for (const auto& [other, its_bits] : basis)
      if ((change ^ other) < change) change ^= other, bits ^= its_bits;
    basis.push_back({change, bits});
    std::sort(basis.rbegin(), basis.rend());
  }
  for (const auto& [change, bits] : basis)
    if ((wanted ^ change) < wanted) wanted ^= change, bytes ^= bits;
  REQUIRE(wanted == 0);
  return little_endian(bytes) + rest;
}

// Returns a payload that may mislead a scan that begins inside it.
std::string misleading(Random& random) {
  switch (random() % 6) {
    case 0:
      return records_of(random, 1 + random() % 20, 40);  // a whole file
    case 1:
      return random_text(random() % 30, random) + records_of(random, 1 + random() % 20, 40) +
             random_text(random() % 30, random);
    case 2:
      return frame_header(random() % 5000) + random_text(random() % 100, random);  // may claim more than it has
    case 3: {  // consecutive headers, each of a record that would fit
      std::string headers;
      for (int i = 0; i < 30; i++) headers += frame_header(random() % 300);
      return headers;
    }
    case 4:
      return payload_that_meets(random);
    default:
      return frame(misleading(random));
  }
}

std::string any_payload(Random& random) {
  return random() % 3 == 0 ? misleading(random) : random_text(random() % (random() % 20 == 0 ? 3000 : 80), random);
}

// Returns a file in which every border lies on misleading bytes, inside a record that begins before it.
std::string with_borders_covered(Random& random, uint64_t range_bytes, size_t size) {
  std::string file;
  for (uint64_t border = range_bytes; file.size() < size; border += range_bytes) {
    while (file.size() + 300 < border) file += frame(any_payload(random).substr(0, 150));
    std::string payload;
    if (file.size() + 12 < border) payload = random_text(random() % (border - file.size() - 11), random);
    payload += misleading(random);
    file += frame(payload);
    while (border < file.size()) border += range_bytes;
    border -= range_bytes;
  }
  return file;
}

void plant_damage(std::string& file, Random& random) {
  if (file.empty()) return;
  const size_t at = random() % file.size();
  const size_t length = std::min<size_t>(file.size() - at, 1 + random() % 300);
  switch (random() % 5) {
    case 0:
    case 1:
      file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
      break;
    case 2:
      file.replace(at, length, length, '\0');
      break;
    case 3:
      file.erase(at, length);
      break;
    default:
      file.insert(at, random() % 2 ? random_text(length, random) : misleading(random));
  }
}

uint64_t any_of(Random& random, std::initializer_list<uint64_t> values) {
  return values.begin()[random() % values.size()];
}

}  // namespace

TEST_CASE("a file has no index of more bad regions than most_bad_regions") {
  const io::BadRegion next{.offset = 160, .length = 16, .record = 4, .category = Category::bad_data_crc, .message = ""};
  CHECK_NOTHROW(io::check_bad_regions(io::most_bad_regions - 1, next, "f"));
  CHECK_THROWS_WITH(io::check_bad_regions(io::most_bad_regions, next, "f"),
                    Catch::Contains("f: offset 160: record 4: the file has more than 4194304 damaged places"));
  // The caller is told of each bad region, and may end the counting.
  const TempDir dir;
  std::string bad = frame("bad"), file;
  bad.back() ^= 1;
  for (int i = 0; i < 100; i++) file += frame("good") + bad;
  size_t told = 0;
  const auto tell = [&](const io::BadRegion& region) {
    CHECK(region.record == ++told);
    if (told == 7) throw std::runtime_error("enough");
  };
  for (const uint64_t range_bytes : {uint64_t{64}, no_ranges}) {
    told = 0;
    io::CountOptions options;
    options.range_bytes = range_bytes;
    CHECK_THROWS_WITH(io::count_records(dir.write("a", file), options, {}, tell), "enough");
  }
}

TEST_CASE("ranges of sound files") {
  const TempDir dir;
  for (uint32_t seed = 0; seed < 300; seed++) {
    INFO("seed " << seed);
    Random random(seed);
    std::string file;
    for (size_t i = random() % 300; i > 0; i--) file += frame(any_payload(random));
    check_ranges(dir.write("a", file), any_of(random, {17, 64, 500, 4096, 20'000}),
                 any_of(random, {1, 4, 16, 64, 1000}), io::default_record_limit);
  }
}

TEST_CASE("ranges whose borders lie in records that hold records and headers") {
  const TempDir dir;
  for (uint32_t seed = 0; seed < 300; seed++) {
    INFO("seed " << seed);
    Random random(seed);
    const uint64_t range_bytes = any_of(random, {300, 1000, 4096});
    const std::string file = with_borders_covered(random, range_bytes, 20 * range_bytes);
    check_ranges(dir.write("a", file), range_bytes, any_of(random, {4, 16, 64}), io::default_record_limit);
  }
}

TEST_CASE("ranges of damaged files") {
  const TempDir dir;
  size_t bad = 0;
  for (uint32_t seed = 0; seed < 600; seed++) {
    INFO("seed " << seed);
    Random random(seed);
    const uint64_t range_bytes = any_of(random, {100, 1000, 5000});
    std::string file;
    if (random() % 2)
      file = with_borders_covered(random, range_bytes, 10 * range_bytes);
    else
      for (size_t i = 1 + random() % 200; i > 0; i--) file += frame(any_payload(random));
    for (size_t i = 1 + random() % 6; i > 0; i--) plant_damage(file, random);
    const std::string path = dir.write("a", file);
    // With a small limit, resynchronisation accepts chains that do not reach the end of the file.
    check_ranges(path, range_bytes, any_of(random, {4, 16, 64}), any_of(random, {64, 3000, io::default_record_limit}));
    bad += io::count_records(path, {.compression = Compression::none}).bad.size();
  }
  CHECK(bad > 600);
}

TEST_CASE("ranges that no record begins in, and more chains than a range keeps") {
  const TempDir dir;
  Random random(5);
  std::string file = frame("x") + frame(random_text(5000, random)) + frame(std::string(9000, '\0')) + frame("y");
  std::string pieces;  // single records with other bytes between them, so that each is a chain of its own
  for (int i = 0; i < 300; i++) pieces += frame(random_text(10, random)) + "between";
  file += frame(pieces) + records_of(random, 50, 100);
  for (const uint64_t range_bytes : {100, 1000, 7000, 20'000})
    check_ranges(dir.write("a", file), range_bytes, 16, io::default_record_limit);
  check_ranges(dir.write("empty", ""), 100, 16, io::default_record_limit);
  check_ranges(dir.write("junk", random_text(5000, random)), 100, 16, io::default_record_limit);
  check_ranges(dir.write("zeros", std::string(5000, '\0')), 100, 16, io::default_record_limit);
}

TEST_CASE("ranges of the golden files") {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FEEDLINE_GOLDEN) + "/framing")) {
    const std::string path = entry.path();
    if (!path.ends_with(".tfrecord")) continue;
    INFO(path);
    for (const uint64_t range_bytes : {50, 333, 4096}) check_ranges(path, range_bytes, 16, io::default_record_limit);
    files++;
  }
  CHECK(files > 100);
}

TEST_CASE("one thread takes the ranges in turn") {
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const TempDir dir;
  Random random(6);
  check_ranges(dir.write("a", records_of(random, 1000, 200)), 1000, 64, io::default_record_limit);
}

TEST_CASE("a file large enough for ranges without being told") {
  const TempDir dir;
  Random random(7);
  std::string file;
  while (file.size() < 70 << 20) file += frame(random_text(1 << 20, random)) + records_of(random, 1000, 500);
  const std::string path = dir.write("a", file);
  check_ranges(path, 0, io::default_stride, io::default_record_limit);
}

TEST_CASE("progress may stop the counting of ranges") {
  const TempDir dir;
  Random random(8);
  const std::string path = dir.write("a", records_of(random, 1000, 200));
  CHECK_THROWS_AS(io::count_records(path, {.range_bytes = 1000}, [](uint64_t) { throw std::runtime_error("stop"); }),
                  std::runtime_error);
}
