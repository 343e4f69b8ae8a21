// A feed's state in a file, which is whole at any moment.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"
#include "tool/common/lock.h"

namespace feedline::cli {

/// Not thread-safe. Throws Error io_error, naming the file.
class StateFile {
 public:
  /// Holds the file against other processes until this dies; throws if another one holds it.
  explicit StateFile(std::string path);

  const std::string& path() const noexcept { return path_; }

  /// Sets the feeder to what the file says. False: there is no file yet. Removes what a process that was killed while
  /// it wrote has left. Throws also what Feeder::set_state does.
  bool restore(Feeder& feeder, bool accept_changes);

  /// Replaces what the file says, and returns when that is on the disk; does nothing where it says so already.
  void save(const std::string& state);

 private:
  void remove_unfinished() const;

  const std::string path_;
  const LockedFile lock_;
  std::string saved_;
};

/// What a state says in words: "step 12 of epoch 3".
std::string state_in_words(const std::string& state);

}  // namespace feedline::cli
