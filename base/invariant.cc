#include "base/invariant.h"

namespace feedline {

void broken_invariant(const std::string& what) {
  throw Error(
      Category::internal_error,
      fmt::format("feedline has a bug and stops before it does harm: {}. Please report it with the pipeline and "
                  "what `feedline check` prints for it",
                  what));
}

}  // namespace feedline
