#include "base/base64.h"

#include <sodium.h>

namespace feedline {

std::string base64(std::string_view bytes) {
  constexpr int variant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_encoded_len(bytes.size(), variant), '\0');  // with a zero after the digits
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    variant);
  text.pop_back();
  return text;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');  // with a zero after the digits
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  text.pop_back();
  return text;
}

}  // namespace feedline
