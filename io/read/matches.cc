#include "io/read/matches.h"

#include <fnmatch.h>
#include <locale.h>

namespace feedline::io {

bool matches(const char* pattern, const char* text, int flags) noexcept {
  // Python sets the locale of the environment, and the tool none. A C library without this one matches bytes.
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t());
  static const locale_t locale = utf8 ? utf8 : newlocale(LC_CTYPE_MASK, "C", locale_t());
  const locale_t before = uselocale(locale);
  const bool found = fnmatch(pattern, text, flags) == 0;
  uselocale(before);
  return found;
}

}  // namespace feedline::io
