// FEEDLINE_PUBLIC marks what the shared library exports. Every other symbol is hidden, so that feedline can share a
// process with other users of the same dependencies. A few functions of headers that are not installed are marked, too:
// libfeedline-training, which has the same version, calls them.
#pragma once

#define FEEDLINE_PUBLIC __attribute__((visibility("default")))
