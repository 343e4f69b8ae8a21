#include <fmt/format.h>

#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "io/read/matches.h"

namespace feedline::flow {
namespace {

// Returns the numbers of the features that the patterns name, each once.
std::vector<int> stacked(const OutputResolver& of) {
  std::vector<int> chosen;
  std::vector<bool> has(of.features.size());
  for (const std::string& pattern : of.config.stack().features()) {
    std::vector<int> matches;
    if (pattern.find_first_of("*?[") == std::string::npos)
      matches.push_back(of.feature_number("stack.features", pattern));
    else if (pattern.find('\0') == std::string::npos)  // nothing after a NUL character would be looked at
      for (size_t i = 0; i < of.features.size(); i++)
        if (io::matches(pattern.c_str(), of.features[i].name.c_str(), 0)) matches.push_back(static_cast<int>(i));
    if (matches.empty()) of.refuse("stack.features", fmt::format("no feature matches '{}'", pattern));
    for (const int match : matches) {
      if (has[static_cast<size_t>(match)]) continue;
      has[static_cast<size_t>(match)] = true;
      chosen.push_back(match);
    }
  }
  if (chosen.empty()) of.refuse("stack.features", "it is empty; name at least one feature");
  return chosen;
}

}  // namespace

void resolve_stack(OutputResolver& of) {
  of.nothing_but("stack");
  const std::vector<int> features = stacked(of);
  const DType first = of.feature(features[0]).dtype;
  for (int number : features) {
    const FeatureSpec& from = of.feature(number);
    if (from.dtype == DType::bytes || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
      of.refuse("stack.features", fmt::format("feature '{}' is {}; only features with one number in each record can be "
                                              "stacked",
                                              from.name, describe(from)));
    if (from.dtype != first && of.output.dtype == DType::unset && !of.config.has_normalize())
      of.refuse("dtype", fmt::format("feature '{}' is {} and '{}' is {}; write the dtype of the output",
                                     of.feature(features[0]).name, name(first), from.name, name(from.dtype)));
  }
  // Check the stack as one tensor first, then make a job for each feature.
  unpack::UnpackSpec whole = stored_elements(first, Shape({static_cast<int64_t>(features.size())}));
  of.turn(whole, ImageLayout::unknown);
  of.finish(whole, -1, first);
  for (size_t i = 0; i < features.size(); i++) {
    unpack::UnpackSpec one = stored_elements(of.feature(features[i]).dtype, Shape());
    one.out = whole.out;
    one.normalize = whole.normalize;
    if (one.normalize && one.normalize->mean.size() > 1) one.normalize->mean = {one.normalize->mean[i]};
    if (one.normalize && one.normalize->std.size() > 1) one.normalize->std = {one.normalize->std[i]};
    of.add_job({.number = features[i]}, std::move(one));
    of.output.jobs.back().offset = i * size_of(whole.out);
  }
  of.output.shape = whole.shape;
}

}  // namespace feedline::flow
