#include <fmt/format.h>

#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {

void resolve_one_hot(OutputResolver& of) {
  constexpr int64_t most_classes = int64_t{1} << 20;
  if (of.config.feature().empty()) of.refuse("feature", "one_hot needs a feature of one INT64 value; name one");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  if (from.dtype != DType::int64 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
    of.refuse("one_hot",
              fmt::format("it needs one INT64 value in each record; feature '{}' is {}", from.name, describe(from)));
  const int64_t classes = of.config.one_hot().classes();
  if (classes < 1 || classes > most_classes)
    of.refuse("one_hot.classes", fmt::format("{}; it must be 1 to {}", classes, most_classes));
  unpack::UnpackSpec unpack = stored_elements(DType::uint8, Shape({classes}));
  of.turn(unpack, ImageLayout::unknown);
  of.finish(unpack, -1, DType::float32);
  of.output.shape = unpack.shape;
  of.add_job({.number = number}, unpack);
  of.output.jobs.back().rows = OneHotRows{std::move(unpack)};
}

}  // namespace feedline::flow
