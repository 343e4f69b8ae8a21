// What is kept of a batch for people to look at.
#include "trainer_bridge/batch_sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "support/catch.h"
#include "support/guarded_memory.h"
#include "trainer_bridge/picture_output.h"

using namespace feedline;

namespace {

constexpr const char* pipeline_text = R"(
source  { files: "/nowhere" }
feature { name: "image" dtype: BYTES length: 12 }
batch   { global_batch_size: 2 }
output  { name: "image" dtype: FLOAT32 feature: "image" decode_raw { stored: UINT8 shape: [2, 2, 3] layout: HWC }
          normalize { scale: 0.5 mean: 1 std: 2 } })";

template <typename T>
NamedTensor tensor(const std::string& name, DType dtype, const Shape& shape, std::vector<T>& values) {
  REQUIRE(static_cast<size_t>(shape.elements()) == values.size());
  return {.name = name, .tensor = {.data = values.data(), .dtype = dtype, .shape = shape}};
}

Batch batch_of(std::vector<NamedTensor> tensors, int64_t valid) {
  auto content = std::make_shared<BatchContent>();
  content->epoch = 3;
  content->step = 7;
  content->replica = 1;
  content->rows = tensors.at(0).tensor.shape[0];
  content->valid_count = valid;
  content->tensors = std::move(tensors);
  return Batch(content);
}

ElementSpec dense(const std::string& name, DType dtype, const Shape& shape) {
  return {.name = name, .kind = ElementSpec::Kind::dense, .dtype = dtype, .shape = shape};
}

/// A pipeline whose only output says `said` of the tensor "x".
Pipeline pipeline_of(const std::string& said, bool window = false) {
  return parse_pipeline(
      "source { files: '/nowhere' } feature { name: 'x' dtype: BYTES } batch { global_batch_size: 2 } "
      "output { name: 'x' feature: 'x' " +
      said + " } " + (window ? "window { size: 8 }" : ""));
}

std::string normalize_by(int64_t numbers) {
  return fmt::format("normalize {{ mean: [{0}] std: [{0}] }}",
                     fmt::join(std::vector<std::string>(static_cast<size_t>(numbers), "0.5"), ", "));
}

bool is_picture(const Shape& shape, const std::string& said, bool window = false) {
  return PictureOutput::of(dense("x", DType::float32, shape), pipeline_of(said, window)).has_value();
}

}  // namespace

TEST_CASE("a tensor is a picture by its last axis, or by what the pipeline says of its axes") {
  CHECK(is_picture({4, 5, 3}, ""));
  CHECK(is_picture({4, 5, 1}, normalize_by(1)));
  CHECK(is_picture({2, 4, 5, 3}, normalize_by(3)));
  CHECK(is_picture({3, 4, 5}, "decode_raw { shape: [3, 4, 5] layout: CHW }" + normalize_by(3)));
  CHECK(is_picture({3, 4, 5}, "decode_raw { shape: [4, 5, 3] layout: HWC } layout: CHW"));
  CHECK(is_picture({3, 4, 5}, "decode_image {} layout: CHW"));
  CHECK(is_picture({3, 7, 3}, "decode_image {}" + normalize_by(3)));
  CHECK(is_picture({1, 9, 5}, "unpack_bits { shape: [9, 5, 1] } layout: CHW"));

  // Without a layout several numbers of `normalize` are for the last axis: mel bands, words, columns of sensors.
  CHECK_FALSE(is_picture({1, 100, 80}, normalize_by(80)));
  CHECK_FALSE(is_picture({3, 16, 64}, normalize_by(64)));
  CHECK_FALSE(is_picture({2, 3, 16, 80}, normalize_by(80)));
  CHECK_FALSE(is_picture({3, 16, 64}, ""));
  CHECK_FALSE(is_picture({3, 7, 3}, ""));
  CHECK_FALSE(is_picture({1, 2, 30}, "decode_raw { shape: [1, 2, 30] }" + normalize_by(30)));
  CHECK_FALSE(is_picture({3, 5, 8}, "unpack_bits { shape: [3, 5, 8] }" + normalize_by(8)));
  CHECK_FALSE(is_picture({3, 5, 8}, "decode_raw { shape: [3, 5, 8] layout: HWC }" + normalize_by(8)));
  CHECK_FALSE(is_picture({4, 5, 3}, normalize_by(2)));  // is refused by check

  // The first axis of a window is one of frames.
  CHECK_FALSE(is_picture({8, 17, 3}, "", true));
  CHECK_FALSE(is_picture({3, 17, 3}, "", true));
  CHECK(is_picture({8, 4, 5, 3}, "", true));
  CHECK(is_picture({8, 2, 4, 5, 3}, "", true));

  for (const Shape& shape : {Shape{0, 5, 3}, Shape{5, 0, 3}, Shape{0, 4, 5, 3}, Shape{0, 0, 1}, Shape{5, 4, 0}})
    CHECK_FALSE(is_picture(shape, ""));
  CHECK_FALSE(is_picture({3, 0, 5}, "decode_raw { shape: [3, 0, 5] layout: CHW }"));
}

