// feedline convert: the records must hold what was read, the pipeline written beside them must feed them, and other
// input must be refused.
#include "tool/convert/convert.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/stat.h>
#include <zlib.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "flowgraph/parse/example.pb.h"
#include "golden/manifest.h"
#include "io/frames.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/skip.h"
#include "support/temp_dir.h"
#include "tool.h"
#include "tool/common/example_view.h"
#include "tool/common/interrupt.h"
#include "tool/common/lock.h"
#include "tool/convert/cifar10.h"
#include "tool/convert/csv_reader.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/npy_reader.h"

using namespace feedline;
using namespace feedline::test;
using feedline::testing::Example;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string deterministic(const Example& example) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    example.SerializeToCodedStream(&out);
  }
  return bytes;
}

std::vector<Example> read_examples(const std::string& path) {
  RecordReader reader(path);
  std::vector<Example> examples;
  Record record;
  for (ReadResult result; (result = reader.next(record)) != ReadResult::end;) {
    REQUIRE(result == ReadResult::record);
    REQUIRE(examples.emplace_back().ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size())));
    CHECK(deterministic(examples.back()) == text_of(record.payload));
  }
  return examples;
}

std::string bytes_in(const Example& example, const std::string& key) {
  const auto& feature = example.features().feature();
  const auto found = feature.find(key);
  return found == feature.end() || found->second.bytes_list().value_size() != 1 ? "(none)"
                                                                                : found->second.bytes_list().value(0);
}

int64_t int_in(const Example& example, const std::string& key) {
  const auto& feature = example.features().feature();
  const auto found = feature.find(key);
  return found == feature.end() || found->second.int64_list().value_size() != 1 ? INT64_MIN
                                                                                : found->second.int64_list().value(0);
}

/// Converts into dir/out, checks the pipeline that the tool wrote, and returns the tool's JSON.
json convert(const TempDir& dir, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "convert");
  arguments.insert(arguments.end(), {"--out", dir.file("out"), "--json"});
  const ToolResult result = run_tool(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json answer = result.json();
  CHECK(answer.at("pipeline") == read_file(dir.file("out/pipeline.textproto")));
  const ToolResult check = run_tool({"check", dir.file("out/pipeline.textproto")});
  INFO(answer.at("pipeline").get<std::string>() << check.err);
  REQUIRE(check.code == 0);
  CHECK(check.err.empty());
  for (const json& set : answer.at("sets")) {
    uint64_t records = 0;
    for (const json& shard : set.at("shards"))
      records += read_examples(dir.file("out/" + shard.get<std::string>())).size();
    CHECK(records == set.at("records"));
  }
  return answer;
}

std::vector<Example> examples_of(const TempDir& dir, const json& set) {
  std::vector<Example> all;
  for (const json& shard : set.at("shards"))
    for (Example& example : read_examples(dir.file("out/" + shard.get<std::string>())))
      all.push_back(std::move(example));
  return all;
}

/// Returns the one line that a refused conversion prints.
std::string refusal(const TempDir& dir, std::vector<std::string> arguments, int code = 1) {
  arguments.insert(arguments.begin(), "convert");
  arguments.insert(arguments.end(), {"--out", dir.file("refused")});
  const ToolResult result = run_tool(arguments);
  INFO(result.err);
  CHECK(result.code == code);
  CHECK(result.out.empty());
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  if (fs::exists(dir.file("refused"))) CHECK(fs::is_empty(dir.file("refused")));
  return result.err;
}

}  // namespace

TEST_CASE("examples are written as protobuf writes them deterministically") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; round++) {
    std::vector<std::string> keys;
    for (size_t i = 0, count = random() % 6; i < count; i++) {
      const std::string key = random_text(random() % 3 == 0 ? 200 : random() % 3, random);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    tool::ExampleWriter writer(keys);
    for (int record = 0; record < 3; record++) {
      Example expected;
      expected.mutable_features();
      for (size_t f = 0; f < keys.size(); f++) {
        if (random() % 4 == 0) continue;  // this record lacks the feature
        auto& feature = (*expected.mutable_features()->mutable_feature())[keys[f]];
        const size_t count = random() % 4 == 0 ? 0 : random() % 100;
        if (const auto kind = random() % 3; kind == 0) {
          const std::string value = random_text(random() % 2 ? random() % 100 : 20'000, random);
          feature.mutable_bytes_list()->add_value(value);
          writer.set_bytes(f, value);
        } else if (kind == 1) {
          std::vector<float> values;
          feature.mutable_float_list();
          for (size_t i = 0; i < count; i++) {
            values.push_back(i == 0 ? -0.0f : static_cast<float>(random()) / 7);
            feature.mutable_float_list()->add_value(values.back());
          }
          writer.set_floats(f, values);
        } else {
          std::vector<int64_t> values;
          feature.mutable_int64_list();
          for (size_t i = 0; i < count; i++) {
            values.push_back(static_cast<int64_t>(uint64_t{random()} << random() % 40) * (random() % 2 ? 1 : -1));
            feature.mutable_int64_list()->add_value(values.back());
          }
          writer.set_ints(f, values);
        }
      }
      REQUIRE(text_of(writer.finish()) == deterministic(expected));
    }
  }
}

TEST_CASE("records of TensorFlow come out as they were, but for the order of keys") {
  RecordReader reader(std::string(FEEDLINE_GOLDEN) + "/chess/main-00000-of-00003.tfrecord");
  tool::ExampleWriter writer({"s", "d"});
  tool::ExampleView message;
  Record record;
  int records = 0;
  while (reader.next(record) == ReadResult::record) {
    REQUIRE(message.parse(record.payload));
    for (const auto* feature : message.features()) {
      if (feature->key() == "d") writer.set_bytes(1, feature->value().bytes_list().value(0));
      const auto& ints = feature->value().int64_list().value();
      if (feature->key() == "s") writer.set_ints(0, {ints.data(), static_cast<size_t>(ints.size())});
    }
    Example original;
    REQUIRE(original.ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size())));
    const auto written = writer.finish();
    REQUIRE(written.size() == record.payload.size());
    REQUIRE(text_of(written) == deterministic(original));
    records++;
  }
  CHECK(records == 1080);
}

// CIFAR-10.

