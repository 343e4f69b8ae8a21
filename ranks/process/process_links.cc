#include "ranks/process/process_links.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace feedline::ranks {

Note::Note(Kind k, const Error& why, uint64_t finished)
    : kind(k), category(why.category()), calls(finished), offset(why.place().offset), record(why.place().record) {
  const auto put = [](std::string_view text, auto& chars) {
    const std::string_view fits = cut_text(text, chars.size() - 1);
    fits.copy(chars.data(), fits.size());
  };
  put(why.place().file, file);
  put(why.place().feature, feature);
  put(why.message(), message);
}

Error Note::error() const {
  const auto text = [](const auto& chars) { return std::string(chars.data(), strnlen(chars.data(), chars.size())); };
  const bool known = category <= Category::internal_error;  // the category comes from another process
  return Error(known ? category : Category::bad_pipeline, text(message), {text(file), offset, record, text(feature)});
}

Links::~Links() = default;

void Links::begin_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  std::vector<Part> sends, receives;
  for (int other = 0; other < size(); other++) {
    const std::span theirs = all.subspan(static_cast<size_t>(other) * mine.size(), mine.size());
    if (other == rank()) {
      if (!mine.empty() && theirs.data() != mine.data()) std::memcpy(theirs.data(), mine.data(), mine.size());
      continue;
    }
    sends.push_back({other, {const_cast<std::byte*>(mine.data()), mine.size()}});
    receives.push_back({other, theirs});
  }
  begin(sends, receives);
}

void Links::begin_broadcast(std::span<std::byte> data, int root) {
  std::vector<Part> parts;
  for (int other = 0; other < size(); other++)
    if (rank() == root ? other != root : other == root) parts.push_back({other, data});
  rank() == root ? begin(parts, {}) : begin({}, parts);
}

}  // namespace feedline::ranks
