// Pictures through the whole feed: their tensors, broken ones, and what a pipeline may say of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "data.h"
#include "distributed.h"
#include "pictures/encode.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// A file of JPEGs and PNGs of several sizes, in turn: picture i has 20 + i columns and 30 + i rows. `broken` ones are
/// cut in half.
class Pictures {
 public:
  explicit Pictures(int count, const std::set<int>& broken = {}) {
    std::vector<std::string> records;
    for (int i = 0; i < count; i++) {
      const Pixels pixels = picture_of(20 + i, 30 + i, 3, static_cast<uint32_t>(i));
      std::string bytes = i % 2 == 0 ? to_png(pixels) : to_jpeg(pixels);
      if (broken.contains(i)) bytes.resize(bytes.size() / 2);
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({i})) +
                                      wire::entry("image", wire::bytes_feature({bytes}))));
    }
    write_records(dir_.file("pictures.tfrecord"), records);
  }
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        "source { files: 'pictures.tfrecord' } feature { name: 'id' dtype: INT64 } "
        "feature { name: 'image' dtype: BYTES } output { name: 'id' feature: 'id' } " +
            more,
        dir_.path());
  }

 private:
  TempDir dir_;
};

std::string picture(const std::string& more) { return "output { name: 'image' feature: 'image' " + more + " } "; }

}  // namespace

TEST_CASE("the middle of a picture, and the middle of a resized picture") {
  const Pictures pictures(9);
  Feeder feeder(pictures.pipeline(picture("decode_image {} crop { size: [10, 8] }") + batch_of(3, "DROP")));
  while (const Batch batch = feeder.next()) {
    const TensorView image = batch.at("image");
    CHECK((image.dtype == DType::uint8 && image.shape == Shape{3, 10, 8, 3}));
    const auto ids = batch.at("id").as<int64_t>();
    for (size_t row = 0; row < 3; row++) {
      if (ids[row] % 2 != 0) continue;  // PNGs keep every pixel
      const int64_t width = 20 + ids[row], height = 30 + ids[row];
      const Pixels pixels = picture_of(width, height, 3, static_cast<uint32_t>(ids[row]));
      const auto left = static_cast<int64_t>(std::nearbyint(static_cast<double>(width - 8) / 2));
      const auto top = static_cast<int64_t>(std::nearbyint(static_cast<double>(height - 10) / 2));
      for (int64_t y = 0; y < 10; y++)
        REQUIRE(std::memcmp(image.as<uint8_t>().data() + (row * 10 + static_cast<size_t>(y)) * 8 * 3,
                            pixels.bytes.data() + ((top + y) * width + left) * 3, 8 * 3) == 0);
    }
  }
  Feeder evaluation(pictures.pipeline(
      picture("decode_image {} resize { shorter: 16 antialias: true } crop { size: [14, 14] after_resize: true } "
              "normalize { scale: 0.00392156862745098 mean: [0.5, 0.4, 0.3] std: 0.25 } layout: CHW dtype: BFLOAT16") +
      batch_of(9, "DROP")));
  const Batch batch = evaluation.next();
  CHECK(batch.at("image").dtype == DType::bfloat16);
  CHECK(batch.at("image").shape == Shape{9, 3, 14, 14});
}

TEST_CASE("broken pictures are bad records, and change no count") {
  const Pictures pictures(40, {7, 18, 30});
  const std::string more =
      picture("decode_image { channels: 1 } resize { size: [12, 12] filter: AREA }") + batch_of(4, "DROP");
  for (const int count : {1, 2}) {
    Options options;
    options.devices = std::vector<DeviceId>(static_cast<size_t>(count), host());
    Feeder feeder(pictures.pipeline(more + "errors { on_error: SKIP_RECORD }"), options);
    std::vector<int64_t> ids;
    int64_t valid = 0;
    for (int step = 0; step < 10; step++)
      for (int replica = 0; replica < count; replica++) {
        const Batch batch = feeder.next(replica);
        valid += batch.valid_count();
        const auto mask = batch.at("@valid").as<uint8_t>();
        for (size_t row = 0; row < mask.size(); row++)
          if (mask[row]) ids.push_back(batch.at("id").as<int64_t>()[row]);
      }
    std::sort(ids.begin(), ids.end());
    CHECK(valid == 37);
    CHECK(ids.size() == 37);
    for (const int64_t bad : {7, 18, 30}) CHECK(std::find(ids.begin(), ids.end(), bad) == ids.end());
  }
  Feeder strict(pictures.pipeline(more));
  CHECK(strict.next().step() == 0);  // with record 7 the second step is not whole
  try {
    strict.next();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_image);
    CHECK(error.place().record == 7);
    CHECK(error.place().feature == "image");
    CHECK(error.message() == "the picture is cut short");
  }
}

