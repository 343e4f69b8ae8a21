// The trace of a run, in a file: what each thread of each rank did, and when.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/spans.h"
#include "feedline/transport.h"
#include "io/output_file.h"

namespace feedline::tool {

/// Records what the threads of this process do, from construction to write().
class TraceFile {
 public:
  /// Makes the file if this is rank 0. Throws Error io_error if the file cannot be made.
  TraceFile(const std::string& path, int rank);

  /// Writes the spans (what each thread did, and when) of rank 0 or, if `ranks` is not null, of all ranks. With
  /// `ranks`, all ranks must make this call, and nothing else may use the communicator any more. All times in the file
  /// refer to one clock. If all ranks run on one machine, it is the machine's clock. Otherwise the ranks' clocks are
  /// aligned by a message that all ranks get at about the same time. If a rank cannot be reached, the log says so, and
  /// rank 0 writes only its own spans. Throws Error io_error if the file cannot be written.
  void write(const std::shared_ptr<Transport>& ranks);

 private:
  const int rank_;
  std::optional<io::OutputFile> file_;  // only rank 0 has it
  SpanRecording recording_;
};

}  // namespace feedline::tool
