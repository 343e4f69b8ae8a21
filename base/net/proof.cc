#include "base/net/proof.h"

#include <sodium.h>

#include "base/base64.h"
#include "feedline/error.h"

namespace feedline::net {
namespace {

const unsigned char* chars(const std::byte* bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

Nonce make_nonce() {
  static const bool ready = sodium_init() >= 0;
  if (!ready) throw Error(Category::internal_error, "the system provides no random numbers, of which secrets are made");
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string make_secret() { return hexadecimal(make_nonce()); }

Proof proof_of(std::string_view secret, std::initializer_list<std::span<const std::byte>> parts) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  for (const auto part : parts) crypto_auth_hmacsha256_update(&state, chars(part.data()), part.size());
  Proof proof;
  static_assert(sizeof proof == crypto_auth_hmacsha256_BYTES);
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

bool same_text(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool same(const Proof& a, const Proof& b) noexcept { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace feedline::net
