#include "io/read/matches.h"

#include <fnmatch.h>
#include <locale.h>

namespace feedline::io {

bool matches(const char* pattern, const char* text, int flags) noexcept {
  // The locale differs from program to program: Python sets the locale that the environment names, and the tool sets
  // none. So this function sets C.UTF-8 for its calls of fnmatch(). If the C library does not have C.UTF-8, bytes are
  // matched.
  static const locale_t bytes = newlocale(LC_CTYPE_MASK, "C", locale_t());
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t());
  const locale_t before = uselocale(utf8 ? utf8 : bytes);
  int result = fnmatch(pattern, text, flags);
  if (result != 0 && result != FNM_NOMATCH) {  // glibc before 2.33 fails for text that is not UTF-8
    uselocale(bytes);
    result = fnmatch(pattern, text, flags);
  }
  uselocale(before);
  return result == 0;
}

}  // namespace feedline::io
