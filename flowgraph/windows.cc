#include "flowgraph/windows.h"

#include <algorithm>

namespace feedline::flow {

Windows::Windows(const DataSet& data, FileRange files, const WindowSpec& spec) : spec_(spec) {
  uint64_t frames = 0, windows = 0;
  const auto add = [&](uint64_t begin, uint64_t end) {
    groups_.push_back({begin, end, windows});
    windows += windows_of(groups_.back());
  };
  uint64_t source_begin = 0;
  for (uint32_t f = 0; f < data.files.size(); f++) {
    file_starts_.push_back(frames);
    if (!files.has(f)) continue;
    const uint64_t begin = frames;
    frames += data.files[f].samples.samples();
    if (!spec.across_files) {
      add(begin, frames);
    } else if (f + 1 == data.files.size() || data.files[f + 1].source != data.files[f].source) {
      add(source_begin, frames);
      source_begin = frames;
    }
  }
  file_starts_.push_back(frames);
}

uint64_t Windows::windows_of(const Group& group) const noexcept {
  const uint64_t frames = group.end - group.begin, shift = static_cast<uint64_t>(spec_.shift);
  if (!spec_.drop_remainder) return (frames + shift - 1) / shift;
  return frames < span() ? 0 : (frames - span()) / shift + 1;
}

uint64_t Windows::before(uint64_t frame) const noexcept {
  const auto behind = std::upper_bound(groups_.begin(), groups_.end(), frame,
                                       [](uint64_t at, const Group& group) { return at < group.begin; });
  if (behind == groups_.begin()) return 0;
  const Group& group = behind[-1];
  const uint64_t shift = static_cast<uint64_t>(spec_.shift);
  return group.first_window + std::min(windows_of(group), (frame - group.begin + shift - 1) / shift);
}

Windows::Window Windows::at(uint64_t window) const noexcept {
  const auto behind = std::upper_bound(groups_.begin(), groups_.end(), window,
                                       [](uint64_t at, const Group& group) { return at < group.first_window; });
  const Group& group = behind[-1];
  const uint64_t first = group.begin + (window - group.first_window) * static_cast<uint64_t>(spec_.shift);
  const uint64_t there =
      (group.end - first + static_cast<uint64_t>(spec_.stride) - 1) / static_cast<uint64_t>(spec_.stride);
  return {first, static_cast<int64_t>(std::min(there, static_cast<uint64_t>(spec_.size)))};
}

}  // namespace feedline::flow
