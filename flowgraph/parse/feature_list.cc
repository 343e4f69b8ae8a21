#include "flowgraph/parse/feature_list.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/load.h"
#include "base/machine.h"
#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace feedline::flow {
namespace {

constexpr uint64_t continuations = 0x8080808080808080;
constexpr uint8_t step_tag = wire::tag(1, wire::delimited);  // also begins a run of packed values, and a bytes value

struct Run {
  const uint8_t* begin = nullptr;  // null: the step does not have the usual form
  uint32_t size = 0;
};

/// The 6 bytes before the run of a step in the usual form whose lengths have one byte each: 0a L KIND L-2 0a L-4. All
/// of them follow from the first length L, so one compare checks them. Precondition: length >= 4.
template <ListKind kind>
constexpr uint64_t short_header(uint64_t length) noexcept {
  constexpr uint64_t kind_tag = wire::tag(static_cast<uint32_t>(kind), wire::delimited);
  constexpr uint64_t tags = uint64_t{step_tag} | kind_tag << 16 | uint64_t{step_tag} << 32;
  constexpr uint64_t of_each = uint64_t{1} << 8 | uint64_t{1} << 24 | uint64_t{1} << 40;
  constexpr uint64_t less = uint64_t{2} << 24 | uint64_t{4} << 40;
  return tags - less + length * of_each;
}
constexpr uint32_t short_header_bytes = 6, most_short_run = 127 - 4;

/// Returns the 6 bytes at `p`. Precondition: the 2 bytes before `p` may be read.
uint64_t load_header(const uint8_t* p) noexcept { return load<uint64_t>(p - 2) >> 16; }

/// Returns the only run, or bytes value, of the step at `p`, if the step has the usual form:
///
///     0a LENGTH  KIND LENGTH  0a LENGTH | run
///
/// Each length must reach to the end of the step.
template <ListKind kind>
Run usual_run(const uint8_t* p, const uint8_t* end) noexcept {
  constexpr uint8_t kind_tag = wire::tag(static_cast<uint32_t>(kind), wire::delimited);
  // The usual form has at least short_header_bytes bytes.
  // Bound may be equal, always: no test can notice, because add_step() reads every form.
  if (end - p < short_header_bytes) return {};
  const uint32_t size = uint32_t{p[1]} - 4;
  // A run of at most most_short_run bytes is recognised by a single compare.
  // Bound may be equal, never: no test can notice, because the code for longer runs below reads short ones, too.
  if (size <= most_short_run && load_header(p) == short_header<kind>(p[1])) [[likely]] {
    p += short_header_bytes;
    // The run must end before or at `end`.
    // Bound may be equal, never: no test can notice, because add_step() reads every form.
    return size <= static_cast<uint64_t>(end - p) ? Run{p, size} : Run{};
  }
  uint32_t length;
  const uint8_t* step_end = nullptr;
  for (const uint8_t wanted : {step_tag, kind_tag, step_tag}) {
    if (p == end || *p != wanted || !(p = wire::read_size(p + 1, end, length))) return {};
    if (step_end && p + length != step_end) return {};
    step_end = p + length;
  }
  return {p, length};
}

/// Stores the values of a run after the first `count` values. Returns how many values the run has, or `unfit` if they
/// are not what is wanted, or too many.
template <ListKind kind>
uint64_t store_run(const Run& run, const FoundSteps& into, uint64_t count) noexcept {
  const uint64_t left = into.capacity - count;
  if constexpr (kind == ListKind::bytes) {
    if (left == 0 || (into.step_values != any_count && into.step_values != 1)) return wire::unfit;
    if (into.length != any_length && into.length != run.size) return wire::unfit;
    static_cast<BytesRef*>(into.values)[count] = {reinterpret_cast<const std::byte*>(run.begin), run.size};
    return 1;
  } else if constexpr (kind == ListKind::float32) {
    const uint64_t values = run.size / sizeof(float);
    // The run must have whole floats, and no more than there is room for.
    // Bound may be equal, always: no test can notice, because add_step() takes the runs that are refused here.
    if (run.size % sizeof(float) != 0 || values > left) return wire::unfit;
    if (into.step_values != any_count && into.step_values != values) return wire::unfit;
    float* const out = static_cast<float*>(into.values) + count;
    if (values == 1)
      *out = load<float>(run.begin);
    else
      std::memcpy(out, run.begin, run.size);
    return values;
  } else {
    int64_t* const out = static_cast<int64_t*>(into.values) + count;
    if (into.step_values == 1 || (run.size == 1 && into.step_values == any_count)) {
      uint64_t value;
      if (left == 0 || !wire::read_varint_before(run.begin + run.size, run.size, value)) return wire::unfit;
      *out = static_cast<int64_t>(value);
      return 1;
    }
    const uint64_t values = wire::decode_varints(run.begin, run.begin + run.size, out, left);
    return into.step_values == any_count || into.step_values == values ? values : wire::unfit;
  }
}

/// Adds steps as long as they have the usual form and are what is wanted. Returns the position at which it stopped: the
/// end, or a step that only add_step() can judge.
template <ListKind kind>
const uint8_t* add_usual_steps(const uint8_t* p, const uint8_t* end, FoundSteps& found) noexcept {
  if (p == end) return p;
  const FoundSteps into = found;  // a copy that no store to the values can change
  uint64_t count = found.count, steps = found.steps;
  // Adds at most `most_steps` steps.
  // Bound may be farther: no test can notice, because add_step() reads the remaining steps.
  while (p != end && steps < into.most_steps) {
    const Run run = usual_run<kind>(p, end);
    const uint64_t values = run.begin ? store_run<kind>(run, into, count) : wire::unfit;
    if (values == wire::unfit) break;
    count += values;
    if (into.ends) into.ends[steps] = static_cast<uint32_t>(count);
    steps++;
    p = run.begin + run.size;
  }
  found.count = count;
  found.steps = steps;
  return p;
}

/// The header of a step in the usual form that has one run of `run` bytes, at most `most_run`.
struct KnownHeader {
  static constexpr uint32_t most_run = 16000;  // then no length has more than two bytes

