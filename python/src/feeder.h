// The Feeder, as Python sees it: no work under the GIL, waits that a signal can interrupt, and batches that may be
// kept.
#pragma once

#include <nanobind/nanobind.h>

namespace feedline::python {

/// Adds the classes to the module.
void add_feeder(nanobind::module_& module);

}  // namespace feedline::python
