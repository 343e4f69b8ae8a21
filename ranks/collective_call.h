// What a rank calls, to be compared with what the others call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "feedline/communicator.h"

namespace feedline::gpu {

/// The same on all ranks. Plain data: it is sent as it lies in memory. The functions that make one throw Error
/// bad_pipeline for arguments that no rank may give.
struct CollectiveCall {
  enum class Kind : uint8_t { all_gather, broadcast, all_reduce, reduce_scatter, send_receive, barrier };
  Kind kind = Kind::barrier;
  DType dtype = DType::unset;
  Reduction reduction = Reduction::sum;
  uint8_t zero = 0;
  int32_t root = 0;
  uint64_t bytes = 0;  // that a rank gives
  bool operator==(const CollectiveCall&) const = default;
};

CollectiveCall all_gather_call(size_t mine, size_t all, int size);
CollectiveCall broadcast_call(size_t bytes, int root, int size);
CollectiveCall all_reduce_call(const TensorView& data, Reduction reduction);
CollectiveCall reduce_scatter_call(const TensorView& data, const TensorView& mine, Reduction reduction, int size);
CollectiveCall send_receive_call(std::span<const Communicator::Part> sends,
                                 std::span<const Communicator::Part> receives, int size);

/// "all_reduce(sum) of 400 bytes of FLOAT32".
std::string to_string(const CollectiveCall& call);

/// Of call `number`, in the order of the ranks: an Error where one differs from that of rank 0.
std::optional<Error> disagreement(std::span<const CollectiveCall> calls, uint64_t number);

/// The sizes of the parts from one rank to another: how many, and which.
struct PartsDigest {
  uint64_t parts = 0, sizes = 0;
  void add(uint64_t bytes) noexcept;
  bool operator==(const PartsDigest&) const = default;
};
/// What `from` sends and what `to` receives differ.
Error unmatched_parts(int from, int to, uint64_t number);

/// Of a rank that others wait for.
Error has_left();

/// How a rank's failure is told to the others.
Error failure_of_rank(int rank, uint64_t number, const Error& why);

}  // namespace feedline::gpu
