#include "feedline/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "feedline/error.h"

namespace feedline {

TensorView Batch::at(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const NamedTensor& tensor : tensors()) {
    if (tensor.name == name) return tensor.tensor;
    names.push_back(tensor.name);
  }
  throw Error(Category::bad_pipeline,
              fmt::format("the batch has no tensor '{}'; it has {}", name, fmt::join(names, ", ")));
}

// Not inline: a device with streams of its own adds to these, and programs need not be compiled again.
void Batch::ready_on(Stream) const {}

void Batch::release_on(Stream) { content_.reset(); }

}  // namespace feedline
