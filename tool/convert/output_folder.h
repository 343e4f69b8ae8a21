// The folder that a conversion writes to. Its files get their names together, so that nobody is fed a part of them.
#pragma once

#include <string>
#include <vector>

#include "tool/common/lock.h"

namespace feedline::tool {

/// A folder in which the files of one data set replace those of another. They are written to a hidden folder inside it.
/// What stops the conversion, a kill included, leaves the files that were there before. Members throw Error io_error if
/// the system refuses.
class OutputFolder {
 public:
  /// Creates the folder if it does not exist, and removes what a killed conversion has left there. Throws if another
  /// process writes to the folder.
  explicit OutputFolder(std::string path);
  /// Removes the files that publish() has not given their names.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns the path at which the file `name` is to be written.
  std::string place(const std::string& name);
  /// Gives the files that were written their names, and replaces files that have these names. pipeline.textproto, whose
  /// data they are no longer, is removed first: if this is interrupted, nothing names a mixture of two data sets. The
  /// caller writes the new one last. Call it once.
  void publish();

  const std::string& path() const noexcept { return path_; }
  std::string pipeline() const { return path_ + "/pipeline.textproto"; }

 private:
  const std::string path_, hidden_;
  const LockedFolder lock_;
  std::vector<std::string> names_;
};

}  // namespace feedline::tool
