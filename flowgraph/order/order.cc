#include "flowgraph/order/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "base/byte_size.h"
#include "base/draws.h"
#include "base/mul_div.h"
#include "flowgraph/data/bad_bytes.h"
#include "flowgraph/order/purpose.h"

namespace feedline::flow {
namespace {

// The limits of a block that is read in file order. Reading this much costs several times what the graph's messages for
// it cost, and a dozen such blocks fit into the last-level cache. Measured: bench/results/engine.md.
constexpr BlockLimits file_order_limits = {.bytes = 512 << 10, .rows = 1 << 14};
constexpr uint32_t most_lanes = 64;

// A ticket whose samples are read one by one holds about this many bytes at most, so that it is not much larger than a
// ticket that reads a whole block. It holds less if a step has fewer samples, or if the blocks of a shuffle buffer are
// smaller.
constexpr uint64_t picked_bytes = 512 << 10;

// Throws Error bad_pipeline if shuffling would inflate long parts of a compressed file again and again, because the file
// has hardly any places at which inflating can begin.
void refuse_long_sections(std::span<const DataFile> files) {
  for (const DataFile& file : files) {
    const uint64_t longest = longest_section(file.index);
    if (longest > most_of_section(file.index.stride))
      throw Error(
          Category::bad_pipeline,
          fmt::format("shuffle: this compressed file has {} between two places at which inflating can begin; write "
                      "it anew with `feedline split`, or remove 'shuffle'",
                      format_byte_size(longest)),
          Place::of_file(file.id.uri));
  }
}

void check_block_size(std::span<const DataFile> files, const ShuffleSpec& shuffle) {
  for (const DataFile& file : files)
    if (shuffle.block_bytes % file.index.stride != 0)
      throw Error(Category::bad_pipeline,
                  fmt::format("shuffle.block_size: {} bytes is not a multiple of index.stride, which is {} bytes; "
                              "write a multiple of index.stride",
                              shuffle.block_bytes, file.index.stride));
}

Blocks cut(const DataSet& data, FileRange files, const ShuffleSpec& shuffle) {
  if (shuffle.mode != ShuffleMode::none) refuse_long_sections(data.in(files));
  switch (shuffle.mode) {
    case ShuffleMode::none:
    case ShuffleMode::buffer:
      return cut_by_size(data, files, file_order_limits);
    case ShuffleMode::block:
      check_block_size(data.in(files), shuffle);
      return cut_by_place(data, files, shuffle.block_bytes);
    case ShuffleMode::global:
      return {};
  }
  return {};
}

// Walks over the index entries of files, and sums up what lies before the current entry.
class Cuts {
 public:
  struct Sums {
    uint64_t bytes = 0;   // bytes of good records
    uint64_t pieces = 0;  // contiguous pieces of good bytes (cut at bad regions, ends of files), with the current one
    uint64_t frames = 0;  // samples, or frames of windows
  };

  explicit Cuts(std::span<const DataFile> files) : files_(files) { begin_file(); }

  const Sums& before() const noexcept { return sums_; }
  size_t file() const noexcept { return file_; }
  bool ended() const noexcept { return file_ == files_.size(); }
  bool at_end_of_file() const noexcept { return entry_ + 1 == files_[file_].index.entries.size(); }

  /// Goes to the next entry of the file. Precondition: neither ended() nor at_end_of_file().
  void next_entry() {
    const io::FileIndex& index = files_[file_].index;
    const io::IndexEntry &from = index.entries[entry_], &to = index.entries[++entry_];
    const BadBytes::Sum bad = bad_.until(to.offset);
    sums_.bytes += to.offset - from.offset - bad.bytes;
    sums_.pieces += bad.regions;
    sums_.frames += files_[file_].samples.before(to.record) - files_[file_].samples.before(from.record);
  }
  /// Goes to the first entry of the next file that has samples.
  void next_file() {
    file_++;
    begin_file();
  }

 private:
  void begin_file() {
    while (!ended() && files_[file_].samples.samples() == 0) file_++;
    entry_ = 0;
    if (ended()) return;
    sums_.pieces++;
    bad_ = BadBytes(files_[file_].index);
  }