namespace {

struct Pictures {
  std::vector<uint8_t> labels;
  std::string images;
};

Pictures some_pictures(size_t count, std::mt19937& random) {
  Pictures pictures;
  for (size_t i = 0; i < count; i++) pictures.labels.push_back(static_cast<uint8_t>(random() % 10));
  pictures.images = random_text(count * 3072, random);
  return pictures;
}

std::string binary_batch(const Pictures& pictures) {
  std::string bytes;
  for (size_t i = 0; i < pictures.labels.size(); i++)
    bytes += static_cast<char>(pictures.labels[i]) + pictures.images.substr(i * 3072, 3072);
  return bytes;
}

/// `type` is that of a ustar header, and `link` what a hard or symbolic link names. `bytes` replaces the content's size.
std::string tar_entry(const std::string& name, const std::string& content, const std::string& type = "0",
                      const std::string& link = "", std::optional<size_t> bytes = {}) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  char size[13];
  std::snprintf(size, sizeof size, "%011lo", static_cast<unsigned long>(bytes.value_or(content.size())));
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, size);
  put(136, "00000000000");
  put(148, "        ");
  put(156, type);
  put(157, link);
  put(257, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof checksum, "%06o", sum);
  put(148, std::string(checksum) + '\0' + ' ');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::string gzip_file(const std::string& path, const std::string& content) {
  const gzFile file = gzopen(path.c_str(), "wb1");
  REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) == static_cast<int>(content.size()));
  REQUIRE(gzclose(file) == Z_OK);
  return path;
}

const std::vector<std::string> batch_names = {"data_batch_1", "data_batch_2", "data_batch_3",
                                              "data_batch_4", "data_batch_5", "test_batch"};

bool without_libarchive(const TempDir& dir) {
  const ToolResult result = run_tool({"convert", "cifar10", dir.write("x", ""), "--out", dir.file("x.out")});
  if (!contains(result.err, "without libarchive")) return false;
  skip("built without libarchive");
  return true;
}

}  // namespace

TEST_CASE("cifar10: sets as the tutorial's") {
  if (const TempDir dir; without_libarchive(dir)) return;
  std::mt19937 random(2);
  std::vector<Pictures> batches;
  for (size_t b = 0; b < 6; b++) batches.push_back(some_pictures(b == 4 ? 30 : 20, random));
  for (const bool compressed : {false, true}) {
    const TempDir dir;
    const std::string folder = "cifar-10-batches-bin/";
    std::string tar = tar_entry(folder + "batches.meta.txt", "airplane\n");
    for (const size_t b : {3u, 5u, 2u, 1u, 4u, 0u})  // in random order
      tar += tar_entry(folder + batch_names[b] + ".bin", binary_batch(batches[b]));
    tar += tar_entry(folder + "readme.html", "read me") + std::string(1024, '\0');
    const std::string archive = compressed ? gzip_file(dir.file("cifar.tar.gz"), tar) : dir.write("cifar.tar", tar);
    const json result = convert(dir, {"cifar10", archive, "--shard-size", "100KB"});
    const std::map<std::string, std::vector<size_t>> sets = {
        {"train", {0, 1, 2, 3}}, {"validation", {4}}, {"eval", {5}}};
    REQUIRE(result.at("sets").size() == 3);
    CHECK(result.at("sets")[0].at("shards").size() == 2);  // 80 pictures of 3.1 KB
    for (const json& set : result.at("sets")) {
      Pictures expected;
      for (const size_t b : sets.at(set.at("name"))) {
        expected.labels.insert(expected.labels.end(), batches[b].labels.begin(), batches[b].labels.end());
        expected.images += batches[b].images;
      }
      const std::vector<Example> examples = examples_of(dir, set);
      REQUIRE(examples.size() == expected.labels.size());
      for (size_t i = 0; i < examples.size(); i++) {
        REQUIRE(int_in(examples[i], "label") == expected.labels[i]);
        REQUIRE(bytes_in(examples[i], "image") == expected.images.substr(i * 3072, 3072));
      }
    }
    CHECK(run_tool({"dump", dir.file("out/pipeline.textproto"), "--out", dir.file("tensors"), "--set",
                    "batch.last_batch_policy=PARTIAL"})
              .code == 0);
    const NpyArray images = load_npy(dir.file("tensors/image.npy"));
    CHECK(images.shape == std::vector<int64_t>{80, 3, 32, 32});
    CHECK(images.as<float>()[0] == Approx(static_cast<uint8_t>(batches[0].images[0]) / 255.0));
  }
}

TEST_CASE("cifar10: what is not CIFAR-10 is refused") {
  const TempDir dir;
  if (without_libarchive(dir)) return;
  std::mt19937 random(3);
  const Pictures pictures = some_pictures(3, random);
  const auto tar_with = [&](const std::string& name, const std::string& content) {
    std::string tar;
    for (const std::string& batch : batch_names)
      if (batch != "data_batch_3") tar += tar_entry("x/" + batch + ".bin", binary_batch(pictures));
    if (!name.empty()) tar += tar_entry("x/" + name, content);
    return dir.write("x.tar", tar + std::string(1024, '\0'));
  };
  const auto refused = [&](const std::string& archive) { return refusal(dir, {"cifar10", archive}); };
  CHECK(contains(refused(tar_with("", "")), "has no file data_batch_3.bin; use a complete archive of CIFAR-10's"));
  CHECK(contains(refused(tar_with("data_batch_3.bin", "short")), "has 5 bytes, but needs a multiple of 3073"));
  CHECK(contains(refused(tar_with("data_batch_3.bin", std::string(3073, '\x0a'))), "picture 0 has label 10"));
  CHECK(contains(refused(tar_with("data_batch_1.bin", binary_batch(pictures))),
                 "data_batch_1.bin in the archive: the archive has this file twice"));
  CHECK(contains(refused(dir.write("python.tar", tar_entry("cifar-10-batches-py/test_batch", "\x80\x02}."))),
                 "whose batches only Python can read; use the \"binary version\""));
  CHECK(contains(refused(dir.write("no.tar", "this is no archive")), "not a tar archive"));
  CHECK(contains(refused(dir.write("empty.tar", "")), ""));
  CHECK(contains(refused(dir.file("missing.tar")), "No such file"));
  std::string gz = read_file(gzip_file(dir.file("a.gz"), tar_entry("x/test_batch.bin", binary_batch(pictures))));
  CHECK(contains(refused(dir.write("cut.tar.gz", gz.substr(0, gz.size() / 2))), "damaged"));
  // 70 MB of zeros in a small file.
  CHECK(contains(refused(gzip_file(dir.file("bomb.tar.gz"), tar_entry("test_batch.bin", std::string(70 << 20, '\0')))),
                 "more than 67108864 bytes"));
}

