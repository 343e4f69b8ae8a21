// What to feed: a pipeline.proto message, from text. Generated protobuf code stays behind this header.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "feedline/export.h"

namespace feedline {

namespace config {
class Pipeline;
}

/// Immutable value; copies share the message. Text, C++ and Python all make the same message out of text in protobuf's
/// text format. Nothing is looked at on disk before a Feeder is made of it.
class FEEDLINE_PUBLIC Pipeline {
 public:
  explicit Pipeline(std::shared_ptr<const config::Pipeline> message, std::string folder);

  /// This pipeline with `text` laid over it: scalars are replaced, `source` whole, `feature` and `output` by name, new
  /// ones appended; other messages field by field. Throws Error bad_pipeline as parse_pipeline does.
  Pipeline overlaid(std::string_view text, std::string_view text_name = "overlay") const;

  /// This pipeline with one field changed: with("batch.last_batch_policy", "PAD"), with("output.board.dtype",
  /// "FLOAT16"), with("source.files", "data/*.tfrecord"). Elements of `feature`, `output` and `source` go by their
  /// names, which an only one does not need; strings need no quotes. An empty value clears the field: with("window",
  /// "") is the pipeline without windows. Throws Error bad_pipeline naming the path.
  Pipeline with(std::string_view path, std::string_view value) const;

  /// As text that parse_pipeline reads.
  std::string text() const;

  const config::Pipeline& message() const noexcept { return *message_; }
  /// Relative file patterns are relative to this folder.
  const std::string& folder() const noexcept { return folder_; }

 private:
  std::shared_ptr<const config::Pipeline> message_;
  std::string folder_;
};

/// A byte order mark before the text is skipped. `folder`: what relative file patterns are relative to; empty: the
/// working directory. Throws Error bad_pipeline naming `text_name`, line and column, and for an unknown field the ones
/// there are.
FEEDLINE_PUBLIC Pipeline parse_pipeline(std::string_view text, std::string folder = {},
                                        std::string_view text_name = "pipeline");

/// A text file; relative patterns are relative to its folder. Throws also Error io_error.
FEEDLINE_PUBLIC Pipeline load_pipeline(const std::string& file);

}  // namespace feedline
