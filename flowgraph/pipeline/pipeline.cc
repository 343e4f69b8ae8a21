#include "feedline/pipeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <unordered_map>

#include "base/absolute_path.h"
#include "base/descriptor.h"
#include "base/did_you_mean.h"
#include "base/syscall_hooks.h"
#include "base/utf8.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/message_text.h"

namespace feedline {
namespace {

namespace pb = google::protobuf;
using Given = pb::TextFormat::ParseInfoTree;

using OpenPipelineOp = HookedCall<"open_pipeline", EMFILE>;
using ReadPipelineOp = HookedCall<"read_pipeline", EIO>;

constexpr size_t longest_text = size_t{64} << 20;  // bytes; a longer text is not a pipeline

void parse(std::string_view text, std::string_view text_name, pb::Message& message, Given* given = nullptr) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  if (text.size() > longest_text)
    throw Error(
        Category::bad_pipeline,
        fmt::format("{}: the text has more than {} bytes, the most that a pipeline may have; check that this is "
                    "the right file",
                    text_name, longest_text));
  if (text.find('\0') != text.npos)
    throw Error(
        Category::bad_pipeline,
        fmt::format("{}: this is not a text, and so it is not a pipeline; to write a pipeline for TFRecord files, use "
                    "`feedline inspect --pipeline FILE...`",
                    text_name));
  if (const auto error = flow::read_text(text, message, given))
    throw Error(Category::bad_pipeline,
                fmt::format("{}:{}:{}: {}", text_name, error->line, error->column, error->message));
}

// Clears every field of `base` that the text of `over` names, so that merging `over` into `base` replaces these fields.
void make_room(pb::Message& base, const pb::Message& over, const Given& given) {
  const pb::Reflection& reflection = *base.GetReflection();
  for (int i = 0; i < base.GetDescriptor()->field_count(); i++) {
    const pb::FieldDescriptor* field = base.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      if (reflection.FieldSize(over, field) > 0) reflection.ClearField(&base, field);
    } else if (given.GetLocation(field, -1).line < 0) {
      continue;
    } else if (!field->message_type()) {
      reflection.ClearField(&base, field);
    } else if (const Given* nested = given.GetTreeForNested(field, -1); nested && reflection.HasField(base, field)) {
      make_room(*reflection.MutableMessage(&base, field), reflection.GetMessage(over, field), *nested);
    }
  }
}

// Elements of `over` replace the elements of `base` with the same name; the remaining elements of `over` are appended.
// Of several elements of `over` with one name, all but the first are appended, so that a later check refuses the name,
// as it does if `base` has it twice.
template <typename Element>
void lay_by_name(pb::RepeatedPtrField<Element>& base, pb::RepeatedPtrField<Element>& over) {
  std::unordered_map<std::string, int> places;
  for (int i = 0; i < base.size(); i++) places[base[i].name()] = i;
  for (Element& element : over) {
    const auto place = places.find(element.name());
    (place == places.end() ? base.Add() : &base[place->second])->Swap(&element);
    if (place != places.end()) places.erase(place);
  }
  over.Clear();
}

std::string element_name(const pb::Message& element) {
  const pb::FieldDescriptor* name = element.GetDescriptor()->FindFieldByName("name");
  return name ? element.GetReflection()->GetString(element, name) : "";
}

[[noreturn]] void bad_path(std::string_view path, const std::string& why) {
  throw Error(Category::bad_pipeline, fmt::format("{}: {}", path, why));
}

