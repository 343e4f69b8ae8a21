// What the tool does for people who have pictures: inspect, the pipelines that it infers, show, and convert images.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "feedline/records.h"
#include "flowgraph/example_writer.h"
#include "golden/manifest.h"
#include "pictures/decode/png_decoder.h"
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
  tool::ExampleWriter example({"image", "label"});
  for (size_t i = 0; i < images.size(); i++) {
    const auto label = static_cast<int64_t>(i);
    if (!images[i].empty()) example.set_bytes(0, std::string_view(images[i]));
    example.set_ints(1, {&label, 1});
    writer.write(example.finish());
  }
  writer.close();
  return file;
}

/// Infers a pipeline for a file and writes it. It must pass `check`, or be told of pictures that do not decode, of which
/// headers say nothing.
std::string infer(const TempDir& dir, const std::string& file, bool all_decode = true) {
  const ToolResult inferred = run_tool({"inspect", "--pipeline", file});
  INFO(inferred.out << inferred.err);
  REQUIRE(inferred.code == 0);
  const std::string pipeline = dir.write("inferred.textproto", inferred.out);
  const ToolResult check = run_tool({"check", pipeline});
  INFO(check.err);
  if (all_decode) {
    REQUIRE(check.code == 0);
    CHECK(check.err.empty());
  } else {
    CHECK(contains(check.err, "[bad_image]"));
  }
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

/// A sheet of `show`, and what was printed with it.
struct Sheet {
  explicit Sheet(std::vector<std::string> arguments) {
    const TempDir dir;
    arguments.insert(arguments.begin(), "show");
    arguments.insert(arguments.end(), {"--out", dir.file("sheet.png")});
    const ToolResult result = run_tool(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    text = result.out;
    const std::string file = read_file(dir.file("sheet.png"));
    pictures::PngDecoder decoder(std::as_bytes(std::span(file)), {});
    REQUIRE(decoder.channels() == 3);
    pixels = {decoder.width(), decoder.height(), 3, {}};
    pixels.bytes.resize(static_cast<size_t>(pixels.width * pixels.height * 3));
    decoder.begin({0, 0, pixels.width, pixels.height});
    for (int64_t y = 0; y < pixels.height; y++)
      decoder.read_row(&pixels.bytes[static_cast<size_t>(y * pixels.width * 3)]);
    decoder.finish();
  }

  /// Returns a window of the sheet.
  std::vector<uint8_t> window(int64_t x, int64_t y, int64_t width, int64_t height) const {
    std::vector<uint8_t> part;
    for (int64_t row = y; row < y + height; row++) {
      const auto from = pixels.bytes.begin() + (row * pixels.width + x) * 3;
      part.insert(part.end(), from, from + width * 3);
    }
    return part;
  }
  /// Returns picture `place` of a cell, if all pictures have one size. There are 4 pixels around each cell, and 1
  /// between the pictures of a cell.
  std::vector<uint8_t> picture(int64_t row, int64_t column, int64_t side, int64_t place = 0, int64_t places = 1) const {
    const int64_t cell = places * (side + 1) - 1;
    return window(4 + column * (cell + 4) + place * (side + 1), 4 + row * (side + 4), side, side);
  }

  std::string text;
  Pixels pixels;
};

/// Returns row i of an array of uint8.
std::vector<uint8_t> row_of(const NpyArray& array, size_t i) {
  REQUIRE(array.dtype == "|u1");
  const auto bytes = array.as<uint8_t>();
  const size_t size = bytes.size() / static_cast<size_t>(array.shape[0]);
  return {bytes.begin() + static_cast<ptrdiff_t>(i * size), bytes.begin() + static_cast<ptrdiff_t>((i + 1) * size)};
}

int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); i++) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

bool is_empty(const std::vector<uint8_t>& part) {
  return std::all_of(part.begin(), part.end(), [](uint8_t byte) { return byte == 0xd0; });
}

