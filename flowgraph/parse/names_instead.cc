#include "flowgraph/parse/names_instead.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/did_you_mean.h"
#include "base/utf8.h"

namespace feedline::flow {
namespace {

/// Returns the name as a message shows it: at most its first 80 bytes. In a name that is longer, is not UTF-8 or has
/// control characters, all bytes but printable ASCII are escaped (\xNN).
std::string shown(const std::string& name) {
  constexpr size_t longest = 80;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.size() <= longest && is_utf8(name) && std::none_of(name.begin(), name.end(), is_control)) return name;
  std::string text;
  for (const char c : std::string_view(name).substr(0, longest))
    text += c >= 0x20 && c < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text + (name.size() > longest ? "..." : "");
}

/// Returns text that says which name may have been meant: the same key in the other map of the record if it is there,
/// otherwise a similar key in the same map.
std::string instead(const FeatureSpec& feature, const std::vector<std::string>& names) {
  const std::string_view prefix = feature.prefix();
  std::string_view key = feature.key;
  std::vector<std::string> keys;
  std::string elsewhere;
  for (const std::string& name : names) {
    if (name.starts_with(prefix))
      keys.push_back(name.substr(prefix.size()));
    else if (name == key || std::string_view(name).substr(name.find('/') + 1) == key)
      elsewhere = fmt::format("; '{}' was found instead.", name);
  }
  if (!elsewhere.empty()) return elsewhere;
  if (key.starts_with(prefix)) key.remove_prefix(prefix.size());
  return did_you_mean(key, keys);
}

}  // namespace

std::string names_instead(const FeatureSpec& feature, std::vector<std::string> names) {
  const std::string wanted = feature.place();
  if (names.empty()) return "; no features were found";
  if (std::ranges::find(names, wanted) != names.end())
    return "; a feature of this name was found, but it has no list of values";
  constexpr size_t most = 10;
  for (std::string& name : names) name = shown(name);
  std::string text = instead(feature, names);
  const size_t more = names.size() - std::min(names.size(), most);
  if (more > 0) {
    std::vector<std::pair<size_t, std::string>> by_distance;
    for (std::string& name : names) by_distance.emplace_back(edit_distance(shown(wanted), name), name);
    std::sort(by_distance.begin(), by_distance.end());
    for (size_t i = 0; i < most; i++) names[i] = std::move(by_distance[i].second);
    names.resize(most);
  }
  text += text.empty() ? "; features found:" : " Features found:";
  for (const std::string& name : names) text += ' ' + name;
  return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

}  // namespace feedline::flow
