#include "ranks/collective_call.h"

#include <fmt/format.h>

#include <array>

#include "base/audit.h"

namespace feedline::ranks {
namespace {

using Kind = CollectiveCall::Kind;

template <typename... Args>
[[noreturn]] void refuse_call(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Category::bad_pipeline, fmt::format(format, std::forward<Args>(args)...));
}

// Returns "?" for a kind that this version does not know. Such a kind may come from another rank.
const char* name(Kind kind) {
  constexpr std::array names = {"all_gather",   "broadcast", "all_reduce", "reduce_scatter",
                                "send_receive", "barrier",   "announce"};
  static_assert(names.size() == static_cast<size_t>(Kind::announce) + 1);
  const auto index = static_cast<size_t>(kind);
  return index < names.size() ? names[index] : "?";
}

const char* name(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::min ? "min" : "max";
}

// Returns "?" for a dtype that this version does not know. Such a dtype may come from another rank.
std::string_view name_of(DType dtype) { return static_cast<int>(dtype) < dtype_count ? feedline::name(dtype) : "?"; }

void check_rank(const char* call, int rank, int size) {
  if (rank < 0 || rank >= size)
    refuse_call("{}: there is no rank {}; the ranks are numbered from 0 to {}", call, rank, size - 1);
}

CollectiveCall reduction_call(Kind kind, const TensorView& data, Reduction reduction) {
  if (size_of(data.dtype) == 0 || data.dtype == DType::boolean)
    refuse_call("{}: {} cannot be reduced; use a numeric dtype", name(kind), feedline::name(data.dtype));
  return {.kind = kind, .dtype = data.dtype, .reduction = reduction, .bytes = data.size_bytes()};
}

}  // namespace

CollectiveCall all_gather_call(size_t mine, size_t all, int size) {
  if (all != mine * static_cast<size_t>(size))
    refuse_call("all_gather: the output has {} bytes, but {} ranks send {} bytes each; make an output of {} bytes", all,
                size, mine, mine * static_cast<size_t>(size));
  return {.kind = Kind::all_gather, .bytes = mine};
}

CollectiveCall broadcast_call(size_t bytes, int root, int size) {
  check_rank("broadcast", root, size);
  return {.kind = Kind::broadcast, .root = root, .bytes = bytes};
}

CollectiveCall all_reduce_call(const TensorView& data, Reduction reduction) {
  return reduction_call(Kind::all_reduce, data, reduction);
}

CollectiveCall announce_call(std::span<const CollectiveCall> calls) {
  uint64_t hash = 0;
  for (const CollectiveCall& call : calls)
    hash = mix64(hash ^ call.bytes ^ uint64_t{static_cast<uint8_t>(call.dtype)} << 48 ^
                 uint64_t{static_cast<uint8_t>(call.reduction)} << 56);
  return {.kind = Kind::announce, .root = static_cast<int32_t>(calls.size()), .bytes = hash};
}

CollectiveCall reduce_scatter_call(const TensorView& data, const TensorView& mine, Reduction reduction, int size) {
  if (mine.dtype != data.dtype || data.size_bytes() != mine.size_bytes() * static_cast<size_t>(size))
    refuse_call(
        "reduce_scatter: the input is {} {}, and the output of each of the {} ranks is {} {}; both must have the same "
        "dtype, and the input must be {} times as large as the output",
        feedline::name(data.dtype), to_string(data.shape), size, feedline::name(mine.dtype), to_string(mine.shape),
        size);
  return reduction_call(Kind::reduce_scatter, data, reduction);
}

CollectiveCall send_receive_call(std::span<const Transport::Part> sends, std::span<const Transport::Part> receives,
                                 int size) {
  for (const auto parts : {sends, receives})
    for (const Transport::Part& part : parts) check_rank("send_receive", part.rank, size);
  return {.kind = Kind::send_receive};
}

std::string to_string(const CollectiveCall& call) {
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return fmt::format("{}({}) of {} bytes of {}", name(call.kind), name(call.reduction), call.bytes,
                         name_of(call.dtype));
    case Kind::broadcast:
      return fmt::format("{} of {} bytes from rank {}", name(call.kind), call.bytes, call.root);
    case Kind::all_gather:
      return fmt::format("{} of {} bytes", name(call.kind), call.bytes);
    case Kind::announce:
      return fmt::format("{} of {} calls (hash {:x})", name(call.kind), call.root, call.bytes);
    default:
      return name(call.kind);
  }
}

Error not_announced(const CollectiveCall& call, const CollectiveCall& announced, uint64_t number) {
  return Error(Category::bad_pipeline,
               fmt::format("call {}: {} was announced, but {} is made; make the calls in the order in which announce() "
                           "got them",
                           number, to_string(announced), to_string(call)));
}

std::optional<Error> disagreement(std::span<const CollectiveCall> calls, uint64_t number) {
  for (size_t rank = 1; rank < calls.size(); rank++)
    if (calls[rank] != calls[0])
      return Error(
          Category::bad_pipeline,
          fmt::format("call {}: rank {} calls {}, but rank 0 calls {}; all ranks must make the same calls in the same "
                      "order",
                      number, rank, to_string(calls[rank]), to_string(calls[0])));
  return std::nullopt;
}

void PartsDigest::add(uint64_t bytes) noexcept {
  parts++;
  sizes = mix64(sizes ^ bytes);
}

Error unmatched_parts(int from, int to, uint64_t number) {
  return Error(
      Category::bad_pipeline,
      fmt::format("call {}: send_receive: the parts that rank {} sends to rank {} differ in number or size from the "
                  "parts that rank {} wants to receive; give the same parts on both ranks",
                  number, from, to, to));
}

Error has_left() {
  return Error(Category::stalled,
               "the rank has destroyed its communicator, so this call cannot be completed; see the error of that rank");
}

Error failure_of_rank(int rank, uint64_t number, const Error& why) {
  return Error(why.category(), fmt::format("rank {}, call {}: {}", rank, number, why.message()), why.place());
}

}  // namespace feedline::ranks
