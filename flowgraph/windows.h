// Samples of several records: which records are whose frames.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/ticket.h"

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

  WindowSpec spec_;
  std::vector<Group> groups_;  // that have a window
  uint64_t group_count_ = 0;
  std::vector<uint64_t> file_starts_;
};

}  // namespace feedline::flow
