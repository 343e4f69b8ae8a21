#include "flowgraph/pipeline/resolve_picture.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "feedline/error.h"

namespace feedline::flow {
namespace {

constexpr int64_t longest_side = 65535;  // in pixels, the maximum of JPEG

class PictureResolver {
 public:
  PictureResolver(const config::Output& config, const std::string& path) : config_(config), path_(path) {}

  PictureSpec of_encoded() const {
    const config::DecodeImage& decode = config_.decode_image();
    if (decode.channels() != 0 && decode.channels() != 1 && decode.channels() != 3)
      refuse("decode_image.channels",
             fmt::format("{}; it must be 1 (grey) or 3 (red, green, blue)", decode.channels()));
    if (decode.max_pixels() < 0 || decode.max_pixels() > pictures::most_pixels)
      refuse("decode_image.max_pixels",
             fmt::format("{}; it must be 1 to {}", decode.max_pixels(), pictures::most_pixels));
    if (decode.bit_depth() != 0 && decode.bit_depth() != 8 && decode.bit_depth() != 16)
      refuse("decode_image.bit_depth", fmt::format("{}; it must be 8 or 16", decode.bit_depth()));
    pictures::DecodeOptions options;
    if (decode.max_pixels() > 0) options.max_pixels = decode.max_pixels();
    if (decode.bit_depth() > 0) options.bits = decode.bit_depth();
    options.fast_dct = decode.dct() == config::DecodeImage::FAST;
    options.apply_exif = decode.apply_exif();
    options.may_shrink = decode.scale() == config::DecodeImage::AUTO;
    PictureSpec spec = shaped();
    spec.origin = options;
    spec.finish.channels = decode.channels() == 1 ? 1 : 3;
    const auto size = spec.geometry.made();
    if (!size)
      refuse("decode_image",
             "the size of the tensor would depend on the picture; give resize.size or crop.size; with resize.shorter, "
             "give crop.size and crop.after_resize");
    spec.size = *size;
    const auto& [crop, after_resize] = std::pair(spec.geometry.crop, spec.geometry.crop_after_resize);
    if (crop && !after_resize && crop->height * crop->width > options.max_pixels)
      refuse("crop.size", fmt::format("{} x {} pixels are more than decode_image.max_pixels, which is {}; raise "
                                      "decode_image.max_pixels, or lower crop.size",
                                      crop->height, crop->width, options.max_pixels));
    return spec;
  }

  PictureSpec of_pixels(const StoredPixels& stored) const {
    for (const int64_t side : {stored.height, stored.width})
      if (side > longest_side)
        refuse("decode_raw.shape",
               fmt::format("{}; height and width of a picture must be 1 to {} pixels", side, longest_side));
    PictureSpec spec = shaped();
    spec.origin = stored;
    spec.finish.channels = stored.channels;
    try {
      const auto made = pictures::geometry_of(spec.geometry, stored.width, stored.height, {Draws(0), Draws(0)}).made;
      spec.size = {made.height, made.width};
    } catch (const pictures::BadPicture& bad) {
      refuse("crop.size", bad.what());
    }
    return spec;
  }

 private:
  [[noreturn]] void refuse(std::string_view field, const std::string& why) const {
    throw Error(Category::bad_pipeline, fmt::format("{}: {}: {}", path_, field, why));
  }

  PictureSpec shaped() const {
    PictureSpec spec;
    if (config_.has_crop()) crop(spec);
    if (config_.has_resize()) resize(spec);
    if (config_.has_flip()) flip(spec);
    // Without a group, each output makes its own random choices.
    for (std::string* group : {&spec.keys.crop_group, &spec.keys.flip_group})
      *group = group->empty() ? "output " + config_.name() : "group " + *group;
    return spec;
  }