TEST_CASE("pictures of any shape are drawn as they were before normalize, and nothing beyond their memory is read") {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  constexpr int64_t axes[] = {0, 1, 2, 3, 3, 5, 80, 97};
  int drawn = 0;
  for (int round = 0; round < 4000; round++) {
    const bool window = below(4) == 0;
    std::vector<int64_t> lengths(static_cast<size_t>(1 + below(5)));
    for (int64_t& length : lengths) length = axes[below(std::ssize(axes))];
    if (window) lengths[0] = 8;
    const Shape shape(lengths);
    if (shape.elements() > 100'000) continue;
    const std::string layout = below(2) == 0 ? "HWC" : "CHW";
    const std::string raw = fmt::format("decode_raw {{ shape: [{}] layout: {} }}", fmt::join(lengths, ", "), layout);
    const int64_t numbers = below(2) == 0 ? lengths.back() : lengths[static_cast<size_t>(below(std::ssize(lengths)))];
    const std::string made[] = {"", "layout: " + layout, raw, "unpack_bits {}", "decode_image {} layout: " + layout};
    const std::string said = made[below(std::ssize(made))] + " " + (below(3) == 0 ? "" : normalize_by(numbers));
    const Pipeline pipeline = pipeline_of(said, window);
    const ElementSpec element = dense("x", DType::float32, shape);
    INFO(to_string(shape) << " window " << window << " " << said);
    const auto picture = PictureOutput::of(element, pipeline);
    BatchSample sample({element}, pipeline);

    constexpr int64_t rows = 2;
    const test::GuardedMemory memory(static_cast<size_t>(std::max<int64_t>(8, rows * shape.elements() * 4)));
    auto* const values = reinterpret_cast<float*>(memory.bytes().data());
    for (int64_t i = 0; i < rows * shape.elements(); i++) values[i] = static_cast<float>(below(250));
    auto content = std::make_shared<BatchContent>();
    content->rows = content->valid_count = rows;
    content->tensors = {
        {.name = "x", .tensor = {.data = values, .dtype = DType::float32, .shape = shape.with_rows(rows)}}};
    const Batch batch(content);
    sample.json();
    sample.take(batch);
    const Json json = sample.json();
    CHECK(json.at("outputs").size() == (picture || shape.elements() == 1 ? 1 : 0));
    if (!picture) continue;
    drawn++;
    REQUIRE(picture->frames() * picture->height() * picture->width() * picture->channels() == shape.elements());
    CHECK(picture->frames() % (window ? 8 : 1) == 0);
    // What normalize did to a value is undone, by one number for all channels or one for each.
    const int64_t pictures = rows * picture->frames(), pixels = picture->height() * picture->width();
    const float undone = said.find("normalize") != std::string::npos && numbers > 0 ? 0.5f : 1,
                added = undone == 1 ? 0 : 0.5f;
    std::vector<uint8_t> rgb(static_cast<size_t>(pixels * 3));
    picture->to_rgb(batch.at("x"), pictures - 1, rgb);
    bool right = true;
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
      for (int64_t colour = 0; colour < 3; colour++) {
        const int64_t channel = picture->channels() == 1 ? 0 : colour;
        const int64_t at = picture->channels_first() ? channel * pixels + pixel : pixel * picture->channels() + channel;
        const float value = values[(pictures - 1) * pixels * picture->channels() + at];
        right = right && rgb[static_cast<size_t>(pixel * 3 + colour)] ==
                             static_cast<uint8_t>(std::nearbyint(value * undone + added));
      }
    }
    CHECK(right);
  }
  CHECK(drawn > 200);
}

