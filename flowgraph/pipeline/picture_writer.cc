#include "flowgraph/pipeline/picture_writer.h"

#include <utility>

namespace feedline::flow {

PictureWriter::PictureWriter(const pictures::DecodeOptions& decode, const pictures::GeometrySpec& geometry,
                             pictures::Finish finish)
    : decode_(decode), geometry_(geometry), finish_(std::move(finish)) {}

uint64_t PictureWriter::scratch_bytes() const noexcept { return pictures::render_memory(decode_); }

void PictureWriter::write(std::span<const std::span<const std::byte>> values, std::byte* out, size_t stride,
                          std::span<std::byte> scratch, std::vector<RowFailure>& failed) const {
  const auto geometry_of = [](const void* spec, int64_t width, int64_t height) {
    return pictures::geometry_of(*static_cast<const pictures::GeometrySpec*>(spec), width, height);
  };
  for (size_t row = 0; row < values.size(); row++) try {
      pictures::render(values[row], decode_, geometry_of, &geometry_, finish_, out + row * stride, scratch);
    } catch (const pictures::BadPicture& bad) {
      failed.push_back({row, Category::bad_image, bad.what()});
    }
}

}  // namespace feedline::flow