// Six photographs of 64 x 64, cut and mirrored at random.
const std::string random_photos = "source { files: \"" + golden("photos_jpeg.tfrecord") +
                                  "\" }\n"
                                  "feature { name: \"image\" dtype: BYTES }\nfeature { name: \"label\" dtype: INT64 }\n"
                                  "shuffle { mode: GLOBAL }\nbatch { global_batch_size: 2 }\nseed: 7\n"
                                  "output { name: \"label\" feature: \"label\" }\n"
                                  "output { name: \"image\" feature: \"image\" decode_image {}\n"
                                  "  crop { mode: RANDOM random_area {} } resize { size: [32, 32] } flip {} ";

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
  const ToolResult cut = run_tool({"run", infer(dir, golden("truncated_jpeg.tfrecord"), false), "--json"});
  CHECK(cut.json().at("error").at("category") == "bad_image");
}

TEST_CASE("an inferred pipeline has a size for pictures of many, and skips those that cannot be read") {
  const TempDir dir;
  const std::string file = write_images(dir, "many.tfrecord",
                                        {to_jpeg(picture_of(300, 200, 3, 1)), broken_jpeg,
                                         to_png(picture_of(640, 480, 1, 2)), to_png(picture_of(30, 40, 3, 3))});
  const std::string pipeline = infer(dir, file, false), text = read_file(pipeline);
  INFO(text);
  CHECK(contains(
      text, "resize { size: [224, 224] antialias: true }  # choose the size; the pictures have 30 x 40 to 640 x 480 "));
  CHECK(contains(text, "max_pixels: 458752 }  # the largest picture has 307,200 pixels;"));
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

TEST_CASE("a sheet has the pictures of the first samples, and their labels beside it") {
  const TempDir dir;
  const std::string pipeline = infer(dir, golden("photos_jpeg.tfrecord"));
  const NpyArray image = dumped(pipeline, "image"), label = dumped(pipeline, "label");
  const std::vector<std::string> all = {pipeline, "--set", "batch.last_batch_policy=PARTIAL"};
  const Sheet sheet(all);
  CHECK(sheet.pixels.width == 4 + 6 * 68);
  CHECK(sheet.pixels.height == 4 + 68);
  CHECK(contains(sheet.text, "6 samples of epoch 0 in "));
  CHECK(contains(sheet.text, "sheet.png: image (64 x 64)\n"));
  for (int64_t i = 0; i < 6; i++) {
    CHECK((sheet.picture(0, i, 64) == row_of(image, static_cast<size_t>(i))));
    CHECK(contains(sheet.text, "row 1, column " + std::to_string(i + 1) + ": label " +
                                   std::to_string(label.as<int64_t>()[static_cast<size_t>(i)]) + "\n"));
  }
  CHECK(is_empty(sheet.window(0, 0, sheet.pixels.width, 4)));
  std::vector<std::string> some = all;
  some.insert(some.end(), {"--samples", "2"});
  CHECK(Sheet(some).pixels.width == 4 + 2 * 68);

  // More than one row, of one channel.
  const std::string digits = infer(dir, golden("digits_png.tfrecord"));
  const NpyArray digit = dumped(digits, "image");
  const Sheet rows({digits, "--set", "output.image.resize=size: [100, 100] filter: NEAREST", "--samples", "11"});
  CHECK(rows.pixels.width == 4 + 6 * 104);  // 9 would fit
  CHECK(rows.pixels.height == 4 + 2 * 104);
  CHECK(contains(rows.text, "row 2, column 5: label "));
  CHECK_FALSE(contains(rows.text, "row 2, column 6"));
  CHECK(is_empty(rows.picture(1, 5, 100)));
  const std::vector<uint8_t> seventh = rows.picture(1, 0, 100);
  for (size_t c = 0; c < 3; c++) CHECK(seventh[c] == digit.as<uint8_t>()[6 * 64]);
}

TEST_CASE("a sheet shows random crops as they are fed, in their own colours") {
  const TempDir dir;
  const std::string as_bytes = dir.write("bytes.textproto", random_photos + "}\n");
  const std::string normalize =
      "normalize { scale: 0.00392156862745098 mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] } ";
  for (const std::string epoch : {"0", "3"}) {
    const NpyArray expected = dumped(as_bytes, "image", {"--epoch", epoch});
    const Sheet plain({as_bytes, "--epoch", epoch}), ranks({as_bytes, "--epoch", epoch, "--replicas", "2"});
    CHECK(contains(plain.text, "6 samples of epoch " + epoch));
    CHECK((plain.pixels.bytes == ranks.pixels.bytes));
    for (const std::string& as : {normalize, normalize + "layout: CHW", normalize + "layout: CHW dtype: FLOAT16",
                                  std::string("dtype: FLOAT64"), std::string("normalize { mean: 3 std: 2 }")}) {
      INFO(as);
      const Sheet floats({dir.write("floats.textproto", random_photos + as + "}\n"), "--epoch", epoch});
      for (int64_t i = 0; i < 6; i++) {
        CHECK((plain.picture(0, i, 32) == row_of(expected, static_cast<size_t>(i))));
        CHECK(largest_difference(floats.picture(0, i, 32), row_of(expected, static_cast<size_t>(i))) <= 1);
      }
    }
  }
  CHECK((Sheet({as_bytes}).pixels.bytes != Sheet({as_bytes, "--epoch", "3"}).pixels.bytes));
}

TEST_CASE("a sheet has outputs and frames side by side, and nothing where there is no sample") {
  const TempDir dir;
  const std::string two =
      dir.write("two.textproto", random_photos + "}\n" +
                                     "output { name: \"whole\" feature: \"image\" decode_image {} resize "
                                     "{ size: [32, 32] } layout: CHW dtype: FLOAT32 }\n"
                                     "window { size: 2 shift: 1 }\n");
  const Sheet sheet({two, "--set", "batch.last_batch_policy=PAD", "--set", "shuffle="});
  const NpyArray image = dumped(two, "image", {"--set", "shuffle="});
  CHECK(image.shape == std::vector<int64_t>{5, 2, 32, 32, 3});
  CHECK(sheet.pixels.width == 4 + 5 * (4 * 33 - 1 + 4));
  CHECK(contains(sheet.text, "sheet.png: image (32 x 32, 2 frames), whole (32 x 32, 2 frames)\n"));
  for (int64_t i = 0; i < 5; i++) {
    std::vector<uint8_t> frames = sheet.picture(0, i, 32, 0, 4), second = sheet.picture(0, i, 32, 1, 4);
    frames.insert(frames.end(), second.begin(), second.end());
    CHECK((frames == row_of(image, static_cast<size_t>(i))));
  }
  // The second frame of a window is the first of the next.
  CHECK((sheet.picture(0, 0, 32, 3, 4) == sheet.picture(0, 1, 32, 2, 4)));
  CHECK(contains(sheet.text, "row 2, column 1: filler\n"));
  for (int64_t place = 0; place < 4; place++) CHECK(is_empty(sheet.picture(1, 0, 32, place, 4)));
}

TEST_CASE("show says why it cannot") {
  const TempDir dir;
  const auto refusal = [&](const std::string& pipeline, const std::string& out) {
    const ToolResult result = run_tool({"show", pipeline, "--out", out});
    CHECK(result.code == 1);
    CHECK(result.out.empty());
    CHECK_FALSE(fs::exists(out));
    return result.err;
  };
  const std::string none = dir.write(
      "none.textproto", "source { files: \"" + golden("photos_jpeg.tfrecord") +
                            "\" }\nfeature { name: \"label\" dtype: INT64 }\nbatch { global_batch_size: 2 }\n");
  CHECK_THAT(refusal(none, dir.file("sheet.png")), Catch::Contains("none of the outputs is a picture") &&
                                                       Catch::Contains("the outputs are: label (INT64 [])") &&
                                                       Catch::Contains("decode_image"));
  const std::string photos = dir.write("photos.textproto", random_photos + "}\n");
  CHECK(contains(refusal(photos, dir.file("nowhere/sheet.png")), "nowhere/sheet.png"));
  const std::string empty =
      dir.write("empty.textproto", random_photos + "}\nfilter: \"label < 0\"\nepoch { allow_empty: true }\n");
  CHECK(contains(refusal(empty, dir.file("sheet.png")), "epoch 0 has no sample"));
  CHECK(contains(refusal(infer(dir, golden("truncated_jpeg.tfrecord"), false), dir.file("sheet.png")), "[bad_image]"));
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
    const std::string exif = exif_of(1 + 5 * i % 8, false);  // as it is, and turned by 90, 180 and 270 degrees
    put_file(in + (i < 2 ? "/a/" : "/b/") + std::to_string(i),
             i % 2 ? to_png(pixels, {.exif = exif}) : to_jpeg(pixels, {.exif = exif}));
  }
  put_file(in + "/a/broken", broken_jpeg);
  const std::string files = dir.file("files"), raw = dir.file("raw");
  const ToolResult stored = run_tool({"convert", "images", in, "--out", files});
  REQUIRE(stored.code == 0);
  CHECK(contains(stored.out, "5 records"));
  CHECK(contains(stored.out, "choose the size; the pictures have 40 x 30 to 43 x 30 pixels\n"));
  CHECK(contains(stored.out, "# 1 picture that cannot be read\n"));
  const std::string pipeline = files + "/pipeline.textproto";
  CHECK(run_tool({"check", pipeline}).code == 0);
  const NpyArray resized = dumped(pipeline, "image",
                                  {"--set", "output.image.resize=size: [24, 32] antialias: true", "--set",
                                   "output.image.decode_image.apply_exif=true"});
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

  fs::remove(dir.file("sharp/y"));
  const ToolResult none = run_tool(pairs);
  CHECK(none.code == 1);
  CHECK(contains(none.err, dir.file("blurred/x") + ": cannot be decoded: "));
  CHECK(contains(none.err, "; every record has such a picture"));
}

