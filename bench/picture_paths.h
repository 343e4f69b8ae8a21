// What pace_bench measures of pictures: a data set of JPEGs, a bare loop over libjpeg-turbo, and a path (pipeline).
#pragma once

#include "feed_paths.h"

namespace feedline::bench {

/// JPEGs of 500 x 375 pixels; the middle of each, 300 x 300, is resized to 224 x 224, normalised, as float32 CHW.
DataSet jpeg_set();

}  // namespace feedline::bench