TEST_CASE("webdataset: a feature for each extension") {
  const TempDir dir;
  if (without_libarchive(dir)) return;
  const std::vector<Example> photos = read_examples(FEEDLINE_GOLDEN "/images/photos_jpeg.tfrecord");
  REQUIRE(photos.size() >= 5);
  const std::string end(1024, '\0');
  std::string first = tar_entry("__readme__", "no sample"), second;
  for (size_t i = 0; i < 5; i++) {
    std::string& tar = i < 3 ? first : second;
    const std::string key = "birds/00" + std::to_string(i);
    tar += tar_entry(key + ".JPG", bytes_in(photos[i], "image")) + tar_entry(key + ".cls", std::to_string(i) + "\n");
    if (i != 2) tar += tar_entry(key + ".left.txt", "photo " + std::to_string(i));
    tar += tar_entry(key + ".id", i == 4 ? "four" : "3");
  }
  const json result =
      convert(dir, {"webdataset", dir.write("0.tar", first + end), gzip_file(dir.file("1.tar.gz"), second + end)});
  CHECK(result.at("left_out") == json::array({dir.file("0.tar") + ": __readme__: its name has no extension"}));
  const std::vector<Example> examples = examples_of(dir, result.at("sets")[0]);
  REQUIRE(examples.size() == 5);
  for (size_t i = 0; i < 5; i++) {
    CHECK(bytes_in(examples[i], "__key__") == "birds/00" + std::to_string(i));
    CHECK(bytes_in(examples[i], "jpg") == bytes_in(photos[i], "image"));
    CHECK(int_in(examples[i], "cls") == static_cast<int64_t>(i));
    CHECK(bytes_in(examples[i], "left.txt") == (i == 2 ? "(none)" : "photo " + std::to_string(i)));
    CHECK(bytes_in(examples[i], "id") == (i == 4 ? "four" : "3"));  // not all are numbers
  }
  CHECK(contains(result.at("pipeline"), "decode_image"));
}

TEST_CASE("webdataset: what has no samples is refused") {
  const TempDir dir;
  if (without_libarchive(dir)) return;
  const std::string end(1024, '\0'), twice = tar_entry("a.txt", "1") + tar_entry("a.TXT", "2") + end;
  CHECK(contains(refusal(dir, {"webdataset", dir.write("0.tar", tar_entry("readme", "x") + end)}), "has no sample"));
  CHECK(contains(refusal(dir, {"webdataset", dir.write("1.tar", twice)}), "two files a.txt in one sample"));
  CHECK(contains(refusal(dir, {"webdataset", dir.write("2.tar", "no archive")}), "is not a tar archive"));
  CHECK(contains(refusal(dir, {"webdataset", dir.file("3.tar")}), "3.tar"));
}

TEST_CASE("webdataset: every member is taken or told") {
  const TempDir dir;
  if (without_libarchive(dir)) return;
  const std::string end(1024, '\0');
  // The name of the next member in UTF-8, as pax stores it.
  const std::string pax = tar_entry("x", "17 path=d/\xc3\xa4.txt\n", "x");
  const std::string members[] = {
      tar_entry("d/", "", "5"),
      tar_entry("d/0.jpg", "picture"),
      tar_entry("d/0.cls", "0"),
      tar_entry("d/0.__key__", "mine"),
      tar_entry("d/1.jpg", "", "1", "d/0.jpg"),
      tar_entry("d/1.cls", "1"),
      tar_entry("d/2.jpg", "", "2", "0.jpg"),
      tar_entry("d/2.cls", "2"),
      tar_entry("d/3.jpg", "", "1", "d/4.jpg"),  // which comes after it
      tar_entry("d/3.cls", "", "1", "d/1.cls"),
      tar_entry("d/4.jpg", "other"),
      tar_entry("d/4.cls", "", "1", "d/3.cls"),  // which is a link itself
      tar_entry("d/4.pipe", "", "6"),
      pax + tar_entry("x", "text"),
  };
  std::string tar;
  for (const std::string& member : members) tar += member;
  const std::string whole = tar + end, again = tar_entry("e/5.cls", "5") + end;
  for (const bool gzip : {false, true}) {
    const std::string file = gzip ? gzip_file(dir.file("0.tar"), whole + again) : dir.write("0.tar", whole + again);
    const json result = convert(dir, {"webdataset", file});
    std::vector<std::string> got;
    for (const Example& example : examples_of(dir, result.at("sets")[0]))
      got.push_back(fmt::format("{}: {} {} {}", bytes_in(example, "__key__"), bytes_in(example, "jpg"),
                                int_in(example, "cls"), bytes_in(example, "txt")));
    const auto none = INT64_MIN;
    CHECK(got == std::vector<std::string>{"d/0: picture 0 (none)", "d/1: picture 1 (none)", "d/2: (none) 2 (none)",
                                          "d/3: (none) 1 (none)", "d/4: other 1 (none)",
                                          fmt::format("d/\xc3\xa4: (none) {} text", none), "e/5: (none) 5 (none)"});
    CHECK(result.at("left_out") ==
          json({file + ": d/0.__key__: __key__ is reserved for the path of the sample",
                file + ": d/2.jpg: is a symbolic link to 0.jpg",
                file + ": d/3.jpg: is a hard link to d/4.jpg, which must come earlier in the archive",
                file + ": d/4.pipe: is not a regular file"}));
  }

  // Cut between any two members. Nothing is known of what came after.
  size_t at = 0;
  for (const std::string& member : members) {
    at += member.size();
    if (at < 1536) continue;
    const std::string cut = dir.write("cut.tar", whole.substr(0, at));
    const json result = convert(dir, {"webdataset", cut});
    CHECK(result.at("left_out").back() == cut + ": has no end-of-archive mark, so the last files may be missing");
  }

  // A damaged header ends it, and the message says where. So does what is no archive after the end of one.
  std::string damaged = whole;
  damaged[512 + 1024 + 3] ^= 1;
  CHECK(contains(refusal(dir, {"webdataset", dir.write("damaged.tar", damaged)}),
                 "damaged.tar: is damaged at or after its member d/0.jpg: Damaged tar archive"));
  CHECK(contains(refusal(dir, {"webdataset", dir.write("more.tar", whole + std::string(512, 'x'))}),
                 "is damaged at or after its member d/\xc3\xa4.txt"));
}

