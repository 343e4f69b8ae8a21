// How launches of the GPU's kernels are made: what needs no GPU. unpack_check compares what kernels compute.
#include "unpack/unpack_kernel.h"

#include <limits>

#include "feedline/error.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::unpack;

namespace {

UnpackSpec floats(int64_t elements) {
  UnpackSpec spec;
  spec.stored = spec.out = DType::float32;
  spec.shape = {elements};
  spec.stride_bits = {32};
  return spec;
}

}  // namespace

TEST_CASE("numbers are divided by two multiplications") {
  constexpr uint32_t most = std::numeric_limits<uint32_t>::max();
  for (const uint32_t by :
       {1u, 2u, 3u, 7u, 24u, 64u, 50176u, 65535u, 65536u, 0x7fffffffu, 0x80000000u, most - 1, most}) {
    const Divisor divisor(by);
    for (const uint64_t times : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{12345}, uint64_t{most} / by})
      for (const int64_t beside : {-1, 0, 1}) {
        const int64_t number = static_cast<int64_t>(times * by) + beside;
        if (number < 0 || number >= int64_t{most}) continue;
        const Quotient got = divide(static_cast<uint32_t>(number), divisor);
        CHECK(got.quotient == number / by);
        CHECK(got.remainder == number % by);
      }
  }
}

TEST_CASE("rows are divided among about as many threads as a GPU runs at a time") {
  UnpackArgs args{};
  args.vectors = Divisor(100);
  args.rows = 1000;
  args.in_stride = 8;
  args.out_stride = 1600;
  CHECK(spread(args, 5050) == 5000);
  CHECK(args.row_groups == 50);
  CHECK(args.in_step == 400);
  CHECK(args.out_step == 80000);
  CHECK(spread(args, 10) == 100);  // a row alone needs so many
  CHECK(spread(args, uint64_t{1} << 40) == 100'000);
}

TEST_CASE("launches that follow one another and have the same kernel share a grid") {
  const DeviceUnpacker four(floats(4)), three(floats(3));
  alignas(16) static const std::byte in[16] = {};
  alignas(16) static std::byte out[16];
  const UnpackLaunch vectors = four.launch({in, 16, out, 16, 1}, four.tables().data()),
                     elements = three.launch({in, 16, out, 16, 1}, three.tables().data());
  CHECK(vectors.kernel != elements.kernel);
  std::vector<UnpackLaunch> launches(3, vectors);
  launches.push_back(elements);
  launches.resize(20, vectors);
  CHECK(count_for_grid(launches) == 3);
  CHECK(count_for_grid(std::span(launches).subspan(3)) == 1);
  CHECK(count_for_grid(std::span(launches).subspan(4)) == launches_of_grid);
  CHECK(count_for_grid(std::span(launches).subspan(18)) == 2);
}

TEST_CASE("a row that is too large for a GPU is refused") {
  CHECK_NOTHROW(DeviceUnpacker(floats((int64_t{1} << 29) - 1)));
  CHECK_THROWS_WITH(
      DeviceUnpacker(floats(int64_t{1} << 29)),
      "a row of 536870912 elements, made from 2147483648 bytes, cannot be unpacked on a GPU, because it "
      "must have less than 2^31 elements and less than 2^31 bytes; make the row smaller, or set 'devices' to host "
      "[bad_pipeline]");
  UnpackSpec same = floats(1);  // one element, many times
  same.shape = {int64_t{1} << 31};
  same.stride_bits = {0};
  CHECK_THROWS_AS(DeviceUnpacker(same), Error);
}
