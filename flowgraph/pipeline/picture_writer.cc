#include "flowgraph/pipeline/picture_writer.h"

#include <utility>

#include "base/audit.h"
#include "base/draws.h"

namespace feedline::flow {
namespace {

// A purpose for key_of(), so that no two kinds of choices are the same.
const uint64_t crops = hash64("pictures: crop"), flips = hash64("pictures: flip");

struct Sample {
  const pictures::GeometrySpec& geometry;
  pictures::Choices choices;
};

}  // namespace

PictureWriter::PictureWriter(const pictures::DecodeOptions& decode, const pictures::GeometrySpec& geometry,
                             pictures::Finish finish, const ChoiceKeys& keys)
    : decode_(decode),
      geometry_(geometry),
      finish_(std::move(finish)),
      crop_key_(key_of({keys.seed, crops, hash64(keys.crop_group)})),
      flip_key_(key_of({keys.seed, flips, hash64(keys.flip_group)})) {}

uint64_t PictureWriter::scratch_bytes() const noexcept { return pictures::render_memory(decode_); }

void PictureWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out,
                          size_t stride, std::span<std::byte> scratch, std::vector<RowFailure>& failed) const {
  for (size_t row = 0; row < values.size(); row++) try {
      const uint64_t number = rows.sample(row);
      const Sample sample{
          geometry_, {Draws(key_of({crop_key_, rows.epoch, number})), Draws(key_of({flip_key_, rows.epoch, number}))}};
      // One reference fits into std::function itself, so that nothing is allocated for a picture.
      const auto geometry_of = [&sample](int64_t width, int64_t height) {
        return pictures::geometry_of(sample.geometry, width, height, sample.choices);
      };
      pictures::render(values[row], decode_, geometry_of, finish_, out + row * stride, scratch);
    } catch (const pictures::BadPicture& bad) {
      failed.push_back({row, Category::bad_image, bad.what()});
    }
}

}  // namespace feedline::flow
