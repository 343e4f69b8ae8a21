// Compares feeds on GPUs with feeds on the host: the batches must be the same, bit for bit. The test runs on real GPUs
// and on fake ones (support/fake_cuda.h).
#include "device_feed.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <regex>
#include <thread>

#include "damage.h"
#include "sequence_data.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/npy.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// Returns the batches and ends of two epochs, for each replica. Checks that each epoch adds up.
Texts two_epochs(Feeder& feeder, const std::function<std::string(Batch&)>& text) {
  Texts texts(static_cast<size_t>(feeder.replicas()));
  for (int epoch = 0; epoch < 2; epoch++)
    for (bool ended = false; !ended;)
      for (int replica = 0; replica < feeder.replicas(); replica++) {
        Batch batch = feeder.next(replica);
        ended = !batch;
        texts[static_cast<size_t>(replica)].push_back(batch ? text(batch) : "end");
      }
  const Report report = feeder.report();
  CHECK(report.differing_epochs == 0);
  CHECK(report.last_epoch.has_value());
  return texts;
}

Texts on_host(const Pipeline& pipeline, int replicas) {
  Feeder feeder(pipeline, of_devices(std::vector<DeviceId>(static_cast<size_t>(replicas), host())));
  return two_epochs(feeder, [](Batch& batch) { return text_of(batch); });
}

/// 41 records, each with the number and the name of a row of three tables, and with two such names, "tags". Two of them
/// name rows that there are not.
class TableData {
 public:
  TableData() {
    std::vector<std::string> records;
    std::vector<uint16_t> halves;
    std::vector<int64_t> numbers;
    std::string names, bytes;
    for (int64_t i = 0; i < 41; i++) {
      const int64_t row = i == 26 || i == 33 ? rows + i : i * 7 % rows;
      records.push_back(wire::example(
          wire::entry("id", wire::int64_feature({i})) + wire::entry("row", wire::int64_feature({row})) +
          wire::entry("name", wire::bytes_feature({"row " + std::to_string(row)})) +
          wire::entry("tags",
                      wire::bytes_feature({"row " + std::to_string(row / 2), "row " + std::to_string(row + 1)}))));
    }
    for (int64_t row = 0; row < rows; row++) {
      for (int64_t i = 0; i < 6; i++) halves.push_back(static_cast<uint16_t>(0x3c00 + 6 * row + i));
      for (int64_t i = 0; i < 9; i++) bytes += static_cast<char>(9 * row + i);
      numbers.push_back(row * row - 100);
      names += "row " + std::to_string(row) + "\n";
    }
    write_records(dir_.file("records"), records);
    dir_.write("names.txt", names);
    dir_.write("halves.npy", npy("<f2", "(38, 2, 3)", in_memory(halves)));
    dir_.write("bytes.npy", npy("|u1", "(38, 3, 3)", bytes));
    dir_.write("numbers.npy", npy("<i8", "(38,)", in_memory(numbers)));
  }
  const TempDir& dir() const { return dir_; }
  /// Returns outputs of all tables. `where` is a field of each lookup.
  std::string outputs(const std::string& where) const {
    const std::string by_number = "feature: 'row' lookup { " + where,
                      by_name = "feature: 'name' lookup { " + where + "keys_file: 'names.txt' ";
    return "output { name: 'id' feature: 'id' } output { name: 'stored' " + by_number +
           "table: 'halves.npy' } } output { name: 'cast' dtype: FLOAT32 " + by_number +
           "table: 'halves.npy' } } output { name: 'named' " + by_name +
           "table: 'bytes.npy' } } output { name: 'normalized' normalize { scale: 0.5 mean: [1, 2, 3] } " + by_name +
           "table: 'bytes.npy' } } output { name: 'number' " + by_number +
           "table: 'numbers.npy' } } output { name: 'small' dtype: INT8 " + by_number +
           "table: 'numbers.npy' } } output { name: 'known' " + by_number +
           "unknown: 3 table: 'halves.npy' } } feature { name: 'tags' dtype: BYTES shape: 2 } "
           "output { name: 'several' feature: 'tags' lookup { " +
           where + "unknown: 5 keys_file: 'names.txt' table: 'bytes.npy' } normalize { mean: [1, 2, 3] } } ";
  }
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
               "source { files: 'records' } feature { name: 'id' dtype: INT64 } feature { name: 'row' dtype: INT64 } "
               "feature "
               "{ name: 'name' dtype: BYTES } " +
                   more,
               dir_.path())
        .with("parallelism.device_prefetch", "2");
  }

 private:
  static constexpr int64_t rows = 38;
  TempDir dir_;
};

}  // namespace

