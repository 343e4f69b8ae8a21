#include "base/invariant.h"

namespace feedline {

void broken_invariant(const std::string& what) {
  throw Error(
      Category::internal_error,
      fmt::format("feedline has a bug and stops before it does harm: {}. Report the bug with the pipeline and the "
                  "output of `feedline check`",
                  what));
}

}  // namespace feedline
