#include "flowgraph/parse/formula_columns.h"

#include <algorithm>
#include <array>

namespace feedline::flow {
namespace {

unpack::Unpacker cast(DType from, DType to) {
  unpack::UnpackSpec spec;
  spec.stored = from;
  spec.out = to;
  return unpack::Unpacker(spec);
}

}  // namespace

RowAccess rows_of(const FeatureSpec& feature) noexcept {
  if (feature.dtype == DType::bytes) return {sizeof(BytesRef), true};
  return {static_cast<size_t>(feature.shape.elements()) * size_of(feature.dtype), false};
}

std::span<const std::byte> stored_value(const FeatureSpec& feature, const Column& column, uint32_t row) noexcept {
  if (feature.dtype == DType::bytes) {
    const BytesRef& bytes = column.as<BytesRef>()[row];
    return {bytes.data, bytes.size};
  }
  if (feature.kind != FeatureKind::fixed) {
    const ValuesRef own = values_of(feature, column, row);
    return {static_cast<const std::byte*>(own.values), own.count * size_of(feature.dtype)};
  }
  const size_t size = static_cast<size_t>(feature.shape.elements()) * size_of(feature.dtype);
  return {column.as<std::byte>() + row * size, size};
}

ValuesRef values_of(const FeatureSpec& feature, const Column& column, uint32_t row) noexcept {
  if (feature.nested()) return column.as<StepsRef>()[row].all;
  if (feature.kind != FeatureKind::fixed) return column.as<ValuesRef>()[row];
  const auto elements = static_cast<uint64_t>(feature.shape.elements());
  return {column.as<BytesRef>() + row * elements, elements};
}

Formulas::Formulas(const PipelineSpec& spec) : spec_(&spec) {
  for (const ExpressionSpec& expression : spec.expressions) {
    Formula formula{&expression.program, {}};
    for (size_t i = 0; i < expression.inputs.size(); i++) {
      const ExpressionSpec::Input& from = expression.inputs[i];
      Input input{from, std::nullopt, std::nullopt};
      DType held = from.feature >= 0 ? spec.features[static_cast<size_t>(from.feature)].dtype
                                     : spec.expressions[static_cast<size_t>(from.expression)].dtype();
      if (from.unpack) {
        input.round.emplace(*from.unpack);
        held = from.unpack->out;
      } else if (from.dtype != DType::unset && from.dtype != held) {
        input.round.emplace(cast(held, from.dtype));
        held = from.dtype;
      }
      const DType wanted = expression.program.inputs()[i].type == Program::Type::int64 ? DType::int64 : DType::float64;
      input.widen.emplace(cast(held, wanted));
      formula.inputs.push_back(std::move(input));
    }
    most_inputs_ = std::max(most_inputs_, formula.inputs.size());
    formulas_.push_back(std::move(formula));
  }
}

uint64_t Formulas::arena_bound(uint64_t rows) const noexcept {
  if (formulas_.empty()) return 0;
  return (most_inputs_ + 1) * block * sizeof(double) + formulas_.size() * rows * sizeof(double) + alignof(double);
}

void Formulas::load(const Input& input, std::span<const Column> features, std::span<const Column> columns,
                    uint32_t first, uint32_t count, std::byte* scratch, std::byte* values) const {
  const int feature = input.from.feature;
  const RowAccess access = feature >= 0 ? rows_of(spec_->features[static_cast<size_t>(feature)]) : rows_of_expression;
  const Column& column =
      feature >= 0 ? features[static_cast<size_t>(feature)] : columns[static_cast<size_t>(input.from.expression)];
  std::array<const std::byte*, block> rows;
  for (uint32_t i = 0; i < count; i++) rows[i] = access(column, first + i);
  if (input.round) {
    (*input.round)(std::span(rows).first(count), scratch);
    const size_t size = size_of(input.round->spec().out);
    for (uint32_t i = 0; i < count; i++) rows[i] = scratch + i * size;
  }
  (*input.widen)(std::span(rows).first(count), values);
}

}  // namespace feedline::flow
