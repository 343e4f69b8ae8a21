// Describes a communicator's call, so that the ranks can compare their calls before they carry them out. Also makes the
// Errors of calls that fail.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "feedline/communicator.h"

namespace feedline::ranks {

/// The arguments of a collective call that must be the same on all ranks. Ranks send the struct as raw bytes. The
/// functions below that return a CollectiveCall throw Error bad_pipeline if the arguments are invalid, whatever the
/// other ranks pass.
struct CollectiveCall {
  enum class Kind : uint8_t { all_gather, broadcast, all_reduce, reduce_scatter, send_receive, barrier, announce };
  Kind kind = Kind::barrier;
  DType dtype = DType::unset;
  Reduction reduction = Reduction::sum;
  uint8_t zero = 0;    // explicit padding: the struct is sent as raw bytes
  int32_t root = 0;    // the root of a broadcast; in an announcement, how many calls it announces
  uint64_t bytes = 0;  // how many bytes each rank contributes; in an announcement, a hash of the calls
  bool operator==(const CollectiveCall&) const = default;
};

CollectiveCall all_gather_call(size_t mine, size_t all, int size);
CollectiveCall broadcast_call(size_t bytes, int root, int size);
CollectiveCall all_reduce_call(const TensorView& data, Reduction reduction);
CollectiveCall announce_call(std::span<const CollectiveCall> calls);
CollectiveCall reduce_scatter_call(const TensorView& data, const TensorView& mine, Reduction reduction, int size);
CollectiveCall send_receive_call(std::span<const Transport::Part> sends, std::span<const Transport::Part> receives,
                                 int size);

/// Returns the call as text: "all_reduce(sum) of 400 bytes of FLOAT32".
std::string to_string(const CollectiveCall& call);

/// Returns the Error of a rank that makes `call` as call `number`, although it had announced `announced` for that
/// number.
Error not_announced(const CollectiveCall& call, const CollectiveCall& announced, uint64_t number);

/// Compares `calls`, in which calls[r] is the call that rank r makes as its call `number`. Returns an Error if a rank
/// makes a call that differs from the call of rank 0, and nullopt if all ranks make the same call.
std::optional<Error> disagreement(std::span<const CollectiveCall> calls, uint64_t number);

/// A digest of the parts that one rank sends to another: how many there are, and a hash of their sizes in their order.
struct PartsDigest {
  uint64_t parts = 0, sizes = 0;
  void add(uint64_t bytes) noexcept;
  bool operator==(const PartsDigest&) const = default;
};
/// Returns the Error of call `number`, a send_receive() in which the parts that rank `from` sends to rank `to` differ
/// from the parts that `to` wants to receive.
Error unmatched_parts(int from, int to, uint64_t number);

/// Returns the Error of a rank that has destroyed its communicator while others wait for that rank.
Error has_left();

/// Returns the Error with which the group ends: `why`, with the numbers of the failed rank and of the call put before
/// its message.
Error failure_of_rank(int rank, uint64_t number, const Error& why);

}  // namespace feedline::ranks
