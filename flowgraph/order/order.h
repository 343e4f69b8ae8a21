// The order of the samples of a pass. It is a pure function of (data, seed, pass): no I/O, no threads.
//
// The shuffle mode decides how an order is made. Each mode has a SampleStream (sample_stream.h) that yields its
// samples:
//
//   NONE    The samples come as the files hold them, one file after another or interleaved (sequence.h). They are read
//           in blocks: neighbouring records of one file, cut at offsets that the file's index knows. There are three
//           streams: for records (file_stream.h), for the user's windows (window_stream.h), and for ranks that read
//           only their own rows of a block (picked_stream.h).
//   BUFFER  The same sequence goes through a buffer of B samples, as in tf.data. Each draw takes a random sample out of
//           the buffer, and the next sample of the sequence takes its place (buffer_stream.h).
//   GLOBAL  All samples of the pass are permuted (permutation.h), and each is read by itself (global_stream.h).
//   BLOCK   Whole blocks are permuted, and a few blocks at a time are mixed, as described below (block_stream.h).
//
// BLOCK works as follows. A pass puts the blocks of the data into a random order. This gives one long sequence of
// samples, which is cut into C stretches, the lanes, of equal numbers of samples (to within one). Each step of G
// samples takes the next G/C samples of every lane. So ranks can divide the lanes among themselves, and each rank reads
// only the blocks of its own lanes.
//
// A lane does not yield its blocks one by one. It mixes W blocks at a time, in rounds. The samples of each block are
// shuffled and cut into W segments. Round t takes one segment of each of the blocks t, t-1, ... t-W+1 of the lane, and
// yields their samples in random order. So in every round one block is opened and one is finished. W is chosen so that
// the W blocks of all C lanes together have about shuffle.buffer_size samples; it is at least 1. For W = 3:
//
//   round     0   1   2   3   4  ...
//   block 0   s0  s1  s2
//   block 1       s0  s1  s2
//   block 2           s0  s1  s2          block b gives its segment s in round b + s
//
// The modes other than BLOCK have one lane. In a mixture each source has an Order of its own, cut into the same number
// of lanes; a lane of the mixture draws from the same lane of each source (mixture.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mul_div.h"
#include "base/mutex.h"
#include "flowgraph/order/lanes.h"
#include "flowgraph/order/sequence.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/order/windows.h"

namespace feedline::flow {

/// One lane of a pass: the samples [begin, end) of the pass's sequence of blocks.
struct Lane {
  uint64_t begin = 0, end = 0;
  uint32_t first_block = 0;  // index in Pass::blocks of the block in which `begin` lies
  uint32_t blocks = 0;       // the number of blocks that the lane reaches into, partly or wholly
  size_t first_round = 0;    // index in Pass::round_ends of the lane's first round
  uint32_t rounds = 0;
};

/// The order of one pass with shuffle.mode BLOCK. Immutable.
struct Pass {
  uint64_t key = 0;              // the seed of the random choices of this pass
  std::vector<uint32_t> blocks;  // indexes in Order::blocks(), in the order of this pass
  std::vector<uint64_t> starts;  // for each entry of `blocks`, the samples before it; the last entry is the total
  std::vector<Lane> lanes;
  std::vector<uint64_t> round_ends;  // lane after lane: the lane's samples up to the end of each round (prefix sums)

  /// The samples [first, first + rows) of a block that belong to one lane. A block on the border between two lanes has
  /// a part in each of them.
  struct BlockPart {
    uint32_t block = 0;  // index in Order::blocks()
    uint32_t first = 0, rows = 0;
  };
  /// Returns the part of the lane's i-th block that belongs to the lane.
  BlockPart part(const Lane& lane, uint32_t i) const noexcept;
};

/// The order in which the samples of some files are delivered, pass after pass.
class Order {
 public:
  /// Makes the order of the files `files` of `data`, and keeps a reference to `data`. Throws Error bad_pipeline if the
  /// files cannot be read in such an order: if a compressed file would be shuffled that has hardly any places at which
  /// inflating can begin, or if shuffle.block_size is not a multiple of an index's stride.
  Order(const DataSet& data, FileRange files, const ShuffleSpec& shuffle, const InterleaveSpec& interleave,
        const std::optional<WindowSpec>& window, const Lanes& lanes);

  ShuffleMode mode() const noexcept { return shuffle_.mode; }
  /// The number of samples in one pass.
  uint64_t samples() const noexcept { return file_starts_.back(); }
  FileRange files() const noexcept { return files_; }
  /// For each file of the data set, the number of samples before the file's own; the last entry is the total.
  const std::vector<uint64_t>& file_starts() const noexcept { return file_starts_; }
  /// The user's windows, which are samples of several records. Null if a sample is a single record.
  const Windows* windows() const noexcept { return windows_ ? &*windows_ : nullptr; }
  /// The blocks, in file order. There are none in shuffle mode GLOBAL. Block sizes count samples, except in mode NONE
  /// with windows, where they count frames (records that a window may contain; see windows.h).
  const Blocks& blocks() const noexcept { return blocks_; }
  const Lanes& lanes() const noexcept { return lanes_; }
  /// BLOCK: how many blocks a lane mixes at a time, W. This has nothing to do with the user's windows.
  uint32_t mixed_blocks() const noexcept { return mixed_blocks_; }

