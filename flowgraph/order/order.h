// Which sample comes when: a pure function of (data, seed, pass). No I/O, no threads.
//
// A pass takes the blocks of the data in an order of its own. That sequence of samples is cut into C lanes equal in
// samples; each step of G samples takes the next G/C of every lane, so that ranks can share the lanes. Of a mixture
// each source has an order of its own, cut into as many lanes.
//
// Shuffled (BLOCK), a lane mixes W blocks at a time: in its round t the blocks t, t-1, ... t-W+1 each give one of their
// W segments (which records are in a segment is random, too), in random order. So one block comes and one goes in each
// round. Unshuffled there is one lane, and its blocks come as they lie.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "flowgraph/order/lanes.h"
#include "flowgraph/order/sequence.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/order/windows.h"

namespace feedline::flow {

/// Of one lane: the samples [begin, end) of the pass's sequence.
struct Lane {
  uint64_t begin = 0, end = 0;
  uint32_t first_block = 0;  // of the pass's blocks: the one that `begin` lies in
  uint32_t blocks = 0;
  size_t first_round = 0;  // of Pass::round_ends
  uint32_t rounds = 0;
};

/// The order of one pass. Immutable.
struct Pass {
  uint64_t key = 0;              // of its random choices
  std::vector<uint32_t> blocks;  // numbers of blocks, in the order of this pass
  std::vector<uint64_t> starts;  // samples before each, and in all
  std::vector<Lane> lanes;
  std::vector<uint64_t> round_ends;  // samples of the lane up to the end of each of its rounds

  /// The part of a block that belongs to a lane: the block is number `first_block + i` of the sequence.
  struct Part {
    uint32_t block = 0;  // of Order::blocks()
    uint32_t first = 0, rows = 0;
  };
  Part part(const Lane& lane, uint32_t i) const noexcept;
};

class Order {
 public:
  /// Of some of the files of `data`, to which it keeps a reference. Throws Error bad_pipeline where the files cannot be
  /// read in such an order.
  Order(const DataSet& data, FileRange files, const ShuffleSpec& shuffle, const InterleaveSpec& interleave,
        const std::optional<WindowSpec>& window, const Lanes& lanes);

  ShuffleMode mode() const noexcept { return shuffle_.mode; }
  uint64_t samples() const noexcept { return file_starts_.back(); }
  FileRange files() const noexcept { return files_; }
  /// Samples before those of each file, and in all.
  const std::vector<uint64_t>& file_starts() const noexcept { return file_starts_; }
  /// Null: a sample is a record.
  const Windows* windows() const noexcept { return windows_ ? &*windows_ : nullptr; }
  /// Of samples; of frames where windows come in file order.
  const Blocks& blocks() const noexcept { return blocks_; }
  const Lanes& lanes() const noexcept { return lanes_; }
  /// Blocks of a lane that mix.
  uint32_t mixed_blocks() const noexcept { return mixed_blocks_; }

  /// `number`: since the beginning of the feed; it chooses the order. `phase`: within the epoch; it chooses where lanes
  /// are cut, so that over the passes of an epoch all lanes stay equal. Thread-safe; the last two are kept.
  std::shared_ptr<const Pass> pass(uint64_t number, uint64_t phase) const;

  /// Of the random choices of a pass that needs no more of it.
  uint64_t key_of_pass(uint64_t number) const noexcept;

  /// A sample of the data in file order, and the block that one is in.
  struct FileSample {
    uint32_t file = 0;
    uint64_t sample = 0;  // of the file
  };
  FileSample place(uint64_t sample) const noexcept;
  uint32_t block_at(uint32_t file, uint64_t sample) const noexcept;

  /// What is read for the samples [first, first + count) of a file, as rows of a ticket.
  void add_samples(Ticket& ticket, uint32_t file, uint64_t first, uint64_t count) const;
  /// Of one sample among the rows for those from `first` on: its first row, and how many it has, stride() apart.
  struct SampleRows {
    uint32_t first = 0, count = 1;
  };
  SampleRows rows_of(uint32_t file, uint64_t first, uint64_t sample) const noexcept {
    return windows_ ? rows_of_window(file, first, sample) : SampleRows{static_cast<uint32_t>(sample - first)};
  }
  /// Rows of a sample, where none is missing; and from one to the next.
  int64_t frames() const noexcept { return windows_ ? windows_->spec().size : 1; }
  int64_t stride() const noexcept { return windows_ ? windows_->spec().stride : 1; }

