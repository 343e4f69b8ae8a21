#include "flowgraph/rows/kept_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/invariant.h"
#include "pictures/decode/picture_info.h"
#include "pictures/decode/pixel_view.h"
#include "pictures/shape/copy_window.h"

namespace feedline::flow {
namespace {

/// The beginning of an entry whose size varies.
struct Head {
  uint32_t height, width;
  uint64_t unused;  // so that pixels of any dtype are aligned
};

// Returns choices for a geometry that has nothing random, and so does not use them.
pictures::Choices no_choices() { return {Draws(0), Draws(0)}; }

std::string text_of(const PictureOrigin& origin) {
  if (const auto* stored = std::get_if<StoredPixels>(&origin))
    return fmt::format("pixels {}x{}x{} {}", stored->height, stored->width, stored->channels, stored->channels_first);
  const auto& decode = std::get<pictures::DecodeOptions>(origin);
  return fmt::format("{}: bits {} max {} fast {} exif {} shrink {}", pictures::decoder_versions(), decode.bits,
                     decode.max_pixels, decode.fast_dct, decode.apply_exif, decode.may_shrink);
}

std::string text_of(const std::optional<pictures::Size>& size) {
  return size ? fmt::format("{}x{}", size->height, size->width) : "-";
}

std::string text_of(const pictures::GeometrySpec& of) {
  return fmt::format("crop {} after {} padding {} resize {} shorter {}", text_of(of.crop), of.crop_after_resize,
                     of.padding, text_of(of.resize), of.shorter.value_or(0));
}

std::string text_of(const pictures::Finish& of) {
  return fmt::format("dtype {} filter {} channels {} fill {} first {} scale {:a} mean {:a} std {:a}",
                     static_cast<int>(of.dtype), static_cast<int>(of.filter), of.channels, of.fill, of.channels_first,
                     of.scale.value_or(1), fmt::join(of.mean, ","), fmt::join(of.std, ","));
}

}  // namespace

pictures::PixelView<uint8_t> view_of(const StoredPixels& stored, std::span<const std::byte> bytes) {
  pictures::PixelView<uint8_t> view{reinterpret_cast<const uint8_t*>(bytes.data()), stored.height, stored.width,
                                    stored.channels};
  view.column_step = stored.channels_first ? 1 : stored.channels;
  view.row_step = stored.width * view.column_step;
  view.sample_step = stored.channels_first ? stored.height * stored.width : 1;
  return view;
}

KeptPicture::KeptPicture(PictureOrigin origin, const pictures::GeometrySpec& geometry, const pictures::Finish& finish,
                         const CacheSpec& cache)
    : origin_(std::move(origin)), finish_(finish), before_(geometry), after_(geometry) {
  cache.what == CacheWhat::decoded ? keep_decoded() : keep_resized();
  if (!step_.why_not.empty()) return;
  pixel_bytes_ = static_cast<uint64_t>(finish_of_entry_.channels) * size_of(finish_of_entry_.dtype);
  step_.text = fmt::format("{} {} {}", step_.text, text_of(origin_), text_of(finish_of_entry_));
  if (is_row_) return;
  step_.entry_bytes = step_.bytes > 0 ? step_.bytes : sizeof(Head) + pixel_bytes_ * most_pixels();
}

// Returns the maximum number of pixels in an entry, for entries whose size varies.
uint64_t KeptPicture::most_pixels() const {
  constexpr int64_t longest = 16;  // maximum length of the longer side, in multiples of the shorter side
  if (before_.shorter) return static_cast<uint64_t>(longest * *before_.shorter * *before_.shorter);
  return static_cast<uint64_t>(std::get<pictures::DecodeOptions>(origin_).max_pixels);
}

void KeptPicture::keep_decoded() {
  const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_);
  if (!decode) {
    step_.why_not = "its pixels are not encoded";
    return;
  }
  if (decode->may_shrink) {
    step_.why_not = "with decode_image.scale AUTO the decoded size depends on the crop";
    return;
  }
  before_ = {};
  finish_of_entry_ = {.dtype = decode->bits == 16 ? DType::uint16 : DType::uint8, .channels = finish_.channels};
  step_.text = "decoded";
  is_window_ = !after_.resize && !after_.shorter && !after_.area && after_.padding == 0 &&
               finish_.dtype == finish_of_entry_.dtype && (!finish_.channels_first || finish_.channels == 1) &&
               !finish_.scale && finish_.mean.empty();
}

void KeptPicture::keep_resized() {
  if (!before_.resize && !before_.shorter) {
    step_.why_not = "it is not resized";
    return;
  }
  if (before_.area || (before_.crop && before_.crop_randomly && !before_.crop_after_resize)) {
    step_.why_not = "its random crop comes before resize";
    return;
  }
  const bool crops_later = before_.crop && before_.crop_randomly;
  after_ = {};
  after_.flip = before_.flip;
  before_.flip = 0;
  if (crops_later) {
    after_.crop = std::exchange(before_.crop, std::nullopt);
    after_.crop_randomly = true;
    before_.crop_randomly = before_.crop_after_resize = false;
  }
  finish_of_entry_ = finish_;
  size_ = before_.made();
  if (const auto* stored = std::get_if<StoredPixels>(&origin_)) {
    const auto made = kept_geometry(stored->width, stored->height).made;
    size_ = {made.height, made.width};
  }
  if (size_)
    step_.bytes = static_cast<uint64_t>(size_->height * size_->width * finish_.channels) * size_of(finish_.dtype);
  is_row_ = size_ && !crops_later && after_.flip == 0;
  step_.text = fmt::format("resized {}", text_of(before_));
}