TEST_CASE("webdataset: a sample has at most what a record may have") {
  const TempDir dir;
  if (without_libarchive(dir)) return;
  // Two files of zeros, which take no memory on the way: the file has holes.
  const size_t bytes = size_t{130} << 20;
  std::ofstream file(dir.file("large.tar"), std::ios::binary);
  for (size_t i = 0; i < 2; i++) {
    file.seekp(static_cast<std::streamoff>(i * (512 + bytes)));
    file << tar_entry("k." + std::to_string(i), "", "0", "", bytes);
  }
  file.close();
  fs::resize_file(dir.file("large.tar"), 2 * (512 + bytes) + 1024);
  CHECK(contains(refusal(dir, {"webdataset", dir.file("large.tar")}), "sample k has more than 268435456 bytes"));

  // A file that belongs to no sample may be larger.
  const size_t larger = size_t{257} << 20;
  std::ofstream other(dir.file("other.tar"), std::ios::binary);
  other << tar_entry("README", "", "0", "", larger);
  other.seekp(static_cast<std::streamoff>(512 + larger));
  other << tar_entry("k.txt", "text") << std::string(1024, '\0');
  other.close();
  CHECK(convert(dir, {"webdataset", dir.file("other.tar")}).at("left_out") ==
        json::array({dir.file("other.tar") + ": README: its name has no extension"}));
}

// Pictures.