TEST_CASE("GPUs are given what the host is given, bit for bit") {
  if (no_gpus()) return;
  const Data data({90, 0, 1, 117});
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 60 } seed: 3 "),
        std::string("filter: 'mod(id, 3) > 0' shuffle { mode: GLOBAL } ")})
    for (const std::string& policy : {std::string("DROP"), std::string("PARTIAL"), std::string("PAD")})
      for (const int replicas : {1, 2}) {
        INFO(order << policy << " " << replicas);
        const Pipeline pipeline = data.pipeline(outputs + order + batch_text(24, policy));
        Feeder feeder(pipeline, of_devices(gpus(replicas)));
        Consumers consumers(gpus(replicas));
        CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == on_host(pipeline, replicas));
        const Report report = feeder.report();
        CHECK(report.differing_epochs == 0);
        CHECK(report.last_epoch);
        CHECK(report.uploaded_bytes > 0);
        const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
        CHECK(made.at("id") == "copied to GPUs as it is");
        CHECK(made.at("bits") == "unpacked on GPUs from 'packed b'");
        CHECK(report.stages.back().name == "copy " + std::to_string(replicas - 1));
        // A copy is counted once it has ended, by a thread that nobody waits for.
        while (feeder.report().stages.back().messages == 0) std::this_thread::yield();
      }
}

TEST_CASE("steps of SequenceExamples: values, splits and padded rows are copied to GPUs") {
  if (no_gpus()) return;
  const SequenceData data({50, 37});
  for (const std::string& order : {std::string(), std::string("shuffle { mode: GLOBAL } ")}) {
    INFO(order);
    const Pipeline pipeline = data.pipeline(sequence_features + sequence_outputs + order + batch_text(12, "PAD"));
    Feeder feeder(pipeline, of_devices(gpus(2)));
    Consumers consumers(gpus(2));
    CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == on_host(pipeline, 2));
    const Report report = feeder.report();
    const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
    CHECK(made.at("numbers") == "copied to GPUs as it is");
    CHECK(made.at("frames") == "copied to GPUs as it is");
  }
}

TEST_CASE("windows and batches of one row, whose bytes are copied from where they were read") {
  if (no_gpus()) return;
  const Data data({40});
  for (const std::string& text :
       {"feature { name: 'x' dtype: FLOAT32 shape: 3 } feature { name: 'b' dtype: BYTES length: 5 } "
        "output { name: 'x' dtype: FLOAT16 feature: 'x' } output { name: 'id' feature: 'id' } "
        "output { name: 'b' dtype: UINT16 feature: 'b' unpack_bits { bit_offset: 1 width: 3 shape: 9 } } window { "
        "size: 3 shift: 2 } " +
            batch_text(4, "PAD"),
        "feature { name: 'raw' dtype: BYTES } output { name: 'raw' feature: 'raw' } " + batch_text(1, "DROP")}) {
    const Pipeline pipeline = data.pipeline(text);
    Feeder feeder(pipeline, of_devices(gpus(1)));
    Consumer consumer;
    CHECK(two_epochs(feeder, [&](Batch& batch) { return consumer.text(batch); }) == on_host(pipeline, 1));
  }
}

