#include "flowgraph/chunk/file_inflater.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/invariant.h"
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
  file_ = file;
  size_ = schedule_.data.files[file].id.size;
  const size_t number = index.seek_point_before(offset);
  if (number == 0) {
    inflater_.emplace(index.compression);
    next_offset_ = position_ = 0;
    passed_ = 0;
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
  const bool last = number == index.seek_points.size();
  section_end_ = last ? index.end : index.seek_points[number].point.offset;
  read_ahead_to_ = last ? size_ : end_of_reads(index.seek_points[number].point, schedule_.data.files[file]);
  current_ = 0;
  in_use_ = false;
  in_ = {};
  filled_ = extent_ = 0;
  added_until_ = position_;
  {
    const Lock lock(mutex_);
    last_added_ = false;
  }
  for (Input& input : inputs_) request(input, read_ahead_to_);
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

// Has inputs read before they are wanted up to the last seek point before `end` of the stream. A chunk with large
// records may need several sections.
void FileInflater::read_ahead(uint64_t end) {
  const io::FileIndex& index = schedule_.data.files[file_].index;
  const size_t number = index.seek_point_before(end);
  if (number == 0) return;
  const uint64_t until = end_of_reads(index.seek_points[number - 1].point, schedule_.data.files[file_]);
  if (until <= read_ahead_to_) return;
  read_ahead_to_ = until;
  for (const size_t input : {current_, current_ ^ 1})
    if (is_unused(input)) request(inputs_[input], read_ahead_to_);
}

bool FileInflater::add(ChunkRef chunk) {
  for (const Extent& extent : chunk->ticket.extents) {
    check_invariant(extent.file == file_ && extent.offset >= added_until_,
                    "file {} is inflated up to byte {}, but the next records lie in file {} from byte {} on", file_,
                    added_until_, extent.file, extent.offset);
    added_until_ = extent.offset + extent.length;
  }
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
      const bool starved = in_.empty() && states_[current_] == InputState::reading;
      if (chunks_.empty() || starved) {
        running_ = finished;  // if the file is finished, no other thread may enter run() before idle() is called below
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

bool FileInflater::fill(Chunk& chunk) {
  read_ahead(chunk.ticket.extents.back().offset + chunk.ticket.extents.back().length);
  while (extent_ < chunk.ticket.extents.size()) {
    const Extent& extent = chunk.ticket.extents[extent_];
    const uint64_t end = extent.offset + extent.length;
    if (position_ == end) {
      extent_++;
      continue;
    }
    if (!input_ready(end - position_)) return false;
    if ((chunk.failed = damage(extent))) break;
    const bool skips = position_ < extent.offset;
    std::span<std::byte> out = skips
                                   ? skipped_.first(std::min<uint64_t>(inflater_skip_bytes, extent.offset - position_))
                                   : chunk.data().subspan(filled_, end - position_);
    const size_t room = out.size();
    const Input& input = inputs_[current_];
    const bool last = !in_use_ || input.offset + input.length == size_;
    const auto status = inflater_->run(in_, out, last);
    const size_t produced = room - out.size();
    position_ += produced;
    if (!skips) filled_ += produced;
    if (in_.empty() && in_use_) {
      in_use_ = false;
      request(inputs_[current_], read_ahead_to_);
      current_ ^= 1;
    }
    if (status != io::Inflater::Status::more && position_ < end) {
      chunk.failed =
          Error(Category::bad_compression,
                fmt::format("the compressed stream is damaged ({}), but was good when the data was counted: the file "
                            "has changed since then; repair the file, or copy it again",
                            status == io::Inflater::Status::end ? "the stream ends here" : inflater_->message()),
                {schedule_.data.files[file_].id.uri, static_cast<int64_t>(position_), -1, {}});
      break;
    }
  }
  extent_ = 0;
  filled_ = 0;
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
