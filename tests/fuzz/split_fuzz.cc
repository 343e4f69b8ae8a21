// The files of a split that is continued. A job file whose numbers were changed must be refused, or be one that the split
// can work with. Buckets must give the records that were added, in the order of their keys, in memory or one at a time; a
// bucket with wrong bytes is refused.
// covers: tool/reshard/split_job.cc tool/reshard/shuffle_buckets.cc
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mul_div.h"
#include "draw.h"
#include "feedline/error.h"
#include "io/records/crc32c.h"
#include "require.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tool/reshard/shuffle_buckets.h"
#include "tool/reshard/split_job.h"

namespace {

using namespace feedline;
using namespace feedline::tool;
using test::Draw;
using test::require;

const test::TempDir& folder() {
  static const test::TempDir dir;
  return dir;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

SplitJob draw_job(Draw& draw) {
  SplitJob job;
  job.options = {.name = "train",
                 .shards = {},
                 .shard_bytes = {},
                 .gzip = draw.coin(),
                 .skip_bad = draw.coin(),
                 .shuffle = draw.coin(),
                 .seed = draw.any<uint64_t>()};
  if (draw.coin()) job.options.record_limit = 5000;
  std::vector<MappedFile> files;
  for (uint64_t left = draw.below(4); left > 0; left--) {
    MappedFile file;
    file.identity = {draw.coin() ? "/data/a" : "/data/\xff", 100, draw.any<uint64_t>()};
    if (draw.coin()) file.compression = Compression::gzip;
    for (uint64_t i = draw.below(5); i > 0; i--) {
      if (file.marks.empty() || file.compression == Compression::none)
        file.marks.push_back({file.identity.size, file.records});
      const uint64_t records = 1 + draw.below(9), payload = draw.below(300);
      file.records += records;
      file.payload_bytes += payload;
      file.identity.size += 16 * records + payload;
    }
    if (draw.coin()) file.bad_offsets.assign({50, 70});
    job.inputs.push_back(file.identity);
    files.push_back(std::move(file));
  }
  job.map = RecordMap(std::move(files), job.options.record_limit);
  const uint64_t bytes = job.map.framed_bytes();
  if (draw.coin())
    job.options.shards = 1 + draw.below(5);
  else
    job.options.shard_bytes = 1 + bytes / 5 + draw.below(bytes + 1);
  job.shards = shards_of(job.options, bytes);
  if (draw.coin()) job.bad.push_back(Json{{"category", "bad_data_crc"}, {"skipped_bytes", 20}});
  if (job.options.shuffle && job.map.records() > 0 && draw.coin()) {
    job.buckets.emplace();
    (draw.coin() ? job.buckets->shards_per_unit : job.buckets->buckets_per_unit) = 1 + draw.below(3);
    job.buckets->bytes.assign(div_up(job.shards, job.buckets->shards_per_unit) * job.buckets->buckets_per_unit,
                              draw.below(99));
  }
  return job;
}

// Makes what a split makes of a job: the places of its shards, records and buckets.
void use(const SplitJob& job) {
  const RecordMap& map = job.map;
  require(job.shards >= 1 && job.shards <= most_shards && map.files().size() == job.inputs.size(), "shards or files");
  require(job.shards == shards_of(job.options, map.framed_bytes()), "another number of shards than was asked for");
  Wide records = 0, bytes = 0;
  for (size_t f = 0; f < map.files().size(); f++) {
    const MappedFile& file = map.files()[f];
    require(file.identity == job.inputs[f], "another file");
    require(file.compression == Compression::none || file.compression == Compression::gzip ||
                file.compression == Compression::zlib,
            "a compression that cannot be");
    require(file.marks.empty() == (file.records == 0), "no mark to begin at");
    for (size_t m = 0; m < file.marks.size(); m++) {
      const io::IndexEntry& mark = file.marks[m];
      require(
          m > 0 ? mark.record > file.marks[m - 1].record && mark.offset > file.marks[m - 1].offset : mark.record == 0,
          "marks out of order");
      require(mark.record < file.records, "a mark of no record");
      require(file.compression != Compression::none || mark.offset < file.identity.size, "a mark outside of its file");
    }
    require(std::ranges::is_sorted(file.bad_offsets), "bad places out of order");
    const Wide framed = Wide{file.records} * io::frame_bytes + file.payload_bytes;
    require(file.compression != Compression::none || framed <= file.identity.size,
            "more records than the file has bytes");
    records += file.records;
    bytes += framed;
  }
  require(records == map.records() && bytes == map.framed_bytes(), "a sum that overflows");
  require(job.begin(0) == 0 && job.begin(job.shards) == map.records(), "shards of other records");
  if (!job.buckets) return;
  const auto& [shards, buckets, sizes] = *job.buckets;
  require(shards >= 1 && buckets >= 1 && sizes.size() == div_up(job.shards, shards) * buckets, "other buckets");
}

// Returns a value of a document, at any depth.
Json& value_of(Draw& draw, Json& document) {
  Json* value = &document;
  while (value->is_structured() && !value->empty() && draw.below(8) > 0)
    value = &*std::next(value->begin(), static_cast<std::ptrdiff_t>(draw.below(value->size())));
  return *value;
}

void job_file(Draw& draw) {
  const SplitJob job = draw_job(draw);
  const std::string path = folder().file(".train.split.json"), again = folder().file("again");
  SplitJob wanted = job;
  wanted.map = RecordMap({}, job.options.record_limit);
  wanted.shards = 1;
  wanted.bad.clear();
  wanted.buckets.reset();
  std::filesystem::remove(path);
  require(!load_job(path, wanted), "a job without a file");
  save_job(path, job);
  const auto loaded = load_job(path, wanted);
  require(loaded.has_value(), "a job is not found");
  use(*loaded);
  save_job(again, *loaded);
  require(read_file(again) == read_file(path), "another job is read than was written");

  std::string text = read_file(path);
  Json document = Json::parse(text);
  if (draw.below(32) == 1) {
    static const std::string deep(30'000, '[');
    text.replace(draw.below(text.size()), draw.below(9), draw.coin() ? "x" : deep + std::string(deep.size(), ']'));
  } else if (draw.below(4) == 1) {
    switch (draw.below(5)) {
      case 0:
        wanted.options.seed++;
        break;
      case 1:
        wanted.inputs.push_back({"/data/b", 5, 5});
        break;
      case 2:
        if (!wanted.inputs.empty()) wanted.inputs[0].size++;
        break;
      case 3:
        if (!wanted.inputs.empty()) wanted.inputs[0].version ^= 1;
        break;
      default:
        if (!wanted.inputs.empty()) wanted.inputs[0].path = "/data/other";
    }
  } else {
    Json& value = value_of(draw, document);
    const Json& other = value_of(draw, document);
    static const Json others[] = {nullptr, true, -1, 1.5, 1e300, "text", Json::array(), Json::object(), 3};
    if (value.is_number() && draw.below(4) > 0)
      value = draw.near((other.is_number_unsigned() ? other : value).get<uint64_t>());
    else if (value.is_array() && !value.empty() && draw.coin())
      draw.coin() ? value.erase(draw.below(value.size())) : value.push_back(Json(value.back()));
    else if (value.is_object() && !value.empty() && draw.coin())
      value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(draw.below(value.size()))));
    else
      value = draw.one_of(others);
    text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  folder().write(".train.split.json", text);
  try {
    if (const auto changed = load_job(path, wanted)) use(*changed);
  } catch (const Error& error) {
    const bool known = error.category() == Category::io_error || error.category() == Category::bad_pipeline;
    require(known && error.place().file == path && !error.message().empty(), error.what());
  }
}

using Records = std::vector<std::pair<uint64_t, std::string>>;  // keys and payloads

// Reads a bucket. Returns false if it is refused.
bool read_bucket(BucketReader& reader, const BucketFile& bucket, uint64_t memory, std::vector<std::string>& payloads) {
  try {
    reader.read(bucket, memory, [&](std::span<const std::byte> payload) {
      payloads.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    });
    return true;
  } catch (const Error& error) {
    require(error.place().file == bucket.path, error.what());
    return false;
  }
}

void buckets(Draw& draw) {
  const std::string in = folder().file("buckets");
  std::filesystem::remove_all(in);
  std::vector<uint64_t> bounds = {0};
  for (uint64_t left = draw.below(3); left > 0; left--) bounds.push_back(bounds.back() + 1 + draw.any<uint8_t>());
  std::vector<Records> added(bounds.size());
  std::vector<uint64_t> sizes;
  static constexpr const char* calls[] = {"bucket folder", "bucket open", "bucket write", "bucket sync"};
  const bool fails = draw.below(16) == 1;
  if (fails) test::find_hook(calls[draw.below(4)])->fail_nth_call(1 + static_cast<int64_t>(draw.below(3)));
  try {
    BucketWriter writer(in, bounds, draw.below(1 << 14));
    for (uint64_t left = draw.below(12), number = 0; left > 0; left--, number++) {
      const uint64_t key = (draw.coin() ? draw.near(bounds.back()) : draw.any<uint8_t>()) << 4 | number;
      const uint64_t size = draw.below(4) == 1 ? draw.near(4096) % 10'000 : draw.below(40);
      const std::string payload(size, static_cast<char>(number));
      const auto bytes = std::as_bytes(std::span(payload));
      writer.add(key, {bytes.data(), static_cast<uint32_t>(size), io::mask_crc(io::crc32c(bytes))});
      const auto bound = std::ranges::upper_bound(bounds, key);
      added[static_cast<size_t>(bound - bounds.begin()) - 1].emplace_back(key, payload);
    }
    sizes = writer.finish();
  } catch (const Error& error) {
    require(fails && error.category() == Category::io_error, error.what());
  }
  for (SyscallHook* hook : SyscallHook::all()) hook->fail_nth_call(0);
  if (sizes.empty()) return require(!std::filesystem::exists(in), "buckets that are not complete are left");
  BucketReader reader;
  for (size_t b = 0; b < bounds.size(); b++) {
    std::ranges::sort(added[b]);
    std::vector<std::string> wanted;
    for (const auto& [key, payload] : added[b]) wanted.push_back(payload);
    BucketFile bucket{bucket_path(in, b), sizes[b], added[b].size()};
    const std::string file = read_file(bucket.path);
    std::string changed = file;
    bool good = true;
    if (draw.coin()) {
      switch (draw.below(4)) {
        case 0:
          bucket.bytes = draw.near(bucket.bytes);
          break;
        case 1:
          bucket.records = draw.near(bucket.records);
          break;
        case 2:
          changed.resize(draw.near(file.size()) % 20'000);
          break;
        default:  // a byte after the key, or the size of a record
          if (file.empty()) break;
          uint64_t at = 0;
          for (uint64_t skip = draw.below(added[b].size()); skip > 0; skip--) {
            uint32_t size = 0;
            std::memcpy(&size, file.data() + at + 8, 4);
            at += 16 + size;
          }
          uint32_t size = 0;
          std::memcpy(&size, file.data() + at + 8, 4);
          if (draw.coin()) {
            const auto other = static_cast<uint32_t>(draw.near(draw.coin() ? size : file.size() - at - 16));
            std::memcpy(changed.data() + at + 8, &other, 4);
          } else {
            changed[at + 8 + draw.below(8 + size)] ^= 1;
          }
      }
      good = changed == file && bucket.bytes == file.size() && bucket.records == added[b].size();
    }
    std::ofstream(bucket.path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
    for (const uint64_t memory : {draw.near(bucket_memory(bucket.bytes, bucket.records)), uint64_t{0}}) {
      std::vector<std::string> payloads;
      require(read_bucket(reader, bucket, memory, payloads) == good, "a bucket is refused, or is not");
      if (good) require(payloads == wanted, "other records than were added, or another order");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  draw.coin() ? job_file(draw) : buckets(draw);
  return 0;
}
