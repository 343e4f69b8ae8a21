// Windows: samples that consist of several records. This class computes which records are the frames of which window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "flowgraph/order/ticket.h"

namespace feedline::flow {

/// The windows over some files. A frame is a record that a window may contain; frames are numbered in file order
/// through all files. Windows are numbered in the order of their first frames. A window begins at every `shift`-th
/// frame of a group, and contains `size` frames of the group that are `stride` frames apart, as in tf.data. A group is
/// a file, or with across_files all files of a source. With a key, groups are cut further, wherever the key changes.
class Windows {
 public:
  /// Computes the windows over the files `files`. Records of other files are not counted as frames.
  Windows(const DataSet& data, FileRange files, const WindowSpec& spec);

  uint64_t count() const noexcept {
    return groups_.empty() ? 0 : groups_.back().first_window + windows_of(groups_.back());
  }
  /// Returns the number of windows that begin at one of the frames [0, frame).
  uint64_t before(uint64_t frame) const noexcept;

  struct Window {
    uint64_t first = 0;  // the first frame
    int64_t frames = 0;  // the number of frames; fewer than `size` only without drop_remainder
    /// Returns the last frame.
    uint64_t last(int64_t stride) const noexcept { return first + static_cast<uint64_t>((frames - 1) * stride); }
  };
  Window at(uint64_t window) const noexcept;

  /// Appends the rows that must be read for the windows [window, window + count): all frames from the first frame to
  /// the last frame of these windows.
  void add_to(Ticket& ticket, const DataSet& data, uint64_t window, uint64_t count) const;
  /// Turns blocks of frames into blocks of windows: a block has the windows that begin in it. Blocks without a window
  /// are removed.
  void count_windows(Blocks& blocks) const;

  /// Returns the number of windows that contain a frame.
  uint64_t uses(uint64_t frame) const noexcept;
  /// Calls edge(begin, end) for the frames [begin, end) that may be in fewer windows than the frames in the middle of a
  /// long group: frames near the ends of a group, and frames of groups that have no window. The calls are in ascending
  /// order.
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

  /// Calls part(file, first, count) for each file that has some of the frames [begin, end): they are the records
  /// [first, first + count) of the file's selection. The calls are in ascending order.
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
  /// Returns the number of frames from the first to the last frame of a window, including those between its frames.
  uint64_t span() const noexcept { return static_cast<uint64_t>((spec_.size - 1) * spec_.stride + 1); }

  /// The number of groups that have at least one frame.
  uint64_t groups() const noexcept { return group_count_; }
  uint64_t memory_bytes() const noexcept { return groups_.capacity() * sizeof(Group); }

  /// For each file, the number of frames before its own; the last entry is the number of all frames.
  const std::vector<uint64_t>& file_starts() const noexcept { return file_starts_; }

 private:
  struct Group {
    uint64_t begin = 0, end = 0;  // frames
    uint64_t first_window = 0;
  };
  uint64_t windows_of(const Group& group) const noexcept;
  /// Returns the first frame of a group's last window.
  uint64_t last_window(const Group& group) const noexcept {
    return group.begin + (windows_of(group) - 1) * static_cast<uint64_t>(spec_.shift);
  }

  WindowSpec spec_;
  std::vector<Group> groups_;  // the groups that have a window
  uint64_t group_count_ = 0;
  std::vector<uint64_t> file_starts_;
};

}  // namespace feedline::flow
