// The token of a monitor, and how a client shows that it knows the token. A browser sends the token as a password (RFC
// 7617, user "feedline"). feedline's own clients do not send the token. So a program that listens in a monitor's place
// does not learn the token from them:
//
//   GET /nonce                                          -> a nonce, which the monitor accepts for 30 s
//   GET TARGET, Authorization: Feedline NONCE PROOF     -> the answer for a client that knows the token
//
// PROOF is the proof (base/net/proof.h) of the nonce and the target, in hexadecimal digits. Whoever has a proof can try
// tokens until one of them gives the same proof, so a token must be hard to guess.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the value of the header Authorization that shows a token for one target and nonce.
std::string token_proof(std::string_view token, std::string_view nonce, std::string_view target);

/// The monitor's side: makes nonces, and checks what clients send. May be used by several threads at once.
class MonitorToken {
 public:
  using Clock = std::chrono::steady_clock;

  /// `token` must not be empty.
  explicit MonitorToken(std::string token);

  /// Returns a nonce that is_shown_by() accepts for the next 30 s.
  std::string make_nonce(Clock::time_point now = Clock::now()) const;
  /// Returns whether `authorization`, the value of the header Authorization, has the token, or proves for this target
  /// that its sender knows the token.
  bool is_shown_by(std::string_view authorization, std::string_view target, Clock::time_point now = Clock::now()) const;

 private:
  uint64_t second_of(Clock::time_point time) const;
  std::string nonce_at(uint64_t second) const;
  bool is_proven_by(std::string_view authorization, std::string_view target, uint64_t second) const;

  // The seconds in nonces count from here, so that a nonce does not tell for how long the machine has been on.
  const Clock::time_point begin_ = Clock::now();
  const std::string token_;
  const std::string own_;       // a secret of the monitor, by which it recognises its nonces
  const std::string password_;  // the text after "Basic" in the header, in base64
};

}  // namespace feedline
