// The audit of an epoch: sums that tell which records were seen, and so prove that the epoch had all of its data, each
// record once (base/audit.h).
#pragma once

#include <cstdint>
#include <string>

namespace feedline {

/// Says whether an epoch had all of its data, each record once. It describes an epoch that all replicas of a rank have
/// finished; if it comes from Feeder::audit_ranks(), it describes all ranks together. Added up over the ranks (mod
/// 2^64), delivered + dropped + bad equals `expected`. A record that is a frame of several windows counts as often as
/// it is delivered.
struct EpochAudit {
  enum class Verdict : uint8_t { holds, differs, open };

  uint64_t epoch = 0;
  uint64_t delivered = 0;  // sum of the records that the replicas were given
  uint64_t dropped = 0;    // sum of the records that last_batch_policy DROP left out
  uint64_t bad = 0;        // sum of the records in the epoch's rows that were found bad after the data was counted
  uint64_t expected = 0;   // sum of the records that the epoch should have, by the indexes, on all ranks together
  /// `open` means that this rank alone cannot tell: either it is one of several ranks, or `why` says what is not known.
  Verdict verdict = Verdict::open;
  std::string why;
};

}  // namespace feedline
