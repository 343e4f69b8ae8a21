// Unpacks rows by drawn specs, with the kernels of every SIMD level that this CPU has and with the threads of a GPU, one
// after another. Each element is compared with the definition in unpack/unpack_spec.h, computed in long double, and no
// other byte may change. A spec in which one thing makes no sense must be refused.
//
// covers: unpack/unpack.cc unpack/unpack_layout.cc unpack/unpack_reference.cc unpack/bit_plan.cc
// covers: unpack/tile_plan.cc unpack/unpack_kernel.cc unpack/unpack_thread.h unpack/cast.h
// covers: unpack/element.h unpack/channel_math.h unpack/kernels_portable.cc
// covers: unpack/kernels_common.h unpack/kernels_x86.h unpack/kernels_avx2.cc unpack/kernels_avx512.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/machine.h"
#include "draw.h"
#include "feedline/error.h"
#include "require.h"
#include "tests/support/run_threads.h"
#include "unpack/unpack.h"
#include "unpack/unpack_kernel.h"
#include "unpack/unpack_layout.h"
#include "unpack_input.h"

namespace {

using namespace feedline;
using namespace feedline::unpack;
using namespace feedline::test;

template <typename Check>
void check_refusal(bool is_wanted, const Check& check) {
  bool is_refused = false;
  try {
    check();
  } catch (const Error& error) {
    is_refused = true;
    require(error.category() == Category::bad_pipeline, "a spec is refused by another error");
  }
  require(is_refused == is_wanted, is_wanted ? "a bad spec is not refused" : "a good spec is refused");
}

void check_unpacking(Draw& draw, const UnpackSpec& spec, std::span<const Field> fields, size_t most_elements) {
  constexpr size_t counts[] = {1, 2, 5, 16, 64, 300};
  const size_t row_bytes = spec.row_bytes(), size = size_of(spec.out), row_out = fields.size() * size;
  const std::vector<ExactBlock> stored = draw_rows(draw, row_bytes);
  const size_t most = most_elements / std::max<size_t>(1, fields.size());
  std::vector<const std::byte*> rows(std::min<size_t>(draw.near(draw.one_of(counts)), std::max<size_t>(1, most)));
  for (size_t i = 0; i < rows.size(); i++) rows[i] = stored[i % stored.size()].span().last(row_bytes).data();

  // The output begins at a cache line, or elsewhere, and there may be gaps between its rows.
  const size_t before = size * draw.below(3), gap = draw.coin()   ? 0
                                                    : draw.coin() ? -row_out % 64
                                                                  : size * draw.below(9);
  const size_t stride = row_out + gap, all = rows.empty() ? 0 : rows.size() * stride - gap;
  const OutputBlock wanted(before + all);
  for (size_t i = 0; i < rows.size(); i++)
    if (i < stored.size())
      make_row(spec, fields, rows[i], wanted.data() + before + i * stride);
    else
      std::memcpy(wanted.data() + before + i * stride, wanted.data() + before + (i - stored.size()) * stride, row_out);
  const auto check = [&](const char* kernel, const auto& run) {
    const OutputBlock out(before + all);
    run(out.data() + before);
    if (std::memcmp(out.data(), wanted.data(), before + all) != 0)
      require(false, std::string(kernel) + " does not give what the definition says");
  };

  if (gap == 0) check("unpack_reference", [&](std::byte* out) { unpack_reference(spec, rows, out); });
  const auto stores = static_cast<Stores>(draw.below(3));
  for (const SimdLevel level : {SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512}) {
    if (level > simd_level()) break;
    const Unpacker unpack(spec, level, stores);
    check(unpack.kernel(), [&](std::byte* out) { unpack(rows, out, gap == 0 ? 0 : stride); });
    for (size_t i = 0; i < rows.size() && unpack.is_copy(); i++)
      require(std::memcmp(wanted.data() + before + i * stride, rows[i] + unpack.spec().bit_offset / 8, row_out) == 0,
              "a row is no copy of the stored bytes");
  }

  // A GPU finds its rows by their distance, or by number.
  const size_t in_stride = row_bytes + draw.below(9);
  const DeviceUnpacker unpack(spec);
  for (const bool by_number : {false, true}) {
    std::vector<int64_t> numbers(rows.size());
    ExactBlock in(std::string(rows.empty() ? 0 : (rows.size() - 1) * in_stride + row_bytes, '\0'));
    for (size_t i = 0; i < rows.size(); i++) {
      numbers[i] = static_cast<int64_t>(by_number ? rows.size() - 1 - i : i);
      std::memcpy(in.data() + static_cast<size_t>(numbers[i]) * in_stride, rows[i], row_bytes);
    }
    check("threads of a GPU", [&](std::byte* out) {
      const DeviceRows device{
          in.data(), in_stride, out, stride, static_cast<uint32_t>(rows.size()), by_number ? numbers.data() : nullptr};
      const UnpackLaunch launch = unpack.launch(device, unpack.tables().data());
      require(launch.empty() || std::ranges::count(unpack.kernels(), launch.kernel) == 1,
              "a kernel that was not named");
      gpu::run_threads(launch, draw.coin() ? 64 : uint64_t{1} << 20);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  // Mostly few, because they are slow; now and then more than the tiles of 16 KiB that are streamed have.
  const size_t most_elements = draw.below(8) == 7 ? 4200 : 600;
  UnpackSpec spec = draw_spec(draw, most_elements);
  std::vector<Field> fields = fields_of(spec);
  int64_t first = 0, last = 0;
  const auto by_bit = [&] { return std::ranges::minmax(fields, {}, &Field::bit); };
  if (!fields.empty()) {
    // No field may begin before the row.
    const int64_t moved = std::max<int64_t>(0, (7 - by_bit().min.bit) / 8 * 8);
    spec.bit_offset += moved;
    for (Field& field : fields) field.bit += moved;
    first = by_bit().min.bit;
    last = by_bit().max.bit;
  }
  const int64_t width = spec.stored == DType::unset ? spec.width : static_cast<int64_t>(8 * size_of(spec.stored));
  require(spec.row_bytes() == (fields.empty() ? 0 : static_cast<uint64_t>(last + width + 7) / 8),
          "another row_bytes()");
  check_refusal(false, [&] { validate(spec); });
  if (draw.below(8) == 7) {
    const bool makes_sense = change(draw, first, last, spec);
    check_refusal(!makes_sense, [&] { validate(spec); });
    constexpr int64_t limit = int64_t{1} << 31;
    const bool fits_gpu = makes_sense && spec.shape.elements() < limit && spec.row_bytes() < uint64_t{limit};
    check_refusal(!fits_gpu, [&] { (void)DeviceUnpacker(spec); });
  } else {
    check_unpacking(draw, spec, fields, most_elements);
  }
  return 0;
}
