// Compares every unpack kernel of every SIMD level, and the code that the GPU kernels run in each thread, with
// unpack_reference(), bit for bit. With --bench it also measures each level, the reference, and a plain memset of the
// same output.
//
//   unpack_check [--cases N] [--seed N]     exit code 1 and the failing spec at the first difference
//   unpack_check --bench [WORD]             only the cases with WORD in their names
//
// Rows lie next to pages that must not be touched, before and after them; outputs lie between canaries.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/machine.h"
#include "unpack/unpack.h"
#include "unpack_device.h"

using namespace feedline;
using namespace feedline::unpack;

namespace {

using Random = std::mt19937_64;

int64_t draw(Random& random, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}
bool chance(Random& random, double p) { return std::bernoulli_distribution(p)(random); }
template <typename T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[draw(random, 0, static_cast<int64_t>(values.size()) - 1)];
}

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> all;
  for (SimdLevel level : {SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512})
    if (level <= simd_level()) all.push_back(level);
  return all;
}

std::string describe(const UnpackSpec& spec) {
  std::string text = fmt::format(
      "{} -> {}, shape {}, bit {}, strides [{}]",
      spec.stored == DType::unset ? fmt::format("{} bits{}{}", spec.width, spec.sign_extend ? ", signed" : "",
                                                spec.lsb_first ? ", lsb first" : "")
                                  : fmt::format("{}{}", name(spec.stored), spec.big_endian ? ", big endian" : ""),
      name(spec.out), to_string(spec.shape), spec.bit_offset, fmt::join(spec.stride_bits, ", "));
  if (spec.channel_axis >= 0) text += fmt::format(", channel axis {}", spec.channel_axis);
  if (!spec.channel_bits.empty()) text += fmt::format(", channel bits [{}]", fmt::join(spec.channel_bits, ", "));
  if (!spec.scale.empty()) text += fmt::format(", scale [{}]", fmt::join(spec.scale, ", "));
  if (!spec.bias.empty()) text += fmt::format(", bias [{}]", fmt::join(spec.bias, ", "));
  if (spec.normalize)
    text += fmt::format(", normalize scale {} mean [{}] std [{}]", spec.normalize->scale.value_or(1),
                        fmt::join(spec.normalize->mean, ", "), fmt::join(spec.normalize->std, ", "));
  return text;
}

