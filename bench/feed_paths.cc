#include "feed_paths.h"

#include "feedline/records.h"
#include "flowgraph/parse/record_parser.h"

namespace feedline::bench {
namespace {

uint64_t verify(const Worker& worker) {
  RecordReader reader(worker.file);
  Record record;
  uint64_t records = 0;
  while (reader.next(record) == ReadResult::record) records++;
  return records;
}

uint64_t parse_chess(const Worker& worker) {
  static const auto parser = [] {
    flow::FeatureSpec d, s;
    d.name = d.key = "d";
    d.dtype = DType::bytes;
    d.length = 194;
    s.name = s.key = "s";
    s.dtype = DType::int64;
    return flow::example_parser({d, s});
  }();
  const auto& records = worker.hot.views;
  static std::vector<std::byte> memory(parser->arena_bound(records.size(), worker.hot.file.size()));
  static std::vector<flow::RowError> errors;
  flow::Arena arena(memory);
  const auto session = parser->begin({static_cast<uint32_t>(records.size()), worker.hot.file.size()}, arena);
  session->parse(records, errors);
  return records.size();
}

uint64_t chess_at_random(Worker& worker) {
  static const std::vector<Place> places = random_places(worker.file, 16 << 10, 1 << 15);
  return read_at_random(worker, places);
}

// Returns a row for a bare loop. `wanted` is its wanted ratio to a memory copy of the same records, which is half of
// the ratio that other machines reach.
Row ceiling(std::string name, double wanted, Loop loop) {
  return {std::move(name), std::move(loop), {"memory copy"}, wanted};
}
const Row memory_copy = {"memory copy", copy_memory, {}};
const Loop walk_all = [](Worker& worker) { return walk(worker.hot.views, worker.found); };

// Returns the rows with those that every data set has before them: memory copy, read and CRC.
std::vector<Row> beside_reading(std::vector<Row> rows) {
  rows.insert(rows.begin(), {memory_copy, ceiling("read", 0, read), ceiling("CRC", 0, crc)});
  return rows;
}

DataSet chess_set() {
  const std::string board =
      "output { name: 'board' dtype: FLOAT32 feature: 'd' unpack_bits { shape: [8, 8, 24] "
      "channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23] "
      "scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } } ";
  const std::string large = "batch { global_batch_size: 1024 } ";
  // The shuffle's records fit into half of the last-level cache (bench/results/engine.md).
  const std::string block = "shuffle { mode: BLOCK buffer_size: 8000 lanes: 8 } ";
  return {
      "chess",
      "chess.tfrecord",
      peers("chess"),
      800'000,
      512,
      chess,
      {
          memory_copy,
          ceiling("read", 0.58, read),
          ceiling("CRC", 0.53, crc),
          ceiling("walk", 0.48, walk_all),
          ceiling("gather", 1.65, [](Worker& worker) { return gather<194, 0>(worker, 1024); }),
          ceiling("unpack", 0.10, [](Worker& worker) { return unpack_bits(worker, 512); }),
          {"verify", verify, {"read", "CRC"}, 0.80, true},
          {"parse into columns", parse_chess, {"walk"}, 0.60, true},
          {"features as they are", large, {"read", "CRC", "walk", "gather"}, 0.60},
          {"features, BLOCK", large + block, {"features as they are"}, 0.85, true},
          {"float32 board", board, {"read", "CRC", "walk", "unpack"}, 0.75},
          {"float32 board, BLOCK", board + block, {"float32 board"}, 0.85, true},
          {"board, flags and score", peers("chess-full").text(), {"read", "CRC", "walk", "unpack"}},
          {"random reads", chess_at_random, {"memory copy"}, 0, true},
          {"features, GLOBAL", large + "shuffle { mode: GLOBAL } epoch { steps: 32 }", {"random reads"}, 0.70, true},
      }};
}

}  // namespace

Pipeline peers(const std::string& name) { return load_pipeline(in_source("bench/peers/" + name + ".textproto")); }

std::vector<DataSet> data_sets() {
  return {
      chess_set(),
      {"3 KB images", "image-raw.tfrecord", peers("image-raw"), 64'000, 512,
       [](Random& random) { return picture(random, 3072); },
       beside_reading({
           ceiling("walk", 0, walk_all),
           ceiling("unpack", 0, [](Worker& worker) { return unpack_bytes(worker, 512, 3072); }),
           {"float32", peers("image-raw-full").text(), {"read", "CRC", "walk", "unpack"}, 0.75},
       })},
      {"197 KB images", "image-large.tfrecord", peers("image-large"), 1000, 64,
       [](Random& random) { return picture(random, 196608); },
       beside_reading({
           ceiling("walk", 0, walk_all),
           ceiling("unpack", 0, [](Worker& worker) { return unpack_bytes(worker, 64, 196608); }),
           ceiling("copy", 0, [](Worker& worker) { return copy(worker, 64, 196608); }),
           {"float32", peers("image-large-full").text(), {"read", "CRC", "walk", "unpack"}, 0.75},
           {"uint8",
            "output { name: 'image' feature: 'image' decode_raw { stored: UINT8 shape: [256, 256, 3] } }",
            {"read", "CRC", "copy"},
            0.75},
       })},
      {"2.83 MB records", "big.tfrecord", peers("big"), 70, 1, big,
       beside_reading({
           {"uint8",
            "output { name: 'x' feature: 'x' decode_raw { stored: UINT8 shape: [2830000] } }",
            {"read", "CRC"},
            0.85},
       })},
      {"click log", "floats.tfrecord", peers("floats"), 480'000, 512, click,
       beside_reading({
           ceiling("walk", 0, walk_all),
           ceiling("gather", 0, [](Worker& worker) { return gather<256, 26>(worker, 512); }),
           {"dense arrays", "", {"read", "CRC", "walk", "gather"}, 0.75},
       })},
  };
}

}  // namespace feedline::bench
