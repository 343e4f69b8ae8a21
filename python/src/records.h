// TFRecord files, and tf.train.Examples in them, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace feedline::python {

/// Adds RecordReader, RecordWriter, ExampleWriter, OutputFolder and parse_example() to the module.
void add_records(nanobind::module_& module);

}  // namespace feedline::python