TEST_CASE("pictures that are too large, too small, or none are bad records that say so") {
  const auto why = [](const Pictures& pictures, const std::string& more) -> std::string {
    Feeder feeder(pictures.pipeline(picture(more) + batch_of(1, "DROP")));
    try {
      while (feeder.next()) {
      }
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_image);
      return error.message();
    }
    return "no error";
  };
  const Pictures pictures(5);
  CHECK(why(pictures, "decode_image { max_pixels: 700 } resize { size: [4, 4] }") ==
        "the header says 22 x 32 pixels, but decode_image.max_pixels allows 700 pixels");
  CHECK(why(pictures, "decode_image {} crop { size: [33, 20] }") ==
        "the picture is 30 pixels high and 20 pixels wide before the crop, but crop.size is 33 x 20; resize the "
        "picture first (crop.after_resize), set crop.padding, or set a smaller crop.size");
  CHECK(why(Pictures(3, {1}), "decode_image {} resize { size: [4, 4] }") ==
        "Invalid JPEG file structure: missing SOS marker");
}

TEST_CASE("the same pictures whatever the threads, the order and the split") {
  const Pictures pictures(64);
  const std::string more =
      picture("decode_image {} crop { size: [18, 18] } resize { size: [24, 20] } dtype: FLOAT32 layout: CHW");
  std::map<int64_t, std::string> wanted;
  for (const std::string& order : {std::string(), std::string("shuffle { mode: GLOBAL } seed: 4 ")})
    for (const int threads : {1, 4})
      for (const int count : {1, 2}) {
        Options options;
        options.devices = std::vector<DeviceId>(static_cast<size_t>(count), host());
        options.threads = threads;
        Feeder feeder(pictures.pipeline(more + order + batch_of(8, "DROP")), options);
        for (int step = 0; step < 8; step++)
          for (int replica = 0; replica < count; replica++) {
            const Batch batch = feeder.next(replica);
            const TensorView image = batch.at("image");
            const size_t bytes = image.size_bytes() / static_cast<size_t>(batch.rows());
            for (size_t row = 0; row < static_cast<size_t>(batch.rows()); row++) {
              std::string pixels(static_cast<const char*>(image.data) + row * bytes, bytes);
              const auto [known, is_new] = wanted.emplace(batch.at("id").as<int64_t>()[row], pixels);
              REQUIRE(known->second == pixels);
            }
          }
      }
  CHECK(wanted.size() == 64);
}

TEST_CASE("random choices are a function of seed, epoch, sample and group, whatever the threads and ranks") {
  const Pictures pictures(48);
  const std::string shape =
      "feature: 'image' decode_image {} resize { size: [40, 30] } crop { mode: RANDOM size: [20, 20] after_resize: "
      "true ";
  const std::string more = "output { name: 'a' " + shape + "group: 'pair' } flip { group: 'pair' } } " +
                           "output { name: 'b' " + shape + "group: 'pair' } flip { group: 'pair' } } " +
                           "output { name: 'c' " + shape + "} flip {} } " + batch_of(8, "DROP");
  std::map<std::string, std::string> wanted;  // by epoch, id and output
  for (const int ranks : {1, 2, 4})
    for (const int threads : {1, 3})
      for (int rank = 0; rank < ranks; rank++) {
        Options options;
        options.rank = rank;
        options.world_size = ranks;
        options.threads = threads;
        Feeder feeder(pictures.pipeline(more + "shuffle { mode: GLOBAL } seed: 5"), options);
        for (int epoch = 0; epoch < 2; epoch++)
          while (const Batch batch = feeder.next())
            for (size_t row = 0; row < static_cast<size_t>(batch.rows()); row++)
              for (const char* output : {"a", "b", "c"}) {
                const TensorView image = batch.at(output);
                const size_t bytes = image.size_bytes() / static_cast<size_t>(batch.rows());
                std::string pixels(static_cast<const char*>(image.data) + row * bytes, bytes);
                const std::string key = std::to_string(batch.epoch()) + " " +
                                        std::to_string(batch.at("id").as<int64_t>()[row]) + " " + output;
                REQUIRE(wanted.emplace(key, pixels).first->second == pixels);
              }
      }
  REQUIRE(wanted.size() == 2 * 48 * 3);
  int differ_by_epoch = 0, differ_by_group = 0;
  for (int id = 0; id < 48; id++) {
    const std::string number = std::to_string(id);
    CHECK(wanted.at("0 " + number + " a") == wanted.at("0 " + number + " b"));
    differ_by_epoch += wanted.at("0 " + number + " a") != wanted.at("1 " + number + " a");
    differ_by_group += wanted.at("0 " + number + " a") != wanted.at("0 " + number + " c");
  }
  CHECK(differ_by_epoch > 40);
  CHECK(differ_by_group > 40);
}