TEST_CASE("pixels that are not resized travel as bytes, and are normalised on the GPU") {
  if (no_gpus()) return;
  const Data data({40});
  const std::string picture =
      "dtype: BFLOAT16 feature: 'b' decode_raw { shape: [5, 1, 1] layout: HWC } flip {} crop { mode: RANDOM size: [4, "
      "2] padding: 1 fill: 9 } ";
  const Pipeline pipeline = data.pipeline(
      "feature { name: 'b' dtype: BYTES } "
      "output { name: 'plain' normalize { mean: 3 std: 7 } layout: CHW " +
      picture +
      "} "
      "output { name: 'nearest' resize { size: [3, 3] filter: NEAREST } " +
      picture +
      "} "
      "output { name: 'area' resize { size: [3, 3] filter: AREA } " +
      picture +
      "} "
      "output { name: 'rounded' dtype: UINT8 normalize { scale: 0.3 } feature: 'b' decode_raw { shape: [5, 1, 1] "
      "layout: HWC } crop { size: [4, 1] } } "
      "output { name: 'class' feature: 'id' one_hot { classes: 40 } dtype: FLOAT16 normalize { scale: 0.9 mean: "
      "-0.0025 } } " +
      batch_text(8, "PAD"));
  Feeder feeder(pipeline, of_devices(gpus(1)));
  Consumer consumer;
  CHECK(two_epochs(feeder, [&](Batch& batch) { return consumer.text(batch); }) == on_host(pipeline, 1));
  const Report report = feeder.report();
  const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
  CHECK(made.at("plain") == "unpacked on GPUs from 'packed plain'");
  CHECK(made.at("nearest") == "unpacked on GPUs from 'packed nearest'");
  CHECK(made.at("area") == "copied to GPUs as it is");
  CHECK(made.at("rounded") == "copied to GPUs as it is");
  CHECK(made.at("class") == "copied to GPUs as it is");
}

TEST_CASE("rows of a table travel as they are stored, and are cast on the GPU") {
  if (no_gpus()) return;
  const Data data({40});
  std::vector<uint16_t> halves(40 * 6);
  for (size_t i = 0; i < halves.size(); i++) halves[i] = static_cast<uint16_t>(0x3c00 + i);
  data.dir().write("table.npy", npy("<f2", "(40, 2, 3)", in_memory(halves)));
  const std::string lookup = "feature: 'id' lookup { table: 'table.npy' } ";
  const Pipeline pipeline = data.pipeline(
      "output { name: 'stored' " + lookup + "} output { name: 'cast' dtype: FLOAT32 " + lookup +
      "} output { name: 'normalized' normalize { mean: [1, 2, 3] } " + lookup + "} " + batch_text(8, "PAD"));
  Feeder feeder(pipeline, of_devices(gpus(1)));
  Consumer consumer;
  CHECK(two_epochs(feeder, [&](Batch& batch) { return consumer.text(batch); }) == on_host(pipeline, 1));
  const Report report = feeder.report();
  const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
  CHECK(made.at("stored") == "copied to GPUs as it is");
  CHECK(made.at("cast") == "unpacked on GPUs from 'packed cast'");
  CHECK(made.at("normalized") == "unpacked on GPUs from 'packed normalized'");
}

TEST_CASE("rows of a table that lies on each GPU are gathered and cast there") {
  if (no_gpus()) return;
  const TableData data;
  const std::string host_rows = data.outputs(""), gpu_rows = data.outputs("on_device: true ");
  for (const std::string& order : {batch_text(6, "PAD"), "shuffle { mode: GLOBAL } " + batch_text(6, "PAD"),
                                   "window { size: 3 } " + batch_text(6, "DROP")})
    for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")})
      for (const int replicas : {1, 2, 3}) {
        INFO(order << mode << " " << replicas);
        const auto pipeline = [&](const std::string& rows) {
          return data.pipeline(rows + "errors { on_error: SKIP_RECORD } " + order).with("distribute.mode", mode);
        };
        const Texts wanted = on_host(pipeline(host_rows), replicas);
        CHECK(on_host(pipeline(gpu_rows), replicas) == wanted);
        Feeder feeder(pipeline(gpu_rows), of_devices(gpus(replicas)));
        Consumers consumers(gpus(replicas));
        CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == wanted);
        const Report report = feeder.report();
        if (!order.starts_with("window")) CHECK(report.bad_records == 2);
        const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
        CHECK(made.at("stored") == "gathered on GPUs from halves.npy");
        CHECK(made.at("normalized") == "gathered on GPUs from bytes.npy");
        CHECK(made.at("several") == "gathered on GPUs from bytes.npy");
        CHECK_THAT(feeder.plan_text(), Catch::Contains("halves.npy: 38 rows of FLOAT16 [2, 3], 456 B, resident on each "
                                                       "GPU, by number") &&
                                           Catch::Contains("memory   tables on a GPU"));
      }
}