  /// NONE and BUFFER: the samples of a pass from one on, before they are shuffled.
  Sequence sequence(uint64_t pass, uint64_t position) const;
  const InterleaveSpec& interleave() const noexcept { return interleave_; }
  /// NONE: whether ranks read their rows out of a block, not the whole block; of the data as a whole, and of a block.
  /// Where steps are shorter, neighbours would read the same bytes many times over. Compressed files are never picked
  /// from: every rank has to inflate all of them anyway.
  static constexpr uint64_t fewest_picked_bytes = 128 << 10;
  bool picks_rows(int64_t global_batch) const noexcept;
  static bool picks_rows(const Block& block, int64_t global_batch) noexcept;
  /// The most bytes of a slot that the rows of one rank in a block take, where picks_rows().
  uint64_t most_picked_bytes(const Block& block, int64_t global_batch) const noexcept;

  /// BUFFER: samples that are in the buffer; how many steps of one sample a block stays open behind its last one; and
  /// how many blocks are open at once, at most, while a step takes so many samples.
  uint64_t buffer() const noexcept { return buffer_; }
  uint64_t buffer_age() const noexcept { return buffer_age_; }
  uint64_t open_in_buffer(uint64_t step) const;

  /// Windows in file order: blocks that are open at once, at most, while a step takes so many.
  uint64_t open_in_windows(uint64_t step) const;

  /// Interleaved files: blocks of a pass that are open at once, at most, while a step takes so many samples.
  uint64_t open_when_interleaved(uint64_t step) const;

  /// GLOBAL, and what BUFFER reads again: samples of a ticket, each read by itself; and what one takes of a slot at
  /// most.
  uint32_t picks() const noexcept { return picks_; }
  uint64_t pick_bytes() const noexcept { return pick_bytes_; }

  /// The phase of an epoch that a sample of a lane is in, and samples of the lane in the phases before one.
  uint64_t phase_at(uint32_t lane, uint64_t sample) const noexcept;
  uint64_t lane_samples(uint32_t lane, uint64_t phases) const noexcept {
    return lanes_.samples(lane, 0, phases * samples());
  }

  /// Blocks that a lane has open at once, at most, while a step takes its samples. Passes whose order would need more
  /// are drawn again, by the same rule everywhere.
  uint32_t open_blocks() const noexcept { return open_blocks_; }

  /// The most that any run of `count` consecutive samples touches, wherever it begins, unshuffled: blocks, and their
  /// bytes. In an endless sequence of passes, or within one. O(blocks).
  struct Span {
    uint64_t blocks = 0, bytes = 0;
  };
  Span largest_span(uint64_t count, bool within_one_pass) const;

  /// Blocks, and the passes that are kept.
  uint64_t memory_bytes() const noexcept;

 private:
  SampleRows rows_of_window(uint32_t file, uint64_t first, uint64_t sample) const noexcept;
  uint64_t samples_that_mix() const noexcept;
  void plan_buffer();
  void cut_lanes(Pass& pass, uint64_t phase) const;
  uint32_t plan_rounds(Pass& pass) const;
  std::shared_ptr<Pass> draw(uint64_t number, uint64_t phase, uint64_t attempt, uint32_t& open) const;

  const DataSet* data_;
  const ShuffleSpec shuffle_;
  InterleaveSpec interleave_;
  Blocks blocks_;
  FileRange files_;
  Lanes lanes_;
  std::optional<Windows> windows_;
  std::vector<uint64_t> file_starts_;  // samples before each file, and in all
  std::vector<uint32_t> file_blocks_;  // blocks before those of each file
  uint64_t buffer_ = 0, buffer_age_ = 0;
  uint32_t picks_ = 1;
  uint64_t pick_bytes_ = 0;
  uint32_t mixed_blocks_ = 1;
  uint32_t open_blocks_ = 0;

  struct Kept {
    uint64_t number = 0, phase = 0;
    std::shared_ptr<const Pass> pass;
  };
  mutable std::mutex mutex_;
  mutable std::array<Kept, 2> kept_;  // the later one last
};

/// In some of the files: records, or windows.
uint64_t count_samples(const DataSet& data, FileRange files, const std::optional<WindowSpec>& window);

/// So many lanes does a batch have: all of its own choice, or as many as it names. Throws Error bad_pipeline where they
/// do not fit the batch or the data.
uint32_t choose_lanes(const ShuffleSpec& shuffle, int64_t global_batch, uint64_t samples);

/// How the `rows` records of a block fall to its W segments: as evenly as whole numbers allow, from a random start.
struct Segments {
  uint32_t rows = 0, window = 1, start = 0;
  /// Rows in the first `count` segments.
  uint32_t before(uint32_t count) const noexcept;
  /// Of a row.
  uint32_t of(uint32_t row) const noexcept;
};
Segments segments_of(const Pass& pass, uint32_t block, uint32_t rows, uint32_t window) noexcept;

}  // namespace feedline::flow