namespace {

const std::string jpeg = "\xff\xd8\xff\xe0", png = "\x89PNG\r\n\x1a\n";

std::string put_file(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

}  // namespace

TEST_CASE("images: a folder for each class") {
  const TempDir dir;
  const std::string in = dir.file("in");
  put_file(in + "/cat/b.png", png + "b");
  put_file(in + "/cat/a.jpg", jpeg + "a");
  put_file(in + "/cat/more/c.jpg", jpeg + "c");
  put_file(in + "/Dog/x", jpeg + "x");
  put_file(in + "/bird/.hidden", "text");
  put_file(in + "/cat/empty.jpg", "");
  put_file(in + "/cat/moving", "GIF89a");
  put_file(in + "/notes.txt", "notes");
  mkfifo((in + "/cat/pipe").c_str(), 0600);
  const json result = convert(dir, {"images", in});
  CHECK(read_file(dir.file("out/labels.txt")) == "Dog\nbird\ncat\n");
  const auto examples = examples_of(dir, result.at("sets")[0]);
  std::vector<std::pair<int64_t, std::string>> got;
  for (const Example& example : examples) got.emplace_back(int_in(example, "label"), bytes_in(example, "image"));
  CHECK(got == std::vector<std::pair<int64_t, std::string>>{
                   {0, jpeg + "x"}, {2, jpeg + "a"}, {2, png + "b"}, {2, jpeg + "c"}});
  CHECK(result.at("left_out") ==
        json({in + "/notes.txt: is not in the folder of a class",
              in + "/bird/.hidden: the value is neither a JPEG nor a PNG",
              in + "/bird: has no JPEG or PNG files, so no record has the label of this folder, 1",
              in + "/cat/pipe: is not a regular file",
              in + "/cat/empty.jpg: the value is empty, and neither a JPEG nor a PNG",
              in + "/cat/moving: the value is neither a JPEG nor a PNG, but looks like a GIF; store the picture as a "
                   "JPEG or a PNG"}));
  const ToolResult text = run_tool({"convert", "images", in, "--out", dir.file("out"), "--shard-size", "8"});
  CHECK(text.code == 0);
  CHECK(contains(text.out, "4 records"));
  CHECK(contains(text.out, "data-*-of-00003.tfrecord"));
  CHECK(contains(text.err, "left out: " + in + "/notes.txt"));

  fs::create_directories(dir.file("none/a"));
  CHECK(contains(refusal(dir, {"images", dir.file("none")}), "no JPEG or PNG"));
  CHECK(contains(refusal(dir, {"images", dir.file("none/a")}), "has no folders"));
  CHECK(contains(refusal(dir, {"images", dir.file("missing")}), "cannot be listed"));
  CHECK(contains(refusal(dir, {"images", in, "--feature", "a=" + in}, 2), "either one DIR"));
}

TEST_CASE("images: links are followed, and a picture that cannot be read ends the conversion") {
  const TempDir dir;
  const std::string in = dir.file("in"), elsewhere = dir.file("elsewhere");
  put_file(in + "/cat/a.png", png + "a");
  put_file(elsewhere + "/b.png", png + "b");
  put_file(elsewhere + "/deep/c.png", png + "c");
  fs::create_symlink("../../elsewhere", in + "/cat/more");
  fs::create_symlink("../../elsewhere/b.png", in + "/cat/link.png");
  fs::create_symlink(elsewhere, in + "/dog");
  fs::create_symlink("..", elsewhere + "/deep/up");  // a circle
  const json result = convert(dir, {"images", in});
  CHECK(read_file(dir.file("out/labels.txt")) == "cat\ndog\n");
  std::vector<std::pair<int64_t, std::string>> got;
  for (const Example& example : examples_of(dir, result.at("sets")[0]))
    got.emplace_back(int_in(example, "label"), bytes_in(example, "image"));
  CHECK(got == std::vector<std::pair<int64_t, std::string>>{
                   {0, png + "a"}, {0, png + "b"}, {0, png + "b"}, {0, png + "c"}, {1, png + "b"}, {1, png + "c"}});
  const std::string circle = "/deep/up: is a link to a folder that contains the link";
  CHECK(result.at("left_out") == json({in + "/cat/more" + circle, in + "/dog" + circle}));

  // Nothing is known of what a link leads to that leads nowhere: the disk with the pictures may not be mounted.
  for (const char* link : {"/cat/lost.png", "/lost", "/cat/more/lost"}) {
    fs::create_symlink("nowhere", in + link);
    CHECK(contains(refusal(dir, {"images", in}), in + link + ": cannot be opened: No such file or directory"));
    CHECK(contains(refusal(dir, {"images", "--feature", "a=" + in, "--feature", "b=" + in}), "cannot be opened"));
    fs::remove(in + link);
  }
}

TEST_CASE("images: folders joined by relative path") {
  const TempDir dir;
  put_file(dir.file("blurred/1/a.png"), png + "blurred a");
  put_file(dir.file("blurred/1/b.png"), png + "blurred b");
  put_file(dir.file("blurred/c.png"), png + "blurred c");
  put_file(dir.file("sharp/1/a.png"), png + "sharp a");
  put_file(dir.file("sharp/c.png"), png + "sharp c");
  put_file(dir.file("sharp/d.png"), jpeg + "sharp d");
  const json result = convert(
      dir, {"images", "--feature", "sharp=" + dir.file("sharp"), "--feature", "blurred=" + dir.file("blurred")});
  const auto examples = examples_of(dir, result.at("sets")[0]);
  REQUIRE(examples.size() == 2);
  CHECK(bytes_in(examples[0], "blurred") == png + "blurred a");
  CHECK(bytes_in(examples[0], "sharp") == png + "sharp a");
  CHECK(bytes_in(examples[1], "sharp") == png + "sharp c");
  CHECK(examples[0].features().feature_size() == 2);
  CHECK(result.at("left_out") ==
        json({dir.file("blurred/1/b.png") + ": sharp has no JPEG or PNG file with the same relative path",
              dir.file("sharp/d.png") + ": blurred has no JPEG or PNG file with the same relative path"}));
  fs::create_directories(dir.file("empty"));
  CHECK(contains(refusal(dir, {"images", "--feature", "a=" + dir.file("sharp"), "--feature", "b=" + dir.file("empty")}),
                 "the same relative path"));
  CHECK(contains(refusal(dir, {"images", "--feature", "a=x", "--feature", "a=y"}, 2), "features have the name 'a'"));
  CHECK(contains(refusal(dir, {"images", "--feature", "=x"}, 2), "NAME=VALUE"));
}

// Arrays.

namespace {

template <typename T>
std::string elements(const std::vector<T>& values, bool big_endian = false) {
  std::string bytes;
  for (const T value : values) {
    std::string one = little_endian(value);
    if (big_endian) std::reverse(one.begin(), one.end());
    bytes += one;
  }
  return bytes;
}

}  // namespace

TEST_CASE("npy: what is dumped is what was in the arrays") {
  const TempDir dir;
  const int rows = 1000;
  std::mt19937 random(5);
  std::vector<int64_t> ids;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int16_t> shorts;
  for (int i = 0; i < rows * 6; i++) {
    if (i < rows) ids.push_back(static_cast<int64_t>(uint64_t{random()} << 31 | random()));
    if (i < rows) doubles.push_back(i / 3.0);
    floats.push_back(static_cast<float>(i) / 8);
    shorts.push_back(static_cast<int16_t>(random()));
  }
  const std::string pixels = random_text(rows * 2 * 3 * 3, random);
  const std::string in = dir.path() + "/";
  dir.write("ids.npy", npy("<i8", "(1000,)", elements(ids)));
  dir.write("big_ids.npy", npy(">i8", "(1000, 1)", elements(ids, true), "False", 2));
  dir.write("floats.npy", npy("<f4", "(1000, 2, 3)", elements(floats), "False", 3));
  dir.write("doubles.npy", npy("<f8", "(1000L,)", elements(doubles)));
  dir.write("pixels.npy", npy("|u1", "(1000, 2, 3, 3)", pixels));
  dir.write("flags.npy", npy("|b1", "(1000,)", std::string(500, '\0') + std::string(500, '\1'), "True"));
  dir.write("shorts.npy", npy(">i2", "(1000, 6)", elements(shorts, true)));
  dir.write("halves.npy", npy("<f2", "(1000, 1)", elements(std::vector<uint16_t>(rows, 0x3e00))));
  const json result = convert(dir, {"npy", in + "ids.npy", in + "floats.npy", in + "doubles.npy", in + "pixels.npy",
                                    in + "flags.npy", in + "halves.npy", "--feature", "big=" + in + "big_ids.npy",
                                    "--feature", "short=" + in + "shorts.npy", "--shard-size", "20KB"});
  CHECK(result.at("sets")[0].at("shards").size() > 5);
  const std::string pipeline = result.at("pipeline");
  CHECK(contains(pipeline, "rounded to float32"));
  CHECK(contains(pipeline, "stored: INT16 big_endian: true shape: [6]"));

  const ToolResult dump = run_tool({"dump", dir.file("out/pipeline.textproto"), "--out", dir.file("tensors"), "--set",
                                    "batch.last_batch_policy=PARTIAL"});
  INFO(dump.err);
  REQUIRE(dump.code == 0);
  const auto array = [&](const std::string& name) { return load_npy(dir.file("tensors/" + name + ".npy")); };
  const auto bytes = [](const NpyArray& a) {
    return std::string(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size());
  };
  CHECK(bytes(array("ids")) == elements(ids));
  CHECK(bytes(array("big")) == elements(ids));
  CHECK(array("big").shape == std::vector<int64_t>{rows, 1});
  CHECK(bytes(array("floats")) == elements(floats));
  CHECK(array("floats").shape == std::vector<int64_t>{rows, 2, 3});
  CHECK(bytes(array("doubles")) == elements(std::vector<float>(doubles.begin(), doubles.end())));
  CHECK(bytes(array("pixels")) == pixels);
  CHECK(array("pixels").shape == std::vector<int64_t>{rows, 2, 3, 3});
  CHECK(bytes(array("flags")) == std::string(500, '\0') + std::string(500, '\1'));
  CHECK(bytes(array("short")) == elements(shorts));
  CHECK(array("halves").dtype == "<f2");
}

TEST_CASE("npy: what is no array of rows is refused") {
  const TempDir dir;
  const auto refused = [&](const std::string& content) { return refusal(dir, {"npy", dir.write("x.npy", content)}); };
  const std::string good = npy("<i8", "(2,)", std::string(16, 'x'));
  CHECK(contains(refused(""), "is not an .npy file"));
  CHECK(contains(refused("PK\3\4 some archive"), "is not an .npy file"));
  CHECK(contains(refused(good.substr(0, 40)), "its header is cut short"));
  CHECK(contains(refused(good.substr(0, good.size() - 1)),
                 "has 15 bytes of elements, but its header says 2 rows of 8 bytes"));
  CHECK(contains(refused(good + "x"), "has 17 bytes"));
  CHECK(contains(refused(npy("<i8", "()", std::string(8, 'x'))), "without rows"));
  CHECK(contains(refused(npy("<i8", "(0,)", "")), "has no rows"));
  CHECK(contains(refused(npy("<i8", "(2, 0)", "")), "its rows are empty"));
  CHECK(contains(refused(npy("<f4", "(2, 2)", std::string(16, 'x'), "True")), "ascontiguousarray"));
  CHECK(contains(refused(npy("<u8", "(2,)", std::string(16, 'x'))), "a feature cannot hold"));
  CHECK(contains(refused(npy("|O", "(2,)", "")), "not supported"));
  CHECK(contains(refused(npy("<U4", "(1,)", std::string(16, 'x'))), "not supported"));
  CHECK(contains(refused(npy("<i8", "(4611686018427387904, 4)", "")), "has 0 bytes"));
  CHECK(contains(refused(npy("<i8", "(2, 4611686018427387904, 4)", "")), "255 MiB"));
  CHECK(contains(refused(npy("<i8", "(-2,)", "")), "not the dictionary of an .npy file"));
  CHECK(contains(refused(npy("<i8", "2", "")), "not the dictionary of an .npy file"));
  std::string structure = npy("<i8", "(2,)", "");
  structure.replace(structure.find("'<i8'"), 5, "[('a'");
  CHECK(contains(refused(structure), "structures"));
  CHECK(contains(refused(npy("<i8", "(2,)", "", "maybe")), "not the dictionary of an .npy file"));
  std::string version = good;
  version[6] = 9;
  CHECK(contains(refused(version), "version 9"));
  dir.write("three.npy", npy("<i8", "(3,)", std::string(24, 'x')));
  dir.write("two.npy", good);
  CHECK(contains(refusal(dir, {"npy", dir.file("three.npy"), dir.file("two.npy")}), "has 2 rows"));
  CHECK(contains(refusal(dir, {"npy", dir.file("two.npy"), dir.file("two.npy")}, 2), "features have the name 'two'"));
  CHECK(contains(refusal(dir, {"npy"}, 2), "FILE"));

  // However a header is changed, the reader gives an answer or an error.
  std::mt19937 random(6);
  for (int i = 0; i < 3000; i++) {
    std::string changed = good;
    for (int k = 0; k < 3; k++) changed[random() % 128] = random() % 3 ? static_cast<char>(random() % 96 + 32) : '\0';
    try {
      tool::NpyReader reader(dir.write("changed.npy", changed));
      for (uint64_t row = 0; row < reader.rows(); row++) reader.next();
    } catch (const Error&) {
    }
  }
}

// Tables.

namespace {

using Rows = std::vector<std::vector<std::string>>;

/// Returns the cells of each row, with a ' before the quoted ones.
Rows rows_of(const TempDir& dir, const std::string& text, char delimiter = ',') {
  const io::InputFile file(dir.write("rows.csv", text));
  tool::CsvReader reader(file, delimiter);
  Rows rows;
  std::vector<tool::CsvReader::Cell> cells;
  while (reader.next(cells)) {
    rows.emplace_back();
    for (const auto& cell : cells) rows.back().push_back((cell.quoted ? "'" : "") + std::string(cell.text));
  }
  return rows;
}

}  // namespace

TEST_CASE("csv: rows and cells by RFC 4180") {
  const TempDir dir;
  CHECK(rows_of(dir, "").empty());
  CHECK(rows_of(dir, "\n\r\n").empty());
  CHECK(rows_of(dir, "a") == Rows{{"a"}});
  CHECK(rows_of(dir, "a,b\r\nc,d\r\n") == Rows{{"a", "b"}, {"c", "d"}});
  CHECK(rows_of(dir, "a,b\nc,") == Rows{{"a", "b"}, {"c", ""}});
  CHECK(rows_of(dir, ",\n\n,,\n") == Rows{{"", ""}, {"", "", ""}});
  CHECK(rows_of(dir,
                "\xef\xbb\xbf"
                "a,b") == Rows{{"a", "b"}});
  CHECK(rows_of(dir, "\"a,b\",\"\"\n\"x\"\"y\"\"\",\"line\nbreak\"\r\n\"\"\"\"") ==
        Rows{{"'a,b", "'"}, {"'x\"y\"", "'line\nbreak"}, {"'\""}});
  const auto error = [&](const std::string& text) {
    try {
      rows_of(dir, text);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  CHECK(contains(error("a\n\nb,\"c\nd"), "line 3: a quote is opened here and never closed"));
  CHECK(contains(error("a\n\"b\nc\" ,d"), "line 3: a closing quote must be followed by"));
  CHECK(contains(error("a,b\"c\""), "line 1: a quote is inside a cell"));
  CHECK(rows_of(dir, "a;\"b;,\";c,d\n;;\n", ';') == Rows{{"a", "'b;,", "c,d"}, {"", "", ""}});
  CHECK(rows_of(dir, "a\t\"b\"\"\"\tc", '\t') == Rows{{"a", "'b\"", "c"}});
}

TEST_CASE("csv: rows longer than a buffer, and cut anywhere by one") {
  const TempDir dir;
  std::mt19937 random(7);
  Rows expected;
  std::string text;
  for (int i = 0; i < 3000; i++) {
    auto& row = expected.emplace_back();
    for (int c = 0; c < 3; c++) {
      std::string cell = random_text(i == 1500 ? 1 << 21 : random() % 1000, random);
      std::string quoted;
      for (char& x : cell) {
        x = "\",\r\nab"[static_cast<uint8_t>(x) % 6];
        quoted += x == '"' ? "\"\"" : std::string(1, x);
      }
      text += (c ? "," : "") + ("\"" + quoted + "\"");
      row.push_back("'" + cell);
    }
    text += i % 2 ? "\r\n" : "\n";
  }
  CHECK(rows_of(dir, text) == expected);
}

TEST_CASE("csv: columns are of the narrowest type that holds them") {
  const TempDir dir;
  const std::string text =
      "whole,number,zip,text,mixed,huge,quoted,empty,rare\n"
      "1,1.5,02139,a,1,99999999999999999999,\"7\",,\n"
      "-9223372036854775808,-2e3,10115,\"b,c\",x,1,\"8\",,5\n"
      "0,nan,00501,\"\",2.5,2,9,,\n";
  const json result = convert(dir, {"csv", dir.write("x.csv", text)});
  const auto examples = examples_of(dir, result.at("sets")[0]);
  REQUIRE(examples.size() == 3);
  const auto number = [&](size_t row, const std::string& key) {
    return examples[row].features().feature().at(key).float_list().value(0);
  };
  CHECK(int_in(examples[1], "whole") == INT64_MIN);
  CHECK(number(0, "number") == 1.5f);
  CHECK(number(1, "number") == -2000);
  CHECK(std::isnan(number(2, "number")));
  CHECK(bytes_in(examples[0], "zip") == "02139");
  CHECK(bytes_in(examples[1], "text") == "b,c");
  CHECK(bytes_in(examples[2], "text").empty());
  CHECK(bytes_in(examples[0], "mixed") == "1");
  CHECK(bytes_in(examples[0], "huge") == "99999999999999999999");
  CHECK(int_in(examples[0], "quoted") == 7);
  CHECK(int_in(examples[1], "rare") == 5);
  for (const Example& example : examples) CHECK(example.features().feature().count("empty") == 0);
  CHECK(examples[0].features().feature().count("rare") == 0);
  CHECK(contains(result.at("pipeline"), "Column \"empty\" is empty"));
  CHECK(contains(result.at("pipeline"), "in 1 of 3 rows"));

  const json told = convert(
      dir, {"csv", dir.file("x.csv"), "--type", "zip=int64", "--type", "whole=float32", "--type", "mixed=bytes"});
  const auto again = examples_of(dir, told.at("sets")[0]);
  CHECK(int_in(again[2], "zip") == 501);
  CHECK(again[1].features().feature().at("whole").float_list().value(0) == -0x1p63f);
  CHECK(contains(told.at("pipeline"), "name: \"zip\" dtype: INT64"));
}

TEST_CASE("csv: what is no table is refused with its line") {
  const TempDir dir;
  const auto refused = [&](const std::string& text, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"csv", dir.write("x.csv", text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return refusal(dir, arguments);
  };
  CHECK(contains(refused(""), "is empty"));
  CHECK(contains(refused("a,b\n"), "no rows"));
  CHECK(contains(refused("a,b\n,\n,\n"), "has only empty cells"));
  CHECK(contains(refused("a,b\n1,2\n3\n"), "line 3 has 1 cell, but the header has 2"));
  CHECK(contains(refused("a,a\n1,2\n"), "two columns have the name"));
  CHECK(contains(refused("a,\n1,2\n"), "column 2 has no name"));
  CHECK(contains(refused("a\nx\n", {"--type", "a=int64"}), "line 2: column \"a\" has \"x\", which is not a whole"));
  CHECK(contains(refused("a\n1e300\n", {"--type", "a=float32"}), "in the range of float32"));
  CHECK(contains(refused("a\n1\n", {"--type", "b=int64"}), "there is no column \"b\""));
  CHECK(contains(refusal(dir, {"csv", dir.file("x.csv"), "--type", "a=int32"}, 2), "write int64, float32 or bytes"));
}

TEST_CASE("csv: a table with another delimiter is told, or read") {
  const TempDir dir;
  for (const auto& [delimiter, name] : {std::pair{std::string("\t"), std::string("tab")}, {";", "semicolon"}}) {
    const std::string file = dir.write("x.csv", "a" + delimiter + "b\n1" + delimiter + "2,5\n");
    CHECK(contains(refusal(dir, {"csv", file}), "use --delimiter " + name + "; if the table has only one column"));
    const json result = convert(dir, {"csv", file, "--delimiter", name});
    const auto rows = examples_of(dir, result.at("sets")[0]);
    REQUIRE(rows.size() == 1);
    CHECK(int_in(rows[0], "a") == 1);
    CHECK(bytes_in(rows[0], "b") == "2,5");
  }
  // A column may be called so.
  const std::string one = dir.write("one.csv", "a;b\n1\n");
  CHECK(int_in(examples_of(dir, convert(dir, {"csv", one, "--delimiter", "comma"}).at("sets")[0])[0], "a;b") == 1);
  CHECK(contains(refusal(dir, {"csv", one, "--delimiter", "x"}, 2), "'x' is not one of: comma, semicolon, tab"));
}

// Numbers and data sets as a whole.

TEST_CASE("a record that is too large is told with the file that it was made from") {
  const TempDir dir;
  tool::OutputFolder out(dir.file("out"));
  tool::Progress progress("writing", 1);
  tool::ShardWriter writer(out, {.folder = dir.file("out")}, "data", 1, 1, progress);
  constexpr size_t bytes = (size_t{256} << 20) + 1;
  const std::unique_ptr<std::byte[]> record(new std::byte[bytes]);  // never touched, so that it takes no memory
  try {
    writer.write({record.get(), bytes}, "in.csv");
    FAIL("it was written");
  } catch (const Error& error) {
    CHECK(error.place().file == "in.csv");
    CHECK_THAT(error.what(), Catch::Contains("record 0 would have 268435457 bytes"));
  }
}

TEST_CASE("numbers that no float32 holds are refused, wherever they come from") {
  const TempDir dir;
  const double most = std::numeric_limits<float>::max(), infinite = std::numeric_limits<double>::infinity();
  for (const double number : {1e39, -1e39, 1e308}) {
    for (const bool big : {false, true})
      CHECK(contains(refusal(dir, {"npy", dir.write("x.npy", npy(big ? ">f8" : "<f8", "(2, 2)",
                                                                 elements<double>({1, 2, 3, number}, big)))}),
                     fmt::format("row 1 has {}, which is not in the range of float32", number)));
    CHECK(contains(refusal(dir, {"csv", dir.write("x.csv", fmt::format("a\n1.5\n{}\n", number))}),
                   "in the range of float32"));
  }
  const std::vector<double> kept = {most, -most, infinite, -infinite, 1e-300, std::nan("")};
  const json result = convert(dir, {"npy", dir.write("x.npy", npy("<f8", "(6,)", elements(kept)))});
  const auto rows = examples_of(dir, result.at("sets")[0]);
  REQUIRE(rows.size() == kept.size());
  for (size_t i = 0; i < kept.size(); i++) {
    const float value = rows[i].features().feature().at("x").float_list().value(0);
    CHECK((value == static_cast<float>(kept[i]) || (std::isnan(value) && std::isnan(kept[i]))));
  }
}

namespace {

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    files[entry.path().lexically_relative(folder)] = entry.is_directory() ? "" : read_file(entry.path());
  return files;
}

/// A table of two columns, the second of which is `value` in every row.
std::string table(int rows, int value) {
  std::string text = "k,v\n";
  for (int i = 0; i < rows; i++) text += fmt::format("{},{}\n", i, value);
  return text;
}

using Job = std::function<tool::Converted(const tool::ConvertTarget&)>;

/// One small conversion of each kind.
std::map<std::string, Job> jobs(const TempDir& dir) {
  const auto in = [&](const std::string& name, const std::string& content) {
    fs::create_directories(fs::path(dir.file(name)).parent_path());
    return dir.write(name, content);
  };
  in("classes/a/1.png", png + "one");
  in("classes/a/more/2.jpg", jpeg + "two");
  in("classes/b/3.png", png + "three");
  const std::string pixels = dir.file("classes"), csv = in("new.csv", table(9, 1)),
                    array = in("x.npy", npy("<f8", "(3,)", elements<double>({1, 2, 3}))),
                    tar = in("0.tar", tar_entry("0.cls", "1") + tar_entry("0.txt", "a") + tar_entry("1.cls", "2") +
                                          std::string(1024, '\0'));
  return {{"csv", [=](const auto& to) { return tool::convert_csv(csv, {}, std::nullopt, to); }},
          {"images", [=](const auto& to) { return tool::convert_image_classes(pixels, std::nullopt, to); }},
          {"pairs",
           [=](const auto& to) {
             return tool::convert_image_sets({{"x", pixels + "/a"}, {"y", pixels + "/a"}}, std::nullopt, to);
           }},
          {"npy",
           [=](const auto& to) {
             return tool::convert_npy({{"x", array}}, to);
           }},
          {"webdataset", [=](const auto& to) { return tool::convert_webdataset({tar}, to); }}};
}

}  // namespace

TEST_CASE("whichever call fails: all of the new data set or all of the old one, and no part of either is fed") {
  const TempDir dir;
  const bool no_archives = without_libarchive(dir);
  const std::string old = dir.file("old"), before = dir.write("old.csv", table(5, 0));
  tool::convert_csv(before, {}, std::nullopt, {old, 30});
  const auto old_files = contents(old);
  REQUIRE(old_files.size() > 2);
  size_t failures = 0;
  for (const auto& [name, job] : jobs(dir)) {
    if (name == "webdataset" && no_archives) continue;
    const auto whole = job({dir.file("new " + name), 30});
    auto new_files = contents(dir.file("new " + name));
    new_files.insert(old_files.begin(), old_files.end());  // shards with other names stay
    for (SyscallHook* hook : SyscallHook::all()) {
      const bool harmless = contains(hook->name(), "short") || contains(hook->name(), "interrupted");
      for (int64_t n = 1;; n++) {
        INFO(name << ": " << hook->name() << " " << n);
        const TempDir to;
        const std::string out = to.file("out");
        fs::copy(old, out);
        hook->fail_nth_call(n);
        std::optional<Error> error;
        tool::Converted result;
        try {
          result = job({out, 30});
        } catch (const Error& thrown) {
          error = thrown;
        }
        const bool fired = !hook->pending();
        hook->fail_nth_call(0);
        REQUIRE(error.has_value() == (fired && !harmless));
        const auto now = contents(out);
        if (error) {
          failures++;
          CHECK(error->category() == Category::io_error);
          // Without pipeline.textproto the shards may be of both.
          if (now.contains("pipeline.textproto")) REQUIRE((now == old_files || now == new_files));
          for (const auto& [file, content] : now) CHECK_FALSE((contains(file, "-part") || file[0] == '.'));
          job({out, 30});
        } else {
          CHECK(result.left_out == whole.left_out);
        }
        REQUIRE((contents(out) == new_files));
        if (!fired) break;
      }
    }
  }
  std::printf("convert: %zu failing calls\n", failures);
  CHECK(failures > 100);
}

TEST_CASE("an interrupt leaves the old data set, and a kill leaves nothing that stays") {
  const TempDir dir;
  const std::string out = dir.file("out"), large = dir.write("large.csv", table(300'000, 1));
  tool::convert_csv(dir.write("small.csv", table(5, 0)), {}, std::nullopt, {out});
  const auto before = contents(out);
  {
    const tool::Interrupt interrupt;
    std::raise(SIGTERM);
    CHECK_THROWS_WITH(tool::convert_csv(large, {}, std::nullopt, {out}), Catch::Contains("interrupted"));
  }
  const tool::Interrupt forgets;  // the signal
  CHECK((contents(out) == before));
  // As after kill -9.
  fs::create_directory(out + "/.feedline-convert");
  std::ofstream(out + "/.feedline-convert/data-00000-of-00009.tfrecord.1-2.feedline-part") << "half";
  convert(dir, {"csv", dir.file("small.csv")});
  CHECK((contents(out) == before));
}

TEST_CASE("two conversions do not write to a folder at the same time") {
  const TempDir dir;
  const std::string csv = dir.write("x.csv", "a\n1\n");
  const tool::LockedFolder lock(dir.file("refused"));
  CHECK(contains(refusal(dir, {"csv", csv}), "another feedline process is writing to this folder"));
}

TEST_CASE("an input that is written to meanwhile is told, and never makes a shard more") {
  const TempDir dir;
  const std::string csv = dir.write("x.csv", table(100'000, 1)), out = dir.file("out");
  std::string said;
  // A line is appended again and again until one falls between the beginning and the end of a conversion.
  for (int tries = 0; said.empty() && tries < 1000; tries++) {
    std::atomic<bool> done = false;
    std::thread writer([&] {
      std::ofstream file(csv, std::ios::app);
      for (; !done; std::this_thread::yield()) file << "7,1\n" << std::flush;
    });
    try {
      const tool::Converted result = tool::convert_csv(csv, {}, std::nullopt, {out, 100'000});
      CHECK(read_examples(out + "/" + result.sets[0].shards.back()).size() > 0);
    } catch (const Error& error) {  // of half a line it may say that it has too few cells
      if (error.category() == Category::io_error) said = error.message();
    }
    done = true;
    writer.join();
  }
  CHECK(contains(said, "has changed since"));

  tool::Progress progress("writing", 0);
  for (const uint64_t records : {1, 3}) {
    tool::OutputFolder folder(dir.file("counted"));
    tool::ShardWriter shards(folder, {dir.file("counted"), 1}, "data", 2, 2, progress);
    const auto write = [&] {
      for (uint64_t i = 0; i < records; i++) shards.write(bytes_of("x"), "x");
      shards.finish();
    };
    CHECK_THROWS_WITH(write(), Catch::Contains(records == 1 ? "fewer records than the 2" : "more records than the 2"));
  }
  CHECK(contents(dir.file("counted")).empty());
}
