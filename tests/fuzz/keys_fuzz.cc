// Names of a table's rows: what a file of names says, beside a slow, simple reading of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/table/key_map.h"

namespace {

using namespace feedline;

/// A file in memory.
class Bytes final : public io::SourceFile {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (offset + into.size() > bytes_.size()) std::abort();
    bytes_.copy(reinterpret_cast<char*>(into.data()), into.size(), offset);
  }

 private:
  std::string_view bytes_;
  std::string path_ = "names";
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    text = end == text.npos ? "" : text.substr(end + 1);
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> lines = lines_of(text);
  std::map<std::string, int64_t> rows;
  bool twice = false;
  for (size_t i = 0; i < lines.size(); i++) twice |= !rows.emplace(lines[i], static_cast<int64_t>(i)).second;
  try {
    const flow::KeyMap map(Bytes(text), lines.size());
    if (twice) std::abort();
    for (std::string name : lines)
      for (const int64_t change : {0, 1}) {
        if (change && !name.empty()) name.back() = static_cast<char>(name.back() + 1);
        const flow::KeyMap::Key key = std::as_bytes(std::span(name));
        int64_t row = -2;
        map.find({&key, 1}, {&row, 1});
        const auto found = rows.find(name);
        if (row != (found == rows.end() ? -1 : found->second)) std::abort();
      }
  } catch (const Error&) {
    if (!twice) std::abort();
  }
  return 0;
}
