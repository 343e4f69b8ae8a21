#include "base/utf8.h"

namespace feedline {

// The function follows the grammar in RFC 3629, section 4.
bool is_utf8(std::string_view bytes) noexcept {
  const auto at = [&](size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  for (size_t i = 0; i < bytes.size();) {
    const unsigned lead = at(i);
    const size_t tail = lead < 0x80 ? 0 : lead >= 0xc2 && lead < 0xe0 ? 1 : (lead & 0xf0) == 0xe0 ? 2 : 3;
    if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4)) return false;
    for (size_t k = 1; k <= tail; k++)
      if ((at(i + k) & 0xc0) != 0x80) return false;
    const unsigned second = at(i + 1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0)) return false;  // overlong; surrogates
    if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) return false;  // overlong; too large
    i += tail + 1;
  }
  return true;
}

std::string_view cut_text(std::string_view text, size_t most) noexcept {
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  if (text.size() > most)
    for (int n = 0; n < 3 && most > 0 && continues(most); n++) most--;
  return text.substr(0, most);
}

}  // namespace feedline
