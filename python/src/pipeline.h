// Pipelines, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace feedline::python {

/// Adds Pipeline, and what the package needs to know of pipeline.proto, to the module.
void add_pipeline(nanobind::module_& module);

}  // namespace feedline::python