TEST_CASE("numbers of names are copied to GPUs as the host makes them") {
  if (no_gpus()) return;
  const TableData data;
  const std::string outputs_of_names =
      "feature { name: 'tags' dtype: BYTES shape: 2 } output { name: 'id' feature: 'id' } "
      "output { name: 'number' feature: 'name' vocabulary { keys_file: 'names.txt' } } "
      "output { name: 'tags' dtype: INT32 feature: 'tags' vocabulary { keys_file: 'names.txt' unknown: -1 } } "
      "output { name: 'hash' dtype: INT32 feature: 'tags' hash { buckets: 1000 } } "
      "errors { on_error: SKIP_RECORD } ";
  for (const std::string& order : {batch_text(6, "PAD"), "shuffle { mode: GLOBAL } " + batch_text(6, "PAD"),
                                   "window { size: 3 } " + batch_text(6, "DROP"), batch_text(2, "PAD")})
    for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")})
      for (const int replicas : {1, 2}) {
        INFO(order << mode << " " << replicas);
        const Pipeline pipeline = data.pipeline(outputs_of_names + order).with("distribute.mode", mode);
        Feeder feeder(pipeline, of_devices(gpus(replicas)));
        Consumers consumers(gpus(replicas));
        CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == on_host(pipeline, replicas));
        const Report report = feeder.report();
        const std::map<std::string, std::string> made(report.outputs.begin(), report.outputs.end());
        CHECK(made.at("number") == "copied to GPUs as it is");
        CHECK(made.at("tags") == "copied to GPUs as it is");
        CHECK(made.at("hash") == "copied to GPUs as it is");
        CHECK_THAT(feeder.plan_text(), Catch::Contains("names.txt: 38 names"));
      }
}

TEST_CASE("a table on GPUs is brought there once, outlives its feeder, and counts for memory.device_limit") {
  if (no_gpus()) return;
  const TableData data;
  const Pipeline pipeline = data.pipeline(data.outputs("on_device: true ") + batch_text(6, "DROP"));
  const Pipeline good = pipeline.with("source.range", "0:24");
  const Texts wanted = on_host(good, 1);
  Consumer consumer;
  {
    std::optional<Feeder> feeder(std::in_place, good, of_devices(gpus(1)));
    const std::string state = feeder->get_state(0, 2);
    Batch batch = feeder->next(0);
    std::filesystem::remove(data.dir().file("halves.npy"));  // it is open, and is not read again
    feeder->set_state(state);
    batch = feeder->next(0);
    feeder.reset();
    CHECK(consumer.text(batch) == wanted[0][2]);
  }
  const TableData other;
  const Pipeline limited = other.pipeline(other.outputs("on_device: true ") + batch_text(6, "DROP"))
                               .with("source.range", "0:24")
                               .with("memory.device_limit", "4KiB");
  std::string message;
  try {
    Feeder feeder(limited, of_devices(gpus(1)));
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    message = error.message();
  }
  CHECK_THAT(message, Catch::Contains("memory.device_limit: 3 batches and tables of 1.1 KiB on GPU 0 need ") &&
                          Catch::Contains("or remove lookup.on_device"));
  const size_t from = message.find("at least \"") + 10;
  Feeder feeder(limited.with("memory.device_limit", message.substr(from, message.find('"', from) - from)),
                of_devices(gpus(1)));
  CHECK(feeder.next(0));
}

TEST_CASE("rows that travel between replicas and ranks are uploaded where they arrive") {
  if (no_gpus()) return;
  const Data data({70});
  bool all_reach = true;  // the log says once if a GPU does not reach another one
  for (const int replicas : {1, 2, 4})
    for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
      const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP")).with("distribute.mode", mode);
      const LogLines log;
      Feeder feeder(pipeline, of_devices(gpus(replicas)));
      Consumers consumers(gpus(replicas));
      CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == on_host(pipeline, replicas));
      // Rows that all replicas are given are uploaded once. Some batches may still be on their way.
      const Report report = feeder.report();
      CHECK(report.uploaded_bytes > 0);
      const uint64_t others = mode == "REPLICATE" ? static_cast<uint64_t>(replicas - 1) : 0;
      CHECK(report.between_gpus_bytes <= others * report.uploaded_bytes);
      for (const std::string& line : log.lines())
        if (line.find("cannot read the memory of") != std::string::npos) all_reach = false;
      if (all_reach) CHECK(report.between_gpus_bytes >= others * report.uploaded_bytes / 2);
    }
}

