#include "trainer_bridge/monitor/monitor_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "base/base64.h"
#include "base/net/proof.h"
#include "trainer_bridge/monitor/http_message.h"

namespace feedline {
namespace {

constexpr std::string_view scheme = "Feedline ";
constexpr uint64_t valid_s = 30;

std::span<const std::byte> text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// Returns the text after "Basic" (in upper or lower case) and the spaces that follow it. Returns an empty text if
// `authorization` does not begin with "Basic".
std::string_view password_in(std::string_view authorization) {
  const size_t end = std::min(authorization.find(' '), authorization.size());
  if (!same_letters(authorization.substr(0, end), "Basic")) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', end), authorization.size()));
  return authorization;
}

}  // namespace

std::string token_proof(std::string_view token, std::string_view nonce, std::string_view target) {
  // A nonce has no space in it, so a part of the target cannot be mistaken for a part of the nonce.
  const net::Proof proof =
      net::proof_of(token, {text_bytes("feedline monitor "), text_bytes(nonce), text_bytes(" "), text_bytes(target)});
  return fmt::format("{}{} {}", scheme, nonce, hexadecimal(proof));
}

MonitorToken::MonitorToken(std::string token)
    : token_(std::move(token)), own_(net::make_secret()), password_(base64(fmt::format("feedline:{}", token_))) {}

std::string MonitorToken::make_nonce(Clock::time_point now) const { return nonce_at(second_of(now)); }

bool MonitorToken::is_shown_by(std::string_view authorization, std::string_view target, Clock::time_point now) const {
  return net::same_text(password_in(authorization), password_) || is_proven_by(authorization, target, second_of(now));
}

uint64_t MonitorToken::second_of(Clock::time_point time) const {
  return static_cast<uint64_t>(std::chrono::floor<std::chrono::seconds>(time - begin_).count());
}

std::string MonitorToken::nonce_at(uint64_t second) const {
  const std::string text = fmt::format("{:x}", second);
  return fmt::format("{}-{}", text, hexadecimal(net::proof_of(own_, {text_bytes(text)})));
}

bool MonitorToken::is_proven_by(std::string_view authorization, std::string_view target, uint64_t second) const {
  if (!authorization.starts_with(scheme)) return false;
  const std::string_view nonce =
      authorization.substr(scheme.size(), authorization.find(' ', scheme.size()) - scheme.size());
  uint64_t given = 0;
  const auto [end, error] = std::from_chars(nonce.data(), nonce.data() + nonce.size(), given, 16);
  if (error != std::errc() || given > second || second - given > valid_s) return false;
  return net::same_text(nonce, nonce_at(given)) && net::same_text(authorization, token_proof(token_, nonce, target));
}

}  // namespace feedline
