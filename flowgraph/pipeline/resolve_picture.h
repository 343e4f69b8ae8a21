// Checks the fields of an output that describe its pictures: decode_image, decode_raw, crop, resize and flip.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/rows/row_spec.h"

namespace feedline::flow {

struct PictureSpec {
  PictureOrigin origin;
  pictures::GeometrySpec geometry;
  pictures::Size size;      // of a picture in the tensor
  pictures::Finish finish;  // filter, channels and fill; add_picture() sets the rest
  ChoiceKeys keys;          // without the seed, which add_picture() sets
};

/// Checks the fields of an output whose pictures are encoded, and fills in defaults. `path` names the output in errors.
/// Throws Error bad_pipeline if a field is wrong.
PictureSpec resolve_picture(const config::Output& output, const std::string& path);

/// Does the same for an output whose pictures lie in the records as pixels (decode_raw). `stored` is the size that all
/// of them have.
PictureSpec resolve_picture(const config::Output& output, const std::string& path, const StoredPixels& stored);

/// Makes the output of `of` from the pictures of feature `number`. `otherwise` is the layout of the tensor if the
/// output's field `layout` is not set.
void add_picture(OutputResolver& of, int number, PictureSpec picture, ImageLayout otherwise);

}  // namespace feedline::flow
