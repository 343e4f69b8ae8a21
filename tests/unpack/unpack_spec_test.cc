// Examples of what the definition of unpacking says, and the specs that are refused.
#include <vector>

#include "feedline/error.h"
#include "support/catch.h"
#include "unpack/unpack.h"
#include "unpack/unpack_layout.h"

using namespace feedline;
using namespace feedline::unpack;

namespace {

UnpackSpec bits(Shape shape, int width, DType out) {
  UnpackSpec spec;
  spec.width = width;
  spec.shape = shape;
  int64_t stride = width;
  spec.stride_bits.resize(shape.rank());
  for (size_t axis = shape.rank(); axis-- > 0; stride *= shape[axis]) spec.stride_bits[axis] = stride;
  spec.out = out;
  return spec;
}

template <typename T>
std::vector<T> reference(const UnpackSpec& spec, std::vector<uint8_t> row) {
  REQUIRE(spec.row_bytes() <= row.size());
  std::vector<T> out(static_cast<size_t>(spec.shape.elements()));
  const std::byte* rows[] = {reinterpret_cast<const std::byte*>(row.data())};
  unpack_reference(spec, rows, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

std::string refusal(const UnpackSpec& spec) {
  try {
    const Unpacker unpack(spec);
    return "accepted";
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    return error.message();
  }
}

}  // namespace

TEST_CASE("bits in both orders, as np.unpackbits has them") {
  UnpackSpec spec = bits({8}, 1, DType::uint8);
  CHECK(reference<uint8_t>(spec, {0b11010000}) == std::vector<uint8_t>{1, 1, 0, 1, 0, 0, 0, 0});
  spec.lsb_first = true;
  CHECK(reference<uint8_t>(spec, {0b11010000}) == std::vector<uint8_t>{0, 0, 0, 0, 1, 0, 1, 1});
}

TEST_CASE("fields of several bits, signed and not, across bytes") {
  UnpackSpec spec = bits({2}, 12, DType::int32);
  CHECK(reference<int32_t>(spec, {0xab, 0xcd, 0xef}) == std::vector<int32_t>{0xabc, 0xdef});
  spec.sign_extend = true;
  CHECK(reference<int32_t>(spec, {0xab, 0xcd, 0xef}) == std::vector<int32_t>{0xabc - 0x1000, 0xdef - 0x1000});
  spec.lsb_first = true;
  CHECK(reference<int32_t>(spec, {0xab, 0xcd, 0x0f}) == std::vector<int32_t>{0xdab - 0x1000, 0x0fc});
  spec = bits({}, 32, DType::int64);
  CHECK(reference<int64_t>(spec, {0xff, 0xff, 0xff, 0xfe}) == std::vector<int64_t>{0xfffffffe});
  spec = bits({2}, 1, DType::int8);
  spec.sign_extend = true;
  CHECK(reference<int8_t>(spec, {0x40}) == std::vector<int8_t>{0, -1});
}

TEST_CASE("scale, bias, channel order; a zero that is scaled stays +0") {
  UnpackSpec spec = bits({2, 3}, 1, DType::float32);
  spec.stride_bits = {3, 0};
  spec.channel_axis = 1;
  spec.channel_bits = {2, 0, 1};
  spec.scale = {1, -1, 2};
  const std::vector<float> got = reference<float>(spec, {0b10101100});
  CHECK(got == std::vector<float>{1, -1, 0, 1, 0, 2});
  CHECK_FALSE(std::signbit(got[4]));
  spec.scale.clear();
  spec.bias = {0.5f};
  CHECK(reference<float>(spec, {0b10101100}) == std::vector<float>{1.5f, 1.5f, 0.5f, 1.5f, 0.5f, 1.5f});
}

TEST_CASE("stored elements: byte order, axes, normalize") {
  UnpackSpec spec;
  spec.stored = DType::uint16;
  spec.big_endian = true;
  spec.out = DType::int32;
  spec.shape = {2, 2};
  spec.stride_bits = {16, 32};
  CHECK(reference<int32_t>(spec, {0, 1, 0, 2, 1, 0, 255, 255}) == std::vector<int32_t>{1, 256, 2, 65535});
  CHECK(spec.row_bytes() == 8);
  spec.stored = DType::uint8;
  spec.out = DType::float32;
  spec.shape = {2};
  spec.stride_bits = {8};
  spec.channel_axis = 0;
  spec.normalize = Normalize{0.5f, {1, 2}, {4, 8}};
  CHECK(reference<float>(spec, {10, 20}) == std::vector<float>{1, 1});
}

TEST_CASE("a row's bytes end with its last field") {
  UnpackSpec spec = bits({10}, 1, DType::float32);
  spec.bit_offset = 1536;
  CHECK(spec.row_bytes() == 194);
  spec.stride_bits = {-1};
  CHECK(spec.row_bytes() == 193);
  CHECK(bits({0}, 1, DType::float32).row_bytes() == 0);
  CHECK(bits({}, 9, DType::float32).row_bytes() == 2);
}

TEST_CASE("an output without elements is nothing, and asks nothing of its rows") {
  const Unpacker unpack(bits({3, 0}, 1, DType::float32));
  const std::byte* rows[] = {nullptr, nullptr};
  unpack(rows, nullptr);
  CHECK(std::string(unpack.kernel()) == "empty");
}

TEST_CASE("channels may lie nearly 2^52 bits apart, however many there are") {
  UnpackSpec spec = bits({4096}, 1, DType::uint8);
  spec.channel_axis = 0;
  spec.channel_bits.assign(4096, 0);
  spec.channel_bits[1] = (int64_t{1} << 52) - 1;
  validate(spec);
  CHECK(Layout(spec).channel_offset.size() == 4096);
}

TEST_CASE("the level asked for is the level that runs") {
  const UnpackSpec spec = bits({8, 8, 24}, 1, DType::float32);
  CHECK(std::string(Unpacker(spec, SimdLevel::portable).kernel()) == "bits/portable");
  const ScopedSimdLevel portable(SimdLevel::portable);
  CHECK(std::string(Unpacker(spec).kernel()) == "bits/portable");
}

TEST_CASE("specs that make no sense are refused, and why") {
  const UnpackSpec good = bits({4, 3}, 1, DType::float32);
  CHECK(refusal(good) == "accepted");
  const auto with = [&](auto&& change) {
    UnpackSpec spec = good;
    change(spec);
    return refusal(spec);
  };
  using S = UnpackSpec;
  CHECK(with([](S& s) { s.out = DType::bytes; }) ==
        "an output cannot have the dtype BYTES; write a type of numbers: BOOL, UINT8, INT8, UINT16, INT16, UINT32, "
        "INT32, INT64, FLOAT16, BFLOAT16, FLOAT32 or FLOAT64");
  CHECK(with([](S& s) { s.stored = DType::bytes; }) == "the stored elements of a row must be numbers, not BYTES");
  CHECK(with([](S& s) { s.width = 33; }) == "a field must have 1 to 32 bits, not 33");
  CHECK(with([](S& s) { s.width = 0; }) == "a field must have 1 to 32 bits, not 0");
  CHECK(with([](S& s) { s.stride_bits = {1}; }) == "shape [4, 3] has 2 axes, but there are 1 strides");
  CHECK(with([](S& s) { s.shape = {4, -3}; }) == "shape [4, -3] has a negative axis, or more than 2^40 elements");
  CHECK(with([](S& s) {
          s.shape = {int64_t{1} << 40, int64_t{1} << 40};
        }) == "shape [1099511627776, 1099511627776] has a negative axis, or more than 2^40 elements");
  CHECK(with([](S& s) { s.channel_axis = 2; }) == "axis 2 of shape [4, 3] does not exist");
  CHECK(with([](S& s) {
          s.scale = {1, 2, 3};
        }) == "'scale' has 3 values for 1 channels; write one value for all channels, or one value for each channel");
  CHECK(with([](S& s) {
          s.channel_axis = 1, s.bias = {1, 2};
        }) == "'bias' has 2 values for 3 channels; write one value for all channels, or one value for each channel");
  CHECK(with([](S& s) {
          s.normalize = Normalize{{}, {1, 2}, {}};
        }) == "'mean' has 2 values for 1 channels; write one value for all channels, or one value for each channel");
  CHECK(with([](S& s) {
          s.normalize = Normalize{{}, {}, {0}};
        }) == "normalize.std is 0, and values are divided by it; write the standard deviation of the channel, or 1");
  CHECK(with([](S& s) {
          s.channel_axis = 1, s.channel_bits = {0, 1};
        }) == "the channel order has 2 entries for 3 channels");
  CHECK(with([](S& s) { s.channel_bits = {0}; }) == "the channel order has 1 entries for 1 channels");
  CHECK(with([](S& s) { s.stored = DType::uint8; }) ==
        "elements of UINT8 must begin at whole bytes; use offsets and strides that are multiples of 8 bits");
  CHECK(with([](S& s) { s.stride_bits = {-1, 1}; }) == "a field would begin before the first bit of its row");
  CHECK(with([](S& s) {
          s.stride_bits = {INT64_MAX, INT64_MAX};
        }) == "a field would begin more than 2^52 bits after the beginning of its row");
}
