// What an output says of its pictures: decode_image, crop and resize.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"
#include "pictures/shape/geometry.h"

namespace feedline::flow {

struct PictureSpec {
  pictures::DecodeOptions decode;
  pictures::GeometrySpec geometry;
  pictures::Size size;      // of the tensor
  pictures::Finish finish;  // filter and channels; the rest is as for other outputs
};

/// Checks the fields, and fills in defaults. `path` names the output in errors. Throws Error bad_pipeline.
PictureSpec resolve_picture(const config::Output& output, const std::string& path);

}  // namespace feedline::flow