TEST_CASE("a stack of numbers of two types, beside one of them alone, is the same however its rows travel") {
  if (no_gpus()) return;
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t i = 0; i < 40; i++)
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({i})) +
                                    wire::entry("x", wire::float_feature({static_cast<float>(i) + 0.5f}))));
  write_records(dir.file("records"), records);
  const std::string alone = "output { name: 'alone' feature: 'x' } ",
                    stack = "output { name: 'stack' dtype: FLOAT32 stack { features: ['x', 'id'] } } ";
  for (const std::string& outputs_of_both : {alone + stack, stack + alone, stack})
    for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")})
      for (const int replicas : {1, 2}) {
        INFO(outputs_of_both << mode << " " << replicas);
        const Pipeline pipeline =
            parse_pipeline(
                "source { files: 'records' } feature { name: 'id' dtype: INT64 } feature { name: 'x' dtype: "
                "FLOAT32 } " +
                    outputs_of_both + batch_text(8, "PAD"),
                dir.path())
                .with("distribute.mode", mode);
        Feeder feeder(pipeline, of_devices(gpus(replicas)));
        Consumers consumers(gpus(replicas));
        CHECK(two_epochs(feeder, [&](Batch& batch) { return consumers.text(batch); }) == on_host(pipeline, replicas));
      }
}

TEST_CASE("rows that one GPU has from another stay there until they are copied", "[holds]") {
  if (no_gpus()) return;
  const Data data({400});
  // Makes it possible that more batches are on their way than a GPU has buffers.
  const Pipeline pipeline = data.pipeline(outputs + batch_text(4, "DROP"))
                                .with("distribute.mode", "REPLICATE")
                                .with("parallelism.host_prefetch", "5")
                                .with("parallelism.device_prefetch", "1");
  const Texts wanted = on_host(pipeline, 1);
  Feeder feeder(pipeline, of_devices(gpus(2)));
  Consumer first(gpus(2)[0]), second(gpus(2)[1]);
  second.reserve(150, 4096);
  Batch batch = feeder.next(1);
  CHECK(second.text(batch) == wanted[0][0]);
  batch = feeder.next(0);
  for (size_t step = 1; step < 25; step += 4) {
    // The second trainer's stream is held, so buffers released on it must not be filled. The first trainer's stream
    // goes on.
    std::promise<void> go_on;
    second.hold(go_on.get_future());
    std::vector<std::string> texts(4);
    for (size_t i = 0; i < texts.size(); i++) {
      batch = feeder.next(1);
      second.read_later(batch, texts[i], true);
      batch = feeder.next(0);
      if (i == 0) CHECK(first.text(batch) == wanted[0][step]);
    }
    go_on.set_value();
    second.wait();
    for (size_t i = 0; i < texts.size(); i++) CHECK(texts[i] == wanted[0][step + i]);
  }
}

TEST_CASE("after ready_on(Stream::host) the batch is written, whatever reads it") {
  if (no_gpus()) return;
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP"));
  Feeder beside(pipeline, of_devices({host()})), feeder(pipeline, of_devices({cuda(0)}));
  const Texts wanted = epoch_of(beside);
  Consumer consumer;
  for (size_t step = 0; step < 5; step++) {
    Batch batch = feeder.next(0);
    batch.ready_on(Stream::host);
    // The consumer's stream is not ordered after the batch.
    CHECK(text_of(batch, [&](const TensorView& tensor) { return consumer.read(tensor.data, tensor.size_bytes()); }) ==
          wanted[0][step]);
  }
}