  /// BLOCK: returns the order of a pass. `number` (Steps::first_pass() + `epoch_pass`) chooses the random order.
  /// `epoch_pass`, the number of the pass in its epoch, chooses where the lanes are cut, so that all lanes have equally
  /// many samples (to within one) over the passes of an epoch. Thread-safe. The two passes drawn last are cached, so
  /// that asking for one of them again is cheap.
  std::shared_ptr<const Pass> pass(Wide number, uint64_t epoch_pass) const;

  /// Returns the seed of the random choices of pass `number`, which is below 2^96 (Steps::first_pass()). BLOCK draws a
  /// pass again if its order needs too many open blocks; `attempt` counts these draws.
  uint64_t seed_of_pass(Wide number, uint64_t attempt = 0) const noexcept;

  /// A sample, by its file and its number within that file.
  struct FileSample {
    uint32_t file = 0;
    uint64_t sample = 0;
  };
  /// Returns the file of sample number `sample`, counted in file order through all files, and its number in that file.
  FileSample place(uint64_t sample) const noexcept;
  /// Returns the index in blocks() of the block that holds sample number `sample` of a file. In shuffle mode NONE with
  /// windows, `sample` is the number of a frame.
  uint32_t block_at(uint32_t file, uint64_t sample) const noexcept;

  /// Appends to `ticket` the rows (records) that must be read for the samples [first, first + count) of a file.
  void add_samples(Ticket& ticket, uint32_t file, uint64_t first, uint64_t count) const;
  /// The rows of a ticket that hold one sample: `count` rows from row number `first` on, stride() rows apart.
  struct SampleRows {
    uint32_t first = 0, count = 1;
  };
  /// Returns the rows of sample number `sample` of a file. Row 0 is the first row of the file's sample number `first`.
  SampleRows rows_of(uint32_t file, uint64_t first, uint64_t sample) const noexcept {
    return windows_ ? rows_of_window(file, first, sample) : SampleRows{static_cast<uint32_t>(sample - first)};
  }
  /// The number of rows of a complete sample: the frames of a window, or 1.
  int64_t frames() const noexcept { return windows_ ? windows_->spec().size : 1; }
  /// The distance, in rows of a ticket, from one frame of a sample to the next.
  int64_t stride() const noexcept { return windows_ ? windows_->spec().stride : 1; }

  /// NONE and BUFFER: returns the samples of pass `pass` from sample `position` on, before they are shuffled.
  Sequence sequence(Wide pass, uint64_t position) const;
  const InterleaveSpec& interleave() const noexcept { return interleave_; }
  /// NONE: returns whether each rank reads only its own rows of a block, and not the whole block. The first overload
  /// decides for the data as a whole, the second for one block. Ranks pick rows only if the samples of a step have at
  /// least fewest_picked_bytes; with shorter steps, neighbouring ranks would read the same bytes many times over. Rows
  /// are never picked out of compressed files, because a rank would have to inflate most of such a file anyway.
  static constexpr uint64_t fewest_picked_bytes = 128 << 10;
  bool picks_rows(int64_t global_batch) const noexcept;
  static bool picks_rows(const Block& block, int64_t global_batch) noexcept;
  /// Returns the maximum number of bytes that one rank's rows of a block take in a slot, the memory that a ticket is
  /// read into. Precondition: picks_rows().
  uint64_t most_picked_bytes(const Block& block, int64_t global_batch) const noexcept;

  /// BUFFER: the number of samples in the buffer.
  uint64_t buffer() const noexcept { return buffer_; }
  /// BUFFER: the number of draws for which a block stays open after its last sample has entered the buffer. The first
  /// buffer() samples of a pass fill the buffer before the first draw; they count as if they, too, had entered it one
  /// by one, each with a draw before the first.
  uint64_t buffer_age() const noexcept { return buffer_age_; }
  /// BUFFER: returns the maximum number of blocks that are open (in memory) at once while a step takes `step` samples.
  uint64_t open_in_buffer(uint64_t step) const;

  /// NONE with windows: returns the maximum number of blocks that are open (in memory) at once while a step takes
  /// `step` windows.
  uint64_t open_in_windows(uint64_t step) const;

  /// If files are interleaved: returns the maximum number of blocks of one pass that are open (in memory) at once while
  /// a step takes `step` samples.
  uint64_t open_when_interleaved(uint64_t step) const;

