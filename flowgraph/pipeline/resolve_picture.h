// What an output says of its pictures: decode_image, crop, resize and flip.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/picture_writer.h"

namespace feedline::flow {

struct PictureSpec {
  pictures::DecodeOptions decode;
  pictures::GeometrySpec geometry;
  pictures::Size size;      // of the tensor
  pictures::Finish finish;  // filter, channels and fill; the rest is as for other outputs
  ChoiceKeys keys;          // without the seed
};

/// Checks the fields, and fills in defaults. `path` names the output in errors. Throws Error bad_pipeline.
PictureSpec resolve_picture(const config::Output& output, const std::string& path);

}  // namespace feedline::flow