pictures::Geometry KeptPicture::kept_geometry(int64_t width, int64_t height) const {
  return pictures::geometry_of(before_, width, height, no_choices());
}

// Returns the size that the picture has in its entry.
pictures::Size KeptPicture::entry_size(std::span<const std::byte> picture) const {
  const auto info = pictures::picture_info(picture);
  pictures::check_size(info.width, info.height, std::get<pictures::DecodeOptions>(origin_));
  const auto made = kept_geometry(info.width, info.height).made;
  return {made.height, made.width};
}

uint64_t KeptPicture::bytes_of(std::span<const std::byte> picture) const {
  if (step_.bytes > 0) return step_.bytes;
  const pictures::Size size = entry_size(picture);
  return sizeof(Head) + static_cast<uint64_t>(size.height * size.width) * pixel_bytes_;
}

bool KeptPicture::make(std::span<const std::byte> picture, std::span<std::byte> entry,
                       std::span<std::byte> scratch) const {
  const bool has_head = !size_;
  const std::span<std::byte> pixels = has_head ? entry.subspan(sizeof(Head)) : entry;
  // A lambda with a single reference fits into std::function itself. So no memory is allocated for each picture.
  struct Call {
    const KeptPicture& of;
    std::span<std::byte> entry;
    uint64_t pixel_bytes;
  } call{*this, entry, has_head ? pixels.size() : 0};
  const auto geometry_of = [&call](int64_t width, int64_t height) {
    const pictures::Geometry geometry = call.of.kept_geometry(width, height);
    if (call.pixel_bytes > 0) {
      if (static_cast<uint64_t>(geometry.made.width * geometry.made.height) * call.of.pixel_bytes_ != call.pixel_bytes)
        throw pictures::BadPicture("the header of the picture gives a different size than its pixels have");
      const Head head{static_cast<uint32_t>(geometry.made.height), static_cast<uint32_t>(geometry.made.width), 0};
      std::memcpy(call.entry.data(), &head, sizeof head);
    }
    return geometry;
  };
  if (const auto* decode = std::get_if<pictures::DecodeOptions>(&origin_))
    return pictures::render(picture, *decode, geometry_of, finish_of_entry_, pixels.data(), scratch) == 0;
  pictures::render(view_of(std::get<StoredPixels>(origin_), picture), geometry_of, finish_of_entry_, pixels.data(),
                   scratch);
  return true;
}

bool KeptPicture::is_whole(std::span<const std::byte> entry) const noexcept {
  if (step_.bytes > 0) return entry.size() == step_.bytes;
  if (entry.size() <= sizeof(Head)) return false;
  Head head;
  std::memcpy(&head, entry.data(), sizeof head);
  const uint64_t pixels = (entry.size() - sizeof head) / pixel_bytes_, bytes = pixels * pixel_bytes_;
  if (uint64_t{head.height} * head.width != pixels || bytes != entry.size() - sizeof head) return false;
  // Refuses longer sides, for which finish() would lack scratch memory. Pictures that can be decoded have none.
  return is_window_ || std::max(head.width, head.height) <= pictures::longest_side;
}

void KeptPicture::finish(std::span<const std::byte> entry, pictures::Choices choices, std::byte* out,
                         std::span<std::byte> scratch) const {
  if (is_row_) {
    if (entry.data() != out) std::memcpy(out, entry.data(), entry.size());
    return;
  }
  pictures::Size size;
  if (size_) {
    size = *size_;
  } else {
    Head head;
    std::memcpy(&head, entry.data(), sizeof head);
    size = {head.height, head.width};
    entry = entry.subspan(sizeof head);
  }
  check_invariant(static_cast<uint64_t>(size.height * size.width) * pixel_bytes_ == entry.size(),
                  "a cached picture of {} x {} pixels has {} bytes", size.height, size.width, entry.size());
  if (is_window_) {
    const pictures::Geometry geometry = pictures::geometry_of(after_, size.width, size.height, choices);
    pictures::copy_window(entry.data(), size, geometry.source, geometry.is_mirrored, finish_, out);
    return;
  }
  struct Call {
    const pictures::GeometrySpec& geometry;
    const pictures::Choices& choices;
  } call{after_, choices};
  const auto geometry_of = [&call](int64_t width, int64_t height) {
    return pictures::geometry_of(call.geometry, width, height, call.choices);
  };
  const auto view = [&]<typename Sample>(Sample) {
    return pictures::PixelView<Sample>{reinterpret_cast<const Sample*>(entry.data()),
                                       size.height,
                                       size.width,
                                       finish_.channels,
                                       size.width * finish_.channels,
                                       finish_.channels};
  };
  if (finish_of_entry_.dtype == DType::uint16)
    pictures::render(view(uint16_t{}), geometry_of, finish_, out, scratch);
  else
    pictures::render(view(uint8_t{}), geometry_of, finish_, out, scratch);
}

std::optional<KeptStep> kept_step(const RowSpec& rows) {
  const auto* pictures = std::get_if<PictureRows>(&rows);
  if (!pictures || !keeps_pictures(pictures->cache)) return std::nullopt;
  return KeptPicture(pictures->origin, pictures->geometry, pictures->finish, *pictures->cache).step();
}

}  // namespace feedline::flow