  /// The maximum number of samples in a ticket whose samples are read one by one, from different places. GLOBAL has
  /// only such tickets; BUFFER has them for samples that are read again.
  uint32_t picks() const noexcept { return picks_; }
  /// The maximum number of bytes of a slot that a sample takes if it is read by itself: from the index entry before it
  /// to the entry after it, in whole disk blocks.
  uint64_t pick_bytes() const noexcept { return pick_bytes_; }

  /// Returns the pass, counted from the beginning of the epoch, in which a lane's sample lies. If each epoch continues
  /// where the last one ended, samples and passes are counted from the beginning of the feed.
  uint64_t epoch_pass_at(uint32_t lane, uint64_t sample) const noexcept;
  /// Returns the number of samples that a lane has in its first `passes` passes.
  uint64_t lane_samples(uint32_t lane, uint64_t passes) const noexcept {
    return lanes_.samples(lane, 0, passes * samples());
  }

  /// BLOCK: the maximum number of blocks that a lane has open (in memory) at once while a step takes samples. If the
  /// random order of a pass needs more open blocks, pass() draws a new order, which is the same on every rank.
  uint32_t open_blocks() const noexcept { return open_blocks_; }

  struct Span {
    uint64_t blocks = 0, bytes = 0;
  };
  /// Returns the maximum number of blocks, and of bytes of blocks, that a run of `count` consecutive samples in file
  /// order touches, wherever the run begins. The run lies within one pass if `within_one_pass` is true, otherwise in an
  /// endless sequence of passes. Takes O(blocks) time.
  Span largest_span(uint64_t count, bool within_one_pass) const;

  /// Returns the bytes of memory of the blocks, the tables by file, the windows and the cached passes. For BUFFER it
  /// adds the buffers of the two streams that yield this order's samples.
  uint64_t memory_bytes() const noexcept;

 private:
  SampleRows rows_of_window(uint32_t file, uint64_t first, uint64_t sample) const noexcept;
  uint64_t samples_that_mix() const noexcept;
  void plan_buffer();
  void cut_lanes(Pass& pass, uint64_t epoch_pass) const;
  uint32_t plan_rounds(Pass& pass) const;
  std::shared_ptr<Pass> draw(Wide number, uint64_t epoch_pass, uint64_t attempt, uint32_t& open) const;

  const DataSet* data_;
  const ShuffleSpec shuffle_;
  InterleaveSpec interleave_;
  Blocks blocks_;
  FileRange files_;
  Lanes lanes_;
  std::optional<Windows> windows_;
  std::vector<uint64_t> file_starts_;  // by file: the number of samples before its own; the last entry is the total
  std::vector<uint32_t> file_blocks_;  // by file: the number of blocks before its own
  uint64_t buffer_ = 0, buffer_age_ = 0;
  uint32_t picks_ = 1;
  uint64_t pick_bytes_ = 0;
  uint32_t mixed_blocks_ = 1;
  uint32_t open_blocks_ = 0;

  struct DrawnPass {
    Wide number = 0;
    uint64_t epoch_pass = 0;
    std::shared_ptr<const Pass> pass;
  };
  mutable Mutex mutex_;
  mutable std::array<DrawnPass, 2> drawn_ FEEDLINE_GUARDED_BY(mutex_);  // the pass drawn last is at the end
};

/// Returns the number of samples in the files `files` of `data`: of windows if `window` is set, otherwise of records.
uint64_t count_samples(const DataSet& data, FileRange files, const std::optional<WindowSpec>& window);

/// Returns the number of lanes, C: shuffle.lanes if the pipeline sets it, otherwise the largest divisor of the global
/// batch that is at most 64 and leaves each lane at least four samples. It is 1 in all modes but BLOCK. Throws Error
/// bad_pipeline if shuffle.lanes does not divide the global batch or is too large for `samples`. `passes_differ` says
/// whether several passes of an epoch would be cut into lanes in different ways. If they would, but all passes must
/// have the same order (reshuffle_each_epoch is false), returns 1, and throws if shuffle.lanes is larger.
uint32_t choose_lanes(const ShuffleSpec& shuffle, int64_t global_batch, uint64_t samples, bool passes_differ);

/// Cuts a shuffled block (or a lane's part of a block) into its W segments: `rows` samples into `count` segments, as
/// evenly as whole numbers allow. `start` / 2^32, a random number below 1, shifts the borders by a part of a sample.
/// Without this shift, a block with fewer than W samples would always give them to the same segments.
struct Segments {
  uint32_t rows = 0, count = 1, start = 0;
  /// Returns the number of samples in the first `first` segments.
  uint32_t before(uint32_t first) const noexcept;
  /// Returns the segment of the sample number `row` in the block's shuffled order.
  uint32_t of(uint32_t row) const noexcept;
};
/// Returns the segments of a block, or of the part of it with `rows` samples. `count` is W (Order::mixed_blocks()).
Segments segments_of(const Pass& pass, uint32_t block, uint32_t rows, uint32_t count) noexcept;

}  // namespace feedline::flow