  std::span<const DataFile> files_;
  size_t file_ = 0, entry_ = 0;
  BadBytes bad_;
  Sums sums_;
};

// Returns the maximum number of bytes of a slot that a run of `frames` consecutive frames takes, wherever it begins. A
// run is read from the index entry before its first frame to the entry after its last frame. Each contiguous piece of
// it is read in whole disk blocks. With `across_files` a run continues into the next files of its source. The time is
// linear in the number of entries.
uint64_t largest_run(std::span<const DataFile> files, uint64_t frames, bool across_files) {
  uint64_t largest = 0;
  Cuts begin(files), end(files);
  while (!begin.ended()) {
    if (begin.at_end_of_file()) {
      begin.next_file();
      continue;
    }
    const Cuts::Sums from = begin.before();
    begin.next_entry();
    if (begin.before().frames == from.frames) continue;
    if (end.file() < begin.file() || end.before().frames < begin.before().frames) end = begin;
    // Of the runs that begin between this entry and the next, the run that begins with the last frame before the next
    // entry reaches furthest.
    const uint64_t until = begin.before().frames - 1 + frames;
    while (end.before().frames < until) {
      if (!end.at_end_of_file()) {
        end.next_entry();
        continue;
      }
      Cuts next = end;
      next.next_file();
      if (next.ended() || !across_files || files[next.file()].source != files[begin.file()].source) break;
      end = next;
    }
    const uint64_t pieces = end.before().pieces - from.pieces + 1;
    largest = std::max(largest, end.before().bytes - from.bytes + pieces * bytes_around_extent);
  }
  return largest;
}

}  // namespace

uint32_t Segments::before(uint32_t first) const noexcept {
  const uint64_t scaled = uint64_t{first} * rows;
  return static_cast<uint32_t>(scaled / count) + ((scaled % count << 32) > uint64_t{start} * count ? 1 : 0);
}

uint32_t Segments::of(uint32_t row) const noexcept {
  return static_cast<uint32_t>(mul_div((uint64_t{row} << 32) + start, count, uint64_t{rows} << 32));
}

Segments segments_of(const Pass& pass, uint32_t block, uint32_t rows, uint32_t count) noexcept {
  return {rows, count, static_cast<uint32_t>(key_of({pass.key, of_segments, block}) >> 32)};
}

Pass::BlockPart Pass::part(const Lane& lane, uint32_t i) const noexcept {
  const uint32_t at = lane.first_block + i;
  const uint64_t from = std::max(lane.begin, starts[at]), to = std::min(lane.end, starts[at + 1]);
  return {blocks[at], static_cast<uint32_t>(from - starts[at]), static_cast<uint32_t>(to - from)};
}

uint64_t count_samples(const DataSet& data, FileRange files, const std::optional<WindowSpec>& window) {
  if (window) return Windows(data, files, *window).count();
  uint64_t samples = 0;
  for (const DataFile& file : data.in(files)) samples += file.samples.samples();
  return samples;
}

uint32_t choose_lanes(const ShuffleSpec& shuffle, int64_t global_batch, uint64_t samples, bool passes_differ) {
  if (shuffle.mode != ShuffleMode::block || samples == 0) return 1;
  const auto given = static_cast<uint32_t>(shuffle.lanes);
  if (!shuffle.reshuffle_each_epoch && passes_differ) {
    if (given > 1)
      throw Error(
          Category::bad_pipeline,
          fmt::format("shuffle.lanes: with {} lanes every pass of an epoch has a different order, but "
                      "reshuffle_each_epoch is false; write lanes: 1, or remove 'lanes' or reshuffle_each_epoch",
                      given));
    return 1;
  }
  if (given == 0) {
    // Every lane gets at least four samples; with fewer there is hardly any order to shuffle.
    const uint64_t most = std::clamp<uint64_t>(samples / 4, 1, most_lanes);
    for (auto lanes = static_cast<uint32_t>(std::min(most, static_cast<uint64_t>(global_batch)));; lanes--)
      if (global_batch % lanes == 0) return lanes;
  }
  if (global_batch % given != 0)
    throw Error(
        Category::bad_pipeline,
        fmt::format("shuffle.lanes: {} lanes do not divide the global batch of {} samples; write a divisor of the "
                    "global batch size, or leave 'lanes' out",
                    given, global_batch));
  if (given > 1 && samples < 4 * given)
    throw Error(Category::bad_pipeline,
                fmt::format("shuffle.lanes: {} lanes are too many for {} samples; leave 'lanes' out, or write at most "
                            "{}",
                            given, samples, std::max<uint64_t>(1, samples / 4)));
  return given;
}

Order::Order(const DataSet& data, FileRange files, const ShuffleSpec& shuffle, const InterleaveSpec& interleave,
             const std::optional<WindowSpec>& window, const Lanes& lanes)
    : data_(&data),
      shuffle_(shuffle),
      interleave_(interleave),
      blocks_(cut(data, files, shuffle)),
      files_(files),
      lanes_(lanes) {
  file_starts_.push_back(0);
  if (window) windows_.emplace(data, files, *window);
  // If blocks are shuffled, a window moves with the block in which it begins.
  if (window && mode() != ShuffleMode::none) windows_->count_windows(blocks_);
  for (uint32_t f = 0, block = 0; f < data.files.size(); f++) {
    const uint64_t own = files.has(f) ? data.files[f].samples.samples() : 0;
    file_starts_.push_back(windows_ ? windows_->before(windows_->file_starts()[f + 1]) : file_starts_.back() + own);
    file_blocks_.push_back(block);
    while (block < blocks_.size() && blocks_[block].file == f) block++;
  }
  interleave_.cycle_length = std::min(interleave_.cycle_length, std::max(1u, files_.count()));
  if (mode() == ShuffleMode::global || mode() == ShuffleMode::buffer) {
    pick_bytes_ = largest_run(data.in(files), windows_ ? windows_->span() : 1, window && window->across_files);
    // All slots have the same size. So in BUFFER, where most tickets are whole blocks, a ticket whose samples are read
    // one by one should not be larger than the largest block.
    uint64_t most = picked_bytes;
    if (mode() == ShuffleMode::buffer) {
      uint64_t largest = 0;
      for (const Block& block : blocks_) largest = std::max(largest, block.bytes);
      most = std::min(most, largest);
    }
    if (pick_bytes_ > 0) picks_ = static_cast<uint32_t>(std::clamp<uint64_t>(most / pick_bytes_, 1, lanes_.step));
  }
  if (shuffle.mode == ShuffleMode::buffer) plan_buffer();
  if (shuffle.mode != ShuffleMode::block || blocks_.empty()) return;
  const uint64_t samples_of_lane = (samples_that_mix() + lanes_.count - 1) / lanes_.count;
  mixed_blocks_ =
      static_cast<uint32_t>(std::max<uint64_t>(1, (samples_of_lane * blocks_.size() + samples() - 1) / samples()));
  // Allows as many open blocks as the worst of four random orders needs, and an eighth more. Most orders need no more
  // than that; if an order does, pass() draws another one.
  for (uint64_t attempt = 0; attempt < 4; attempt++) {
    uint32_t open = 0;
    draw(0, 0, attempt, open);
    open_blocks_ = std::max(open_blocks_, open);
  }
  open_blocks_ += open_blocks_ / 8 + 1;
}

uint64_t Order::samples_that_mix() const noexcept {
  uint64_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.bytes;
  const uint64_t asked = shuffle_.buffer_bytes > 0
                             ? mul_div(shuffle_.buffer_bytes, samples(), std::max<uint64_t>(1, bytes))
                             : static_cast<uint64_t>(shuffle_.buffer_size);
  return std::min(asked, samples());
}

void Order::plan_buffer() {
  buffer_ = std::clamp<uint64_t>(samples_that_mix(), 1, std::numeric_limits<uint32_t>::max());
  uint32_t rows = 1;
  for (const Block& block : blocks_) rows = std::max(rows, block.rows);
  // B is buffer_. After B (ln rows + 3) draws, a sample is still in the buffer with a probability of e^-3 / rows. So on
  // average a block has at most a twentieth of a sample left in the buffer. B draws are added for the first samples of
  // a pass: they can be drawn only from draw 0 on, but count as having entered the buffer up to B draws before that.
  buffer_age_ = buffer_ + static_cast<uint64_t>(static_cast<double>(buffer_) * (std::log(rows) + 3));
}

uint64_t Order::seed_of_pass(Wide number, uint64_t attempt) const noexcept {
  if (!shuffle_.reshuffle_each_epoch) number = 0;
  // `attempt` is small, so it shares a word with bits 64 to 95 of the pass number.
  return key_of(
      {shuffle_.seed, of_pass, static_cast<uint64_t>(number), attempt | static_cast<uint64_t>(number >> 64) << 32});
}

Order::FileSample Order::place(uint64_t sample) const noexcept {
  const auto next = std::upper_bound(file_starts_.begin(), file_starts_.end(), sample);
  return {static_cast<uint32_t>(next - file_starts_.begin() - 1), sample - next[-1]};
}

uint32_t Order::block_at(uint32_t file, uint64_t sample) const noexcept {
  const auto begin = blocks_.begin() + file_blocks_[file];
  const auto end = file + 1 < file_blocks_.size() ? blocks_.begin() + file_blocks_[file + 1] : blocks_.end();
  const auto next =
      std::upper_bound(begin, end, sample, [](uint64_t at, const Block& block) { return at < block.first; });
  return static_cast<uint32_t>(next - blocks_.begin() - 1);
}

void Order::add_samples(Ticket& ticket, uint32_t file, uint64_t first, uint64_t count) const {
  windows_ ? windows_->add_to(ticket, *data_, file_starts_[file] + first, count)
           : ticket.add(*data_, file, first, count);
}

Order::SampleRows Order::rows_of_window(uint32_t file, uint64_t first, uint64_t sample) const noexcept {
  const Windows::Window window = windows_->at(file_starts_[file] + sample);
  return {static_cast<uint32_t>(window.first - windows_->at(file_starts_[file] + first).first),
          static_cast<uint32_t>(window.frames)};
}

Sequence Order::sequence(Wide pass, uint64_t position) const {
  std::vector<uint32_t> files(files_.count());
  std::iota(files.begin(), files.end(), files_.first);
  if (shuffle_.shuffle_files) shuffle(std::span(files), Draws(key_of({seed_of_pass(pass), of_files})));
  return {file_starts_, std::move(files), interleave_, position};
}

uint64_t Order::open_in_windows(uint64_t step) const {
  const uint64_t of_window = largest_span(windows_->span(), true).blocks;
  if (interleave_.on()) return std::min<uint64_t>(blocks_.size(), (step + interleave_.cycle_length) * of_window);
  // The windows come in file order, so a step that touches the most blocks begins with the last window of a block.
  const std::vector<uint64_t>& starts = windows_->file_starts();
  const auto block_of = [&](uint64_t frame) {
    const auto file = std::upper_bound(starts.begin(), starts.end(), frame) - starts.begin() - 1;
    return block_at(static_cast<uint32_t>(file), frame - starts[static_cast<size_t>(file)]);
  };
  uint64_t most = 0;
  for (uint64_t b = 0; b < blocks_.size(); b++) {
    const uint64_t windows_before = windows_->before(starts[blocks_[b].file] + blocks_[b].first + blocks_[b].rows);
    if (windows_before == 0) continue;
    const uint64_t last = std::min(samples(), windows_before - 1 + step) - 1;
    const Windows::Window window = windows_->at(last);
    most = std::max(most, block_of(window.last(windows_->spec().stride)) -
                              std::min<uint64_t>(b, block_of(windows_->at(windows_before - 1).first)) + 1);
  }
  return std::min<uint64_t>(blocks_.size(), most + of_window);
}

// Here B is buffer(), and age is buffer_age(). Before draw number p of a pass, the samples from number p + B - age on
// may lie in open blocks; the blocks of older samples have expired. A step that begins with draw p ends before draw p +
// step. By its end, sample number p + step + B has not entered the buffer. So age + step samples may lie in open
// blocks.
uint64_t Order::open_in_buffer(uint64_t step) const {
  const uint64_t samples = buffer_age_ + step;
  if (!interleave_.on() && !shuffle_.shuffle_files) return largest_span(samples, true).blocks;
  return open_when_interleaved(samples);
}

// Adds up three kinds of blocks that a step needs at most. First, blocks that the step takes whole and that are not the
// last of their file: as many of the smallest blocks as fit into the step. Second, the last blocks of files that the
// step takes to their end. Last blocks are counted separately, because they can be many and small. But each belongs to
// a file that was open before the step, or to a file that the step takes whole. Third, for each open file the block in
// which the step begins, and the block in which it ends.
uint64_t Order::open_when_interleaved(uint64_t step) const {
  std::vector<uint64_t> blocks, files;  // samples of each block that is not the last of its file; samples of each file
  for (size_t b = 0; b < blocks_.size(); b++) {
    const bool first = b == 0 || blocks_[b - 1].file != blocks_[b].file;
    const bool last = b + 1 == blocks_.size() || blocks_[b + 1].file != blocks_[b].file;
    if (first) files.push_back(0);
    files.back() += blocks_[b].rows;
    if (!last) blocks.push_back(blocks_[b].rows);
  }
  const auto most_in_step = [&](std::vector<uint64_t>& sizes) {
    std::sort(sizes.begin(), sizes.end());
    uint64_t sum = 0, count = 0;
    while (count < sizes.size() && (sum += sizes[count]) <= step) count++;
    return count;
  };
  const uint64_t open = interleave_.cycle_length;
  const uint64_t ends = std::min<uint64_t>(files.size(), open + most_in_step(files));
  return std::min<uint64_t>(blocks_.size(), most_in_step(blocks) + ends + 2 * open);
}

bool Order::picks_rows(int64_t global_batch) const noexcept {
  if (shuffle_.mode != ShuffleMode::none || interleave_.on() || windows_) return false;
  uint64_t bytes = 0;
  for (const Block& block : blocks_) {
    if (data_->files[block.file].compressed()) return false;
    bytes += block.bytes;
  }
  return bytes / std::max<uint64_t>(1, samples()) * static_cast<uint64_t>(global_batch) >= fewest_picked_bytes;
}

bool Order::picks_rows(const Block& block, int64_t global_batch) noexcept {
  return block.bytes * static_cast<uint64_t>(global_batch) >= fewest_picked_bytes * block.rows;
}

// A rank has one run of consecutive rows in each step. The run is read from the index entry before it to the entry
// after it.
uint64_t Order::most_picked_bytes(const Block& block, int64_t global_batch) const noexcept {
  const io::FileIndex& index = data_->files[block.file].index;
  const auto step = static_cast<uint64_t>(global_batch);
  const uint64_t runs = std::min<uint64_t>(block.rows, (block.rows + step - 2) / step + 1);
  uint64_t gap = 0;
  for (uint32_t entry = block.begin; entry < block.end; entry++)
    gap = std::max(gap, index.entries[entry + 1].offset - index.entries[entry].offset);
  const auto first_bad = [&](uint32_t entry) { return first_bad_from(index, index.entries[entry].offset); };
  const auto regions = static_cast<uint64_t>(first_bad(block.end) - first_bad(block.begin));
  return std::min(runs * block.bytes, block.bytes + 2 * runs * gap) + (runs + regions) * bytes_around_extent;
}

uint64_t Order::epoch_pass_at(uint32_t lane, uint64_t sample) const noexcept {
  uint64_t epoch_pass = mul_div(sample, lanes_.count, samples());
  while (epoch_pass > 0 && lane_samples(lane, epoch_pass) > sample) epoch_pass--;
  while (lane_samples(lane, epoch_pass + 1) <= sample) epoch_pass++;
  return epoch_pass;
}

// Cuts the pass into lanes so that, counted over all passes of the epoch up to this one, every lane has had the same
// number of samples, to within one.
void Order::cut_lanes(Pass& pass, uint64_t epoch_pass) const {
  uint64_t begin = 0;
  for (uint32_t l = 0; l < lanes_.count; l++) {
    Lane lane{.begin = begin, .end = begin + lanes_.samples(l, epoch_pass * samples(), (epoch_pass + 1) * samples())};
    begin = lane.end;
    if (lane.begin < lane.end) {
      const auto blocks_up_to = [&](uint64_t sample) {
        return static_cast<uint32_t>(std::upper_bound(pass.starts.begin(), pass.starts.end(), sample) -
                                     pass.starts.begin());
      };
      lane.first_block = blocks_up_to(lane.begin) - 1;
      lane.blocks = blocks_up_to(lane.end - 1) - lane.first_block;
    }
    pass.lanes.push_back(lane);
  }
}

// Fills in the rounds of all lanes. Returns the maximum number of blocks that a lane has open while a step takes its
// samples.
uint32_t Order::plan_rounds(Pass& pass) const {
  uint32_t most = 0;
  std::vector<uint64_t> ends;
  for (Lane& lane : pass.lanes) {
    if (lane.blocks == 0) continue;
    lane.rounds = lane.blocks + mixed_blocks_ - 1;
    ends.assign(lane.rounds, 0);
    for (uint32_t i = 0; i < lane.blocks; i++) {
      const Pass::BlockPart part = pass.part(lane, i);
      const Segments segments = segments_of(pass, part.block, part.rows, mixed_blocks_);
      if (part.rows < mixed_blocks_) {
        for (uint32_t row = 0; row < part.rows; row++) ends[i + segments.of(row)]++;
      } else {
        for (uint32_t s = 0, sum = 0; s < mixed_blocks_; s++) {
          const uint32_t up_to = segments.before(s + 1);
          ends[i + s] += up_to - std::exchange(sum, up_to);
        }
      }
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    // The step that has the most blocks open begins with the last sample of a round.
    for (uint32_t first = 0, last = 0; first < lane.rounds; first++) {
      while (last + 1 < lane.rounds && ends[last] + 1 < ends[first] + lanes_.step) last++;
      last = std::max(first, last);
      const uint32_t oldest = first < mixed_blocks_ ? 0 : first - mixed_blocks_ + 1;
      most = std::max(most, std::min(last, lane.blocks - 1) - std::min(oldest, lane.blocks - 1) + 1);
    }
    lane.first_round = pass.round_ends.size();
    pass.round_ends.insert(pass.round_ends.end(), ends.begin(), ends.end());
  }
  return most;
}

std::shared_ptr<Pass> Order::draw(Wide number, uint64_t epoch_pass, uint64_t attempt, uint32_t& open) const {
  auto pass = std::make_shared<Pass>();
  pass->blocks.resize(blocks_.size());
  std::iota(pass->blocks.begin(), pass->blocks.end(), 0u);
  pass->key = seed_of_pass(number, attempt);
  shuffle(std::span(pass->blocks), Draws(pass->key));
  pass->starts.reserve(blocks_.size() + 1);
  pass->starts.push_back(0);
  for (uint32_t block : pass->blocks) pass->starts.push_back(pass->starts.back() + blocks_[block].rows);
  cut_lanes(*pass, epoch_pass);
  open = plan_rounds(*pass);
  return pass;
}

std::shared_ptr<const Pass> Order::pass(Wide number, uint64_t epoch_pass) const {
  const Lock lock(mutex_);
  for (const DrawnPass& kept : drawn_)
    if (kept.pass && kept.number == number && kept.epoch_pass == epoch_pass) return kept.pass;
  uint32_t open = 0;
  std::shared_ptr<const Pass> pass;
  for (uint64_t attempt = 0; attempt == 0 || open > open_blocks_; attempt++)
    pass = draw(number, epoch_pass, attempt, open);
  drawn_[0] = std::exchange(drawn_[1], {number, epoch_pass, pass});
  return pass;
}

Order::Span Order::largest_span(uint64_t count, bool within_one_pass) const {
  if (blocks_.empty()) return {};
  // Two pointers: `begin` is the first block of the span, `end` the first block after it. Block numbers continue from
  // pass to pass. The span that touches the most blocks begins at the last sample of its first block.
  const uint64_t blocks = blocks_.size();
  const auto rows = [&](uint64_t b) { return blocks_[b % blocks].rows; };
  Span largest;
  uint64_t end = 0, bytes = 0, end_sample = 0;  // end_sample: the number of samples before block `end`
  uint64_t begin_sample = 0;
  for (uint64_t begin = 0; begin < blocks; begin++) {
    const uint64_t span_end = begin_sample + rows(begin) - 1 + count;
    for (; end_sample < span_end && (end < blocks || !within_one_pass); end++) {
      bytes += blocks_[end % blocks].bytes;
      end_sample += rows(end);
    }
    largest.blocks = std::max(largest.blocks, end - begin);
    largest.bytes = std::max(largest.bytes, bytes);
    bytes -= blocks_[begin].bytes;
    begin_sample += rows(begin);
  }
  return largest;
}

uint64_t Order::memory_bytes() const noexcept {
  const uint64_t passes = shuffle_.mode != ShuffleMode::block
                              ? 0
                              : 3 * (blocks_.size() * (sizeof(uint32_t) + sizeof(uint64_t) * 2) +
                                     lanes_.count * (sizeof(Lane) + mixed_blocks_ * sizeof(uint64_t)));
  // The graph's nodes [read] and [assemble] have a BufferStream each. A BufferStream takes 8 bytes for each sample in
  // the buffer, and 25 for each block. One that begins in the middle of a pass needs 4 more bytes for each sample while
  // it is constructed; the two streams are constructed one after the other.
  const uint64_t buffers =
      shuffle_.mode == ShuffleMode::buffer ? buffer_ * (8 + 8 + 4) + 2 * blocks_.size() * 25 : uint64_t{0};
  return buffers + (windows_ ? windows_->memory_bytes() : 0) + blocks_.capacity() * sizeof(Block) +
         file_starts_.size() * (sizeof(uint32_t) + sizeof(uint64_t)) + passes;
}

}  // namespace feedline::flow
