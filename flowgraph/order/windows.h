// Samples of several records: which records are whose frames.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowgraph/order/ticket.h"

namespace feedline::flow {

/// Samples as a window sees them: numbered through all files, in file order; a frame is one of them. Windows are
/// numbered in the order of their first frames. As tf.data's: one begins at every `shift` frames of a group, and has
/// every `stride`-th frame of it from there on. A group is a file (or all files of a source, with across_files), and
/// with a key each run of samples in it that have the same.
class Windows {
 public:
  /// Of some of the files; frames of the others are not counted.
  Windows(const DataSet& data, FileRange files, const WindowSpec& spec);

  uint64_t count() const noexcept {
    return groups_.empty() ? 0 : groups_.back().first_window + windows_of(groups_.back());
  }
  /// Windows whose first frame is among the frames [0, frame).
  uint64_t before(uint64_t frame) const noexcept;

  struct Window {
    uint64_t first = 0;  // frame
    int64_t frames = 0;  // there are so many of it: fewer than `size` only without drop_remainder
    uint64_t last(int64_t stride) const noexcept { return first + static_cast<uint64_t>((frames - 1) * stride); }
  };
  Window at(uint64_t window) const noexcept;

  /// What is read for `count` windows from `window` on: all frames from the first to the last of them, as rows.
  void add_to(Ticket& ticket, const DataSet& data, uint64_t window, uint64_t count) const;
  /// Blocks of frames as blocks of the windows that begin there; those with none are left out.
  void count_windows(Blocks& blocks) const;

  /// How many windows a frame is in.
  uint64_t uses(uint64_t frame) const noexcept;
  /// Calls edge(begin, end) for the frames that may be in fewer windows than frames in the middle of a long group:
  /// those near the ends of a group, and those of groups that have no window. Ascending.
  template <typename Edge>
  void for_each_edge(const Edge& edge) const {
    const auto call = [&](uint64_t begin, uint64_t end) {
      if (begin < end) edge(begin, end);
    };
    uint64_t at = 0;
    for (const Group& group : groups_) {
      call(at, group.begin);
      const uint64_t front = std::min(group.end, group.begin + span() - 1);
      call(group.begin, front);
      const uint64_t last = last_window(group);
      if (spec_.drop_remainder) call(std::max(front, last + 1), group.end);
      at = group.end;
    }
    call(at, file_starts_.back());
  }

  /// Calls part(file, first, count) for each file that has some of the frames [begin, end): these are its samples
  /// [first, first + count). Ascending.
  template <typename Part>
  void for_each_file(uint64_t begin, uint64_t end, const Part& part) const {
    auto file = static_cast<uint32_t>(std::upper_bound(file_starts_.begin(), file_starts_.end(), begin) -
                                      file_starts_.begin() - 1);
    for (; begin < end; file++) {
      const uint64_t until = std::min(end, file_starts_[file + 1]);
      if (until > begin) part(file, begin - file_starts_[file], until - begin);
      begin = until;
    }
  }

  const WindowSpec& spec() const noexcept { return spec_; }
  /// Frames from the first to the last of a window.
  uint64_t span() const noexcept { return static_cast<uint64_t>((spec_.size - 1) * spec_.stride + 1); }

  /// Of at least one frame.
  uint64_t groups() const noexcept { return group_count_; }
  uint64_t memory_bytes() const noexcept { return groups_.capacity() * sizeof(Group); }

  /// Frames before those of each file, and in all.
  const std::vector<uint64_t>& file_starts() const noexcept { return file_starts_; }

 private:
  struct Group {
    uint64_t begin = 0, end = 0;
    uint64_t first_window = 0;
  };
  uint64_t windows_of(const Group& group) const noexcept;
  /// The first frame of the last window.
  uint64_t last_window(const Group& group) const noexcept {
    return group.begin + (windows_of(group) - 1) * static_cast<uint64_t>(spec_.shift);
  }

  WindowSpec spec_;
  std::vector<Group> groups_;  // that have a window
  uint64_t group_count_ = 0;
  std::vector<uint64_t> file_starts_;
};

}  // namespace feedline::flow
