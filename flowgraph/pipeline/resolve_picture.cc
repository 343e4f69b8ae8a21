#include "flowgraph/pipeline/resolve_picture.h"

#include <fmt/format.h>

#include <optional>

#include "feedline/error.h"

namespace feedline::flow {
namespace {

constexpr int64_t longest_side = 65535;            // in pixels, as JPEG has it
constexpr int64_t most_pixels = int64_t{1} << 29;  // as TensorFlow has it

class PictureResolver {
 public:
  PictureResolver(const config::Output& config, const std::string& path) : config_(config), path_(path) {}

  PictureSpec resolve() const {
    const config::DecodeImage& decode = config_.decode_image();
    if (decode.channels() != 0 && decode.channels() != 1 && decode.channels() != 3)
      refuse("decode_image.channels",
             fmt::format("{}; it must be 1 (grey) or 3 (red, green, blue)", decode.channels()));
    if (decode.max_pixels() < 0 || decode.max_pixels() > most_pixels)
      refuse("decode_image.max_pixels", fmt::format("{}; it must be 1 to {}", decode.max_pixels(), most_pixels));
    PictureSpec spec;
    if (decode.max_pixels() > 0) spec.decode.max_pixels = decode.max_pixels();
    spec.decode.fast_dct = decode.dct() == config::DecodeImage::FAST;
    spec.finish.channels = decode.channels() == 1 ? 1 : 3;
    if (config_.has_crop()) crop(spec.geometry);
    if (config_.has_resize()) resize(spec);
    const auto size = spec.geometry.made();
    if (!size)
      refuse("decode_image",
             "the size of the tensor would depend on the picture; give resize.size, or crop.size (if resize.shorter is "
             "given, crop.after_resize, too)");
    spec.size = *size;
    return spec;
  }

 private:
  [[noreturn]] void refuse(std::string_view field, const std::string& why) const {
    throw Error(Category::bad_pipeline, fmt::format("{}: {}: {}", path_, field, why));
  }

  void crop(pictures::GeometrySpec& spec) const {
    spec.crop = size_of_picture("crop.size", config_.crop().size());
    if (!spec.crop) refuse("crop.size", "it is missing; give height and width");
    spec.crop_after_resize = config_.crop().after_resize();
    if (spec.crop_after_resize && !config_.has_resize())
      refuse("crop.after_resize", "there is no resize; add it, or remove after_resize");
  }

  void resize(PictureSpec& spec) const {
    const config::Resize& resize = config_.resize();
    spec.geometry.resize = size_of_picture("resize.size", resize.size());
    if (resize.shorter() < 0 || resize.shorter() > longest_side)
      refuse("resize.shorter", fmt::format("{}; it must be 1 to {} pixels", resize.shorter(), longest_side));
    if (resize.shorter() > 0) spec.geometry.shorter = resize.shorter();
    if (spec.geometry.resize && spec.geometry.shorter)
      refuse("resize.shorter", "resize.size is given, too; remove one of them");
    if (!spec.geometry.resize && !spec.geometry.shorter)
      refuse("resize", "its size is missing; give resize.size, or resize.shorter");
    if (spec.geometry.shorter && spec.geometry.crop && !spec.geometry.crop_after_resize)
      refuse("resize.shorter", "the crop comes first and has one size already; give resize.size, or crop.after_resize");
    if (resize.antialias() && resize.filter() != config::Resize::BILINEAR)
      refuse("resize.antialias", "it is for BILINEAR alone; remove it");
    spec.finish.filter = resize.filter() == config::Resize::AREA      ? pictures::Filter::area
                         : resize.filter() == config::Resize::NEAREST ? pictures::Filter::nearest
                         : resize.antialias()                         ? pictures::Filter::bilinear_antialiased
                                                                      : pictures::Filter::bilinear;
  }

  std::optional<pictures::Size> size_of_picture(std::string_view field, const auto& size) const {
    if (size.empty()) return std::nullopt;
    if (size.size() != 2) refuse(field, fmt::format("{} numbers are given; give height and width", size.size()));
    for (const int64_t side : size)
      if (side < 1 || side > longest_side)
        refuse(field, fmt::format("{}; height and width must be 1 to {} pixels", side, longest_side));
    return pictures::Size{size[0], size[1]};
  }

  const config::Output& config_;
  const std::string& path_;
};

}  // namespace

PictureSpec resolve_picture(const config::Output& output, const std::string& path) {
  return PictureResolver(output, path).resolve();
}

}  // namespace feedline::flow