TEST_CASE("convert images decodes a large progressive picture in CMYK, which needs 8 bytes a pixel") {
  const TempDir dir;
  const Pixels grey{2400, 2000, 4, std::vector<uint8_t>(size_t{2400} * 2000 * 4, 128)};
  put_file(dir.file("in/a/cmyk.jpg"), to_jpeg(grey, {.across = 1, .down = 1, .progressive = true, .stored = JCS_CMYK}));
  const ToolResult decoded =
      run_tool({"convert", "images", dir.file("in"), "--out", dir.file("out"), "--decode", "8", "8"});
  INFO(decoded.err);
  CHECK(decoded.code == 0);
}

TEST_CASE("the memory of decoding large progressive pictures stays in the plan") {
  // Their coefficients take 6 bytes a pixel, all at once, in each thread.
  constexpr int64_t width = 2400, height = 2000;
  const std::string jpeg =
      to_jpeg(picture_of(width, height, 3, 1), {.quality = 30, .across = 1, .down = 1, .progressive = true});
  const TempDir dir;
  write_images(dir, "large.tfrecord", std::vector<std::string>(16, jpeg));
  const std::string pipeline = dir.write(
      "large.textproto",
      "source { files: 'large.tfrecord' } feature { name: 'image' dtype: BYTES } batch { global_batch_size: 2 } "
      "output { name: 'image' feature: 'image' decode_image { max_pixels: 4800000 } resize { size: [64, 64] } }");
  const auto run = [&](const std::string& limit) {
    return run_tool({"run", pipeline, "--json", "--set", "parallelism.threads=2", "--set", "memory.limit=" + limit});
  };
  const ToolResult refused = run("1MiB");
  CHECK(refused.code == 1);
  const std::string before = "set memory.limit to at least \"", message = refused.json().at("error").at("message");
  const size_t advice = message.find(before);
  INFO(message);
  REQUIRE(advice != std::string::npos);
  const std::string least =
      message.substr(advice + before.size(), message.find('"', advice + before.size()) - advice - before.size());
  const ToolResult result = run(least);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const uint64_t peak = result.json().at("rss_peak_bytes"), limit = std::stoull(least) << 20;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have allocations of their own
  CHECK(peak <= limit);
#endif
  CHECK(peak > 6 * width * height);  // of one thread, at least
  CHECK(limit < 4 * 6 * width * height);
}

