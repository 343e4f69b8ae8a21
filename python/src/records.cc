#include "python/src/records.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feedline/records.h"
#include "tool/common/example_view.h"
#include "tool/convert/example_writer.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

nb::bytes bytes_of(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }
std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

Compression compression_of(const std::string& name) {
  if (name == "none") return Compression::none;
  if (name == "gzip") return Compression::gzip;
  if (name == "zlib") return Compression::zlib;
  if (name == "auto") return Compression::automatic;
  throw Error(Category::bad_pipeline, "compression '" + name + "' is none of auto, none, gzip, zlib");
}

/// Returns the next record, or None at the end. Raises the Error of a bad region; the call after it goes on after that region.
nb::object next(RecordReader& reader) {
  Record record;
  ReadResult result{};
  {
    nb::gil_scoped_release released;
    result = reader.next(record);
  }
  if (result == ReadResult::end) return nb::none();
  if (result == ReadResult::error) throw reader.error();
  return nb::make_tuple(bytes_of(record.payload), record.offset, record.number);
}

nb::object list_of(const cli::ExampleView& view, const cli::ExampleView::Feature& feature) {
  nb::list values;
  for (const std::string_view value :
       feature.kind == cli::Kind::bytes_list ? view.bytes(feature) : std::span<const std::string_view>())
    values.append(nb::bytes(value.data(), value.size()));
  if (feature.kind == cli::Kind::float_list)
    for (const float value : view.floats(feature)) values.append(value);
  if (feature.kind == cli::Kind::int64_list)
    for (const int64_t value : view.ints(feature)) values.append(value);
  return values;
}

nb::dict parse_example(const nb::bytes& record) {
  cli::ExampleView view;
  if (!view.parse(span_of(record)) || !view.feature_lists().empty())
    throw Error(Category::malformed_proto, "the record is no tf.train.Example");
  nb::dict example;
  for (const cli::ExampleView::Feature& feature : view.features())
    example[nb::str(feature.key.data(), feature.key.size())] = list_of(view, feature);
  return example;
}

template <typename T>
using Values = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void add_records(nb::module_& module) {
  nb::class_<RecordReader>(module, "RecordReader")
      .def(
          "__init__",
          [](RecordReader* self, const std::string& file, const std::string& compression, uint64_t record_limit) {
            new (self) RecordReader(file, {compression_of(compression), record_limit});
          },
          nb::arg("file"), nb::arg("compression"), nb::arg("record_limit"))
      .def("next", next);
  nb::class_<RecordWriter>(module, "RecordWriter")
      .def(
          "__init__",
          [](RecordWriter* self, const std::string& file, const std::string& compression) {
            new (self) RecordWriter(file, {compression_of(compression)});
          },
          nb::arg("file"), nb::arg("compression"))
      .def("write",
           [](RecordWriter& writer, const nb::bytes& record) {
             nb::gil_scoped_release released;
             writer.write(span_of(record));
           })
      .def("close", &RecordWriter::close, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("records", &RecordWriter::records)
      .def_prop_ro("bytes", &RecordWriter::bytes);
  nb::class_<cli::ExampleWriter>(module, "ExampleWriter")
      .def(nb::init<std::vector<std::string>>())
      .def("set_bytes",
           [](cli::ExampleWriter& writer, size_t feature, const std::vector<nb::bytes>& values) {
             std::vector<std::string_view> views;
             for (const nb::bytes& value : values) views.emplace_back(value.c_str(), value.size());
             writer.set_bytes(feature, views);
           })
      .def("set_floats",
           [](cli::ExampleWriter& writer, size_t feature, const Values<float>& values) {
             writer.set_floats(feature, {values.data(), values.size()});
           })
      .def("set_ints",
           [](cli::ExampleWriter& writer, size_t feature, const Values<int64_t>& values) {
             writer.set_ints(feature, {values.data(), values.size()});
           })
      .def("finish", [](cli::ExampleWriter& writer) { return bytes_of(writer.finish()); });
  module.def("parse_example", parse_example);
}

}  // namespace feedline::python
