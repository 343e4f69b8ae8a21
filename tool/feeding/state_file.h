// Keeps a feed's state in a file that is complete at any moment.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"
#include "tool/common/lock.h"

namespace feedline::tool {

/// A file with a feed's state. Not thread-safe. Its members throw Error io_error, with the file as the Error's place.
class StateFile {
 public:
  /// Locks the file against other processes until the destructor runs. Throws if another process holds the lock.
  explicit StateFile(std::string path);

  /// Restores the feeder's state from the file. Returns false if there is no file yet. Removes temporary files that
  /// killed processes have left. Also throws what Feeder::set_state() throws.
  bool restore(Feeder& feeder, bool accept_changes);

  /// Replaces the state in the file, and returns when the new state is on the disk. Does nothing if the file has this
  /// state already.
  void save(const std::string& state);

 private:
  const std::string path_;
  const LockedFile lock_;
  std::string saved_;  // the state in the file; empty: unknown
};

/// Returns a state in words: "step 12 of epoch 3".
std::string state_in_words(const std::string& state);
/// Returns what a file holds, in words: "the state of step 12 of epoch 3", or "no state" if there is no such file.
/// Throws Error io_error if the file cannot be read.
std::string state_at(const std::string& path);

}  // namespace feedline::tool
