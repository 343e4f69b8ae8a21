// The folder that a conversion writes to. Its files get their final names together, at the end, so that nobody reads
// only some of them.
#pragma once

#include <string>
#include <vector>

#include "tool/common/lock.h"

namespace feedline::tool {

/// A folder in which the files of a new data set replace those of an old one. The new files are first written to a
/// hidden folder inside it. If anything stops the conversion before publish(), even a kill, the old files stay. Members
/// throw Error io_error if the system refuses.
class OutputFolder {
 public:
  /// Creates the folder if it does not exist, and removes what a killed conversion has left there. Throws if another
  /// process writes to the folder.
  explicit OutputFolder(std::string path);
  /// Removes the new files, unless publish() has given them their final names.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns the path at which the file `name` is to be written.
  std::string place(const std::string& name);
  /// Gives the new files their final names, and replaces old files that have these names. The old pipeline.textproto is
  /// removed first: if the call is interrupted, no pipeline.textproto refers to old and new files together. The caller
  /// writes the new pipeline.textproto after this call. May be called once.
  void publish();

  std::string pipeline() const { return path_ + "/pipeline.textproto"; }

 private:
  const std::string path_, hidden_;
  const LockedFolder lock_;
  std::vector<std::string> names_;
};

}  // namespace feedline::tool