// Returns the element of a repeated field that a path names. `rest` is the part of the path after the field; the name
// is removed from it. Names may contain dots. If several names match, the longest counts. A single element need not be
// named. Throws Error bad_pipeline if no element has the name.
pb::Message* find_element(pb::Message& parent, const pb::FieldDescriptor* field, std::string_view path,
                          std::string_view& rest) {
  const pb::Reflection& reflection = *parent.GetReflection();
  pb::Message* found = nullptr;
  size_t length = 0;
  std::vector<std::string> names;
  const int count = reflection.FieldSize(parent, field);
  for (int i = 0; i < count; i++) {
    pb::Message* element = reflection.MutableRepeatedMessage(&parent, field, i);
    const std::string name = element_name(*element);
    names.push_back(name);
    if (!name.empty() && rest.starts_with(name + ".") && name.size() + 1 > length) {
      found = element;
      length = name.size() + 1;
    }
  }
  if (found) {
    rest.remove_prefix(length);
    return found;
  }
  const std::string_view next = rest.substr(0, rest.find('.'));
  if (count == 1 && field->message_type()->FindFieldByName(std::string(next)))
    return reflection.MutableRepeatedMessage(&parent, field, 0);
  const std::string no_element = fmt::format("there is no {} '{}'{}", field->name(), next, did_you_mean(next, names));
  if (!nearest(next, names).empty()) bad_path(path, no_element);
  bad_path(path, fmt::format("{}; only a second pipeline text can add a new one; and {}", no_element,
                             flow::no_such_field(*field->message_type(), std::string(next))));
}

// Returns the number of the element whose name is all of `rest`, the part of a path after the field; -1 if there is no
// such element. If there is a single element, and it has a field of that name, the field is meant: returns -1.
int element_at(const pb::Message& parent, const pb::FieldDescriptor* field, std::string_view rest) {
  const pb::Reflection& reflection = *parent.GetReflection();
  const int count = reflection.FieldSize(parent, field);
  if (rest.empty() || (count == 1 && field->message_type()->FindFieldByName(std::string(rest)))) return -1;
  for (int i = 0; i < count; i++)
    if (element_name(reflection.GetRepeatedMessage(parent, field, i)) == rest) return i;
  return -1;
}

// Returns a message of the type of `message` that is read from `text`. Throws Error bad_pipeline if the text is wrong,
// or sets any field but `field`.
std::unique_ptr<pb::Message> read_field(const pb::Message& message, const pb::FieldDescriptor* field,
                                        const std::string& text, std::string_view path) {
  std::unique_ptr<pb::Message> read(message.New());
  if (const auto error = flow::read_text(text, *read)) bad_path(path, error->message);
  std::vector<const pb::FieldDescriptor*> fields;
  read->GetReflection()->ListFields(*read, &fields);
  if (fields.size() > 1 || (fields.size() == 1 && fields[0] != field))
    bad_path(path, "the value also sets other fields; write a value for this field only");
  return read;
}

// Replaces an element by what the value says, and keeps its name and place. An empty value removes the element.
void replace_element(pb::Message& parent, const pb::FieldDescriptor* field, int number, std::string_view path,
                     std::string_view value) {
  const pb::Reflection& reflection = *parent.GetReflection();
  if (value.find_first_not_of(" \t") == value.npos) {
    for (; number + 1 < reflection.FieldSize(parent, field); number++)
      reflection.SwapElements(&parent, field, number, number + 1);
    return reflection.RemoveLast(&parent, field);
  }
  const auto read = read_field(parent, field, fmt::format("{} {{ {} }}", field->name(), value), path);
  if (read->GetReflection()->FieldSize(*read, field) != 1)
    bad_path(path, "the value must be one element; write the fields of one element");
  pb::Message* const made = read->GetReflection()->MutableRepeatedMessage(read.get(), field, 0);
  pb::Message* const element = reflection.MutableRepeatedMessage(&parent, field, number);
  const std::string name = element_name(*element);
  if (const std::string other = element_name(*made); !other.empty() && other != name)
    bad_path(path, fmt::format("the value has the name '{}', but the name must stay '{}'; leave 'name' out of the "
                               "value",
                               other, name));
  made->GetReflection()->SetString(made, made->GetDescriptor()->FindFieldByName("name"), name);
  element->CopyFrom(*made);
}

