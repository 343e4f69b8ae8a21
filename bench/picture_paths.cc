#include "picture_paths.h"

#include "photos.h"
#include "picture_ceilings.h"

namespace feedline::bench {
namespace {

constexpr size_t photos = 32;  // each comes many times

const std::vector<std::string>& jpegs() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> made;
    for (const test::Pixels& pixels : make_photos(photos)) made.push_back(test::to_jpeg(pixels));
    return made;
  }();
  return all;
}

/// Decodes the middle of each photo, and resizes and normalises it, into a ring of 3 batches of 64.
uint64_t to_tensors(Worker& worker) {
  constexpr size_t batch = 64, side = 224, bytes = 3 * side * side * sizeof(float);
  static BareJpeg libjpeg;
  static BareResize resize(300, side);
  const float scale[] = {1 / 63.0f, 1 / 62.0f, 1 / 67.0f}, bias[] = {-2, -2, -2};
  for (const std::string& jpeg : jpegs())
    resize(libjpeg.decode(jpeg, {100, 38, 300, 300}), scale, bias,
           reinterpret_cast<float*>(worker.ring.data() + worker.next_row(3 * batch) * bytes));
  return jpegs().size();
}

}  // namespace

DataSet jpeg_set() {
  return {
      "JPEG to 224",
      "jpeg.tfrecord",
      peers("jpeg"),
      512,
      64,
      [next = size_t{0}](Random&) mutable { return record_of(jpegs()[next++ % photos]); },
      {{"libjpeg-turbo, resize", to_tensors, {}}, {"float32", peers("jpeg-resize").text(), {"libjpeg-turbo, resize"}}}};
}

}  // namespace feedline::bench