TEST_CASE("a batch stays as it is until the consumer's stream has passed its release", "[holds]") {
  if (no_gpus()) return;
  const Data data({400});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(4, "DROP"));
  const Texts wanted = on_host(pipeline, 1);
  Feeder feeder(pipeline, of_devices(gpus(1)));
  Consumer consumer;
  consumer.reserve(90, 4096);
  Batch first = feeder.next(0);
  CHECK(consumer.text(first) == wanted[0][0]);  // loads the kernels and allocates the memory
  for (size_t step = 1; step < 20;) {
    // The stream is held while every batch that the feeder handed out goes back to it.
    std::promise<void> go_on;
    consumer.hold(go_on.get_future());
    std::vector<std::string> texts(3);
    for (std::string& text : texts) {
      Batch batch = feeder.next(0);
      consumer.read_later(batch, text, step % 2 == 0);
    }
    go_on.set_value();
    consumer.wait();
    for (const std::string& text : texts) CHECK(text == wanted[0][step++]);
  }
}

TEST_CASE("a batch stays as it is until every stream that it was made ready on has passed its end", "[holds]") {
  if (no_gpus()) return;
  const Data data({400});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(4, "DROP"));
  const Texts wanted = on_host(pipeline, 1);
  Feeder feeder(pipeline, of_devices(gpus(1)));
  Consumer slow, quick;
  slow.reserve(90, 4096);
  Batch first = feeder.next(0);
  CHECK(slow.text(first) == wanted[0][0]);
  for (size_t step = 1; step < 20;) {
    std::promise<void> go_on;
    slow.hold(go_on.get_future());
    std::vector<std::string> texts(3);
    for (std::string& text : texts) {
      Batch batch = feeder.next(0);
      const Batch& used = batch;
      slow.use_later(used, text);
      used.ready_on(quick.stream());  // the last stream is done at once, and yet the batch is not written
      batch = Batch();
    }
    go_on.set_value();
    slow.wait();
    for (const std::string& text : texts) CHECK(text == wanted[0][step++]);
  }
}

TEST_CASE("copies of batches stay as they are for as long as they are kept") {
  if (no_gpus()) return;
  const Data data({120});
  for (const std::string mode : {"SPLIT", "REPLICATE"}) {
    const Pipeline pipeline = data.pipeline(outputs + batch_text(6, "PAD")).with("distribute.mode", mode);
    const std::vector<DeviceId> devices = gpus(2);
    const Texts wanted = on_host(pipeline, 2);
    Consumers consumers(devices);
    std::vector<std::vector<Batch>> kept(2);
    {
      Feeder feeder(pipeline, of_devices(devices));
      for (size_t step = 0; wanted[0][step] != "end"; step++)
        for (int replica = 0; replica < 2; replica++) {
          const Batch batch = feeder.next(replica);
          REQUIRE(batch);
          kept[static_cast<size_t>(replica)].push_back(step % 2 == 0 ? batch.copy() : batch.copy().copy());
        }
    }
    for (size_t replica = 0; replica < 2; replica++)
      for (size_t step = 0; step < kept[replica].size(); step++) {
        Batch& batch = kept[replica][step];
        for (const NamedTensor& tensor : batch.tensors()) CHECK_FALSE(tensor.lent);
        if (step % 3 == 0) continue;  // dies unused
        CHECK(consumers.text(batch) == wanted[replica][step]);
      }
  }
}

TEST_CASE("a copy's memory is freed when every stream has used it", "[holds]") {
  if (no_gpus()) return;
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(4, "DROP"));
  const Texts wanted = on_host(pipeline, 1);
  Feeder feeder(pipeline, of_devices(gpus(1)));
  Consumer slow, quick;
  slow.reserve(90, 4096);
  for (size_t step = 0; step < 10; step += 2) {
    Batch copy = feeder.next(0).copy();
    std::promise<void> go_on;
    slow.hold(go_on.get_future());
    std::string text;
    slow.use_later(copy, text);
    if (step % 4 == 0) copy.ready_on(quick.stream());
    copy = Batch();
    const Batch next = feeder.next(0);  // what is written next does not fall on memory that is still read
    go_on.set_value();
    slow.wait();
    CHECK(text == wanted[0][step]);
    CHECK(next.step() == step + 1);
  }
}

