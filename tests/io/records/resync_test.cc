// Files with planted damage: no false record may be delivered, and every record that the damage left intact must be
// found.
#include "io/records/resync.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "feedline/records.h"
#include "io/frames.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Random = std::mt19937;

// A file and the places of its records. plant() keeps the places up to date.
struct File {
  std::string bytes;
  struct Entry {
    size_t offset, size;
    std::string payload;
  };
  std::vector<Entry> records;

  void add(const std::string& payload) {
    const std::string framed = frame(payload);
    records.push_back({bytes.size(), framed.size(), payload});
    bytes += framed;
  }
};

std::string random_payload(Random& random, int depth) {
  // Some payloads are whole TFRecord files, alone or with bytes around them, nested in each other.
  if (depth > 0 && random() % 4 == 0) {
    std::string inner = random_text(random() % 2 ? 0 : random() % 20, random);
    const size_t records = 1 + random() % 12;
    for (size_t i = 0; i < records; i++) inner += frame(random_payload(random, depth - 1));
    if (random() % 2) inner += random_text(random() % 20, random);
    return inner;
  }
  return random_text(random() % 60, random);
}

File random_file(Random& random, size_t records) {
  File file;
  for (size_t i = 0; i < records; i++) file.add(random_payload(random, 3));
  return file;
}

struct Damage {
  size_t begin, end;  // the range of the changed bytes, as offsets before the damage
};

// Damages the file in one place. Updates `file.records`: records that moved get their new place, damaged ones are
// removed.
Damage plant(File& file, Random& random) {
  const auto& victim = file.records[random() % file.records.size()];
  const size_t at = victim.offset, size = victim.size;
  std::string& bytes = file.bytes;
  size_t begin = 0, end = 0;
  ptrdiff_t moved = 0;
  const auto flip = [&](size_t place) {
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
    begin = place;
    end = place + 1;
  };
  switch (random() % 8) {
    case 0:
      flip(at + random() % 8);
      break;  // the length
    case 1:
      flip(at + 8 + random() % 4);
      break;  // the length's checksum
    case 2:
      flip(at + 12 + random() % (size - 12));
      break;  // payload or footer
    case 3:
      flip(at + size - 1 - random() % 4);
      break;   // the footer
    case 4: {  // a run of zeros
      begin = random() % bytes.size();
      end = std::min(bytes.size(), begin + 1 + random() % 400);
      std::fill(bytes.begin() + static_cast<ptrdiff_t>(begin), bytes.begin() + static_cast<ptrdiff_t>(end), '\0');
      break;
    }
    case 5: {  // inserted bytes
      begin = end = at + random() % size;
      const std::string inserted = random_text(1 + random() % 150, random);
      bytes.insert(begin, inserted);
      moved = static_cast<ptrdiff_t>(inserted.size());
      break;
    }
    case 6: {  // random bytes in place of a sector
      begin = random() % bytes.size();
      end = std::min(bytes.size(), begin + 512);
      for (size_t i = begin; i < end; i++) bytes[i] = static_cast<char>(random());
      break;
    }
    default: {
      // Removed bytes. The first byte of the record stays, or what follows might look like a record in its place. Fewer
      // bytes are removed than follow the record, or its header would say that the file is cut off.
      const size_t left_after = bytes.size() - (at + size);
      if (left_after == 0) {
        flip(at + 12 + random() % (size - 12));
        break;
      }
      begin = at + 1 + random() % (size - 1);
      end = begin + 1 + random() % std::min<size_t>(left_after, 150);
      bytes.erase(begin, end - begin);
      moved = -static_cast<ptrdiff_t>(end - begin);
    }
  }
  std::vector<File::Entry> left;
  for (File::Entry& record : file.records) {
    const size_t record_end = record.offset + record.size;
    // An insertion exactly between two records damages neither.
    const bool hit =
        begin == end ? record.offset < begin && begin < record_end : record.offset < end && begin < record_end;
    // Zeros written over zeros, or a bit flipped back, are no damage.
    if (hit && (moved != 0 || text_of(bytes_of(bytes).subspan(record.offset, record.size)) != frame(record.payload)))
      continue;
    if (record.offset >= end) record.offset = static_cast<size_t>(static_cast<ptrdiff_t>(record.offset) + moved);
    left.push_back(std::move(record));
  }
  file.records = std::move(left);
  return {begin, end};
}

struct Read {
  size_t found = 0;  // records that the file holds
  size_t wrong = 0;  // records that it does not hold
  size_t errors = 0;
  bool gapless = true;
};

Read read_back(const TempDir& dir, const File& file, uint64_t record_limit) {
  Read read;
  RecordReader reader(dir.write("file", file.bytes), {.compression = Compression::none, .record_limit = record_limit});
  Record record;
  uint64_t expected = 0;
  for (;;) {
    const ReadResult result = reader.next(record);
    if (result == ReadResult::end) break;
    if (result == ReadResult::error) {
      read.errors++;
      read.gapless &= reader.skipped().offset == expected;
      expected += reader.skipped().length;
      continue;
    }
    read.gapless &= record.offset == expected;
    expected += record.payload.size() + 16;
    const auto there = std::lower_bound(file.records.begin(), file.records.end(), record.offset,
                                        [](const File::Entry& e, uint64_t offset) { return e.offset < offset; });
    const bool right =
        there != file.records.end() && there->offset == record.offset && there->payload == text_of(record.payload);
    (right ? read.found : read.wrong)++;
  }
  read.gapless &= expected == file.bytes.size();
  return read;
}

}  // namespace

