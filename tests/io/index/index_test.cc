#include <filesystem>

#include "io/frames.h"
#include "io/index/count_records.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("the index says where the records are") {
  const TempDir dir;
  std::mt19937 random(1);
  std::string file;
  std::vector<uint64_t> offsets;
  uint64_t payload_bytes = 0, largest = 0;
  for (int i = 0; i < 3000; i++) {
    const std::string payload = random_text(i == 700 ? 100'000 : random() % 500, random);
    offsets.push_back(file.size());
    payload_bytes += payload.size();
    largest = std::max<uint64_t>(largest, payload.size());
    file += frame(payload);
  }
  const std::string path = dir.write("a", file);
  for (const uint64_t stride : {uint64_t{64}, uint64_t{1000}, io::default_stride, uint64_t{1} << 30}) {
    uint64_t told = 0;
    const io::FileIndex index = io::count_records(path, {.stride = stride}, [&](uint64_t bytes) { told += bytes; });
    CHECK(told == file.size());
    CHECK(index.compression == Compression::none);
    CHECK(index.stride == stride);
    CHECK(index.records == 3000);
    CHECK(index.payload_bytes == payload_bytes);
    CHECK(index.largest_record == largest);
    CHECK(index.end == file.size());
    CHECK(index.bad.empty());
    REQUIRE(index.entries.size() == (file.size() + stride - 1) / stride + 1);
    for (size_t k = 0; k < index.entries.size(); k++) {
      const auto next = std::lower_bound(offsets.begin(), offsets.end(), k * stride);
      INFO(stride << " " << k);
      CHECK(index.entries[k].offset == (next == offsets.end() ? file.size() : *next));
      CHECK(index.entries[k].record == static_cast<uint64_t>(next - offsets.begin()));
    }
  }
}

TEST_CASE("bad regions and good records share the file without gaps") {
  const TempDir dir;
  const std::string record = frame(std::string(100, 'x'));
  std::string file;
  for (int i = 0; i < 50; i++) file += record;
  const size_t size = record.size();
  file[10 * size + 20] ^= 1;                // data
  file[20 * size] ^= 2;                     // a length
  file.replace(30 * size, 300, 300, '\0');  // three records
  const io::FileIndex index = io::count_records(dir.write("a", file), {.stride = size});
  CHECK(index.records == 45);
  CHECK(index.end == file.size());
  REQUIRE(index.bad.size() == 3);
  CHECK(index.bad[0].offset == 10 * size);
  CHECK(index.bad[0].length == size);
  CHECK(index.bad[0].record == 10);
  CHECK(index.bad[1].offset == 20 * size);
  CHECK(index.bad[1].length == size);
  CHECK(index.bad[1].record == 19);
  CHECK(index.bad[2].offset == 30 * size);
  CHECK(index.bad[2].length == 3 * size);
  CHECK(index.bad[2].record == 28);
  CHECK(index.entries[10].offset == 11 * size);
  CHECK(index.entries[11].offset == 11 * size);
  CHECK(index.entries[32].offset == 33 * size);
  CHECK(index.entries[32].record == 28);
}

TEST_CASE("an empty file has an index") {
  const TempDir dir;
  const io::FileIndex index = io::count_records(dir.write("a", ""), {});
  CHECK(index.records == 0);
  REQUIRE(index.entries.size() == 1);
  CHECK(index.entries[0].offset == 0);
  CHECK(index.memory_bytes() >= sizeof(io::IndexEntry));
}

TEST_CASE("progress may stop the counting") {
  const TempDir dir;
  const std::string path = dir.write("a", frame(std::string(1000, 'x')));
  CHECK_THROWS_AS(io::count_records(path, {}, [](uint64_t) { throw std::runtime_error("stop"); }), std::runtime_error);
}
