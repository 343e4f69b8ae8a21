// feedline demo: repeats records of this source tree, and feeds them to replicas on the host.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "feedline/records.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/shard_names.h"
#include "tool/common/terminal.h"
#include "tool/common/text_file.h"
#include "tool/convert/convert.h"
#include "tool/feeding/feed.h"
#include "tool/feeding/pipeline_args.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

struct DemoArgs {
  std::string folder = "feedline-demo";
  std::string golden = FEEDLINE_GOLDEN_DIR;
  int replicas = 2;
  uint64_t megabytes = 100;
};

struct Set {
  const char* name;
  const char* what;
  std::array<const char*, 3> records;  // the files of tests/golden whose records are repeated; null: none
  const char* pipeline;
};

constexpr Set sets[] = {
    {"chess",
     "positions of 194 bytes into float32 boards",
     {"chess/main-00000-of-00003.tfrecord", "chess/main-00001-of-00003.tfrecord", "chess/main-00002-of-00003.tfrecord"},
     R"text(# Chess positions: 24 bit planes, 10 flags and the mate bit in 194 bytes, and a score.
source  { files: "chess-*.tfrecord" }
feature { name: "d" dtype: BYTES length: 194 }            # exactly 194 bytes in every record
feature { name: "s" dtype: INT64 }
batch   { global_batch_size: 1024 last_batch_policy: PARTIAL }
output  { name: "board" dtype: FLOAT32 feature: "d"
          unpack_bits { shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
                        scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } }
output  { name: "flags" dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1536 shape: [10] } }
output  { name: "mate"  dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1546 } internal: true }
output  { name: "score" dtype: FLOAT64 expression {
          formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
          constants { key: "A" value: 0.85 } constants { key: "K" value: 410 } constants { key: "B" value: 30 } } }
)text"},
    {"photos",
     "64x64 photographs into normalised float32, channels first",
     {"images/photos_raw.tfrecord"},
     R"text(# Photographs as raw bytes, 64 x 64 pixels of R, G, B; normalised, and turned to channels first.
source  { files: "photos-*.tfrecord" }
feature { name: "image" dtype: BYTES length: 12288 }
feature { name: "label" dtype: INT64 }
batch   { global_batch_size: 128 last_batch_policy: PARTIAL }
output  { name: "image" dtype: FLOAT32 feature: "image" decode_raw { stored: UINT8 shape: [64, 64, 3] layout: HWC }
          normalize { scale: 0.00392156862745098 mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] } layout: CHW }
output  { name: "label" feature: "label" }
)text"},
    {"planar",
     "32x32 planar pictures (CHW) into normalised float16",
     {"images/cifar_like.tfrecord"},
     R"text(# Pictures as three planes of 32 x 32 bytes; normalised to float16, still CHW.
source  { files: "planar-*.tfrecord" }
feature { name: "image" dtype: BYTES length: 3072 }
feature { name: "label" dtype: INT64 }
batch   { global_batch_size: 512 last_batch_policy: PARTIAL }
output  { name: "image" dtype: FLOAT16 feature: "image" decode_raw { stored: UINT8 shape: [3, 32, 32] layout: CHW }
          normalize { scale: 0.00392156862745098 mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] } }