TEST_CASE("one damage: every other record is found, and none that is not there") {
  const TempDir dir;
  size_t found = 0, errors = 0;
  for (uint32_t seed = 0; seed < 3000; seed++) {
    Random random(seed);
    File file = random_file(random, 1 + random() % 40);
    plant(file, random);
    const Read read = read_back(dir, file, uint64_t{256} << 20);
    INFO("seed " << seed);
    CHECK(read.wrong == 0);
    CHECK(read.found == file.records.size());
    CHECK(read.gapless);
    found += read.found;
    errors += read.errors;
  }
  CHECK(found > 30'000);
  CHECK(errors > 2'000);
}

TEST_CASE("several damages: none that is not there; with a limit that fits the data, nearly all") {
  const TempDir dir;
  size_t there = 0, found = 0;
  for (uint32_t seed = 0; seed < 1500; seed++) {
    Random random(seed);
    File file;
    for (size_t i = 0; i < 200; i++) file.add(random_text(random() % 60, random));
    for (size_t i = 1 + random() % 5; i > 0; i--) plant(file, random);
    const Read read = read_back(dir, file, 64);
    INFO("seed " << seed);
    CHECK(read.wrong == 0);
    CHECK(read.gapless);
    there += file.records.size();
    found += read.found;
  }
  CHECK(static_cast<double>(found) > 0.99 * static_cast<double>(there));
}

TEST_CASE("several damages among records inside records: none that is not there") {
  const TempDir dir;
  for (uint32_t seed = 0; seed < 1500; seed++) {
    Random random(seed);
    File file = random_file(random, 1 + random() % 40);
    for (size_t i = 1 + random() % 4; i > 0 && !file.records.empty(); i--) plant(file, random);
    INFO("seed " << seed);
    const Read read = read_back(dir, file, uint64_t{256} << 20);
    CHECK(read.wrong == 0);
    CHECK(read.gapless);
  }
}

TEST_CASE("bits flipped in many records: each is one error, the rest is there") {
  const TempDir dir;
  Random random(7);
  File file;
  for (size_t i = 0; i < 3000; i++) file.add(random_text(229, random));
  std::set<size_t> hit;
  while (hit.size() < 40) hit.insert(random() % 3000);
  std::vector<File::Entry> left;
  for (size_t i = 0; i < 3000; i++) {
    if (!hit.count(i)) {
      left.push_back(file.records[i]);
      continue;
    }
    const size_t place = file.records[i].offset + random() % file.records[i].size;
    file.bytes[place] = static_cast<char>(file.bytes[place] ^ (1 << random() % 8));
  }
  file.records = left;
  const Read read = read_back(dir, file, uint64_t{256} << 20);
  CHECK(read.errors == 40);
  CHECK(read.found == 2960);
  CHECK(read.wrong == 0);
}

TEST_CASE("a flipped bit and a zeroed stretch far after it: the records between them are read") {
  const TempDir dir;
  Random random(8);
  File file;
  for (size_t i = 0; i < 300; i++) file.add(random_text(100, random));
  const auto original = file.records;
  file.bytes[original[10].offset + 50] ^= 1;
  file.bytes.replace(original[200].offset - 30, 200, 200, '\0');
  std::vector<File::Entry> left;
  for (size_t i = 0; i < 300; i++)
    if (i != 10 && (i < 199 || i > 201)) left.push_back(original[i]);
  file.records = left;
  const Read read = read_back(dir, file, uint64_t{256} << 20);
  CHECK(read.found == left.size());
  CHECK(read.wrong == 0);
  CHECK(read.errors == 2);
}

TEST_CASE("a cut file's last record gives nothing of its inside away") {
  const TempDir dir;
  std::string inner;
  for (int i = 0; i < 10; i++) inner += frame("inner record");
  const std::string outer = frame("before") + frame(inner);
  File file;
  file.records.push_back({0, 22, "before"});
  for (size_t cut = 22; cut < outer.size(); cut++) {
    file.bytes = outer.substr(0, cut);
    const Read read = read_back(dir, file, uint64_t{256} << 20);
    CHECK(read.found == 1);
    CHECK(read.wrong == 0);
    CHECK(read.errors == (cut > 22 ? 1 : 0));
  }
}

TEST_CASE("a search that could not read begins again") {
  const std::string file = std::string(40, 'x') + frame("good");
  int reads = 0;
  io::Resync resync(
      [&](uint64_t offset, std::span<std::byte> into) {
        if (++reads == 2) throw std::runtime_error("the disk does not answer");  // the first read is of the damage
        std::memcpy(into.data(), file.data() + offset, into.size());
      },
      file.size(), 1000);
  CHECK_THROWS_AS(resync.after(0), std::runtime_error);
  CHECK(resync.after(0) == 40);
}

TEST_CASE("work on false candidates is bounded") {
  // A long row of headers, each of a long record that would fit: every one is a candidate with a long payload to check.
  std::string file = "\1";
  for (int i = 0; i < 20'000; i++) file += frame_header(150'000);
  file += std::string(300'000, 'x');
  const std::string good = frame("the end");
  file += good;
  uint64_t bytes_read = 0;
  io::Resync resync(
      [&](uint64_t offset, std::span<std::byte> into) {
        bytes_read += into.size();
        std::memcpy(into.data(), file.data() + offset, into.size());
      },
      file.size(), 200'000);
  CHECK(resync.after(0) == file.size() - good.size());
  CHECK(bytes_read < 40 * file.size());
}
