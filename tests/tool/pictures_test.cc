// What the tool does for people who have pictures: inspect, the pipelines that it infers, and convert images.
#include <filesystem>
#include <fstream>

#include "feedline/records.h"
#include "golden/manifest.h"
#include "pictures/encode.h"
#include "support/catch.h"
#include "tool.h"
#include "tool/convert/example_writer.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& name) { return std::string(FEEDLINE_GOLDEN) + "/images/" + name; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A header that promises a picture, and no more.
const std::string broken_jpeg = "\xff\xd8\xff\xe0";

/// Writes a file of records with `image`, as long as there is one, and `label`, their number.
std::string write_images(const TempDir& dir, const std::string& name, const std::vector<std::string>& images) {
  const std::string file = dir.file(name);
  RecordWriter writer(file);
  cli::ExampleWriter example({"image", "label"});
  for (size_t i = 0; i < images.size(); i++) {
    const auto label = static_cast<int64_t>(i);
    if (!images[i].empty()) example.set_bytes(0, std::string_view(images[i]));
    example.set_ints(1, {&label, 1});
    writer.write(example.finish());
  }
  writer.close();
  return file;
}

/// Infers a pipeline for a file, which must pass `check`, and writes it.
std::string infer(const TempDir& dir, const std::string& file) {
  const ToolResult inferred = run_tool({"inspect", "--pipeline", file});
  INFO(inferred.out << inferred.err);
  REQUIRE(inferred.code == 0);
  const std::string pipeline = dir.write("inferred.textproto", inferred.out);
  const ToolResult check = run_tool({"check", pipeline});
  INFO(check.err);
  REQUIRE(check.code == 0);
  CHECK(check.err.empty());
  return pipeline;
}

