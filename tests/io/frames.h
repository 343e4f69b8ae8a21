// Builds the bytes of TFRecord files.
#pragma once

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "io/records/crc32c.h"

namespace feedline::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
std::string little_endian(T value) {
  std::string text(sizeof value, '\0');
  std::memcpy(text.data(), &value, sizeof value);
  return text;
}

/// Returns a header with a correct checksum for any length.
inline std::string frame_header(uint64_t length) {
  const std::string text = little_endian(length);
  return text + little_endian(io::mask_crc(io::crc32c(bytes_of(text))));
}

inline std::string frame(std::string_view payload) {
  return frame_header(payload.size()) + std::string(payload) +
         little_endian(io::mask_crc(io::crc32c(bytes_of(payload))));
}

inline std::string random_text(size_t size, std::mt19937& random) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

}  // namespace feedline::test