  KnownHeader(ListKind kind, uint32_t run) {
    uint8_t bytes[12] = {};
    const uint32_t last = run < 128 ? 2 : 3, middle = run + last < 128 ? 2 : 3;  // bytes of a tag and its length
    for (const auto& [tag, length] : {std::pair(wire::tag(1, wire::delimited), run + last + middle),
                                      {wire::tag(static_cast<uint32_t>(kind), wire::delimited), run + last},
                                      {wire::tag(1, wire::delimited), run}}) {
      bytes[size++] = static_cast<uint8_t>(tag);
      // A length from 128 on has two bytes, of which the first has its lower 7 bits.
      // Any bound: no test can notice, because no step matches a wrong header, and slower code then reads all steps.
      if (length >= 128) bytes[size++] = static_cast<uint8_t>(length | 0x80);
      // The last byte has the length, or its upper bits.
      // Any bound: no test can notice, because no step matches a wrong header, and slower code then reads all steps.
      bytes[size++] = static_cast<uint8_t>(length < 128 ? length : length >> 7);
    }
    first = load<uint64_t>(bytes) << 16 >> 16;
    end = load<uint32_t>(bytes + size - 4);
  }
  bool matches(const uint8_t* p) const noexcept {
    return load_header(p) == first && load<uint32_t>(p + size - 4) == end;
  }

