#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {
namespace {

using config::Output;

constexpr std::pair<std::string_view, Reserved> reserved_names[] = {{"@record", Reserved::record},
                                                                    {"@file", Reserved::file},
                                                                    {"@offset", Reserved::offset},
                                                                    {"@source", Reserved::source}};

void from_reserved(OutputResolver& of) {
  for (const auto& [name, reserved] : reserved_names) {
    if (of.config.feature() != name) continue;
    of.from_numbers({.kind = ColumnRef::Kind::reserved, .what = reserved}, DType::int64, Shape());
    return;
  }
  of.refuse("feature",
            fmt::format("there is no '{}'; the reserved names are @record @file @offset @source", of.config.feature()));
}

void pass_bytes(OutputResolver& of, int number) {
  const FeatureSpec& from = of.feature(number);
  const std::string no_numbers = "the feature is BYTES; convert it to numbers with decode_raw or unpack_bits";
  if (of.config.has_normalize()) of.refuse("normalize", no_numbers);
  if (of.config.layout() != Output::AS_IS) of.refuse("layout", no_numbers);
  const bool dense = from.kind == FeatureKind::fixed && from.length >= 0 && of.output.dtype != DType::bytes;
  if (of.output.dtype != DType::unset && of.output.dtype != DType::bytes && !(dense && of.output.dtype == DType::uint8))
    of.refuse("dtype", fmt::format("it is {}, but {}", name(of.output.dtype), no_numbers));
  of.output.dtype = dense ? DType::uint8 : DType::bytes;
  if (!dense) {
    of.output.feature = number;
    return;
  }
  // Each value is a row of bytes by itself. The output has the bytes as its last axis.
  if (from.shape.rank() == Shape::max_rank)
    of.refuse("feature",
              fmt::format("'{}' has a shape of {} axes ({}), and the output adds a last axis for the bytes of each "
                          "value; an output has at most {} axes, so give the feature a shape of at most {} axes",
                          from.name, from.shape.rank(), to_string(from.shape), Shape::max_rank, Shape::max_rank - 1));
  of.from_numbers({.number = number}, DType::uint8, Shape({from.length}), static_cast<size_t>(from.shape.elements()));
  std::vector<int64_t> axes(from.shape.begin(), from.shape.end());
  axes.push_back(from.length);
  of.output.shape = Shape(axes);
}

void from_values(OutputResolver& of) {
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  of.output.shape = from.shape;
  of.output.variable = from.kind == FeatureKind::variable || from.kind == FeatureKind::ragged;
  of.output.padded = from.kind == FeatureKind::fixed_sequence;
  if (from.dtype == DType::bytes) return pass_bytes(of, number);
  if (from.kind == FeatureKind::fixed) return of.from_numbers({.number = number}, from.dtype, from.shape);
  if (of.config.layout() != Output::AS_IS)
    of.refuse("layout",
              fmt::format("feature '{}' is {}, which has no layout; remove 'layout'", from.name, describe(from)));
  unpack::UnpackSpec value = stored_elements(from.dtype, Shape());
  of.finish(value, -1, from.dtype);
  of.output.feature = number;
  of.output.unpack_value = std::move(value);
}

}  // namespace

void resolve_feature(OutputResolver& of) {
  if (of.config.feature().empty())
    of.refuse("feature", "the output does not say what it is made from; write 'feature', 'expression' or 'stack'");
  if (of.config.feature()[0] == '@')
    from_reserved(of);
  else
    from_values(of);
}

void resolve_expression(OutputResolver& of) {
  of.nothing_but("expression");
  if (of.config.has_normalize())
    of.refuse("normalize", "it cannot be combined with 'expression'; write the arithmetic into the formula");
  // FormulaResolver later sets ColumnRef::number, and changes FLOAT64 to INT64 if that is the formula's type.
  of.from_numbers({.kind = ColumnRef::Kind::expression}, DType::float64, Shape());
}

}  // namespace feedline::flow
