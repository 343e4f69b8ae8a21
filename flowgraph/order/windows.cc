#include "flowgraph/order/windows.h"

#include <algorithm>
#include <utility>

namespace feedline::flow {

Windows::Windows(const DataSet& data, FileRange files, const WindowSpec& spec) : spec_(spec) {
  uint64_t frames = 0, begin = 0, windows = 0;
  const auto end_group_at = [&](uint64_t end) {
    const Group group{std::exchange(begin, end), end, windows};
    if (group.begin == end) return;
    group_count_++;
    windows += windows_of(group);
    if (windows > group.first_window) groups_.push_back(group);
  };
  for (uint32_t f = 0; f < data.files.size(); f++) {
    file_starts_.push_back(frames);
    if (!files.has(f)) continue;
    const DataFile& file = data.files[f];
    if (!spec.across_files || (f > 0 && file.source != data.files[f - 1].source)) end_group_at(frames);
    for (uint64_t i = 0; file.key_changes && i < file.key_changes->size(); i++)
      end_group_at(frames + file.key_changes->at(i));
    frames += file.samples.samples();
  }
  end_group_at(frames);
  file_starts_.push_back(frames);
}

uint64_t Windows::windows_of(const Group& group) const noexcept {
  const uint64_t frames = group.end - group.begin, shift = static_cast<uint64_t>(spec_.shift);
  if (!spec_.drop_remainder) return (frames + shift - 1) / shift;
  return frames < span() ? 0 : (frames - span()) / shift + 1;
}

uint64_t Windows::before(uint64_t frame) const noexcept {
  const auto next = std::upper_bound(groups_.begin(), groups_.end(), frame,
                                     [](uint64_t at, const Group& group) { return at < group.begin; });
  if (next == groups_.begin()) return 0;
  const Group& group = next[-1];
  const uint64_t shift = static_cast<uint64_t>(spec_.shift);
  return group.first_window + std::min(windows_of(group), (frame - group.begin + shift - 1) / shift);
}

Windows::Window Windows::at(uint64_t window) const noexcept {
  const auto next = std::upper_bound(groups_.begin(), groups_.end(), window,
                                     [](uint64_t at, const Group& group) { return at < group.first_window; });
  const Group& group = next[-1];
  const uint64_t first = group.begin + (window - group.first_window) * static_cast<uint64_t>(spec_.shift);
  const uint64_t there =
      (group.end - first + static_cast<uint64_t>(spec_.stride) - 1) / static_cast<uint64_t>(spec_.stride);
  return {first, static_cast<int64_t>(std::min(there, static_cast<uint64_t>(spec_.size)))};
}

uint64_t Windows::uses(uint64_t frame) const noexcept {
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), frame,
                                      [](uint64_t at, const Group& group) { return at < group.begin; });
  if (after == groups_.begin() || frame >= after[-1].end) return 0;
  const Group& group = after[-1];
  uint64_t count = 0;
  for (int64_t f = 0; f < spec_.size; f++) {
    const auto back = static_cast<uint64_t>(f * spec_.stride);
    if (back > frame - group.begin) break;
    const uint64_t first = frame - back;
    count += (first - group.begin) % static_cast<uint64_t>(spec_.shift) == 0 && first <= last_window(group);
  }
  return count;
}

void Windows::add_to(Ticket& ticket, const DataSet& data, uint64_t window, uint64_t count) const {
  uint64_t end = 0;
  // Looks at every window, because a short window may end before an earlier window does.
  for (uint64_t w = window; w < window + count; w++) end = std::max(end, at(w).last(spec_.stride) + 1);
  for_each_file(at(window).first, end,
                [&](uint32_t file, uint64_t first, uint64_t frames) { ticket.add(data, file, first, frames); });
}

void Windows::count_windows(Blocks& blocks) const {
  for (Block& block : blocks) {
    const uint64_t file = file_starts_[block.file], begin = before(file + block.first);
    block.rows = static_cast<uint32_t>(before(file + block.first + block.rows) - begin);
    block.first = begin - before(file);
  }
  std::erase_if(blocks, [](const Block& block) { return block.rows == 0; });
}

}  // namespace feedline::flow
