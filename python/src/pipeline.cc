#include "feedline/pipeline.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "feedline_pipeline.pb.h"
#include "python/src/module.h"
#include "python/src/text.h"

namespace nb = nanobind;
namespace pb = google::protobuf;

namespace feedline::python {
namespace {

/// Returns {field: (kind, repeated)} of a message. The kind of a field says what its values are: "string", "bytes",
/// "int", "float" or "bool"; for an enum, a list of the names of its values; for a message, the name of its type; for a
/// map, "map".
nb::dict fields_of(const pb::Descriptor& message) {
  nb::dict fields;
  for (int i = 0; i < message.field_count(); i++) {
    const pb::FieldDescriptor& field = *message.field(i);
    nb::object kind;
    switch (field.cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        kind = nb::str(field.is_map() ? "map" : field.message_type()->name().c_str());
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM: {
        nb::list names;
        for (int v = 0; v < field.enum_type()->value_count(); v++)
          names.append(nb::str(field.enum_type()->value(v)->name().c_str()));
        kind = names;
        break;
      }
      case pb::FieldDescriptor::CPPTYPE_STRING:
        kind = nb::str(field.type() == pb::FieldDescriptor::TYPE_BYTES ? "bytes" : "string");
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        kind = nb::str("bool");
        break;
      case pb::FieldDescriptor::CPPTYPE_FLOAT:
      case pb::FieldDescriptor::CPPTYPE_DOUBLE:
        kind = nb::str("float");
        break;
      default:
        kind = nb::str("int");
    }
    fields[field.name().c_str()] = nb::make_tuple(kind, field.is_repeated() && !field.is_map());
  }
  return fields;
}

/// Returns the fields of every message of pipeline.proto, by the name of the message.
nb::dict schema() {
  nb::dict messages;
  const pb::FileDescriptor& file = *config::Pipeline::descriptor()->file();
  for (int i = 0; i < file.message_type_count(); i++)
    messages[file.message_type(i)->name().c_str()] = fields_of(*file.message_type(i));
  return messages;
}

}  // namespace

void add_pipeline(nb::module_& module) {
  nb::class_<Pipeline>(module, "Pipeline")
      .def("overlaid", &Pipeline::overlaid, nb::arg("text"), nb::arg("text_name") = "overlay")
      .def("with_field", &Pipeline::with, nb::arg("path"), nb::arg("value"))
      .def("text", &Pipeline::text)
      .def("folder", [](const Pipeline& pipeline) { return text_of(pipeline.folder()); });
  module.def(
      "parse_pipeline",
      [](const std::string& text, nb::handle folder, const std::string& text_name) {
        return parse_pipeline(text, file_name(folder), text_name);
      },
      nb::arg("text"), nb::arg("folder"), nb::arg("text_name"));
  module.def(
      "load_pipeline", [](nb::handle file) { return load_pipeline(file_name(file)); }, nb::arg("file"));
  module.def("schema", schema);
}

}  // namespace feedline::python
