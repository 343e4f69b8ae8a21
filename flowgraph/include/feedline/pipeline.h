// Describes what to feed: a pipeline.proto message, made from text. This header hides the code that protobuf generates.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "feedline/export.h"

namespace feedline {

namespace config {
class Pipeline;
}

/// A pipeline: an immutable value whose copies share the message. A file, C++ and Python all give the same message for
/// the same text in protobuf's text format. The data is not looked at before a Feeder is made from the pipeline.
class FEEDLINE_PUBLIC Pipeline {
 public:
  /// `folder` becomes folder(). If it is empty or a relative path, it is made absolute with the current working
  /// directory.
  explicit Pipeline(std::shared_ptr<const config::Pipeline> message, std::string folder);

  /// Returns this pipeline merged with `text`, which takes precedence. Scalars and repeated fields that `text` names
  /// are replaced as a whole. So if `text` has any `source`, all sources are replaced. A `feature` or `output` of
  /// `text` replaces the pipeline's `feature` or `output` of the same name, or is appended if there is none. Other
  /// messages are merged field by field. Throws Error bad_pipeline as parse_pipeline does; the error names `text_name`.
  Pipeline overlaid(std::string_view text, std::string_view text_name = "overlay") const;

  /// Returns this pipeline with one field changed: with("batch.last_batch_policy", "PAD"), with("output.board.dtype",
  /// "FLOAT16"), with("source.files", "data/*.tfrecord"). The path names elements of `feature`, `output` and `source`
  /// by their names; a single element need not be named. A path that ends with an element's name replaces that element,
  /// which keeps its name and place: with("output.label", "feature: 'label' dtype: INT32"). Strings need no quotes. An
  /// empty value clears the field, or removes the element: with("window", "") returns the pipeline without windows.
  /// Throws Error bad_pipeline, which names the path.
  Pipeline with(std::string_view path, std::string_view value) const;

  /// Returns the pipeline as text that parse_pipeline reads.
  std::string text() const;

  const config::Pipeline& message() const noexcept { return *message_; }
  /// Returns the folder that relative paths in the pipeline are relative to: an absolute path, so that the pipeline
  /// names the same files after the process has changed its working directory. (If the working directory had been
  /// removed when the pipeline was made, folder() is what was given, and relative paths are Errors.)
  const std::string& folder() const noexcept { return folder_; }

 private:
  std::shared_ptr<const config::Pipeline> message_;
  std::string folder_;
};

/// Makes a pipeline from text in protobuf's text format; a byte order mark before the text is skipped. Relative file
/// patterns are relative to `folder`, or to the current working directory if `folder` is empty. Throws Error
/// bad_pipeline, which names `text_name`, line and column, and for an unknown field the fields that exist.
FEEDLINE_PUBLIC Pipeline parse_pipeline(std::string_view text, std::string folder = {},
                                        std::string_view text_name = "pipeline");

/// Makes a pipeline from a text file. Relative file patterns are relative to the file's folder. Throws Error
/// bad_pipeline as parse_pipeline does, and Error io_error if the file cannot be read.
FEEDLINE_PUBLIC Pipeline load_pipeline(const std::string& file);

}  // namespace feedline