/// Dumps a pipeline, all of its samples, and returns the array of an output.
NpyArray dumped(const std::string& pipeline, const std::string& output, const std::vector<std::string>& more = {}) {
  const TempDir dir;
  std::vector<std::string> arguments = {"dump",          pipeline, "--out",
                                        dir.file("out"), "--set",  "batch.last_batch_policy=PARTIAL"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ToolResult result = run_tool(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return load_npy(dir.file("out/" + output + ".npy"));
}

}  // namespace

TEST_CASE("inspect names format, sizes and channels of pictures") {
  const TempDir dir;
  const std::string file = write_images(dir, "many.tfrecord",
                                        {to_jpeg(picture_of(40, 30, 3, 1)), to_jpeg(picture_of(20, 50, 1, 2)),
                                         to_png(picture_of(33, 44, 4, 3)), broken_jpeg});
  const json feature = run_tool({"inspect", "--json", file}).json().at("features")[0];
  CHECK(feature.at("name") == "image");
  CHECK(feature.at("pictures") == json::parse(R"({"jpeg": 2, "png": 1, "unreadable": 1, "one_channel": 1,
      "three_channels": 2, "width_min": 20, "width_max": 40, "height_min": 30, "height_max": 50, "one_size": false,
      "pixels_max": 1452})"));
  CHECK(contains(run_tool({"inspect", file}).out,
                 "(JPEG and PNG, 20 x 30 to 40 x 50, 1 and 3 channels, 1 cannot be read)"));
  CHECK(contains(run_tool({"inspect", golden("photos_png.tfrecord")}).out, "(PNG, 64 x 64, 3 channels)"));
  CHECK(contains(run_tool({"inspect", golden("digits_png.tfrecord")}).out, "(PNG, 8 x 8, 1 channel)"));
  const std::string text = write_images(dir, "text.tfrecord", {"text", broken_jpeg, "text"});
  CHECK_FALSE(run_tool({"inspect", "--json", text}).json().at("features")[0].contains("pictures"));
}

TEST_CASE("inferred pipelines decode pictures") {
  for (const std::string name : {"digits_png", "photos_png", "photos_jpeg", "odd_size_jpeg", "grey_as_rgb_jpeg"}) {
    INFO(name);
    const TempDir dir;
    const std::string pipeline = infer(dir, golden(name + ".tfrecord"));
    const GoldenCase& c = golden_case("images/" + name);
    const auto stored = load_npz(c.npz);
    const NpyArray image = dumped(pipeline, "image"), label = dumped(pipeline, "label");
    CHECK((label.bytes == stored.at("f1.dense").bytes));
    NpyArray expected = stored.at("out.image.pixels");
    if (name == "grey_as_rgb_jpeg") {  // TensorFlow was asked for three channels
      expected.shape.back() = 1;
      for (size_t i = 0; i < expected.bytes.size() / 3; i++) expected.bytes[i] = expected.bytes[3 * i];
      expected.bytes.resize(expected.bytes.size() / 3);
    }
    CHECK(image.shape == expected.shape);
    CHECK((image.bytes == expected.bytes));
  }
  for (const std::string name : {"cifar_like", "digits_raw", "photos_raw", "pairs_raw", "pairs_jpeg"}) {
    INFO(name);
    const TempDir dir;
    const ToolResult fed = run_tool({"run", infer(dir, golden(name + ".tfrecord")), "--json"});
    INFO(fed.err);
    CHECK(fed.code == 0);
  }
  const TempDir dir;  // headers do not say that pictures are cut short
  const ToolResult cut = run_tool({"run", infer(dir, golden("truncated_jpeg.tfrecord")), "--json"});
  CHECK(cut.json().at("error").at("category") == "bad_image");
}

TEST_CASE("an inferred pipeline has a size for pictures of many, and skips those that cannot be read") {
  const TempDir dir;
  const std::string file = write_images(dir, "many.tfrecord",
                                        {to_jpeg(picture_of(300, 200, 3, 1)), broken_jpeg,
                                         to_png(picture_of(640, 480, 1, 2)), to_png(picture_of(30, 40, 3, 3))});
  const std::string pipeline = infer(dir, file), text = read_file(pipeline);
  INFO(text);
  CHECK(contains(
      text, "resize { size: [224, 224] antialias: true }  # choose the size; pictures have 30 x 40 to 640 x 480\n"));
  CHECK(contains(text, "max_pixels: 393216 }  # the largest picture has 307,200;"));
  CHECK(contains(text, "errors { on_error: SKIP_RECORD }  # 1 picture that cannot be read\n"));
  CHECK(dumped(pipeline, "image").shape == std::vector<int64_t>{3, 224, 224, 3});
  CHECK(dumped(pipeline, "label").as<int64_t>()[1] == 2);

  const std::string grey = read_file(infer(
      dir, write_images(dir, "grey.tfrecord", {to_jpeg(picture_of(9, 5, 1, 1)), to_png(picture_of(7, 6, 1, 1))})));
  CHECK(contains(grey, "decode_image { channels: 1 max_pixels: 65536 }"));
  CHECK(contains(grey, "size: [6, 9]"));

  // A record without a picture, where there is nothing to decode.
  const std::string gap = infer(dir, write_images(dir, "gap.tfrecord", {to_jpeg(picture_of(9, 5, 1, 1)), ""}));
  CHECK(contains(read_file(gap), "delivered as they are, because"));
  CHECK_FALSE(contains(read_file(gap), "decode_image"));
  CHECK(run_tool({"run", gap}).code == 0);
}

namespace {

void put_file(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("convert images writes a pipeline that decodes them, or pixels") {
  const TempDir dir;
  const std::string in = dir.file("in");
  for (int i = 0; i < 4; i++) {
    const Pixels pixels = picture_of(40 + i, 30, 3, static_cast<uint32_t>(i));
    put_file(in + (i < 2 ? "/a/" : "/b/") + std::to_string(i), i % 2 ? to_png(pixels) : to_jpeg(pixels));
  }
  put_file(in + "/a/broken", broken_jpeg);
  const std::string files = dir.file("files"), raw = dir.file("raw");
  const ToolResult stored = run_tool({"convert", "images", in, "--out", files});
  REQUIRE(stored.code == 0);
  CHECK(contains(stored.out, "5 records"));
  CHECK(contains(stored.out, "choose the size; pictures have 40 x 30 to 43 x 30\n"));
  CHECK(contains(stored.out, "# 1 picture that cannot be read\n"));
  const std::string pipeline = files + "/pipeline.textproto";
  CHECK(run_tool({"check", pipeline}).code == 0);
  const NpyArray resized = dumped(pipeline, "image", {"--set", "output.image.resize=size: [24, 32] antialias: true"});
  CHECK(resized.shape == std::vector<int64_t>{4, 24, 32, 3});

  const ToolResult decoded =
      run_tool({"convert", "images", in, "--out", raw, "--decode", "24", "32", "--shard-size", "4KB"});
  INFO(decoded.err);
  REQUIRE(decoded.code == 0);
  CHECK(contains(decoded.err, in + "/a/broken: cannot be decoded: "));
  CHECK(contains(decoded.out, "4 records"));
  CHECK(contains(decoded.out, "decode_raw { stored: UINT8 shape: [24, 32, 3] layout: HWC }"));
  const ToolResult check = run_tool({"check", raw + "/pipeline.textproto"});
  CHECK(check.code == 0);
  CHECK(check.err.empty());
  const NpyArray pixels = dumped(raw + "/pipeline.textproto", "image");
  CHECK(pixels.shape == resized.shape);
  CHECK((pixels.bytes == resized.bytes));
  const auto labels = dumped(raw + "/pipeline.textproto", "label");
  CHECK(std::vector<int64_t>(labels.as<int64_t>().begin(), labels.as<int64_t>().end()) ==
        std::vector<int64_t>{0, 0, 1, 1});

  // A record is left out if one of its pictures is broken.
  put_file(dir.file("sharp/x"), to_png(picture_of(8, 8, 1, 1)));
  put_file(dir.file("sharp/y"), to_png(picture_of(8, 8, 1, 2)));
  put_file(dir.file("blurred/x"), broken_jpeg);
  put_file(dir.file("blurred/y"), to_png(picture_of(8, 8, 1, 3)));
  const std::vector<std::string> pairs = {"convert",
                                          "images",
                                          "--feature",
                                          "sharp=" + dir.file("sharp"),
                                          "--feature",
                                          "blurred=" + dir.file("blurred"),
                                          "--decode",
                                          "8",
                                          "8",
                                          "--out",
                                          dir.file("pairs")};
  CHECK(contains(run_tool(pairs).out, "1 record,"));
  const NpyArray sharp = dumped(dir.file("pairs/pipeline.textproto"), "sharp");
  const Pixels grey = picture_of(8, 8, 1, 2);
  REQUIRE(sharp.bytes.size() == grey.bytes.size() * 3);
  for (size_t i = 0; i < grey.bytes.size(); i++) CHECK(sharp.as<uint8_t>()[i * 3 + i % 3] == grey.bytes[i]);

  put_file(dir.file("bad/a/x"), broken_jpeg);
  const ToolResult none =
      run_tool({"convert", "images", dir.file("bad"), "--out", dir.file("none"), "--decode", "8", "8"});
  CHECK(none.code == 1);
  CHECK(contains(none.err, "bad/a/x: no picture can be decoded"));
}
