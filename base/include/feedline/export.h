// FEEDLINE_PUBLIC marks what the shared library exports. Every other symbol is hidden, so that feedline can share a
// process with other users of the same dependencies.
#pragma once

#define FEEDLINE_PUBLIC __attribute__((visibility("default")))
