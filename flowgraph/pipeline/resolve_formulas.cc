#include "flowgraph/pipeline/resolve_formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {
namespace {

// Compiles the formulas, and sorts them so that each formula comes after the formulas that it reads.
class FormulaResolver {
 public:
  FormulaResolver(const google::protobuf::RepeatedPtrField<config::Output>& config, PipelineSpec& spec)
      : config_(config), spec_(spec), number_(spec.outputs.size(), -1) {}

  void resolve() {
    for (const FeatureSpec& feature : spec_.features)
      if (feature.kind == FeatureKind::fixed && feature.shape.rank() == 0 && feature.dtype != DType::bytes)
        known_.push_back({feature.name, feature.dtype == DType::int64 ? Program::Type::int64 : Program::Type::float64});
    for (const OutputSpec& output : spec_.outputs) known_.push_back({"out." + output.name, Program::Type::float64});
    for (size_t i = 0; i < known_.size(); i++) known_numbers_.emplace(known_[i].name, i);
    for (size_t i = 0; i < spec_.features.size(); i++) features_.emplace(spec_.features[i].name, i);
    for (size_t i = 0; i < spec_.outputs.size(); i++) outputs_.emplace("out." + spec_.outputs[i].name, i);
    for (size_t i = 0; i < spec_.outputs.size(); i++)
      if (expression_of(spec_.outputs[i])) place(i);
    for (size_t i = 0; i < spec_.outputs.size(); i++)
      if (spec_.outputs[i].internal && !read_.contains(i))
        spec_.warnings.push_back(
            fmt::format("output '{}': it is internal, but no formula reads it; remove the output, "
                        "or 'internal'",
                        spec_.outputs[i].name));
  }

 private:
  [[noreturn]] void refuse(size_t output, const std::string& why) const {
    throw Error(Category::bad_pipeline,
                fmt::format("output '{}': expression.formula: {}", spec_.outputs[output].name, why));
  }

  // Places the output's expression in the spec, and before it the expressions that it reads. Returns the number of the
  // output's expression.
  int place(size_t output) {
    if (number_[output] >= 0) return number_[output];
    if (std::find(open_.begin(), open_.end(), output) != open_.end()) {
      std::string circle;
      for (auto it = std::find(open_.begin(), open_.end(), output); it != open_.end(); ++it)
        circle += "out." + spec_.outputs[*it].name + " -> ";
      refuse(output, fmt::format("the formula reads its own result: {}out.{}", circle, spec_.outputs[output].name));
    }
    constexpr size_t deepest = 1000;
    if (open_.size() == deepest)
      refuse(output, fmt::format("more than {} formulas read each other in a chain; join some of them into one formula",
                                 deepest));
    open_.push_back(output);
    ExpressionSpec expression;
    expression.output = spec_.outputs[output].name;
    expression.program = compile(output);
    for (const Program::Input& input : expression.program.inputs())
      expression.inputs.push_back(resolve_input(output, input.name));
    open_.pop_back();
    number_[output] = static_cast<int>(spec_.expressions.size());
    DenseJob& job = spec_.outputs[output].jobs[0];
    job.unpack.stored = expression.dtype();
    job.column.number = number_[output];
    spec_.expressions.push_back(std::move(expression));
    return number_[output];
  }

  Program compile(size_t output) const {
    const config::Expression& expression = config_[static_cast<int>(output)].expression();
    const std::map<std::string, double> constants(expression.constants().begin(), expression.constants().end());
    for (const auto& [name, value] : constants)
      if (known_numbers_.contains(name))
        refuse(output, fmt::format("'{}' is a constant and a feature; rename the constant", name));
    // Program::compile() looks at every name in its list, so at first the list has only the names in the formula's
    // text. If that fails, the list has every name, so that the error can list the names that the formula may read.
    try {
      return Program::compile(expression.formula(), constants, known_in(expression.formula()));
    } catch (const Error&) {
    }
    try {
      return Program::compile(expression.formula(), constants, known_to(output));
    } catch (const Error& error) {
      for (const FeatureSpec& feature : spec_.features)
        if (error.message().starts_with(fmt::format("unknown name '{}'", feature.name)) &&
            !error.message().starts_with(fmt::format("unknown name '{}'; names in", feature.name)))
          refuse(output, fmt::format("feature '{}' is {}; a formula can read only features with one number in each "
                                     "record",
                                     feature.name, describe(feature)));
      refuse(output, error.message());
    }
  }