TEST_CASE("all frames of a window share a random choice") {
  const TempDir dir;
  const Pixels pixels = picture_of(40, 40, 3, 8);
  const std::string bytes = to_png(pixels);
  std::vector<std::string> records;
  for (int i = 0; i < 30; i++) records.push_back(wire::example(wire::entry("image", wire::bytes_feature({bytes}))));
  write_records(dir.file("pictures.tfrecord"), records);
  Feeder feeder(
      parse_pipeline("source { files: 'pictures.tfrecord' } feature { name: 'image' dtype: BYTES } "
                     "window { size: 5 shift: 5 } " +
                         picture("decode_image {} crop { mode: RANDOM size: [9, 9] } flip {}") + batch_of(2, "DROP"),
                     dir.path()));
  std::set<std::string> samples;
  while (const Batch batch = feeder.next()) {
    CHECK(batch.at("image").shape == Shape{2, 5, 9, 9, 3});
    const auto* image = batch.at("image").as<char>().data();
    constexpr size_t frame = 9 * 9 * 3;
    for (size_t row = 0; row < 2; row++) {
      const std::string first(image + row * 5 * frame, frame);
      for (size_t i = 1; i < 5; i++) CHECK(std::string(image + (row * 5 + i) * frame, frame) == first);
      samples.insert(first);
    }
  }
  CHECK(samples.size() == 6);
}

TEST_CASE("stored pixels are cropped with padding and mirrored, as encoded ones are") {
  const TempDir dir;
  std::vector<std::string> records;
  constexpr int count = 40;
  for (int i = 0; i < count; i++) {
    const Pixels pixels = picture_of(32, 24, 3, static_cast<uint32_t>(i));
    std::string planes(pixels.bytes.size(), '\0');
    for (size_t p = 0; p < planes.size(); p++) planes[p % 3 * 32 * 24 + p / 3] = static_cast<char>(pixels.bytes[p]);
    records.push_back(
        wire::example(wire::entry("png", wire::bytes_feature({to_png(pixels)})) +
                      wire::entry("hwc", wire::bytes_feature({std::string(pixels.bytes.begin(), pixels.bytes.end())})) +
                      wire::entry("chw", wire::bytes_feature({planes}))));
  }
  write_records(dir.file("pictures.tfrecord"), records);
  const std::string shape =
      "crop { mode: RANDOM size: [24, 32] padding: 4 fill: 7 group: 'g' } flip { group: 'g' } "
      "normalize { mean: [1, 2, 3] std: 2 } } ";
  Feeder feeder(parse_pipeline(
      "source { files: 'pictures.tfrecord' } feature { name: 'png' dtype: BYTES } feature { name: 'hwc' dtype: BYTES } "
      "feature { name: 'chw' dtype: BYTES } "
      "output { name: 'a' feature: 'png' decode_image {} layout: CHW " +
          shape + "output { name: 'b' feature: 'hwc' decode_raw { shape: [24, 32, 3] layout: HWC } layout: CHW " +
          shape + "output { name: 'c' feature: 'chw' decode_raw { shape: [3, 24, 32] layout: CHW } " + shape +
          "output { name: 'd' feature: 'chw' decode_raw { shape: [3, 24, 32] layout: CHW } flip { group: 'g' } } " +
          batch_of(8, "DROP"),
      dir.path()));
  int mirrored = 0;
  while (const Batch batch = feeder.next()) {
    CHECK(batch.at("a").shape == Shape{8, 3, 24, 32});
    CHECK(batch.at("c").shape == Shape{8, 3, 24, 32});
    for (const char* other : {"b", "c"})
      REQUIRE(std::memcmp(batch.at("a").data, batch.at(other).data, batch.at("a").size_bytes()) == 0);
    const TensorView flipped = batch.at("d");
    CHECK((flipped.shape == Shape{8, 3, 24, 32} && flipped.dtype == DType::uint8));
    for (size_t row = 0; row < 8; row++) {
      const Pixels pixels = picture_of(32, 24, 3, static_cast<uint32_t>(batch.step() * 8 + row));
      const auto is_mirrored = [&](bool wanted) {
        for (size_t y = 0; y < 24; y++)
          for (size_t x = 0; x < 32; x++)
            for (size_t c = 0; c < 3; c++)
              if (flipped.as<uint8_t>()[((row * 3 + c) * 24 + y) * 32 + (wanted ? 31 - x : x)] !=
                  pixels.bytes[(y * 32 + x) * 3 + c])
                return false;
        return true;
      };
      REQUIRE(is_mirrored(true) != is_mirrored(false));
      mirrored += is_mirrored(true);
    }
  }
  CHECK((mirrored > 8 && mirrored < 32));
}

