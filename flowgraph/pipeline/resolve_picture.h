// What an output says of its pictures: decode_image, decode_raw, crop, resize and flip.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/rows/picture_writer.h"

namespace feedline::flow {

struct PictureSpec {
  PictureOrigin origin;
  pictures::GeometrySpec geometry;
  pictures::Size size;      // of the tensor
  pictures::Finish finish;  // filter, channels and fill; the rest is as for other outputs
  ChoiceKeys keys;          // without the seed
};

/// Checks the fields of an encoded picture, and fills in defaults. `path` names the output in errors. Throws Error
/// bad_pipeline.
PictureSpec resolve_picture(const config::Output& output, const std::string& path);

/// The same for pixels of decode_raw. All of them have one size.
PictureSpec resolve_picture(const config::Output& output, const std::string& path, const StoredPixels& stored);

/// Makes the output of `of` from the pictures of a feature. `otherwise` is the layout if the output says none.
void add_picture(OutputResolver& of, int number, PictureSpec picture, ImageLayout otherwise);

}  // namespace feedline::flow
