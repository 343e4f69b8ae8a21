// Measures how long calls of next() wait, and for which stage.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "flowgraph/feed/latency.h"

namespace feedline::flow {

/// A wait that takes this long or longer is logged, with the stage that next() waits for.
inline constexpr std::chrono::seconds long_wait{10};

/// The stages that next() can wait for.
enum class Stage : uint8_t {
  read,      // bytes from files
  inflate,   // bytes of compressed files
  parse,     // checksums, parsing, formulas
  unpack,    // writing tensors
  transfer,  // rows from another rank
  upload,    // the copy to a GPU
  replica,   // a slower replica, which must first take its batches
};
inline constexpr size_t stage_count = 7;
/// Returns the name of a stage as reports have it: "read".
const char* name(Stage stage) noexcept;

/// Says how long next() has waited since the start.
struct WaitReport {
  std::optional<std::chrono::steady_clock::time_point> first_batch;
  Latency next;  // how long each batch took to come; without the first batch of each replica
  uint64_t next_calls = 0, next_ready = 0;
  // By stage: seconds that all replicas together waited inside next(). Counted since the first batch, or since the
  // start if there is no batch yet.
  double waited_s[stage_count] = {};
};

/// Measures the waits of each replica's calls of next(). Not thread-safe.
class WaitClock {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitClock(size_t replicas) : replicas_(replicas) {}

  /// Says that the replica waits for this stage from now on.
  void begin(size_t replica, Stage stage);
  /// Says that the replica has stopped waiting, even if only to check whether it must wait again.
  void end(size_t replica);

  /// Says that a call of next(), which began at the time `call`, could not give the replica anything at once. If the
  /// call reaches its deadline and further calls follow, they all count as one wait.
  void note_late(size_t replica, Clock::time_point call);
  /// Returns whether the replica's current wait has taken `long_wait` or longer.
  bool is_long(size_t replica) const;
  /// Returns true at the first call in a long wait, and false at further calls, so that each long wait is logged once.
  bool is_to_be_told(size_t replica);
  /// Says that the call which began at `call` gives the replica what it waited for: a batch, or the end of an epoch.
  void given(size_t replica, bool is_batch, Clock::time_point call);

  WaitReport report() const;

 private:
  struct Replica {
    struct Waiting {
      Stage stage;
      Clock::time_point since;
    };
    std::optional<Waiting> waiting;
    std::optional<Clock::time_point> late_since;
    bool told = false;       // whether is_to_be_told() has returned true for this wait
    bool has_batch = false;  // whether the replica has been given a batch
  };

  std::vector<Replica> replicas_;
  WaitReport report_;
};

}  // namespace feedline::flow