output  { name: "label" feature: "label" }
)text"},
    {"digits",
     "8x8 digits into normalised float32",
     {"images/digits_raw.tfrecord"},
     R"text(# Scans of digits, 8 x 8 bytes.
source  { files: "digits-*.tfrecord" }
feature { name: "image" dtype: BYTES length: 64 }
feature { name: "label" dtype: INT64 }
batch   { global_batch_size: 1024 last_batch_policy: PARTIAL }
output  { name: "image" dtype: FLOAT32 feature: "image" decode_raw { stored: UINT8 shape: [8, 8, 1] layout: HWC }
          normalize { scale: 0.00392156862745098 mean: [0.5] std: [0.25] } }
output  { name: "label" feature: "label" }
)text"},
    {"penguins",
     "measurements, some of them missing, into one row of float32",
     {"tabular/penguins.tfrecord"},
     R"text(# Penguins: features that some records lack have defaults; numbers stand side by side in one row.
source  { files: "penguins-*.tfrecord" }
feature { name: "species" dtype: BYTES }
feature { name: "bill_length_mm" dtype: FLOAT32 default_value { float32_value: nan } }
feature { name: "bill_depth_mm" dtype: FLOAT32 default_value { float32_value: nan } }
feature { name: "flipper_length_mm" dtype: FLOAT32 default_value { float32_value: nan } }
feature { name: "body_mass_g" dtype: FLOAT32 default_value { float32_value: nan } }
feature { name: "sex" dtype: BYTES kind: VARIABLE max_values: 1 }
feature { name: "year" dtype: INT64 }
batch   { global_batch_size: 1024 last_batch_policy: PARTIAL }
output  { name: "measured" dtype: FLOAT32
          stack { features: ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"] } }
output  { name: "complete" dtype: BOOL expression { formula: "body_mass_g == body_mass_g" } }  # nan is not equal to itself
output  { name: "kg" dtype: FLOAT16 expression { formula: "if(body_mass_g == body_mass_g, body_mass_g / 1000, 0)" } }
output  { name: "year" dtype: INT32 feature: "year" }
output  { name: "species" feature: "species" }
output  { name: "sex" feature: "sex" }
)text"},
};
constexpr size_t set_count = std::size(sets);
constexpr uint64_t shards = 4, epochs = 10;

/// Returns the records of the set, at least one.
std::vector<std::vector<std::byte>> read_records(const Set& set, const fs::path& golden) {
  std::vector<std::vector<std::byte>> records;
  for (const char* name : set.records) {
    if (!name) break;
    RecordReader reader((golden / name).string());
    Record record;
    for (ReadResult result; (result = reader.next(record)) != ReadResult::end;) {
      if (result == ReadResult::error) throw reader.error();
      records.emplace_back(record.payload.begin(), record.payload.end());
    }
  }
  if (records.empty())
    throw Error(Category::io_error,
                "has no records; name the folder of the demo's records with --golden SOURCES/tests/golden",
                Place::of_file((golden / set.records[0]).string()));
  return records;
}

/// Writes shards with a total of about `bytes` bytes, and the pipeline beside them. Returns the pipeline's path.
std::string make_set(const Set& set, const DemoArgs& args, uint64_t bytes) {
  Progress progress(fmt::format("writing {}", set.name), bytes);
  const auto records = read_records(set, args.golden);
  const fs::path folder = args.folder;
  size_t next = 0;
  for (uint64_t shard = 0; shard < shards; shard++) {
    RecordWriter writer((folder / shard_name(set.name, shard, shards)).string());
    do writer.write(records[next++ % records.size()]);
    while (writer.bytes() < bytes / shards);
    writer.close();
    progress.add(writer.bytes());
  }
  const fs::path pipeline = folder / fmt::format("{}.textproto", set.name);
  write_text(pipeline.string(), set.pipeline);
  return pipeline.string();
}

/// Returns the shortest path by which a user in the current folder can call this program. If this program is Python,
/// returns the name of the script that the Python package installs.
std::string program() {
  std::error_code unknown;
  const fs::path absolute = fs::read_symlink("/proc/self/exe", unknown);
  if (unknown) return "feedline";
  const std::string near = fs::proximate(absolute, unknown).string();
  if (absolute.filename().string().starts_with("python")) return "feedline";
  return near.size() < absolute.string().size() && !unknown ? near : absolute.string();
}

int demo(const DemoArgs& args) {
  if (!fs::is_directory(args.golden))
    throw Error(Category::io_error,
                "the folder does not exist; the demo repeats records of the source tree: name the folder of these "
                "records with --golden SOURCES/tests/golden",
                Place::of_file(args.golden));
  make_folder(args.folder);
  fmt::print("Making about {} MB of sample data in {}/ by repeating real records.\n", args.megabytes, args.folder);
  std::array<std::string, set_count> pipelines;
  for (size_t i = 0; i < set_count; i++) pipelines[i] = make_set(sets[i], args, args.megabytes * 1000000 / set_count);
  fmt::print("Feeding {} epochs of each set to {}. There is no trainer, so the feed runs at full speed.\n\n", epochs,
             format_count(static_cast<uint64_t>(args.replicas), "virtual replica"));
  fmt::print("{:9} {:>12} {:>12} {:>10} {:>12}\n", "", "records", "records/s", "MiB/s", "first batch");
  std::fflush(stdout);
  const Interrupt interrupt;
  for (size_t i = 0; i < set_count; i++) {
    PipelineArgs input;
    input.texts = {pipelines[i]};
    input.replicas = args.replicas;
    const FeedResult result =
        feed(load(input), feeder_options(input), {.epochs = epochs}, fmt::format("{:9} ", sets[i].name));
    if (result.error) throw *result.error;
    const auto rate = result.per_second(result.records), bytes_rate = result.per_second(result.report.read_bytes);
    fmt::print("{:9} {:>12} {:>12} {:>10} {:>12}   {}\n", sets[i].name, format_count(result.records),
               rate ? format_rate(*rate) : "-", bytes_rate ? fmt::format("{:.0f}", *bytes_rate / 1048576) : "-",
               format_seconds(result.report.first_batch_s), sets[i].what);
    std::fflush(stdout);
    if (result.interrupted) return 0;
  }

  const std::string tool = program();
  fmt::print(
      "\nLook at what was fed:\n"
      "  {0} inspect {1}/penguins-*.tfrecord\n"
      "  {0} cat --limit 2 {1}/penguins-00000-of-00004.tfrecord\n"
      "  {0} run {1}/chess.textproto --replicas 2 --step-ms 5\n"
      "\nNow your own files:\n"
      "  {0} inspect FILE...                                # what is in them\n"
      "  {0} inspect --pipeline FILE... > mine.textproto    # a pipeline for them\n"
      "  {0} check mine.textproto                           # counts, batches, and every byte of memory\n"
      "  {0} run mine.textproto                             # how fast it feeds\n",
      tool, args.folder);
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "demo", "make sample data from real records, and feed it to virtual replicas", demo);
  command.add_option("--dir", args.folder, "folder for the sample data (default: feedline-demo)")->option_text("DIR");
  add_number(command, "--replicas N", args.replicas, whole_number(1, 64),
             "number of replicas on the host (default: 2)");
  add_number(command, "--megabytes N", args.megabytes, whole_number(1, 1000000),
             "size of the sample data in MB (default: 100)");
  command
      .add_option("--golden", args.golden,
                  "folder with the records to repeat (default: tests/golden of the source tree)")
      ->option_text("DIR");
}

}  // namespace feedline::tool
