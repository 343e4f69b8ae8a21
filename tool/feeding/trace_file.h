// The trace of a run, in a file: what each thread of each rank did, and when.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/spans.h"
#include "feedline/communicator.h"
#include "io/output_file.h"

namespace feedline::tool {

/// Records from its construction on.
class TraceFile {
 public:
  /// Rank 0 makes the file. Throws Error io_error if it cannot.
  TraceFile(const std::string& path, int rank);

  /// Writes the spans of rank 0, or of all `ranks`, a communicator that nothing else uses any more; then all ranks make
  /// this call. Their times are those of one clock: the machine's, if all run on one; otherwise the clocks are set by a
  /// message that all get at about the same time. If a rank cannot be reached, the log says so, and rank 0 writes its
  /// own spans. Throws Error io_error if the file cannot be written.
  void write(const std::shared_ptr<Communicator>& ranks);

 private:
  const int rank_;
  std::optional<io::OutputFile> file_;  // rank 0's
  SpanRecording recording_;
};

}  // namespace feedline::tool
