// What the epochs of a feed add up to, against what the indexes say that they hold.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "feedline/epoch_audit.h"

namespace feedline::flow {

/// What [assemble] knows at the end of an epoch. Reading is ahead of delivery, so it travels with the end.
struct EpochEnd {
  uint64_t epoch = 0;
  int64_t first_step = 0;  // the feed began there
  uint64_t dropped = 0;    // audit of the rank's share of what DROP left out
  uint64_t bad = 0;        // of rows that became filler
  uint64_t lost = 0;       // rows that did, and whose records cannot be told
  /// A record whose payload and stored CRC do not fit is in `bad` by its stored CRC. Should that be what was damaged,
  /// this is to be added. At most EpochLedger::doubts_tried + 1 are kept.
  std::vector<uint64_t> doubts = {};
  std::optional<uint64_t> counted = {};  // LAZY: what the epoch held
};

/// Not thread-safe.
class EpochLedger {
 public:
  static constexpr size_t doubts_tried = 10;

  /// expected: of an epoch; none: it has no end, or ends with an error. alone: there is no other rank.
  EpochLedger(size_t replicas, std::optional<uint64_t> expected, bool alone);

  void delivered(size_t replica, uint64_t audit) { delivered_[replica] += audit; }
  void ended(size_t replica, const EpochEnd& end);

  /// Of the last epoch that all replicas have finished; none: there is none yet.
  std::optional<EpochAudit> last() const;
  /// Epochs that do not add up.
  uint64_t differing() const noexcept { return differing_; }

 private:
  struct Entry {
    EpochEnd end;
    uint64_t delivered = 0;
    size_t replicas = 0;  // that have finished it
  };
  EpochAudit audit(const Entry& entry) const;

  const std::optional<uint64_t> expected_;
  const bool alone_;
  std::vector<uint64_t> delivered_;  // by replica: of the epoch that it is in
  std::vector<uint64_t> epochs_;     // by replica: that it has finished
  std::deque<Entry> open_;           // some replica has finished it; the first is number finished_
  uint64_t finished_ = 0;
  std::optional<Entry> last_;
  uint64_t differing_ = 0;
};

}  // namespace feedline::flow
