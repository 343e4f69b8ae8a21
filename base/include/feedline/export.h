// Marks what the shared library shows. Everything else is hidden, so that feedline may share a process with
// other users of the same dependencies.
#pragma once

#define FEEDLINE_PUBLIC __attribute__((visibility("default")))
