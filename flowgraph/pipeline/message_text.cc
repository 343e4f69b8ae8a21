#include "flowgraph/pipeline/message_text.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <tuple>
#include <vector>

#include "base/did_you_mean.h"

namespace feedline::flow {
namespace {

namespace pb = google::protobuf;

struct FirstError : pb::io::ErrorCollector {
  std::optional<TextError> error;
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!error) error = TextError{line + 1, column + 1, message};
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
};

// The context of a place in the text: the type of the message that is open there, and the token before it.
struct Before {
  const pb::Descriptor* message = nullptr;
  pb::io::Tokenizer::Token token;
};

Before look_before(std::string_view text, const pb::Descriptor* root, int line, int column) {
  pb::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  FirstError ignored;
  pb::io::Tokenizer tokens(&input, &ignored);
  tokens.set_comment_style(pb::io::Tokenizer::SH_COMMENT_STYLE);
  tokens.set_require_space_after_number(false);
  tokens.set_allow_multiline_strings(true);

  struct Open {
    const pb::Descriptor* message;
    std::string name;  // the field whose value this message is
  };
  std::vector<Open> open = {{root, ""}};
  std::string name;  // the last identifier on this level
  Before before;
  while (tokens.Next() &&
         std::tuple(tokens.current().line, tokens.current().column) < std::tuple(line - 1, column - 1)) {
    before.token = tokens.current();
    const std::string& token = tokens.current().text;
    if (tokens.current().type == pb::io::Tokenizer::TYPE_IDENTIFIER) {
      name = token;
    } else if (token == "{" || token == "<") {
      const pb::FieldDescriptor* field = open.back().message ? open.back().message->FindFieldByName(name) : nullptr;
      open.push_back({field ? field->message_type() : nullptr, name});
    } else if ((token == "}" || token == ">") && open.size() > 1) {
      name = open.back().name;
      open.pop_back();
    }
  }
  before.message = open.back().message;
  return before;
}

// Returns the n-th "quoted" part of a message, counted from 0; empty if there is none.
std::string quoted(const std::string& message, int n) {
  size_t from = 0;
  for (;; n--) {
    const size_t open = message.find('"', from), close = message.find('"', open + 1);
    if (open == std::string::npos || close == std::string::npos) return "";
    if (n == 0) return message.substr(open + 1, close - open - 1);
    from = close + 1;
  }
}

std::vector<std::string> field_names(const pb::Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); i++) names.push_back(message.field(i)->name());
  return names;
}

// Replaces protobuf's message about an unknown field or enum value by one that lists the known names and points to the
// unknown word. Protobuf's message names only this word, and points to the place after it.
void explain(TextError& error, std::string_view text, const pb::Descriptor* root) {
  const bool unknown_field = error.message.find("has no field named") != std::string::npos;
  const bool unknown_value = error.message.find("Unknown enumeration value") != std::string::npos;
  if (!unknown_field && !unknown_value) return;
  const std::string wrong = quoted(error.message, unknown_field ? 1 : 0);
  const Before before = look_before(text, root, error.line, error.column);
  if (before.token.text == wrong) {
    error.line = before.token.line + 1;
    error.column = before.token.column + 1;
  }
  if (!before.message) return;
  if (unknown_field) {
    error.message = no_such_field(*before.message, wrong);
  } else if (const pb::FieldDescriptor* field = before.message->FindFieldByName(quoted(error.message, 1));
             field && field->enum_type()) {
    std::vector<std::string> values;
    for (int i = 0; i < field->enum_type()->value_count(); i++) values.push_back(field->enum_type()->value(i)->name());
    const std::string hint = did_you_mean(wrong, values);
    error.message = fmt::format("{}: there is no value '{}'{} The values are: {}", field->name(), wrong,
                                hint.empty() ? "." : hint, fmt::join(values, " "));
  }
}

}  // namespace

std::string no_such_field(const pb::Descriptor& message, std::string_view field) {
  const std::vector<std::string> names = field_names(message);
  std::string hint = did_you_mean(field, names);
  std::vector<std::string> holders;  // fields that have a field of this name
  for (int i = 0; i < message.field_count(); i++)
    if (const pb::Descriptor* below = message.field(i)->message_type();
        below && !message.field(i)->is_map() && below->FindFieldByName(std::string(field)))
      holders.push_back(message.field(i)->name());
  if (hint.empty() && !holders.empty()) hint = fmt::format("; it is a field of {}.", fmt::join(holders, ", and of "));
  return fmt::format("{0} has no field '{1}'{2} The fields of {0} are: {3}", message.name(), field,
                     hint.empty() ? "." : hint, fmt::join(names, " "));
}

std::optional<TextError> read_text(std::string_view text, pb::Message& message, pb::TextFormat::ParseInfoTree* given) {
  FirstError errors;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(given);
  pb::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (parser.Parse(&input, &message)) return std::nullopt;
  if (!errors.error) errors.error = TextError{1, 1, "the text is not in protobuf's text format"};
  explain(*errors.error, text, message.GetDescriptor());
  return errors.error;
}

}  // namespace feedline::flow