void set(pb::Message& root, std::string_view path, std::string_view value) {
  pb::Message* message = &root;
  const bool clears = value.find_first_not_of(" \t") == value.npos;
  std::unique_ptr<pb::Message> absent;  // if `clears`: stands in for a message that is absent and must stay absent
  for (std::string_view rest = path;;) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const pb::FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(part);
    if (!field) bad_path(path, flow::no_such_field(*message->GetDescriptor(), part));
    if (dot != std::string_view::npos) {
      if (!field->message_type() || field->is_map())
        bad_path(path, fmt::format("'{}' does not have fields; remove what follows it in the path", part));
      rest.remove_prefix(dot + 1);
      if (field->is_repeated())
        if (const int number = element_at(*message, field, rest); number >= 0)
          return replace_element(*message, field, number, path, value);
      const pb::Reflection& reflection = *message->GetReflection();
      if (field->is_repeated()) {
        message = find_element(*message, field, path, rest);
      } else if (clears && !absent && !reflection.HasField(*message, field)) {
        absent.reset(reflection.GetMessage(*message, field).New());
        message = absent.get();
      } else {
        message = reflection.MutableMessage(message, field);
      }
      continue;
    }
    if (clears) return message->GetReflection()->ClearField(message, field);
    std::string text = part;
    if (field->message_type())
      text += fmt::format(" {{ {} }}", value);
    else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING && !value.starts_with('"') &&
             !value.starts_with('\''))
      text += ": " + pb::TextFormat::FieldValuePrinter().PrintString(std::string(value));
    else
      text += fmt::format(": {}", value);
    const auto read = read_field(*message, field, text, path);
    message->GetReflection()->ClearField(message, field);
    message->MergeFrom(*read);
    return;
  }
}

std::string read_file(const std::string& file) {
  const auto fail = [&](const char* what, int error) {
    throw Error(Category::io_error,
                fmt::format("cannot {} the pipeline: {}", what, std::generic_category().message(error)),
                {file, -1, -1, ""});
  };
  int error = injected<OpenPipelineOp>();
  const Descriptor opened(error ? -1 : ::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) fail("open", error ? error : errno);
  std::string text;
  while (text.size() <= longest_text) {
    char buffer[65536];
    error = injected<ReadPipelineOp>();
    const ssize_t count = error ? -1 : ::read(opened.fd(), buffer, sizeof buffer);
    if (count < 0 && !error) error = errno;
    if (count < 0 && error == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  if (error) fail("read", error);
  return text;
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<const config::Pipeline> message, std::string folder)
    : message_(std::move(message)), folder_(std::move(folder)) {
  try {
    folder_ = absolute_path(folder_).string();
  } catch (const Error&) {  // there is no working directory; a pipeline of absolute paths needs none
  }
}

Pipeline Pipeline::overlaid(std::string_view text, std::string_view text_name) const {
  config::Pipeline over;
  Given given;
  parse(text, text_name, over, &given);
  auto laid = std::make_shared<config::Pipeline>(*message_);
  lay_by_name(*laid->mutable_feature(), *over.mutable_feature());
  lay_by_name(*laid->mutable_output(), *over.mutable_output());
  make_room(*laid, over, given);
  laid->MergeFrom(over);
  return Pipeline(std::move(laid), folder_);
}

Pipeline Pipeline::with(std::string_view path, std::string_view value) const {
  auto changed = std::make_shared<config::Pipeline>(*message_);
  set(*changed, path, value);
  return Pipeline(std::move(changed), folder_);
}

std::string Pipeline::text() const {
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(*message_, &text);
  return text;
}

Pipeline parse_pipeline(std::string_view text, std::string folder, std::string_view text_name) {
  auto message = std::make_shared<config::Pipeline>();
  parse(text, text_name, *message);
  return Pipeline(std::move(message), std::move(folder));
}

Pipeline load_pipeline(const std::string& file) {
  return parse_pipeline(read_file(file), std::filesystem::path(file).parent_path().string(), file);
}

}  // namespace feedline