/// Memory between two pages that must not be touched.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_((bytes + page - 1) / page * page) {
    void* all = mmap(nullptr, bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(all) + page;
    if (bytes_ && mprotect(begin_, bytes_, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
  }
  ~Guarded() { munmap(begin_ - page, bytes_ + 2 * page); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }

 private:
  static constexpr size_t page = 4096;
  size_t bytes_;
  std::byte* begin_;
};

// --- specs ---------------------------------------------------------------------------------------------------------

std::vector<int64_t> contiguous(const Shape& shape, int64_t element_bits) {
  std::vector<int64_t> strides(shape.rank());
  int64_t stride = element_bits;
  for (size_t axis = shape.rank(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

DType random_dtype(Random& random) { return static_cast<DType>(draw(random, 2, dtype_count - 1)); }

float random_parameter(Random& random) {
  if (chance(random, 0.2))
    return one_of(random, {1.0f, -1.0f, 0.0f, -0.0f, 0.5f, 1e-38f, 3e38f, 1.0f / 255, 65504.0f, INFINITY, NAN});
  return std::normal_distribution<float>(0, 10)(random);
}

std::vector<float> random_parameters(Random& random, int64_t channels) {
  std::vector<float> values(static_cast<size_t>(one_of<int64_t>(random, {0, 1, channels})));
  for (float& value : values) value = random_parameter(random);
  return values;
}

/// Bytes of pixels whose channels lie one after another, or the other way round, and become planes.
UnpackSpec random_planes(Random& random) {
  UnpackSpec spec;
  spec.stored = one_of(random, {DType::uint8, DType::int8, DType::boolean});
  spec.out = random_dtype(random);
  const int64_t channels = draw(random, 1, 5), pixels = draw(random, 1, 12) * one_of<int64_t>(random, {1, 4, 8});
  spec.shape = {channels, pixels};
  spec.stride_bits = {8, 8 * channels};
  spec.bit_offset = 8 * one_of<int64_t>(random, {0, 4, draw(random, 0, 9)});
  if (chance(random, 0.7)) spec.channel_axis = 0;
  if (chance(random, 0.4)) {
    spec.stride_bits[0] = -8;
    spec.bit_offset += 8 * (channels - 1);
  }
  return spec;
}

void add_steps(Random& random, int64_t channels, UnpackSpec& spec) {
  if (chance(random, 0.4)) spec.scale = random_parameters(random, channels);
  if (chance(random, 0.3)) spec.bias = random_parameters(random, channels);
  if (chance(random, 0.3)) {
    Normalize& normalize = spec.normalize.emplace();
    if (chance(random, 0.6)) normalize.scale = random_parameter(random);
    normalize.mean = random_parameters(random, channels);
    normalize.std = random_parameters(random, channels);
    for (float& std : normalize.std)
      if (std == 0) std = 0.25f;
  }
}

UnpackSpec random_spec(Random& random) {
  if (chance(random, 0.1)) {
    UnpackSpec spec = random_planes(random);
    add_steps(random, spec.channel_axis < 0 ? 1 : spec.shape[0], spec);
    return spec;
  }
  UnpackSpec spec;
  if (chance(random, 0.55)) spec.stored = random_dtype(random);
  const bool is_field = spec.stored == DType::unset;
  spec.big_endian = chance(random, 0.4);
  spec.width = static_cast<int>(one_of<int64_t>(random, {1, 1, 1, draw(random, 2, 8), draw(random, 9, 32)}));
  spec.sign_extend = chance(random, 0.4);
  spec.lsb_first = chance(random, 0.5);
  spec.out = !is_field && chance(random, 0.2) ? spec.stored : random_dtype(random);

  const int64_t most = one_of<int64_t>(random, {8, 100, 5000});
  const auto rank = static_cast<size_t>(draw(random, 0, 4));
  std::vector<int64_t> lengths;
  int64_t elements = 1;
  for (size_t axis = 0; axis < rank; axis++) {
    const int64_t room = std::max<int64_t>(1, most / elements);
    lengths.push_back(
        chance(random, 0.01) ? 0 : std::min(room, one_of<int64_t>(random, {1, 2, 3, 4, 8, 24, draw(random, 1, room)})));
    elements *= std::max<int64_t>(1, lengths.back());
  }
  spec.shape = Shape(lengths);
  if (rank > 0 && chance(random, 0.7))
    spec.channel_axis = static_cast<int>(draw(random, 0, static_cast<int64_t>(rank) - 1));
  const int64_t channels = spec.channel_axis < 0 ? 1 : spec.shape[spec.channel_axis];

  // The elements are contiguous, or their axes have another order, or the strides are arbitrary.
  const int64_t unit = is_field ? 1 : 8,
                element = is_field ? spec.width : static_cast<int64_t>(8 * size_of(spec.stored));
  spec.stride_bits.resize(rank);
  const int64_t kind = draw(random, 0, 3);
  if (kind < 3) {
    std::vector<size_t> order(rank);
    for (size_t i = 0; i < rank; i++) order[i] = i;
    if (kind > 0) std::shuffle(order.begin(), order.end(), random);
    int64_t stride = element + (chance(random, 0.1) ? unit * draw(random, 0, 40) : 0);
    for (size_t i = rank; i-- > 0; stride *= std::max<int64_t>(1, spec.shape[order[i]])) {
      spec.stride_bits[order[i]] = stride;
      if (chance(random, 0.05)) stride += unit * draw(random, 0, 16);
    }
  } else {
    for (int64_t& stride : spec.stride_bits) stride = unit * draw(random, -20, 40);
  }
  if (spec.channel_axis >= 0 && channels > 0 && chance(random, 0.3)) {
    int64_t& stride = spec.stride_bits[spec.channel_axis];
    for (int64_t c = 0; c < channels; c++) spec.channel_bits.push_back(c * stride);
    stride = 0;
    if (chance(random, 0.7)) std::shuffle(spec.channel_bits.begin(), spec.channel_bits.end(), random);
  }
  spec.bit_offset = unit * draw(random, 0, 70);
  for (size_t axis = 0; axis < rank; axis++)
    if (spec.shape[axis] > 0) spec.bit_offset += std::max<int64_t>(0, -spec.stride_bits[axis] * (spec.shape[axis] - 1));
  for (int64_t bits : spec.channel_bits) spec.bit_offset += std::max<int64_t>(0, -bits);

  add_steps(random, channels, spec);
  return spec;
}

/// Fills with random bytes. Some words are special numbers: zeros, ones, the limits of types, NaN with a payload.
void fill(Random& random, std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = random();
    if (chance(random, 0.3))
      word = one_of<uint64_t>(random, {0,
                                       ~uint64_t{0},
                                       0x7fffffff7fffffff,
                                       0x8000000080000000,
                                       0x7f8000007f800001,
                                       0xff800000ffc12345,
                                       0x7c007c0103ff0001,
                                       0x7ff0000000000000,
                                       0xfff8000000000001,
                                       0x3f8000003f000000,
                                       0x40effc0000000000,
                                       0x40effe0000000000,
                                       0x477fe000477ff000,
                                       0x3380000033800001,
                                       0x43e0000000000000,
                                       0x0000000000000001,
                                       0x4f0000004f7fffff,
                                       0x00ff00ff00ff00ff,
                                       0x41dfffffffc00000,
                                       0x3ff8000000000000});
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}

// --- checks --------------------------------------------------------------------------------------------------------

bool check(const UnpackSpec& spec, size_t row_count, Random& random) {
  const size_t row_bytes = spec.row_bytes();
  const size_t row_out = static_cast<size_t>(spec.shape.elements()) * size_of(spec.out);
  // One row ends before a forbidden page, one begins after one, and the others lie between, without alignment.
  const size_t middle = std::min<size_t>(row_count, 5);
  const Guarded at_end(row_bytes), at_begin(row_bytes), between((row_bytes + 3) * middle);
  fill(random, at_end.end() - row_bytes, row_bytes);
  fill(random, at_begin.begin(), row_bytes);
  fill(random, between.begin(), (row_bytes + 3) * middle);
  std::vector<const std::byte*> rows(row_count);
  for (size_t i = 0; i < row_count; i++) {
    const int64_t place = draw(random, 0, static_cast<int64_t>(middle) + 1);
    rows[i] = place == 0   ? at_end.end() - row_bytes
              : place == 1 ? at_begin.begin()
                           : between.begin() + (row_bytes + 3) * (place - 2) + draw(random, 0, 3);
  }

  // Rows that begin at a cache line (all of them or only the first) may be written past the cache. Other outputs end at
  // a forbidden page.
  const bool of_lines = chance(random, 0.5), first_of_lines = !of_lines && chance(random, 0.5);
  const size_t gap = of_lines              ? -row_out % 64
                     : first_of_lines      ? 0
                     : chance(random, 0.5) ? 0
                                           : size_of(spec.out) * static_cast<size_t>(draw(random, 1, 9));
  const size_t stride = row_out + gap, all = row_count * stride - (row_count ? gap : 0);
  const Guarded out(all), wanted(all);
  static constexpr int canary = 0xa5;
  std::byte* want = wanted.end() - all;
  std::memset(want, canary, all);
  std::vector<std::byte> reference(row_count * row_out);
  unpack_reference(spec, rows, reference.data());
  for (size_t i = 0; i < row_count; i++) std::copy_n(reference.data() + i * row_out, row_out, want + i * stride);

  std::byte* const got = of_lines || first_of_lines ? out.begin() : out.end() - all;
  const auto check = [&](const std::string& kernel, auto&& run) {
    std::memset(out.begin(), canary, static_cast<size_t>(out.end() - out.begin()));
    run();
    if (std::memcmp(got, want, all) != 0) {
      const auto at = static_cast<size_t>(std::mismatch(got, got + all, want).first - got);
      const size_t in_row = at % stride;
      fmt::print("{}: row {} of {}, {} instead of {}\n  {}\n", kernel, at / stride, row_count,
                 in_row < row_out ? fmt::format("element {}: byte {:#04x}", in_row / size_of(spec.out), got[at])
                                  : "a byte after the row was written",
                 in_row < row_out ? fmt::format("{:#04x}", want[at]) : "nothing", describe(spec));
      return false;
    }
    const auto untouched = [](std::byte b) { return b == std::byte{canary}; };
    if (!std::all_of(out.begin(), got, untouched) || !std::all_of(got + all, out.end(), untouched)) {
      fmt::print("{}: wrote beside its output\n  {}\n", kernel, describe(spec));
      return false;
    }
    return true;
  };
  for (SimdLevel level : levels())
    for (Stores stores : {Stores::cached, Stores::streaming_copies, Stores::streaming}) {
      const Unpacker unpack(spec, level, stores);
      if (!check(unpack.kernel(), [&] { unpack(rows, got, gap ? stride : 0); })) return false;
    }

  // For a GPU the distance between rows is constant.
  const size_t in_stride = row_bytes + (chance(random, 0.5) ? -row_bytes % 8 : static_cast<size_t>(draw(random, 0, 5)));
  const Guarded packed(row_count * in_stride);
  std::byte* const in =
      chance(random, 0.5) || row_count == 0 ? packed.begin() : packed.end() - ((row_count - 1) * in_stride + row_bytes);
  for (size_t i = 0; i < row_count; i++) std::copy_n(rows[i], row_bytes, in + i * in_stride);
  const DeviceUnpacker unpack(spec);
  const size_t in_bytes = row_count == 0 ? 0 : (row_count - 1) * in_stride + row_bytes;
  if (!check(test::device_name, [&] { test::run({unpack, {in, in_bytes}, in_stride, {got, all}, stride, row_count}); }))
    return false;

  // The rows lie in another order, and each output row says by number which one it is made from.
  std::vector<int64_t> numbers(row_count);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (size_t i = 0; i < row_count; i++)
    std::copy_n(rows[i], row_bytes, in + static_cast<size_t>(numbers[i]) * in_stride);
  return check(fmt::format("{}, rows by number", test::device_name), [&] {
    test::run({unpack, {in, in_bytes}, in_stride, {got, all}, stride, row_count, numbers});
  });
}

// --- the cases that are worth a kernel of their own ----------------------------------------------------------------

struct Named {
  std::string name;
  UnpackSpec spec;
};

UnpackSpec image(int64_t side, bool chw_stored, bool chw_out, DType stored, DType out, bool normalize) {
  UnpackSpec spec;
  const auto bits = static_cast<int64_t>(8 * size_of(stored));
  const int64_t y = chw_stored ? side * bits : 3 * side * bits, x = chw_stored ? bits : 3 * bits,
                c = chw_stored ? side * side * bits : bits;
  spec.stored = stored;
  spec.out = out;
  spec.shape = chw_out ? Shape{3, side, side} : Shape{side, side, 3};
  spec.stride_bits = chw_out ? std::vector<int64_t>{c, y, x} : std::vector<int64_t>{y, x, c};
  spec.channel_axis = chw_out ? 0 : 2;
  if (normalize) spec.normalize = Normalize{1.0f / 255, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  return spec;
}

UnpackSpec fields(Shape shape, int width, DType out, bool lsb_first = false) {
  UnpackSpec spec;
  spec.width = width;
  spec.shape = shape;
  spec.stride_bits = contiguous(shape, width);
  spec.lsb_first = lsb_first;
  spec.out = out;
  return spec;
}

UnpackSpec chess_board(DType out) {
  UnpackSpec spec = fields({8, 8, 24}, 1, out);
  spec.channel_axis = 2;
  spec.stride_bits[2] = 0;
  for (int64_t c = 0; c < 24; c++) {
    spec.channel_bits.push_back(c % 6 * 4 + c / 6);
    spec.scale.push_back(c / 6 % 2 ? -1.0f : 1.0f);
  }
  return spec;
}

UnpackSpec vector_of(DType stored, DType out, int64_t length, bool big_endian = false) {
  UnpackSpec spec;
  spec.stored = stored;
  spec.out = out;
  spec.shape = length == 1 ? Shape{} : Shape{length};
  spec.stride_bits = contiguous(spec.shape, static_cast<int64_t>(8 * size_of(stored)));
  spec.big_endian = big_endian;
  return spec;
}

std::vector<Named> named_cases() {
  std::vector<Named> cases;
  for (DType out : {DType::float32, DType::float16, DType::int8})
    cases.push_back({fmt::format("chess board {}", name(out)), chess_board(out)});
  UnpackSpec planes = fields({8, 8, 24}, 1, DType::float32);
  planes.stride_bits = {8, 1, 64};
  cases.push_back({"bit planes to HWC FLOAT32", planes});
  UnpackSpec flags = fields({10}, 1, DType::float32);
  flags.bit_offset = 1536;
  cases.push_back({"chess flags FLOAT32", flags});
  UnpackSpec mate = fields({}, 1, DType::float32);
  mate.bit_offset = 1546;
  cases.push_back({"chess mate FLOAT32", mate});
  for (int width : {2, 4, 5, 8, 12, 17, 32})
    cases.push_back({fmt::format("fields of {} bits", width), fields({1024}, width, DType::float32)});
  cases.push_back({"fields of 4 bits, lsb first, INT8", fields({1024}, 4, DType::int8, true)});
  for (int64_t side : {32, 256}) {
    const std::string size = fmt::format("image {0}x{0}", side);
    for (DType out : {DType::float32, DType::float16, DType::bfloat16}) {
      cases.push_back({fmt::format("{} HWC to CHW normalized {}", size, name(out)),
                       image(side, false, true, DType::uint8, out, true)});
      cases.push_back({fmt::format("{} HWC to HWC normalized {}", size, name(out)),
                       image(side, false, false, DType::uint8, out, true)});
    }
    cases.push_back(
        {size + " CHW to HWC normalized FLOAT32", image(side, true, false, DType::uint8, DType::float32, true)});
    cases.push_back(
        {size + " CHW to CHW normalized FLOAT32", image(side, true, true, DType::uint8, DType::float32, true)});
    cases.push_back({size + " HWC to CHW UINT8", image(side, false, true, DType::uint8, DType::uint8, false)});
    cases.push_back({size + " CHW to HWC UINT8", image(side, true, false, DType::uint8, DType::uint8, false)});
    cases.push_back({size + " HWC UINT8", image(side, false, false, DType::uint8, DType::uint8, false)});
    cases.push_back(
        {size + " HWC to CHW FLOAT32 stored", image(side, false, true, DType::float32, DType::float32, false)});
  }
  cases.push_back({"label INT64", vector_of(DType::int64, DType::int64, 1)});
  cases.push_back({"label INT64 to INT32", vector_of(DType::int64, DType::int32, 1)});
  cases.push_back({"vector FLOAT32", vector_of(DType::float32, DType::float32, 1000)});
  cases.push_back({"vector FLOAT32 to FLOAT16", vector_of(DType::float32, DType::float16, 1000)});
  cases.push_back({"vector FLOAT32 to BFLOAT16", vector_of(DType::float32, DType::bfloat16, 1000)});
  cases.push_back({"vector FLOAT32 to INT8", vector_of(DType::float32, DType::int8, 1000)});
  cases.push_back({"vector FLOAT64 to FLOAT32", vector_of(DType::float64, DType::float32, 1000)});
  cases.push_back({"vector INT64 to FLOAT32", vector_of(DType::int64, DType::float32, 1000)});
  cases.push_back({"vector FLOAT16 to FLOAT32", vector_of(DType::float16, DType::float32, 1000)});
  cases.push_back({"vector UINT16 big endian to FLOAT32", vector_of(DType::uint16, DType::float32, 1000, true)});
  cases.push_back({"vector UINT8 to FLOAT32", vector_of(DType::uint8, DType::float32, 1000)});
  return cases;
}

// --- benchmark -----------------------------------------------------------------------------------------------------

/// Measures CPU time of this thread, so that other work on the machine affects only its caches, not its time.
template <typename F>
double seconds(F&& body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  body();
  return now() - start;
}

/// Prints the fastest of alternating rounds: memset of the output, then each level. Outputs rotate through a ring of
/// batches: three of 512 rows (at most 24 MB in total), or one that fits the L2 cache.
void bench(const Named& named, bool l2) {
  const UnpackSpec& spec = named.spec;
  const size_t row_bytes = spec.row_bytes();
  const size_t row_out = static_cast<size_t>(spec.shape.elements()) * size_of(spec.out);
  const size_t limit = l2 ? size_t{400} << 10 : size_t{8} << 20;
  const size_t rows_in_batch = std::clamp<size_t>(limit / std::max(row_out, row_bytes), 1, 512), batches = l2 ? 1 : 3;
  Random random(1);
  std::vector<std::byte> data(row_bytes * rows_in_batch);
  fill(random, data.data(), data.size());
  std::vector<const std::byte*> rows;
  for (size_t i = 0; i < rows_in_batch; i++) rows.push_back(data.data() + i * row_bytes);
  const Guarded ring(row_out * rows_in_batch * batches);
  const auto batch = [&](size_t i) { return ring.begin() + i % batches * rows_in_batch * row_out; };

  struct Runner {
    std::string name;
    std::optional<Unpacker> unpack;  // none: memset
    std::vector<double> seconds_per_row;
  };
  std::vector<Runner> runners;
  runners.push_back({"memset", std::nullopt, {}});
  for (SimdLevel level : levels()) {
    Unpacker unpack(spec, level);
    std::string kernel = unpack.kernel();
    runners.push_back({std::move(kernel), std::move(unpack), {}});
  }
  const auto once = [&](const Runner& runner, size_t i) {
    if (runner.unpack)
      (*runner.unpack)(rows, batch(i));
    else
      std::memset(batch(i), static_cast<int>(i), row_out * rows_in_batch);
  };
  for (int round = 0; round < 25; round++) {
    for (Runner& runner : runners) {
      size_t repeats = 3;
      for (;; repeats *= 2) {  // until it takes long enough to measure
        const double time = seconds([&] {
          for (size_t i = 0; i < repeats; i++) once(runner, i);
        });
        if (time < 0.001) continue;
        runner.seconds_per_row.push_back(time / static_cast<double>(repeats * rows_in_batch));
        break;
      }
    }
  }
  std::vector<std::byte> one(row_out * rows_in_batch);
  const double reference = seconds([&] { unpack_reference(spec, std::span(rows).first(1), one.data()); });
  fmt::print("{} ({}; reference {:.0f} ns)\n", named.name, l2 ? "L2" : "ring of 3", reference * 1e9);
  const DeviceUnpacker on_device(spec);
  if (const auto times =
          test::time({on_device, data, row_bytes, {ring.begin(), row_out * rows_in_batch}, row_out, rows_in_batch})) {
    const double bytes = static_cast<double>(row_out * rows_in_batch);
    fmt::print("  {:<26} {:>11.1f} ns/row {:>7.1f} GB/s {:>5.0f} % of cudaMemsetAsync\n", test::device_name,
               times->unpack / static_cast<double>(rows_in_batch) * 1e9, bytes / times->unpack * 1e-9,
               100 * times->memset / times->unpack);
  }
  double memset_row = 0;
  for (Runner& runner : runners) {
    const double row = *std::min_element(runner.seconds_per_row.begin(), runner.seconds_per_row.end());
    if (memset_row == 0) memset_row = row;
    fmt::print("  {:<26} {:>11.1f} ns/row {:>7.1f} GB/s {:>5.0f} %\n", runner.name, row * 1e9,
               static_cast<double>(row_out) / row * 1e-9, 100 * memset_row / row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t cases = 3000;
  uint64_t seed = 1;
  if (const auto why = test::no_device()) {
    fmt::print("skipped: {}\n", *why);
    return 77;
  }
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--bench") {
      for (const Named& named : named_cases())
        if (named.name.find(value) != std::string::npos)
          for (bool l2 : {false, true}) bench(named, l2);
      return 0;
    }
    if (argument == "--cases") cases = std::stoll(value);
    if (argument == "--seed") seed = std::stoull(value);
  }

  Random random(seed);
  for (const Named& named : named_cases())
    for (size_t rows : {1, 3, 70})
      if (rows < 70 || named.spec.shape.elements() < 10000)
        if (!check(named.spec, rows, random)) return fmt::print("  case '{}'\n", named.name), 1;
  for (int64_t i = 0; i < cases; i++) {
    const UnpackSpec spec = random_spec(random);
    const int64_t most_rows = spec.shape.elements() <= 8 ? 600 : 9;
    if (!check(spec, static_cast<size_t>(draw(random, 0, most_rows)), random))
      return fmt::print("  random case {} of --seed {}\n", i, seed), 1;
  }
  fmt::print("{} named and {} random specs, levels up to {}: equal to the reference\n", named_cases().size(), cases,
             name(simd_level()));
  return 0;
}
