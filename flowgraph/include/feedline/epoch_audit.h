// The proof that an epoch was all of its data, once (base/audit.h): sums that tell which records were seen.
#pragma once

#include <cstdint>
#include <string>

namespace feedline {

/// Whether an epoch was all of its data, each record once. It is about an epoch that all replicas of a rank have
/// finished; where it comes from Feeder::audit_ranks(), it is about all ranks together. Added over the ranks (mod
/// 2^64), delivered + dropped + bad is `expected`. A record that is a frame of several windows counts as often as it is
/// delivered.
struct EpochAudit {
  enum class Verdict : uint8_t { holds, differs, open };

  uint64_t epoch = 0;
  uint64_t delivered = 0;  // to the replicas
  uint64_t dropped = 0;    // what DROP left out
  uint64_t bad = 0;        // records found bad after the data was counted, which were to be its rows
  uint64_t expected = 0;   // by the indexes: of all ranks together
  /// open: this rank alone cannot tell. It is one of several, or `why` says what is not known.
  Verdict verdict = Verdict::open;
  std::string why;
};

}  // namespace feedline