TEST_CASE("next_into() fills the same addresses again and again") {
  if (no_gpus()) return;
  const Data data({30});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(6, "DROP"));
  Feeder on_gpu(pipeline, of_devices(gpus(1))), beside(pipeline, of_devices({host()}));
  Consumer consumer;
  DeviceBuffer ids(6 * sizeof(int64_t)), bits(6 * 32 * sizeof(float));
  std::vector<int64_t> host_ids(6);
  std::vector<float> host_bits(6 * 32);
  const std::vector<NamedTensor> to = {{"id", {ids.data(), DType::int64, {6}}},
                                       {"bits", {bits.data(), DType::float32, {6, 4, 8}}}};
  const std::vector<NamedTensor> host_to = {{"id", {host_ids.data(), DType::int64, {6}}},
                                            {"bits", {host_bits.data(), DType::float32, {6, 4, 8}}}};
  for (int step = 0; step < 5; step++) {
    REQUIRE(on_gpu.next_into(0, to, consumer.stream()));
    REQUIRE(beside.next_into(0, host_to, Stream::host));
    CHECK(consumer.read(ids.data(), ids.size()) == host_bytes(host_to[0].tensor));
    CHECK(consumer.read(bits.data(), bits.size()) == host_bytes(host_to[1].tensor));
  }
  CHECK_FALSE(on_gpu.next_into(0, to, consumer.stream()));
  const std::vector<NamedTensor> other = {{"id", {ids.data(), DType::int64, {5}}}};
  CHECK_THROWS_AS(on_gpu.next_into(0, other, consumer.stream()), Error);
}

TEST_CASE("a state taken on a GPU goes on there and on the host") {
  if (no_gpus()) return;
  const Data data({90});
  const Pipeline pipeline = data.pipeline(outputs + "shuffle { buffer_size: 30 } " + batch_text(8, "DROP"));
  const Texts wanted = on_host(pipeline, 1);
  Consumer consumer;
  Feeder feeder(pipeline, of_devices(gpus(1)));
  for (size_t step = 0; step < 5; step++) {
    Batch batch = feeder.next(0);
    CHECK(consumer.text(batch) == wanted[0][step]);
  }
  const std::string state = feeder.get_state();
  Feeder other(pipeline, of_devices({host()}));
  other.set_state(state);
  CHECK(text_of(other.next(0)) == wanted[0][5]);
  feeder.set_state(other.get_state());
  Batch batch = feeder.next(0);
  CHECK(consumer.text(batch) == wanted[0][6]);
}

TEST_CASE("errors of the data come after the batches before them") {
  if (no_gpus()) return;
  const Data data({50});
  flip(data.path(0), offset_of(data.path(0), 20) + 20);
  const Pipeline pipeline = data.pipeline(batch_text(4, "DROP"));
  int on_gpu = 0, beside = 0;
  Consumer consumer;
  const auto count = [](Feeder& feeder, int& batches, auto&& use) {
    for (;; batches++) {
      Batch batch = feeder.next(0);
      if (!batch) return std::string("end");
      use(batch);
    }
  };
  const auto message = [](auto&& body) -> std::string {
    try {
      return body();
    } catch (const Error& error) {
      return error.what();
    }
  };
  const std::string wanted = message([&] {
    Feeder feeder(pipeline, of_devices({host()}));
    return count(feeder, beside, [](Batch&) {});
  });
  CHECK(message([&] {
          Feeder feeder(pipeline, of_devices(gpus(1)));
          return count(feeder, on_gpu, [&](Batch& batch) { consumer.text(batch); });
        }) == wanted);
  CHECK(on_gpu == beside);
}

TEST_CASE("a feeder ends at any moment, and batches outlive it") {
  if (no_gpus()) return;
  const Data data({200});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(4, "DROP"));
  const Texts wanted = on_host(pipeline, 1);
  Consumer consumer;
  // Many rounds, because the end only sometimes coincides with a copy.
  for (size_t round = 0; round < 60; round++) {
    const size_t steps = round % 6;
    std::vector<Batch> held;
    {
      Feeder feeder(pipeline, of_devices(gpus(1)));
      for (size_t step = 0; step < steps; step++) {
        Batch batch = feeder.next(0);
        if (step < 2) held.push_back(std::move(batch));
      }
      if (steps % 2) feeder.stop();
    }
    for (size_t step = 0; step < held.size(); step++) CHECK(consumer.text(held[step]) == wanted[0][step]);
  }
}

