#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "unpack/dispatch.h"

namespace feedline::flow {
namespace {

/// Returns the number that is nearest to `value` in this type.
double held(double value, DType type) {
  return unpack::with_type(
      type, [&](auto of) { return unpack::cast<double>(unpack::cast<typename decltype(of)::t>(value)); });
}

/// Refuses a value that is not finite, or that the output's type cuts. Floats may be rounded.
void check_value(const OutputResolver& of, std::string_view field, double value) {
  if (!std::isfinite(value)) of.refuse(field, fmt::format("{} is not a finite number", value));
  const DType dtype = of.output.dtype;
  if (of.config.has_normalize()) return;
  if (dtype > DType::int64) {
    if (!std::isfinite(held(value, dtype)))
      of.refuse(field, fmt::format("{} is infinite in {}; give a smaller number", value, name(dtype)));
    return;
  }
  constexpr double past_int64 = 9223372036854775808.0;  // as which the largest INT64 is held, too
  if (held(value, dtype) != value || value == past_int64)
    of.refuse(field, fmt::format("{} is not a number of {}; write the dtype FLOAT32, or a number that {} holds", value,
                                 name(of.output.dtype), name(of.output.dtype)));
}

}  // namespace

void resolve_one_hot(OutputResolver& of) {
  constexpr int64_t most_classes = int64_t{1} << 20;
  if (of.config.feature().empty()) of.refuse("feature", "one_hot needs a feature of INT64; name one");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  const bool is_list = from.kind == FeatureKind::variable || from.kind == FeatureKind::ragged;
  if (from.dtype != DType::int64 || (from.kind != FeatureKind::fixed && !is_list) || from.nested())
    of.refuse("one_hot",
              fmt::format("it needs a feature of INT64: FIXED, whose values become a vector each, or VARIABLE "
                          "or RAGGED without steps, whose values become one vector; feature '{}' is {}{}",
                          from.name, describe(from), from.nested() ? " in a feature list" : ""));
  const int64_t classes = of.config.one_hot().classes();
  if (classes < 1 || classes > most_classes)
    of.refuse("one_hot.classes", fmt::format("{}; it must be 1 to {}", classes, most_classes));
  const config::OneHot& one_hot = of.config.one_hot();
  const double on = one_hot.has_on_value() ? one_hot.on_value() : 1;
  unpack::UnpackSpec unpack = stored_elements(DType::float64, Shape({classes}));
  of.turn(unpack, ImageLayout::unknown);
  of.finish(unpack, -1, DType::float32);
  check_value(of, "one_hot.on_value", on);
  check_value(of, "one_hot.off_value", one_hot.off_value());
  of.output.shape = is_list ? unpack.shape : of.shape_of_each(from, unpack.shape);
  of.add_job({.number = number}, unpack, is_list ? 1 : static_cast<size_t>(from.shape.elements()));
  of.output.jobs.back().rows = OneHotRows{on, one_hot.off_value(), one_hot.ignore_outside(), std::move(unpack)};
}

}  // namespace feedline::flow