  // Returns all known names. The names that the formula of the output can read are marked as `offered`, so that an
  // error lists only these.
  std::vector<Program::Input> known_to(size_t output) const {
    std::vector<Program::Input> known = known_;
    for (Program::Input& input : known)
      if (const auto other = outputs_.find(input.name); other != outputs_.end())
        input.offered = other->second != output && why_not_read(spec_.outputs[other->second]).empty();
    return known;
  }

  // Returns why formulas cannot read an output; empty if they can.
  static std::string why_not_read(const OutputSpec& output) {
    if (output.dense() && output.jobs[0].column.kind == ColumnRef::Kind::reserved)
      return "formulas cannot read @record, @file, @offset and @source";
    if (!output.dense() || output.shape.rank() > 0)
      return fmt::format("a formula can read only outputs with one number in each record, and this output is {}",
                         output.variable || output.padded ? "of varying length"
                         : output.dtype == DType::bytes   ? "BYTES"
                                                          : fmt::format("of shape {}", to_string(output.shape)));
    if (output.dense() && output.jobs[0].rows)
      return "formulas cannot read values that are looked up in a table or a vocabulary, or hashed";
    return "";
  }

  // Returns the known names that occur in the text of a formula.
  std::vector<Program::Input> known_in(std::string_view formula) const {
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    };
    std::set<size_t> numbers;
    const auto add = [&](const std::string& name) {
      if (const auto known = known_numbers_.find(name); known != known_numbers_.end()) numbers.insert(known->second);
    };
    while (!formula.empty()) {
      const auto end = static_cast<size_t>(std::find_if_not(formula.begin(), formula.end(), in_name) - formula.begin());
      add(std::string(formula.substr(0, end)));
      formula.remove_prefix(std::max<size_t>(1, end));
    }
    std::vector<Program::Input> inputs;
    for (const size_t number : numbers) inputs.push_back(known_[number]);
    return inputs;
  }

  ExpressionSpec::Input resolve_input(size_t reader, const std::string& name) {
    ExpressionSpec::Input input;
    if (const auto feature = features_.find(name); feature != features_.end()) {
      input.feature = static_cast<int>(feature->second);
      input.dtype = spec_.features[feature->second].dtype;
      return input;
    }
    const size_t number = outputs_.at(name);
    const auto it = spec_.outputs.begin() + static_cast<ptrdiff_t>(number);
    read_.insert(number);
    if (const std::string why = why_not_read(*it); !why.empty()) refuse(reader, fmt::format("{}: {}", name, why));
    input.dtype = it->dtype;
    if (expression_of(*it)) {
      input.expression = place(number);
    } else {
      input.feature = it->jobs[0].column.number;
      input.unpack = it->jobs[0].unpack;
    }
    return input;
  }

  /// If a formula makes the output, returns the output's column; otherwise null.
  static ColumnRef* expression_of(OutputSpec& output) {
    const bool is_one = output.dense() && output.jobs[0].column.kind == ColumnRef::Kind::expression;
    return is_one ? &output.jobs[0].column : nullptr;
  }

  const google::protobuf::RepeatedPtrField<config::Output>& config_;
  PipelineSpec& spec_;
  std::vector<Program::Input> known_;
  std::unordered_map<std::string, size_t> known_numbers_, features_, outputs_;  // by name: their numbers
  std::vector<int> number_;   // by output: the number of its expression, or -1 before it is placed
  std::vector<size_t> open_;  // outputs whose inputs are being placed
  std::set<size_t> read_;     // outputs that formulas read
};

}  // namespace

void resolve_formulas(const google::protobuf::RepeatedPtrField<config::Output>& outputs, PipelineSpec& spec) {
  FormulaResolver(outputs, spec).resolve();
}

}  // namespace feedline::flow