TEST_CASE("check makes rows, and fails where run would") {
  const TempDir dir;
  const auto check_records = [&](const std::vector<std::string>& records, const std::string& outputs) {
    RecordWriter writer(dir.file("a.tfrecord"));
    for (const std::string& record : records) writer.write(std::as_bytes(std::span(record)));
    writer.close();
    const std::string pipeline =
        dir.write("p.textproto",
                  "source { files: 'a.tfrecord' } feature { name: 'n' dtype: INT64 } "
                  "feature { name: 'image' dtype: BYTES default_value { bytes_value: '' } } "
                  "feature { name: 'frames' dtype: BYTES kind: FIXED_SEQUENCE } batch { global_batch_size: 1 } " +
                      outputs);
    const ToolResult checked = run_tool({"check", pipeline, "--records", "1000"});
    INFO(checked.out << checked.err);
    const ToolResult ran = run_tool({"run", pipeline, "--epochs", "1"});
    CHECK(checked.code == (ran.code == 0 ? 0 : 1));
    return checked;
  };
  const std::string png = to_png(picture_of(8, 6, 3, 1)), half = png.substr(0, png.size() / 2);
  const auto record = [](int64_t n, const std::string& image, const std::vector<std::string>& frames) {
    return wire::example(wire::entry("n", wire::int64_feature({n})) +
                         wire::entry("image", wire::bytes_feature({image})) +
                         wire::entry("frames", wire::bytes_feature(frames)));
  };
  const std::string class_of = "output { name: 'c' feature: 'n' one_hot { classes: 3 } } ",
                    picture = "output { name: 'p' feature: 'image' decode_image {} crop { size: [4, 4] } } ",
                    clip = "output { name: 'f' feature: 'frames' decode_image {} crop { size: [4, 4] } } ",
                    formula = "output { name: 'x' dtype: INT64 expression { formula: 'mod(7, n)' } } ";
  for (const std::string& outputs : {class_of, picture, clip, formula, class_of + picture + clip + formula}) {
    INFO(outputs);
    CHECK(check_records({record(1, png, {png}), record(2, png, {png, png})}, outputs).code == 0);
  }
  const std::vector<std::string> bad = {record(1, png, {png}), record(3, half, {png, half}), record(0, png, {})};
  CHECK_THAT(check_records(bad, class_of).err, Catch::Contains("the class is 3, but one_hot.classes is 3"));
  CHECK_THAT(check_records(bad, picture).err, Catch::Contains("feature 'image'"));
  CHECK_THAT(check_records(bad, clip).err, Catch::Contains("feature 'frames'"));
  CHECK_THAT(check_records(bad, formula).err, Catch::Contains("computes mod by 0"));
  const ToolResult limited = check_records(std::vector(300, record(1, png, {})), picture + "errors { } ");
  CHECK_THAT(limited.out, Catch::Contains("tried    300 records of 1 file, and all rows of 256 of them: all fit"));
  // Rows of a class take no time, so those of each record are tried.
  std::vector<std::string> late(300, record(1, png, {}));
  late.push_back(record(9, png, {}));
  CHECK_THAT(check_records(late, class_of + picture).err, Catch::Contains("the class is 9, but one_hot.classes is 3"));
  // Nobody makes the rows of an output that is not delivered.
  CHECK(check_records(bad,
                      "output { name: 'p' feature: 'image' decode_image {} crop { size: [4, 4] } internal: true } "
                      "output { name: 'id' feature: 'n' } ")
            .code == 0);
}
