#include "tool/common/pipeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "base/format_count.h"
#include "tool/common/json.h"

namespace feedline::tool {
namespace {

bool is_name(const std::string& key) { return !key.empty() && is_printable(key) && key.front() != '@'; }

/// Returns the endings that the names of a feature's tensors may have after the feature's name. For example, a feature
/// `tok` may have the tensors `tok.values` and `tok.row_splits` (ElementSpec::tensors()).
std::vector<std::string_view> endings_of(const TextFeature& feature) {
  std::vector<std::string_view> endings;
  if (feature.kind == Kind::bytes_list) endings = {".bytes", ".offsets"};
  if (feature.variable) endings.insert(endings.end(), {".values", ".row_splits", ".step_splits"});
  return endings;
}

}  // namespace

std::string text_literal(std::string_view bytes) {
  const bool utf8 = is_utf8(bytes);
  std::string text = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      text += fmt::format("\\{:03o}", byte);
    } else {
      text += c;
    }
  }
  return text + '"';
}

void name_features(const std::vector<TextFeature*>& features) {
  std::vector<size_t> order;
  for (size_t i = 0; i < features.size(); i++)
    if (features[i]) order.push_back(i);
  const auto wanted = [&](size_t i) { return features[i]->name.empty() ? features[i]->key : features[i]->name; };
  // Features with shorter names choose first. So if a feature `tok` makes a tensor `tok.values`, it keeps its name, and
  // a feature that wants the name `tok.values` gets a different name.
  std::ranges::stable_sort(order, {}, [&](size_t i) { return wanted(i).size(); });
  std::unordered_set<std::string> taken;
  const auto take = [&](size_t i, const std::string& name) {
    const auto endings = endings_of(*features[i]);
    if (taken.contains(name) ||
        std::ranges::any_of(endings, [&](std::string_view end) { return taken.contains(name + std::string(end)); }))
      return false;
    taken.insert(name);
    for (const std::string_view end : endings) taken.insert(name + std::string(end));
    features[i]->name = name;
    return true;
  };
  std::vector<size_t> without;
  for (const size_t i : order)
    if (!is_name(wanted(i)) || !take(i, wanted(i))) without.push_back(i);
  for (const size_t i : without)
    for (std::string name = fmt::format("feature_{}", i); !take(i, name);) name += '_';
}

std::string text_feature(const TextFeature& feature) {
  const bool is_bytes = feature.kind == Kind::bytes_list, is_float = feature.kind == Kind::float_list;
  std::string line = fmt::format("feature {{ name: {}", text_literal(feature.name));
  if (feature.name != feature.key) line += " key: " + text_literal(feature.key);
  line += fmt::format(" dtype: {}", is_bytes ? "BYTES" : is_float ? "FLOAT32" : "INT64");
  if (feature.in_list) line += " where: FEATURE_LIST";
  if (feature.variable) line += feature.in_list ? " kind: RAGGED" : " kind: VARIABLE";
  if (feature.sequence) line += " kind: FIXED_SEQUENCE";
  if (!feature.shape.empty()) line += fmt::format(" shape: [{}]", fmt::join(feature.shape, ", "));
  if (feature.length > 0) line += fmt::format(" length: {}", feature.length);
  if (feature.max_values > 0) line += fmt::format(" max_values: {}", feature.max_values);
  if (feature.missing && !feature.variable && !feature.sequence)
    line += fmt::format(" default_value {{ {} }}", is_bytes   ? "bytes_value: \"\""
                                                   : is_float ? "float32_value: 0"
                                                              : "int64_value: 0");
  line += " }";
  if (!feature.remark.empty()) line += "  # " + feature.remark;
  return line + "\n";
}

void TextOutputs::add(const TextFeature& feature) {
  made_ = made_ || !feature.made.empty();
  made_bytes_ += feature.made_bytes;
  unreadable_ += feature.unreadable;
  const std::string from = fmt::format("name: {0}{1} feature: {0}", text_literal(feature.name),
                                       feature.output_dtype.empty() ? "" : " dtype: " + feature.output_dtype);
  if (feature.made.size() > 1)
    text_ += fmt::format("output {{\n  {}\n  {}\n}}\n", from, fmt::join(feature.made, "\n  "));
  else
    text_ += fmt::format("output {{ {}{} }}\n", from, feature.made.empty() ? "" : " " + feature.made.front());
}

std::string text_batch(uint64_t records, uint64_t payload_bytes, uint64_t made_bytes) {
  const uint64_t record_bytes = std::max({records ? payload_bytes / records : 0, made_bytes, uint64_t{1}});
  const uint64_t most = std::min({uint64_t{128}, records, (uint64_t{16} << 20) / record_bytes});
  return fmt::format("batch {{ global_batch_size: {} last_batch_policy: DROP }}  # DROP, PARTIAL or PAD\n",
                     std::bit_floor(std::max<uint64_t>(most, 1)));
}

std::string text_errors(uint64_t damaged_places, uint64_t of_another_type, uint64_t unreadable_pictures) {
  std::string bad;
  for (const auto& [count, noun, what] : {std::tuple{damaged_places, "damaged place", ""},
                                          {of_another_type, "record", " of a different type"},
                                          {unreadable_pictures, "picture", " that cannot be read"}})
    if (count > 0) bad += (bad.empty() ? "" : ", ") + format_count(count, noun) + what;
  return bad.empty() ? "" : fmt::format("errors {{ on_error: SKIP_RECORD }}  # {}\n", bad);
}

std::string pipeline_text(const std::vector<std::string>& comments, const std::string& files,
                          std::vector<TextFeature> features, uint64_t records, uint64_t payload_bytes) {
  std::string text;
  for (const std::string& comment : comments) text += "# " + comment + "\n";
  text += fmt::format("source {{ files: {} }}\n", text_literal(files));
  TextOutputs outputs;
  std::vector<TextFeature*> all;
  for (TextFeature& feature : features) all.push_back(&feature);
  name_features(all);
  for (const TextFeature& feature : features) {
    text += text_feature(feature);
    outputs.add(feature);
  }
  text += text_batch(records, payload_bytes, outputs.made_bytes());
  text += text_errors(0, 0, outputs.unreadable());
  return outputs.made() ? text + outputs.text() : text;
}

}  // namespace feedline::tool
