// Pictures like photographs, for the benchmarks. They are made up, and the same in every run.
#pragma once

#include <string>
#include <vector>

#include "feed_data.h"
#include "tests/pictures/encode.h"

namespace feedline::bench {

/// Returns pictures of 500 x 375 pixels of 3 channels with the spectrum of photographs: the finer a detail, the weaker.
/// Colours vary less than brightness, and have no fine details. A JPEG in quality 90 has about 65 KB.
std::vector<test::Pixels> make_photos(size_t count);

/// Returns an Example with the features of ImageNet in TensorFlow Datasets: "image", "label" and "file_name".
std::string record_of(const std::string& picture);

}  // namespace feedline::bench
