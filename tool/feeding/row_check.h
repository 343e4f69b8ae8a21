// Compares the rows that a feed delivers with the rows that the same records give when they are fed one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "feedline/feeder.h"

namespace feedline::tool {

/// The audit shows which records were delivered. This check shows that each row of one output is the row of its record,
/// and was not overwritten afterwards. It keeps 16 bytes for each record. Thread-safe.
class RowCheck {
 public:
  /// Feeds the records of all sources one after another, each in a batch of its own, without a cache and with one
  /// thread. The output that is compared is the first that is dense, not of strings, and free of random choices. Throws
  /// Error, also if there is no such output.
  explicit RowCheck(const Pipeline& given);

  /// Returns the given pipeline with additional outputs, which say to which record each row belongs.
  const Pipeline& pipeline() const noexcept { return pipeline_; }
  const std::string& output() const noexcept { return output_; }
  /// Compares the rows of a batch. The batch must come from a feeder of pipeline(), and must lie on the host.
  void check(const Batch& batch);

  struct Result {
    uint64_t rows = 0, differing = 0;
    std::optional<std::string> first = {};  // says where the first differing row is; nullopt: none differs
  };
  Result result() const;

 private:
  template <typename Body>
  void for_each_row(const Batch& batch, const Body& body) const;
  std::optional<uint64_t> hash_of(int64_t source, int64_t record) const;

  const Pipeline pipeline_;
  std::string output_;
  struct Row {
    int64_t record;  // its number in its source
    uint64_t hash;   // of the record's row when it is fed alone
  };
  std::map<int64_t, std::vector<Row>> alone_;  // for each source: its rows, in the order of the records
  mutable Mutex mutex_;
  Result result_ FEEDLINE_GUARDED_BY(mutex_);
};

}  // namespace feedline::tool
