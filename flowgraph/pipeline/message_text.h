// Reads a message of pipeline.proto from protobuf's text format. An error says where it is, and what could stand there
// instead.
#pragma once

#include <google/protobuf/text_format.h>

#include <optional>
#include <string>
#include <string_view>

namespace feedline::flow {

struct TextError {
  int line = 0, column = 0;  // counted from 1
  std::string message;
};

/// Replaces `message` by what the text says, or returns the first error. If `given` is not null, stores in it which
/// fields the text names. This is needed because in proto3 a field that is set to its default value looks like one that
/// is not there.
std::optional<TextError> read_text(std::string_view text, google::protobuf::Message& message,
                                   google::protobuf::TextFormat::ParseInfoTree* given = nullptr);

/// Returns "Batch has no field 'sise'; did you mean 'size'? The fields of Batch are: ...".
std::string no_such_field(const google::protobuf::Descriptor& message, std::string_view field);

}  // namespace feedline::flow