  void crop(PictureSpec& spec) const {
    const config::Crop& crop = config_.crop();
    pictures::GeometrySpec& geometry = spec.geometry;
    geometry.crop = size_of_picture("crop.size", crop.size());
    geometry.crop_randomly = crop.mode() == config::Crop::RANDOM;
    geometry.crop_after_resize = crop.after_resize();
    geometry.padding = crop.padding();
    spec.keys.crop_group = crop.group();
    if (crop.has_random_area()) return random_area(geometry);
    if (!geometry.crop) refuse("crop.size", "it is missing; give height and width");
    if (crop.after_resize() && !config_.has_resize())
      refuse("crop.after_resize", "there is no 'resize'; add 'resize', or remove crop.after_resize");
    if (crop.padding() < 0 || crop.padding() > longest_side)
      refuse("crop.padding", fmt::format("{}; it must be 0 to {} pixels", crop.padding(), longest_side));
    if (crop.padding() > 0 && crop.after_resize())
      refuse("crop.padding", "it is only for a crop before 'resize'; remove crop.padding or crop.after_resize");
    if (crop.fill() < 0 || crop.fill() > 255) refuse("crop.fill", fmt::format("{}; it must be 0 to 255", crop.fill()));
    if (crop.fill() > 0 && crop.padding() == 0)
      refuse("crop.fill",
             "it is the value of padded pixels, but there is no padding; give crop.padding, or remove crop.fill");
    spec.finish.fill = static_cast<uint8_t>(crop.fill());
    if (!crop.group().empty() && !geometry.crop_randomly)
      refuse("crop.group",
             "a group shares random choices, but this crop is not random; write crop.mode: RANDOM, or remove "
             "crop.group");
  }

  void random_area(pictures::GeometrySpec& geometry) const {
    const config::Crop& crop = config_.crop();
    if (!geometry.crop_randomly)
      refuse("crop.random_area", "the area is random, but crop.mode is CENTER; write crop.mode: RANDOM");
    for (const auto& [field, given] : {std::pair{"size", geometry.crop.has_value()},
                                       {"padding", crop.padding() != 0},
                                       {"fill", crop.fill() != 0},
                                       {"after_resize", crop.after_resize()}})
      if (given)
        refuse(fmt::format("crop.{}", field), "it cannot be combined with crop.random_area; remove one of the two");
    if (config_.resize().size().empty()) refuse("crop.random_area", "its windows differ in size; give resize.size");
    pictures::RandomArea area;
    range("crop.random_area.scale", crop.random_area().scale(), 1, area.least_scale, area.most_scale);
    range("crop.random_area.ratio", crop.random_area().ratio(), 1000, area.least_ratio, area.most_ratio);
    geometry.area = area;
  }

  // Sets `least` and `most` to the two given numbers. Leaves their defaults if no numbers are given.
  void range(std::string_view field, const auto& given, double highest, double& least, double& most) const {
    if (given.empty()) return;
    if (given.size() != 2 || !(given[0] > 0) || !(given[0] <= given[1]) || !(given[1] <= highest))
      refuse(field, fmt::format("give two numbers, the smallest and the largest, above 0 and at most {}", highest));
    least = given[0];
    most = given[1];
  }

  void flip(PictureSpec& spec) const {
    const config::Flip& flip = config_.flip();
    const double probability = flip.has_probability() ? flip.probability() : 0.5;
    if (!(probability >= 0 && probability <= 1))
      refuse("flip.probability", fmt::format("{}; it must be 0 to 1", probability));
    spec.geometry.flip = probability;
    spec.keys.flip_group = flip.group();
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
      refuse("resize.shorter",
             "the crop comes before the resize and already has a fixed size; give crop.after_resize, or resize.size in "
             "place of resize.shorter");
    if (resize.antialias() && resize.filter() != config::Resize::BILINEAR)
      refuse("resize.antialias", "it is only for resize.filter: BILINEAR; remove resize.antialias");
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
  return PictureResolver(output, path).of_encoded();
}

PictureSpec resolve_picture(const config::Output& output, const std::string& path, const StoredPixels& stored) {
  return PictureResolver(output, path).of_pixels(stored);
}

}  // namespace feedline::flow