TEST_CASE("classes become vectors, and a number that is no class is a bad record") {
  const Pictures pictures(12);
  const auto pipeline = [&](const std::string& one_hot) {
    return pictures.pipeline("output { name: 'class' feature: 'id' " + one_hot + " } " + batch_of(4, "DROP"));
  };
  Feeder feeder(pipeline("one_hot { classes: 12 }")),
      smooth(pipeline("one_hot { classes: 12 } normalize { scale: 0.75 mean: -0.25 }"));
  while (const Batch batch = feeder.next()) {
    const Batch other = smooth.next();
    CHECK((batch.at("class").shape == Shape{4, 12} && batch.at("class").dtype == DType::float32));
    for (size_t row = 0; row < 4; row++)
      for (size_t k = 0; k < 12; k++) {
        const bool is_it = batch.at("id").as<int64_t>()[row] == static_cast<int64_t>(k);
        CHECK(batch.at("class").as<float>()[row * 12 + k] == (is_it ? 1.0f : 0.0f));
        CHECK(other.at("class").as<float>()[row * 12 + k] == (is_it ? 1.0f : 0.25f));
      }
  }
  Feeder short_of(pipeline("one_hot { classes: 7 }"));
  CHECK(short_of.next().step() == 0);
  try {
    short_of.next();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::wrong_value);
    CHECK((error.place().record == 7 && error.place().feature == "id"));
    CHECK(error.message() ==
          "the class is 7, but one_hot.classes is 7, which allows 0 to 6; correct one_hot.classes "
          "or the data, or write one_hot.ignore_outside");
  }
}

TEST_CASE("warnings of pictures that can be decoded are counted") {
  const TempDir dir;
  std::string bytes = to_jpeg(picture_of(40, 30, 3, 1));
  const size_t scan = bytes.find("\xff\xda");
  REQUIRE(scan != std::string::npos);
  bytes.insert(scan, 20, '\x55');  // bytes where a marker should be
  write_records(dir.file("pictures.tfrecord"),
                std::vector<std::string>(6, wire::example(wire::entry("image", wire::bytes_feature({bytes})))));
  Feeder feeder(parse_pipeline("source { files: 'pictures.tfrecord' } feature { name: 'image' dtype: BYTES } " +
                                   picture("decode_image {} resize { size: [40, 30] }") + batch_of(3, "DROP"),
                               dir.path()));
  while (feeder.next()) {
  }
  CHECK(feeder.report().decode_warnings >= 6);  // batches that were made ahead count, too
  CHECK_THAT(feeder.plan_text(), Catch::Contains("decoders of pictures"));
  CHECK(feeder.report().bad_records == 0);
}