  uint32_t size = 0;   // 6 to 9 bytes
  uint64_t first = 0;  // the first 6 bytes
  uint32_t end = 0;    // the last 4 bytes
};

/// A step of one float in the usual form.
constexpr uint32_t float_step_bytes = short_header_bytes + sizeof(float);
constexpr uint64_t float_header = short_header<ListKind::float32>(float_step_bytes - 2);

/// Copies the floats of steps of one float each to `out`, until it meets a step of another form or has copied `most`.
/// Returns how many it has copied; the floats after them, up to `most`, are unspecified. Precondition: `most` such
/// steps fit before the end of the list.
uint64_t copy_single_floats(const uint8_t* p, uint64_t most, float* out) noexcept {
  uint64_t steps = 0;
  for (; steps + 4 <= most; steps += 4, p += 4 * float_step_bytes) {
    uint64_t differs = 0;  // the low 6 bytes are of headers; the upper 2 bytes are of floats, and are ignored
    for (uint32_t i = 0; i < 4; i++) differs |= load<uint64_t>(p + i * float_step_bytes) ^ float_header;
    if (differs << 16 != 0) break;
    for (uint32_t i = 0; i < 4; i++) out[steps + i] = load<float>(p + i * float_step_bytes + short_header_bytes);
  }
  // Copies at most `most` steps.
  // Bound may be farther: no test can notice, because add_usual_steps() reads the remaining steps.
  for (; steps < most && load_header(p) == float_header; steps++, p += float_step_bytes)
    out[steps] = load<float>(p + short_header_bytes);
  return steps;
}

#if defined(__x86_64__)
/// What is in a vector of as many steps of one float as fit into 64 bytes.
struct SingleFloats {
  static constexpr uint32_t steps = 6;
  uint64_t header_bits = 0;           // bit b: byte b belongs to a header
  std::array<uint8_t, 64> headers{};  // the bytes of headers; 0 for all others
  std::array<uint16_t, 32> floats{};  // where the floats lie: their halves, in units of 2 bytes
};
constexpr SingleFloats single_floats = [] {
  SingleFloats all;
  for (uint32_t step = 0; step < SingleFloats::steps; step++) {
    const uint32_t begin = step * float_step_bytes;
    for (uint32_t byte = 0; byte < short_header_bytes; byte++) {
      all.header_bits |= uint64_t{1} << (begin + byte);
      all.headers[begin + byte] = static_cast<uint8_t>(float_header >> 8 * byte);
    }
    all.floats[2 * step] = static_cast<uint16_t>((begin + short_header_bytes) / 2);
    all.floats[2 * step + 1] = static_cast<uint16_t>(all.floats[2 * step] + 1);
  }
  return all;
}();

/// Does the same as copy_single_floats(), six steps at a time.
__attribute__((target("avx512f,avx512bw,avx512vl"))) uint64_t copy_six_floats(const uint8_t* p, uint64_t most,
                                                                              float* out) noexcept {
  constexpr uint32_t six = SingleFloats::steps;
  const __m512i headers = _mm512_loadu_si512(single_floats.headers.data());
  const __m512i floats = _mm512_loadu_si512(single_floats.floats.data());
  uint64_t steps = 0;
  // Copies the next `count` steps, at most six. Returns bits: which bytes of their headers differ.
  const auto copy = [&](uint64_t count) __attribute__((always_inline, target("avx512f,avx512bw,avx512vl"))) {
    const uint64_t bytes = (uint64_t{1} << count * float_step_bytes) - 1;
    const __m512i some = _mm512_maskz_loadu_epi8(bytes, p + steps * float_step_bytes);
    const __m512i values = _mm512_permutexvar_epi16(floats, some);
    _mm256_mask_storeu_epi32(out + steps, static_cast<__mmask8>((1u << count) - 1),
                             reinterpret_cast<const __m256i&>(values));
    return _mm512_mask_cmpneq_epu8_mask(bytes & single_floats.header_bits, some, headers);
  };
  uint64_t differs = 0;
  for (; steps + six <= most; steps += six)
    if ((differs = copy(six)) != 0) break;
  if (differs == 0 && (differs = copy(most - steps)) == 0) return most;
  return steps + static_cast<uint64_t>(std::countr_zero(differs)) / float_step_bytes;
}
#endif

/// Does the same as add_usual_steps() for steps of one float each.
const uint8_t* add_single_floats(const uint8_t* p, const uint8_t* end, FoundSteps& found) noexcept {
  // The number of steps for whose values there is room, and which fit before `end`.
  const uint64_t room = std::min(found.capacity - found.count, static_cast<uint64_t>(end - p) / float_step_bytes);
  float* const out = static_cast<float*>(found.values) + found.count;
#if defined(__x86_64__)
  const auto copy = simd_level() == SimdLevel::avx512 ? copy_six_floats : copy_single_floats;
#else
  const auto copy = copy_single_floats;
#endif
  const uint64_t steps = copy(p, room, out);
  found.count += steps;
  found.steps += steps;
  return p + steps * float_step_bytes;
}

/// Does the same as add_usual_steps() for steps of `values` floats each. Their size is known, so the place of each step
/// follows from the place of the step before it, and no length is read.
const uint8_t* add_float_steps(const uint8_t* p, const uint8_t* end, uint32_t values, FoundSteps& found) noexcept {
  const auto size = static_cast<uint32_t>(values * sizeof(float));
  const KnownHeader header(ListKind::float32, size);
  // The number of steps for whose values there is room, and which fit before `end`.
  const uint64_t room =
      std::min((found.capacity - found.count) / values, static_cast<uint64_t>(end - p) / (header.size + size));
  float* const out = static_cast<float*>(found.values) + found.count;
  uint64_t steps = 0;
  // Adds at most `room` steps.
  // Bound may be farther: no test can notice, because add_usual_steps() reads the remaining steps.
  for (; steps < room && header.matches(p); steps++, p += header.size + size)
    std::memcpy(out + steps * values, p + header.size, size);
  found.count += steps * values;
  found.steps += steps;
  return p;
}

/// Does the same as add_usual_steps() for steps of one integer each, which takes at most 8 bytes.
const uint8_t* add_int_steps(const uint8_t* p, const uint8_t* end, FoundSteps& found) noexcept {
  int64_t* const first = static_cast<int64_t*>(found.values) + found.count;
  int64_t* const limit = static_cast<int64_t*>(found.values) + found.capacity;
  int64_t* out = first;
  // A step with a value has more than short_header_bytes bytes.
  // Bound may be equal, farther: no test can notice, because 6 bytes hold no value; add_usual_steps() reads the rest.
  while (end - p > short_header_bytes && out != limit) {
    const uint64_t length = p[1], size = length - 4;
    // A value has 1 to 8 bytes, and the step must end before or at `end`.
    // Bound may be equal, always: no test can notice, because add_usual_steps() reads the remaining steps.
    if (size - 1 > 7 || length > static_cast<uint64_t>(end - p - 2)) break;
    if (load_header(p) != short_header<ListKind::int64>(length)) break;
    const uint8_t* const after = p + 2 + length;
    const uint64_t bytes = load<uint64_t>(after - 8) >> (64 - 8 * size);
    if ((bytes & continuations) != continuations >> 8 >> (64 - 8 * size)) break;
    *out++ = static_cast<int64_t>(wire::squeeze(bytes));
    p = after;
  }
  found.count += static_cast<uint64_t>(out - first);
  found.steps += static_cast<uint64_t>(out - first);
  return p;
}

/// Adds steps by the fastest of the functions above. Returns the position at which it stopped. Precondition:
/// may_store().
const uint8_t* add_foreseen_steps(const uint8_t* p, const uint8_t* end, FoundSteps& found) noexcept {
  switch (found.wanted) {
    case ListKind::bytes:
      return add_usual_steps<ListKind::bytes>(p, end, found);
    case ListKind::float32:
      if (found.step_values == 1) p = add_single_floats(p, end, found);
      // A KnownHeader needs a known number of floats in each step, at least 1, in at most most_run bytes.
      // Any bound: no test can notice, because add_float_steps() finds no step if its KnownHeader is impossible.
      else if (found.step_values - 1 < KnownHeader::most_run / sizeof(float))
        p = add_float_steps(p, end, static_cast<uint32_t>(found.step_values), found);
      return add_usual_steps<ListKind::float32>(p, end, found);
    default:
      if (found.step_values == 1) p = add_int_steps(p, end, found);
      return add_usual_steps<ListKind::int64>(p, end, found);
  }
}

/// Returns whether further steps may be stored: all steps so far had the right type and number of values, and there was
/// room for them.
bool may_store(const FoundSteps& found) noexcept {
  // There was room for all values so far.
  // Bound may be equal, never: no test can notice, because add_step() takes the remaining steps.
  const bool has_room = found.count <= found.capacity;
  // There must be room for the end of another step, too.
  // Any bound: no test can notice, because add_usual_steps() checks `most_steps`, and other functions note no ends.
  return !found.wrong && has_room && found.steps < found.most_steps;
}

/// Adds the step whose Feature is [p, end). Returns null, or the position at which protobuf would refuse the bytes.
const uint8_t* add_step(const uint8_t* p, const uint8_t* end, int depth, FoundSteps& found) {
  const uint64_t before = std::min(found.count, found.capacity);
  FoundValues step;
  step.wanted = found.wanted;
  step.length = found.length;
  step.values = static_cast<std::byte*>(found.values) + before * value_size(found.wanted);
  step.capacity = found.wrong ? 0 : found.capacity - before;
  if (const uint8_t* const broken = add_feature(p, end, depth, step)) return broken;
  const bool right_kind = step.found == step.wanted || step.found == ListKind::unset;
  const bool right_count = found.step_values == any_count || step.count == found.step_values;
  const bool right_length = found.length == any_length || step.other_length == any_length;
  if (!found.wrong) {
    if (right_kind && right_count && right_length)
      found.count += step.count;
    else
      found.wrong = {found.steps, step.found, step.count, right_length ? any_length : step.other_length};
  }
  if (found.ends && found.steps < found.most_steps) found.ends[found.steps] = static_cast<uint32_t>(found.count);
  found.steps++;
  return nullptr;
}

/// Calls on_step(begin, next) for each step of a FeatureList, until on_step returns a position instead of null. `next`
/// is the end of the step; on_step may set it to the end of a later step. Returns the position that on_step has
/// returned, or the position at which protobuf would refuse the fields of the list itself, or null.
const uint8_t* for_each_step(const uint8_t* p, const uint8_t* end, int depth, const auto& on_step) {
  while (p != end) {
    const uint8_t* const field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == step_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      const uint8_t* next = p + size;
      if (const uint8_t* const broken = on_step(p, next)) return broken;
      p = next;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

}  // namespace

const uint8_t* count_steps(const uint8_t* p, const uint8_t* end, int depth, uint64_t& steps) {
  return for_each_step(p, end, depth, [&](const uint8_t*, const uint8_t*&) -> const uint8_t* {
    steps++;
    return nullptr;
  });
}

const uint8_t* add_steps(const uint8_t* p, const uint8_t* end, int depth, FoundSteps& found) {
  if (may_store(found)) p = add_foreseen_steps(p, end, found);
  return for_each_step(p, end, depth, [&](const uint8_t* step, const uint8_t*& next) -> const uint8_t* {
    if (const uint8_t* const broken = add_step(step, next, depth - 1, found)) return broken;
    if (may_store(found)) next = add_foreseen_steps(next, end, found);
    return nullptr;
  });
}

}  // namespace feedline::flow
