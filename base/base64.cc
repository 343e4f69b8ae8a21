#include "base/base64.h"

#include <cstddef>
#include <cstdint>

namespace feedline {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = i; j < i + 3; j++) word = word << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u);
    for (size_t j = 0; j < 4; j++) text += i + j <= bytes.size() ? digits[word >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace feedline
