#include "flowgraph/chunk/file_inflater.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/mul_div.h"
#include "flowgraph/plan/reader_memory.h"
#include "flowgraph/plan/schedule.h"
#include "io/read/read_backend.h"

namespace feedline::flow {
namespace {

// Returns where the reads end that need the bytes of a file before a seek point, and mostly those of the records on the
// border. All reads but the last of a file end with a block of the disk, so that the next one begins at the front of its
// buffer (io::Read::buffer).
uint64_t end_of_reads(const io::SeekPoint& point, const DataFile& file) noexcept {
  constexpr uint64_t most_beyond = 32 << 10;
  const uint64_t beyond = std::min(most_beyond, file.index.stride + file.index.largest_record);
  return std::min(file.id.size, round_up(point.bit / 8 + 1 + beyond, io::block_bytes));
}

}  // namespace

FileInflater::FileInflater(const Schedule& schedule, std::span<std::byte> memory, Callbacks callbacks)
    : schedule_(schedule),
      callbacks_(std::move(callbacks)),
      skipped_(memory.subspan(2 * inflater_input_bytes, inflater_skip_bytes)) {
  for (size_t i = 0; i < inputs_.size(); i++)
    inputs_[i] = {
        .inflater = this, .number = static_cast<uint32_t>(i), .buffer = memory.data() + i * inflater_input_bytes};
}

void FileInflater::open(uint32_t file, uint64_t offset) {
  const io::FileIndex& index = schedule_.data.files[file].index;
  const Selection& samples = schedule_.data.files[file].samples;
  const size_t number = index.seek_point_before(offset);
  open_file_ = file;
  added_until_ = number == 0 ? 0 : index.seek_points[number - 1].point.offset;
  section_end_ = number == index.seek_points.size() ? index.end : index.seek_points[number].point.offset;
  // The last samples of a section may be followed by records that are not wanted.
  const auto entries = std::span<const io::IndexEntry>(index.entries).first(index.entries.size() - 1);
  const auto border = std::ranges::lower_bound(entries, section_end_, {}, &io::IndexEntry::offset);
  const uint64_t in_section = samples.before(border == entries.end() ? index.records : border->record);
  const uint64_t last = in_section == 0 ? 0 : samples.record(in_section - 1);
  const auto after = std::ranges::upper_bound(entries, last, {}, &io::IndexEntry::record);
  last_wanted_ = after == entries.begin() ? 0 : after[-1].offset;
}

// Begins to read the next bytes of the file, up to `end`, into the input. If there are none, the input is unused.
void FileInflater::request(Input& input, uint64_t end) {
  input.offset = next_offset_;
  input.length = std::min(inflater_input_bytes, end - std::min(end, next_offset_));
  {
    const Lock lock(mutex_);
    states_[input.number] = input.length > 0 ? InputState::reading : InputState::unused;
    read_errors_[input.number] = 0;
  }
  next_offset_ += input.length;
  if (input.length > 0) callbacks_.read(file_, input);
}

bool FileInflater::is_unused(size_t input) {
  const Lock lock(mutex_);
  return states_[input] == InputState::unused;
}

// Returns where the reads end that are needed up to the last seek point before the end of a chunk's last extent. A chunk
// with large records may need several sections. Returns 0 if the extent lies elsewhere.
uint64_t FileInflater::reads_before(const Extent& last) const noexcept {
  if (last.file != file_ || !inflater_) return 0;
  const DataFile& file = schedule_.data.files[file_];
  const size_t number = file.index.seek_point_before(last.offset + last.length);
  return number == 0 ? 0 : end_of_reads(file.index.seek_points[number - 1].point, file);
}

// Returns where the reads of a section end that begins at seek point `number`, or at the front of the file if that is
// 0. They have all of the section, or, if no further chunk wants it, about what the chunk wants of it.
uint64_t FileInflater::reads_of_section(const Chunk& chunk, size_t number) const {
  constexpr uint64_t more = 16 << 10;  // because the section is not equally dense everywhere
  const DataFile& file = schedule_.data.files[file_];
  const auto& points = file.index.seek_points;
  const bool last = number == points.size();
  const uint64_t all = last ? size_ : end_of_reads(points[number].point, file);
  if (!chunk.ticket.scattered) return all;
  const io::SeekPoint from = number == 0 ? io::SeekPoint() : points[number - 1].point;
  const uint64_t end = last ? file.index.stream_size : points[number].point.offset;
  uint64_t until = from.offset;
  for (size_t turn = turn_; turn < turns_.size(); turn++) {
    const Extent& extent = chunk.ticket.extents[turns_[turn]];
    if (extent.file != file_ || extent.offset >= end) break;
    until = std::max(until, std::min(end, extent.offset + extent.length));
  }
  const uint64_t begin = from.bit / 8;
  const uint64_t part = mul_div(all - begin, until - from.offset, std::max<uint64_t>(1, end - from.offset));
  return std::min(all, round_up(begin + part + more, io::block_bytes));
}

bool FileInflater::reaches(uint32_t file, uint64_t offset) const noexcept {
  if (file != file_ || position_ > offset) return false;
  if (!inflater_) return position_ == offset;
  const io::FileIndex& index = schedule_.data.files[file].index;
  const size_t number = index.seek_point_before(offset);
  return number == 0 || index.seek_points[number - 1].point.offset <= position_;
}

bool FileInflater::go_to_wanted(const Chunk& chunk) {
  {
    const Lock lock(mutex_);
    leaves_ = std::ranges::find(states_, InputState::reading) != states_.end();
    if (leaves_) return false;
  }
  const Extent& extent = chunk.ticket.extents[turns_[turn_]];
  const DataFile& file = schedule_.data.files[extent.file];
  file_ = extent.file;
  size_ = file.id.size;
  current_ = 0;
  in_use_ = false;
  in_ = {};
  if (file.compressed()) {
    const io::FileIndex& index = file.index;
    const size_t number = index.seek_point_before(wanted_);
    if (number == 0) {
      inflater_.emplace(index.compression);
      passed_ = next_offset_ = position_ = 0;
    } else {
      const io::SeekPoint& from = index.seek_points[number - 1].point;
      const std::span<std::byte, io::deflate_window> window = skipped_.first<io::deflate_window>();
      // Without its window, or with a wrong one, the section inflates to an error or to records with wrong checksums.
      const bool right = io::inflate_window(index.window_of(number), io::window_size(from), window);
      inflater_.emplace(index.compression, from, window.first(right ? io::window_size(from) : 0));
      passed_ = from.bit / 8 % io::block_bytes;
      next_offset_ = from.bit / 8 - passed_;
      position_ = from.offset;
    }
    read_ahead_to_ = reads_of_section(chunk, number);
    if (!chunk.ticket.scattered) read_ahead_to_ = std::max(read_ahead_to_, reads_before(chunk.ticket.extents.back()));
  } else {
    inflater_.reset();
    position_ = wanted_;
    passed_ = wanted_ % io::block_bytes;
    next_offset_ = wanted_ - passed_;
    read_ahead_to_ = std::min(size_, round_up(extent.offset + extent.length, io::block_bytes));
  }
  for (Input& input : inputs_) request(input, read_ahead_to_);
  return true;
}

bool FileInflater::add(ChunkRef chunk) {
  const Extent& last = chunk->ticket.extents.back();
  added_until_ = last.file == open_file_ ? std::max(added_until_, last.offset + last.length) : section_end_;
  const Lock lock(mutex_);
  chunks_.push_back(std::move(chunk));
  return !std::exchange(running_, true);
}

bool FileInflater::finish() {
  const Lock lock(mutex_);
  last_added_ = true;
  return !std::exchange(running_, true);
}

bool FileInflater::arrived(Input& input, int error) {
  const Lock lock(mutex_);
  states_[input.number] = InputState::full;
  read_errors_[input.number] = error;
  return !std::exchange(running_, true);
}

void FileInflater::run() {
  for (;;) {
    ChunkRef chunk;
    {
      const Lock lock(mutex_);
      const bool reading = std::ranges::find(states_, InputState::reading) != states_.end();
      const bool finished = chunks_.empty() && last_added_ && !reading;
      const bool starved = leaves_ ? reading : in_.empty() && states_[current_] == InputState::reading;
      if (chunks_.empty() || starved) {
        running_ = finished;  // if it is finished, no other thread may enter run() before idle() is called below
        if (!finished) return;
      } else {
        chunk = chunks_.front();
      }
    }
    if (!chunk) {
      {
        const Lock lock(mutex_);
        running_ = last_added_ = false;
      }
      return callbacks_.idle(this);
    }
    if (!fill(*chunk)) continue;
    {
      const Lock lock(mutex_);
      chunks_.pop_front();
    }
    callbacks_.done(std::move(chunk));
  }
}

bool FileInflater::input_ready(uint64_t wanted) {
  if (!in_.empty()) return true;
  {
    const Lock lock(mutex_);
    if (states_[current_] == InputState::reading) return false;
    if (states_[current_] == InputState::full) {
      in_ = std::span<const std::byte>(inputs_[current_].buffer, inputs_[current_].length).subspan(passed_);
      passed_ = 0;
      in_use_ = true;
      return true;
    }
  }
  if (next_offset_ == size_) return true;  // in_ stays empty
  // The last record of the section ends after it. Deflate data is hardly ever larger than what it inflates to.
  request(inputs_[current_], std::min(size_, next_offset_ + round_up(wanted, io::block_bytes)));
  return false;
}

void FileInflater::begin(Chunk& chunk) {
  const std::vector<Extent>& extents = chunk.ticket.extents;
  turns_.resize(extents.size());
  std::iota(turns_.begin(), turns_.end(), size_t{0});
  std::ranges::sort(turns_, {}, [&](size_t e) { return std::tuple(extents[e].file, extents[e].offset, e); });
  turn_ = 0;
  begin_extent(chunk);
  if (chunk.ticket.scattered || !reaches(extents[turns_[0]].file, wanted_)) return;
  const uint64_t until = reads_before(extents.back());
  if (until <= read_ahead_to_) return;
  read_ahead_to_ = until;
  for (const size_t input : {current_, current_ ^ 1})
    if (is_unused(input)) request(inputs_[input], read_ahead_to_);
}

// Copies to the current extent what it has in common with those before it.
void FileInflater::begin_extent(Chunk& chunk) {
  const size_t number = turns_[turn_];
  const Extent& extent = chunk.ticket.extents[number];
  const auto end_of = [](const Extent& of) { return of.offset + of.length; };
  wanted_ = extent.offset;
  const Extent& before = chunk.ticket.extents[furthest_];
  if (turn_ == 0 || before.file != extent.file || end_of(before) <= extent.offset) {
    furthest_ = number;
    return;
  }
  const uint64_t common = std::min(end_of(before), end_of(extent)) - extent.offset;
  std::ranges::copy(chunk.bytes_at(furthest_, extent.offset, common),
                    chunk.bytes_at(number, extent.offset, common).begin());
  wanted_ += common;
  if (end_of(extent) > end_of(before)) furthest_ = number;
}

io::Inflater::Status FileInflater::inflate(std::span<std::byte>& out) {
  if (inflater_)
    return inflater_->run(in_, out, !in_use_ || inputs_[current_].offset + inputs_[current_].length == size_);
  const size_t count = std::min(in_.size(), out.size());
  std::ranges::copy(in_.first(count), out.begin());
  in_ = in_.subspan(count);
  out = out.subspan(count);
  return count == 0 ? io::Inflater::Status::end : io::Inflater::Status::more;
}

bool FileInflater::fill(Chunk& chunk) {
  if (turns_.empty()) begin(chunk);
  while (turn_ < turns_.size()) {
    const size_t number = turns_[turn_];
    const Extent& extent = chunk.ticket.extents[number];
    const uint64_t end = extent.offset + extent.length;
    if (wanted_ == end) {
      if (++turn_ < turns_.size()) begin_extent(chunk);
      continue;
    }
    if (!reaches(extent.file, wanted_) && !go_to_wanted(chunk)) return false;
    if (!input_ready(end - position_)) return false;
    if ((chunk.failed = damage(extent))) break;
    const bool skips = position_ < wanted_;
    std::span<std::byte> out = skips ? skipped_.first(std::min<uint64_t>(inflater_skip_bytes, wanted_ - position_))
                                     : chunk.bytes_at(number, wanted_, end - wanted_);
    const size_t room = out.size();
    const auto status = inflate(out);
    const size_t produced = room - out.size();
    position_ += produced;
    if (!skips) wanted_ += produced;
    if (in_.empty() && in_use_) {
      in_use_ = false;
      request(inputs_[current_], read_ahead_to_);
      current_ ^= 1;
    }
    if (status != io::Inflater::Status::more && position_ < end) {
      chunk.failed = Error(
          Category::bad_compression,
          fmt::format("the compressed stream is damaged ({}), but was good when the data was counted: the file has "
                      "changed since then; repair the file, or copy it again",
                      status == io::Inflater::Status::end ? "the stream ends here" : inflater_->message()),
          {schedule_.data.files[file_].id.uri, static_cast<int64_t>(position_), -1, {}});
      break;
    }
  }
  if (chunk.failed) file_ = nowhere;
  turns_.clear();
  return true;
}

std::optional<Error> FileInflater::damage(const Extent& extent) {
  const Lock lock(mutex_);
  const int error = read_errors_[current_];
  if (error == 0) return std::nullopt;
  return Error(Category::io_error, io::read_error_message(error),
               {schedule_.data.files[file_].id.uri,
                static_cast<int64_t>(position_),
                static_cast<int64_t>(extent.first_record),
                {}});
}

}  // namespace feedline::flow