TEST_CASE("a thousand feeders come and go, and leave memory and files as they were") {
  if (no_gpus()) return;
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP"));
  Consumer consumer;
  const auto come_and_go = [&](int times) {
    for (int round = 0; round < times; round++) {
      Feeder feeder(pipeline, of_devices({cuda(0), cuda(0)}));
      for (int replica = 0; replica < 2; replica++) {
        Batch batch = feeder.next(replica, consumer.stream());
        if (round % 2) batch.release_on(consumer.stream());
      }
    }
    consumer.wait();
  };
  const auto free_memory = [] {
    size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total));
    return free;
  };
  come_and_go(20);  // lets libraries allocate what they keep for good
  const size_t memory = free_memory(), files = open_descriptors();
  come_and_go(1000);
  // No other process may use this GPU meanwhile. A worker thread of oneTBB may drop what it holds a moment after the
  // feeder has ended.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  // The driver keeps some memory for itself; what a feeder leaves behind is at least a block of 2 MiB.
  constexpr size_t kept_by_driver = 2 << 20;
  const auto lost = [&] { return memory - std::min(memory, free_memory()); };
  while ((lost() > kept_by_driver || open_descriptors() > files) && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  CHECK(lost() <= kept_by_driver);
  CHECK(open_descriptors() <= files);
}

TEST_CASE("memory.device_limit is kept, and what is refused says what would do") {
  if (no_gpus()) return;
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(20, "DROP"));
  std::string message;
  try {
    Feeder feeder(pipeline.with("memory.device_limit", "4KiB"), of_devices(gpus(1)));
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    message = error.message();
  }
  CHECK(message.find("memory.device_limit: 3 batches on GPU 0 need ") == 0);
  const size_t from = message.find("at least \"") + 10;
  const std::string enough = message.substr(from, message.find('"', from) - from);
  Feeder feeder(pipeline.with("memory.device_limit", enough), of_devices(gpus(1)));
  CHECK(feeder.next(0));
  CHECK(feeder.plan_text().find("unpacked on GPUs from 'packed b'") != std::string::npos);
}

TEST_CASE("as many small batches are made ahead on a GPU as fit, at most 8") {
  if (no_gpus()) return;
  const Data data({40});
  const auto batches = [&](const std::string& limit, int replicas) {
    Pipeline pipeline = data.pipeline(outputs + batch_text(20, "DROP")).with("parallelism.device_prefetch", "0");
    if (!limit.empty()) pipeline = pipeline.with("memory.device_limit", limit);
    Feeder feeder(pipeline, of_devices(std::vector<DeviceId>(static_cast<size_t>(replicas), gpus(1)[0])));
    std::smatch found;
    const std::string plan = feeder.plan_text();
    REQUIRE(std::regex_search(plan, found, std::regex("batches on a GPU +([0-9]+) x +([0-9.]+) KiB")));
    return std::pair(std::stoi(found[1]), std::stod(found[2]));
  };
  const auto [most, kib] = batches("", 1);
  CHECK(most == 9);
  const auto limit_of = [&, each = kib](double count) {
    return std::to_string(std::lround(count * each * 1024 + 512)) + "B";
  };
  CHECK(batches(limit_of(5), 1).first == 5);
  CHECK(batches(limit_of(100), 1).first == 9);
  CHECK(batches(limit_of(8), 2).first == 4);
}

TEST_CASE("a trainer that holds all batches of a GPU is told so") {
  if (no_gpus()) return;
  const Data data({100});
  Feeder feeder(data.pipeline(batch_text(4, "DROP")).with("parallelism.device_prefetch", "1"), of_devices(gpus(1)));
  const Batch first = feeder.next(0), second = feeder.next(0);
  try {
    feeder.next(0);
    FAIL("a third batch of two");
  } catch (const Error& error) {
    CHECK(error.category() == Category::stalled);
  }
}
