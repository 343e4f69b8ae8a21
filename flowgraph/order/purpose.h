// The purposes for which an order draws random numbers. The purpose is a part of each key, so that no two kinds of draw
// share numbers.
#pragma once

#include <cstdint>

namespace feedline::flow {

/// The order that a seed gives depends on these values, so they never change.
enum Purpose : uint64_t {
  of_pass = 0,
  of_segments = 1,
  of_files = 2,
  of_block = 16,
  of_round = 17,
  of_epochs = 34,
  of_steps = 35
};

}  // namespace feedline::flow