TEST_CASE("a batch's pictures and numbers are kept when somebody asks for them") {
  BatchSample sample(
      {dense("image", DType::float32, {2, 2, 3}), dense("label", DType::int32, {}),
       dense("vector", DType::float32, {10}), dense("text", DType::bytes, {}), dense("score", DType::float64, {})},
      parse_pipeline(pipeline_text));
  std::vector<float> pixels(24);
  for (size_t i = 0; i < pixels.size(); i++) pixels[i] = (static_cast<float>(i) * 0.5f - 1) / 2;  // as normalize does
  std::vector<int32_t> labels = {5, -6};
  std::vector<double> scores = {0.25, std::numeric_limits<double>::quiet_NaN()};
  std::vector<float> vectors(20);
  const Batch batch =
      batch_of({tensor("image", DType::float32, {2, 2, 2, 3}, pixels), tensor("label", DType::int32, {2}, labels),
                tensor("vector", DType::float32, {2, 10}, vectors), tensor("score", DType::float64, {2}, scores)},
               2);
  sample.take(batch);  // nobody has asked
  CHECK_FALSE(sample.wanted());
  CHECK(sample.json().is_null());
  CHECK(sample.wanted());
  sample.take(batch);
  CHECK_FALSE(sample.wanted());
  const Json json = sample.json();
  CHECK(json.at("epoch") == 3);
  CHECK(json.at("step") == 7);
  CHECK(json.at("replica") == 1);
  REQUIRE(json.at("outputs").size() == 3);
  const Json& pictures = json.at("outputs")[0].at("pictures");
  REQUIRE(pictures.size() == 2);
  CHECK(pictures[1] == Json({{"width", 2}, {"height", 2}, {"rgb", "DA0ODxAREhMUFRYX"}}));  // 12 to 23 in base64
  CHECK(json.at("outputs")[1] == Json({{"name", "label"}, {"numbers", {5, -6}}}));
  CHECK(json.at("outputs")[2] == Json({{"name", "score"}, {"numbers", {0.25, nullptr}}}));
  CHECK_FALSE(sample.wanted());  // a sample that was just taken is new enough
  CHECK(sample.json() == json);
  CHECK(sample.wanted());
}

TEST_CASE("a large picture is made smaller, filler rows are left out, and so is what would be too much") {
  constexpr int64_t side = 200;
  BatchSample sample({dense("photo", DType::uint8, {side, side, 1}), dense("n", DType::uint16, {})},
                     parse_pipeline(pipeline_text));
  constexpr int64_t rows = 2000, photo = side * side;
  std::vector<uint8_t> pixels(rows * photo);
  for (int64_t i = 0; i < photo; i++) pixels[static_cast<size_t>(i)] = i / side < side / 2 ? 10 : 20;
  std::vector<uint16_t> numbers(rows, 9);
  sample.json();
  sample.take(batch_of(
      {tensor("photo", DType::uint8, {rows, side, side, 1}, pixels), tensor("n", DType::uint16, {rows}, numbers)},
      rows));
  Json json = sample.json();
  sample.json();
  CHECK(json.at("outputs")[0].at("pictures").size() == BatchSample::most_pictures);
  CHECK(json.at("outputs")[1].at("numbers").size() == BatchSample::most_numbers);
  const Json& picture = json.at("outputs")[0].at("pictures")[0];
  CHECK(picture.at("width") == 66);  // squares of 3 pixels
  CHECK(picture.at("height") == 66);
  CHECK_THAT(picture.at("rgb").get<std::string>(), Catch::StartsWith("CgoKCgoK") && Catch::EndsWith("FBQUFBQU"));

  sample.take(batch_of(
      {tensor("photo", DType::uint8, {rows, side, side, 1}, pixels), tensor("n", DType::uint16, {rows}, numbers)}, 3));
  json = sample.json();
  CHECK(json.at("outputs")[0].at("pictures").size() == 3);
  CHECK(json.at("outputs")[1].at("numbers").size() == 3);

  // One picture is kept even if it alone is larger than most_bytes.
  constexpr int64_t large = 1100;
  BatchSample posters({dense("poster", DType::uint8, {large, large, 1})}, parse_pipeline(pipeline_text));
  std::vector<uint8_t> all(2 * large * large, 1);
  posters.json();
  posters.take(batch_of({tensor("poster", DType::uint8, {2, large, large, 1}, all)}, 2));
  CHECK(posters.json().at("outputs")[0].at("pictures").size() == 1);
}
