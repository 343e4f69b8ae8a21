#include "tool/stats/text_counts.h"

namespace feedline::tool {

void TextCounts::give_up() {
  too_many_ = true;
  counts_.clear();
}

void TextCounts::add(std::string_view text, uint64_t times) {
  if (too_many_) return;
  if (text.size() > longest) return give_up();
  const auto found = counts_.find(text);
  if (found != counts_.end()) {
    found->second += times;
    return;
  }
  if (counts_.size() == most) return give_up();
  counts_.emplace(text, times);
}

void TextCounts::merge(const TextCounts& other) {
  if (other.too_many_) give_up();
  for (const auto& [text, times] : other.counts_) add(text, times);
}

void TextCounts::put(MessageWriter& message) const {
  message.put(static_cast<uint64_t>(too_many_));
  message.put<uint64_t>(counts_.size());
  for (const auto& [text, times] : counts_) {
    message.put_text(text);
    message.put(times);
  }
}

void TextCounts::get(MessageReader& message) {
  too_many_ = message.get<uint64_t>() != 0;
  const auto texts = message.get<uint64_t>();
  if (texts > (too_many_ ? 0 : most)) message.refuse("counts too many texts");
  for (uint64_t i = 0; i < texts; i++) {
    const std::string_view text = message.get_text();
    if (text.size() > longest) message.refuse("counts a text that is too long");
    counts_.emplace(text, message.get<uint64_t>());
  }
}

}  // namespace feedline::tool
