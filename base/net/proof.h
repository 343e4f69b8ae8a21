// Proofs that a process knows a secret, which itself is never sent: HMAC-SHA-256 (RFC 2104), by libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace feedline::net {

/// Random bytes, which ranks use once, so that no proof can be used twice.
using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

/// Returns random bytes that nobody can guess. Throws Error internal_error if the system has none.
Nonce make_nonce();
/// Returns a secret that nobody can guess: 32 hexadecimal digits.
std::string make_secret();

/// Returns the HMAC of `parts`, one after another, with the key `secret`. It proves that its maker knew the secret and
/// these parts. Every part except the last one must have a length that both sides know, or be followed by an end mark
/// that cannot occur inside it.
Proof proof_of(std::string_view secret, std::initializer_list<std::span<const std::byte>> parts);
/// Return whether two proofs, or two texts, are the same. The time that this takes does not depend on where they
/// differ, so that nobody can find out a secret by measuring it.
bool same(const Proof& a, const Proof& b) noexcept;
bool same_text(std::string_view a, std::string_view b) noexcept;

}  // namespace feedline::net
