#include "flowgraph/order/sequence.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace feedline::flow {

Sequence::Sequence(const std::vector<uint64_t>& starts, std::vector<uint32_t> files, const InterleaveSpec& interleave,
                   uint64_t position)
    : starts_(&starts), files_(std::move(files)), interleave_(interleave), cycle_(interleave.cycle_length) {
  while (position > 0) {
    if (const uint64_t rounds =
            std::min(whole_rounds(), position / interleave_.block_length / std::max(size_t{1}, open_));
        rounds > 0) {
      const uint64_t each = rounds * interleave_.block_length;
      for (CycleFile& place : cycle_)
        if (place.open) place.next += each, place.left -= each, position -= each;
    } else {
      position -= next(position).count;
    }
  }
}

void Sequence::advance() noexcept {
  turn_ = (turn_ + 1) % cycle_.size();
  given_ = 0;
}

// Returns the number of rounds of the cycle, from here on, in which every open file gives block_length samples and no
// further file is opened. The constructor skips such rounds without looking at each of them.
uint64_t Sequence::whole_rounds() const noexcept {
  if (turn_ != 0 || given_ != 0 || open_ == 0 || (open_ < cycle_.size() && next_file_ < files_.size())) return 0;
  uint64_t rounds = std::numeric_limits<uint64_t>::max();
  for (const CycleFile& place : cycle_)
    if (place.open) rounds = std::min(rounds, place.left / interleave_.block_length);
  return rounds;
}

Run Sequence::next(uint64_t most) {
  while (open_ > 0 || next_file_ < files_.size()) {
    CycleFile& place = cycle_[turn_];
    if (!place.open && next_file_ < files_.size()) {
      const uint32_t file = files_[next_file_++];
      place = {.open = true, .file = file, .next = 0, .left = (*starts_)[file + 1] - (*starts_)[file]};
      open_++;
    }
    if (place.left == 0) {
      if (place.open) open_--;
      place.open = false;
      advance();
      continue;
    }
    const Run run{place.file, place.next, std::min({place.left, interleave_.block_length - given_, most})};
    place.next += run.count;
    place.left -= run.count;
    given_ += run.count;
    if (given_ == interleave_.block_length) advance();
    return run;
  }
  return {};
}

}  // namespace feedline::flow
