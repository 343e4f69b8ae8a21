// What is kept of a batch for people to look at.
#include "trainer_bridge/batch_sample.h"

#include <limits>
#include <memory>

#include "support/catch.h"

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

}  // namespace

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
