#include "flowgraph/pipeline/unsupported.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string_view>

#include "base/utf8.h"
#include "feedline/error.h"

namespace feedline::flow {
namespace {

namespace pb = google::protobuf;

struct Missing {
  std::string_view name;     // of a field, without "feedline.config."
  std::string_view instead;  // what works instead
};
// In the order of pipeline.proto.
constexpr Missing missing[] = {
    {"Output.custom", "use unpack_bits, decode_raw, 'expression' or 'stack' instead"},
    {"Distribute.timeout", "set the timeout of the communicator instead: TcpOptions or MpiOptions"},
};

const Missing* find(const std::string& full_name) {
  for (const Missing& entry : missing)
    if (full_name == "feedline.config." + std::string(entry.name)) return &entry;
  return nullptr;
}

void check(const pb::Message& message, const std::string& path);

void check_field(const pb::Message& message, const pb::FieldDescriptor* field, const std::string& path) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (const Missing* entry = find(field->full_name()))
    throw Error(Category::bad_pipeline,
                fmt::format("{}: this version does not support it yet; remove it ({})", path, entry->instead));
  const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
  for (int i = 0; i < count; i++) {
    if (field->enum_type()) {
      const int number = field->is_repeated() ? reflection.GetRepeatedEnumValue(message, field, i)
                                              : reflection.GetEnumValue(message, field);
      if (!field->enum_type()->FindValueByNumber(number))
        throw Error(Category::bad_pipeline,
                    fmt::format("{}: {} is not a value of {}", path, number, field->enum_type()->name()));
    } else if (field->type() == pb::FieldDescriptor::TYPE_STRING) {
      std::string scratch;
      const std::string& text = field->is_repeated()
                                    ? reflection.GetRepeatedStringReference(message, field, i, &scratch)
                                    : reflection.GetStringReference(message, field, &scratch);
      if (!is_utf8(text)) throw Error(Category::bad_pipeline, fmt::format("{}: the text is not UTF-8", path));
    } else if (field->message_type()) {
      const pb::Message& value = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                      : reflection.GetMessage(message, field);
      const pb::FieldDescriptor* name = field->message_type()->FindFieldByName("name");
      std::string called = name ? value.GetReflection()->GetString(value, name) : "";
      if (!is_utf8(called)) called.clear();  // check() refuses it
      check(value, name ? element_path(path, i, count, called) + ": " : path + ".");
    }
  }
}

// `path` is what comes before a field's name: "", "batch.", "output 'board': unpack_bits.".
void check(const pb::Message& message, const std::string& path) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) check_field(message, field, path + field->name());
}

}  // namespace

std::string element_path(const std::string& field, int index, int count, const std::string& name) {
  if (!name.empty()) return fmt::format("{} '{}'", field, name);
  return count == 1 ? field : fmt::format("{}[{}]", field, index);
}

void refuse_unsupported(const config::Pipeline& pipeline) { check(pipeline, ""); }

}  // namespace feedline::flow
