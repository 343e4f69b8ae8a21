// The parts of the extension module, each of which adds its classes and functions to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace feedline::python {

/// Adds Pipeline, and what the package must know of pipeline.proto.
void add_pipeline(nanobind::module_& module);
/// Adds Tensor, a tensor of a batch as a DLPack object.
void add_tensor(nanobind::module_& module);
/// Adds Feeder. Its calls release the GIL while they work or wait. A signal, such as that of Ctrl-C, ends a call that
/// waits. The program may keep the batches for any time.
void add_feeder(nanobind::module_& module);
/// Adds RecordReader, RecordWriter, ExampleWriter, OutputFolder and parse_example(), for TFRecord files and the
/// tf.train.Examples in them.
void add_records(nanobind::module_& module);

}  // namespace feedline::python
