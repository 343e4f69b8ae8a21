// The messages by which ranks find one another over TCP (tcp_rendezvous.h), which are sent as raw bytes. Each message
// begins with a magic number that says which message it is, and ends with a proof that its sender knows the secret. The
// proof covers the fields before it, and the random bytes that the receiver of the message has sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/audit.h"
#include "base/net/proof.h"

namespace feedline::ranks {

struct Challenge {  // has no proof, because it asks for one
  uint64_t begins = hash64("feedline ranks 2: challenge");
  net::Nonce nonce{};
};
struct Hello {
  uint64_t begins = hash64("feedline ranks 2: hello");
  int32_t rank = 0, world_size = 0;
  uint16_t port = 0;
  std::array<char, 6> zero{};
  net::Nonce nonce{};
  net::Proof proof{};
};
struct Welcome {
  uint64_t begins = hash64("feedline ranks 2: welcome");
  uint64_t group = 0;
  // Why rank 0 does not form a group at all, or not with this process. Empty if the start continues.
  std::array<char, 512> refused{};
  net::Proof proof{};  // also covers the bytes that follow the message
};
struct Join {
  uint64_t begins = hash64("feedline ranks 2: join");
  uint64_t group = 0;
  int32_t rank = 0, to = 0;  // the rank that connects, and the rank to which it connects
  enum Use : uint64_t { data, notes } use = data;
  net::Nonce nonce{};
  net::Proof proof{};
};
struct Joined {
  uint64_t begins = hash64("feedline ranks 2: joined");
  net::Proof proof{};
};

/// The byte that a rank sends to rank 0 when it has all its connections.
inline constexpr auto connected = std::byte{1};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Returns the proof that `message` must have. `nonce`: the random bytes of the process that receives it. `follows`:
/// the bytes that are sent after the message, which the proof covers, too.
template <typename T>
net::Proof proof_in(const T& message, std::string_view secret, const net::Nonce& nonce,
                    std::span<const std::byte> follows = {}) {
  static_assert(std::has_unique_object_representations_v<T> && offsetof(T, proof) + sizeof(net::Proof) == sizeof(T));
  return net::proof_of(secret, {bytes_of(message).first(offsetof(T, proof)), nonce, follows});
}

/// Returns the message with its proof.
template <typename T>
T signed_by(T message, std::string_view secret, const net::Nonce& nonce, std::span<const std::byte> follows = {}) {
  message.proof = proof_in(message, secret, nonce, follows);
  return message;
}

}  // namespace feedline::ranks
