#include "flowgraph/pipeline/picture_writer.h"

#include <algorithm>
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

pictures::PixelView<uint8_t> view_of(const StoredPixels& stored, std::span<const std::byte> bytes) {
  pictures::PixelView<uint8_t> view{reinterpret_cast<const uint8_t*>(bytes.data()), stored.height, stored.width,
                                    stored.channels};
  view.column_step = stored.channels_first ? 1 : stored.channels;
  view.row_step = stored.width * view.column_step;
  view.sample_step = stored.channels_first ? stored.height * stored.width : 1;
  return view;
}

}  // namespace

PictureWriter::PictureWriter(Origin origin, const pictures::GeometrySpec& geometry, pictures::Finish finish,
                             const ChoiceKeys& keys)
    : origin_(std::move(origin)),
      geometry_(geometry),
      finish_(std::move(finish)),
      keys_(keys),
      crop_key_(key_of({keys.seed, crops, hash64(keys.crop_group)})),
      flip_key_(key_of({keys.seed, flips, hash64(keys.flip_group)})) {}

uint64_t PictureWriter::scratch_bytes() const noexcept {
  if (const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_))
    return pictures::render_memory(*decode, geometry_.least_resized_height());
  const auto& [height, width, channels, channels_first] = std::get<StoredPixels>(origin_);
  const auto [rows, columns] = geometry_.crop.value_or(pictures::Size{height, width});
  return pictures::render_memory({.max_pixels = std::max(height * width, rows * columns)});
}

uint64_t PictureWriter::heap_bytes() const noexcept {
  const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_);
  return decode ? pictures::decoder_memory(*decode) : 0;
}

void PictureWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out,
                          size_t stride, std::span<std::byte> scratch, RowOutcome& outcome) const {
  for (size_t row = 0; row < values.size(); row++) try {
      const uint64_t number = rows.sample(row);
      const Sample sample{
          geometry_, {Draws(key_of({crop_key_, rows.epoch, number})), Draws(key_of({flip_key_, rows.epoch, number}))}};
      // One reference fits into std::function itself, so that nothing is allocated for a picture.
      const auto geometry_of = [&sample](int64_t width, int64_t height) {
        return pictures::geometry_of(sample.geometry, width, height, sample.choices);
      };
      if (const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_))
        outcome.warnings += pictures::render(values[row], *decode, geometry_of, finish_, out + row * stride, scratch);
      else
        pictures::render(view_of(std::get<StoredPixels>(origin_), values[row]), geometry_of, finish_,
                         out + row * stride, scratch);
    } catch (const pictures::BadPicture& bad) {
      outcome.failed.push_back({row, Category::bad_image, bad.what()});
    }
}

std::shared_ptr<const RowWriter> PictureWriter::of_stored_numbers() const {
  if ((geometry_.resize || geometry_.shorter) && finish_.filter != pictures::Filter::nearest) return nullptr;
  pictures::Finish finish{.filter = finish_.filter, .channels = finish_.channels, .fill = finish_.fill};
  const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_);
  if (decode && decode->bits == 16) finish.dtype = DType::uint16;
  return std::make_shared<PictureWriter>(origin_, geometry_, std::move(finish), keys_);
}

}  // namespace feedline::flow
