#include "io/read/matches.h"

#include <fnmatch.h>
#include <locale.h>

namespace feedline::io {

bool matches(const char* pattern, const char* text, int flags) noexcept {
  // Python sets the locale of the environment, and the tool none. A C library without this one matches bytes.
  static const locale_t bytes = newlocale(LC_CTYPE_MASK, "C", locale_t());
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t());
  const locale_t before = uselocale(utf8 ? utf8 : bytes);
  int result = fnmatch(pattern, text, flags);
  if (result != 0 && result != FNM_NOMATCH) {  // glibc before 2.33 fails for what is no UTF-8
    uselocale(bytes);
    result = fnmatch(pattern, text, flags);
  }
  uselocale(before);
  return result == 0;
}

}  // namespace feedline::io
