#include "feedline/records.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "python/src/module.h"
#include "python/src/text.h"
#include "tool/common/example_view.h"
#include "tool/common/text_file.h"
#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/output_folder.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

/// A reader or writer that several Python threads may call: one at a time, and without the interpreter's lock.
template <typename T>
struct Shared {
  Shared(const std::string& file, const typename T::Options& options) : object(file, options) {}
  template <typename Call>
  auto use(Call call) {
    nb::gil_scoped_release released;
    const std::lock_guard lock(mutex);
    return call(object);
  }
  T object;
  std::mutex mutex;
};

nb::bytes bytes_of(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }
std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

Compression compression_of(const std::string& name) {
  if (name == "none") return Compression::none;
  if (name == "gzip") return Compression::gzip;
  if (name == "zlib") return Compression::zlib;
  return Compression::automatic;
}

/// Returns the next record, or None at the end. Raises the Error of a bad region; the next call continues after that
/// region.
nb::object next(Shared<RecordReader>& reader) {
  struct Found {
    ReadResult result{};
    std::string payload;
    uint64_t offset = 0, number = 0;
  };
  const Found found = reader.use([](RecordReader& file) {
    Record record;
    Found read{file.next(record), {}, 0, 0};
    if (read.result == ReadResult::error) throw file.error();
    if (read.result == ReadResult::record)
      read = {ReadResult::record,
              {reinterpret_cast<const char*>(record.payload.data()), record.payload.size()},
              record.offset,
              record.number};
    return read;
  });
  if (found.result == ReadResult::end) return nb::none();
  return nb::make_tuple(nb::bytes(found.payload.data(), found.payload.size()), found.offset, found.number);
}

nb::object list_of(const tool::proto::Feature& feature) {
  nb::list values;  // a feature has at most one of the lists
  for (const std::string& value : feature.bytes_list().value()) values.append(nb::bytes(value.data(), value.size()));
  for (const float value : feature.float_list().value()) values.append(value);
  for (const int64_t value : feature.int64_list().value()) values.append(value);
  return values;
}

nb::dict parse_example(const nb::bytes& record) {
  tool::ExampleView view;
  if (!view.parse(span_of(record)) || !view.feature_lists().empty())
    throw Error(Category::malformed_proto, "the record is not a tf.train.Example");
  nb::dict example;
  for (const auto* entry : view.features()) example[text_of(entry->key())] = list_of(entry->value());
  return example;
}

/// An OutputFolder that Python code closes.
struct Output {
  explicit Output(const std::string& path) { folder.emplace(path); }
  std::optional<tool::OutputFolder> folder;
};

template <typename T>
using Values = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void add_records(nb::module_& module) {
  nb::class_<Shared<RecordReader>>(module, "RecordReader")
      .def(
          "__init__",
          [](Shared<RecordReader>* self, nb::handle name, const std::string& compression, uint64_t record_limit) {
            const std::string file = file_name(name);
            const RecordReader::Options options{compression_of(compression), record_limit};
            nb::gil_scoped_release released;
            new (self) Shared<RecordReader>(file, options);
          },
          nb::arg("file"), nb::arg("compression"), nb::arg("record_limit"))
      .def("next", next);
  nb::class_<Shared<RecordWriter>>(module, "RecordWriter")
      .def(
          "__init__",
          [](Shared<RecordWriter>* self, nb::handle name, const std::string& compression) {
            const std::string file = file_name(name);
            const RecordWriter::Options options{compression_of(compression)};
            nb::gil_scoped_release released;
            new (self) Shared<RecordWriter>(file, options);
          },
          nb::arg("file"), nb::arg("compression"))
      .def("write",
           [](Shared<RecordWriter>& writer, const nb::bytes& record) {
             writer.use([payload = span_of(record)](RecordWriter& file) { file.write(payload); });
           })
      .def("close", [](Shared<RecordWriter>& writer) { writer.use([](RecordWriter& file) { file.close(); }); });
  nb::class_<tool::ExampleWriter>(module, "ExampleWriter")
      .def(nb::init<std::vector<std::string>>())
      .def("set_bytes",
           [](tool::ExampleWriter& writer, size_t feature, const std::vector<nb::bytes>& values) {
             std::vector<std::string_view> views;
             for (const nb::bytes& value : values) views.emplace_back(value.c_str(), value.size());
             writer.set_bytes(feature, views);
           })
      .def("set_floats",
           [](tool::ExampleWriter& writer, size_t feature, const Values<float>& values) {
             writer.set_floats(feature, {values.data(), values.size()});
           })
      .def("set_ints",
           [](tool::ExampleWriter& writer, size_t feature, const Values<int64_t>& values) {
             writer.set_ints(feature, {values.data(), values.size()});
           })
      .def("finish", [](tool::ExampleWriter& writer) { return bytes_of(writer.finish()); });
  nb::class_<Output>(module, "OutputFolder")
      .def("__init__", [](Output* self, nb::handle folder) { new (self) Output(file_name(folder)); })
      .def("place", [](Output& out, nb::handle name) { return text_of(out.folder->place(file_name(name))); })
      .def("publish", [](Output& out) { out.folder->publish(); })
      .def("write_pipeline",
           [](Output& out, const std::string& text) { tool::write_text(out.folder->pipeline(), text); })
      .def("close", [](Output& out) { out.folder.reset(); });
  module.def("parse_example", parse_example);
}

}  // namespace feedline::python
