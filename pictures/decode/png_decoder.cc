#include "pictures/decode/png_decoder.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "pictures/decode/exif.h"

namespace feedline::pictures {
namespace {

constexpr size_t most_of_a_chunk = 8 << 20;                   // bytes of a chunk without pixels (a colour profile)
constexpr size_t signature_bytes = 8, frame_of_a_chunk = 12;  // length and name before its content, CRC32 after it
constexpr uint8_t crc_of_end[] = {0xae, 0x42, 0x60, 0x82};    // the CRC32 of IEND, which has no content
// The names of chunks that are skipped. A picture may have many of them, which would otherwise be kept in memory.
constexpr png_byte unread[] = "tEXt\0zTXt\0iTXt\0sPLT";

struct Chunk {
  std::string_view name;
  std::span<const std::byte> content;
};

/// Returns the chunk that begins at offset `at`, and moves `at` to the next chunk. Returns nullopt if the picture ends
/// before the chunk does.
std::optional<Chunk> next_chunk(std::span<const std::byte> picture, size_t& at) noexcept {
  const std::span<const std::byte> left = picture.subspan(std::min(at, picture.size()));
  if (left.size() < frame_of_a_chunk) return std::nullopt;
  const size_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(left.data()));
  if (length > left.size() - frame_of_a_chunk) return std::nullopt;
  at += frame_of_a_chunk + length;
  return Chunk{{reinterpret_cast<const char*>(left.data()) + 4, 4}, left.subspan(8, length)};
}

}  // namespace

void PngDecoder::fail(png_structp png, png_const_charp message) {
  auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(self->message_, sizeof self->message_, "%s", message);
  std::longjmp(self->jump_, 1);
}

void PngDecoder::note(png_structp png, png_const_charp) {
  static_cast<PngDecoder*>(png_get_error_ptr(png))->warnings_++;
}

void PngDecoder::read(png_structp png, png_bytep to, size_t bytes) {
  auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (bytes > self->bytes_.size() - self->read_) png_error(png, "the picture is cut short");
  std::memcpy(to, self->bytes_.data() + self->read_, bytes);
  self->read_ += bytes;
}

template <typename Body>
void PngDecoder::call(Body body) {
  if (setjmp(jump_)) throw BadPicture(message_);
  body();
}

PngDecoder::PngDecoder(std::span<const std::byte> bytes, const DecodeOptions& options) : bytes_(bytes) {
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, note);
  if (png_) info_ = png_create_info_struct(png_);
  try {
    if (!info_) throw std::bad_alloc();
    call([&] {
      png_set_read_fn(png_, this, read);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() limits the size instead
      png_set_chunk_malloc_max(png_, most_of_a_chunk);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, unread, sizeof unread / 5);
      png_read_info(png_, info_);
    });
    width_ = png_get_image_width(png_, info_);
    height_ = png_get_image_height(png_, info_);
    check_size(width_, height_, options);
    const int type = png_get_color_type(png_, info_);
    const bool is_grey = !(type & PNG_COLOR_MASK_COLOR);
    channels_ = options.channels != 0 ? options.channels : is_grey ? 1 : 3;
    interlaced_ = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    call([&] {
      png_set_expand(png_);  // palettes to colours, and 1, 2 and 4 bits to 8
      if (options.bits == 16) {
        png_set_expand_16(png_);
        if constexpr (std::endian::native == std::endian::little) png_set_swap(png_);
      } else {
        png_set_strip_16(png_);
      }
      png_set_strip_alpha(png_);
      if (is_grey && channels_ == 3) png_set_gray_to_rgb(png_);
      if (!is_grey && channels_ == 1) png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    row_bytes_ = png_get_rowbytes(png_, info_);
    pixel_bytes_ = static_cast<size_t>(channels_ * options.bits / 8);
  } catch (...) {
    png_destroy_read_struct(&png_, &info_, nullptr);
    throw;
  }
}

PngDecoder::~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

void PngDecoder::begin(const Window& window) {
  window_ = window;
  row_ = window.y;
  if (interlaced_) {
    pixels_.resize(row_bytes_ * static_cast<size_t>(height_));
    std::vector<png_bytep> rows(static_cast<size_t>(height_));
    for (size_t i = 0; i < rows.size(); i++) rows[i] = pixels_.data() + i * row_bytes_;
    png_bytepp all = rows.data();
    call([&] { png_read_image(png_, all); });
    return;
  }
  pixels_.resize(row_bytes_);
  uint8_t* skipped = pixels_.data();
  call([&] {
    for (int64_t row = 0; row < window_.y; row++) png_read_row(png_, skipped, nullptr);
  });
}

Orientation PngDecoder::orientation() const noexcept {
  // The EXIF data is searched for here, because libpng finds an eXIf chunk that lies behind the pixels only after it
  // has decoded the pixels. That is too late.
  size_t at = signature_bytes;
  while (const auto chunk = next_chunk(bytes_, at)) {
    if (chunk->name == "eXIf") return exif_orientation(chunk->content);
    if (chunk->name == "IEND") break;  // what follows is not of this picture
  }
  return {};
}

void PngDecoder::read_samples(uint8_t* row) {
  const size_t skipped = static_cast<size_t>(window_.x) * pixel_bytes_,
               wanted = static_cast<size_t>(window_.width) * pixel_bytes_;
  const uint8_t* from = pixels_.data();
  const int64_t y = row_++;
  if (interlaced_) {
    from += static_cast<size_t>(y) * row_bytes_;
  } else if (window_.width == width_) {
    call([&] { png_read_row(png_, row, nullptr); });
    return;
  } else {
    call([&] { png_read_row(png_, pixels_.data(), nullptr); });
  }
  std::memcpy(row, from + skipped, wanted);
}

void PngDecoder::finish() {
  // If the last row has been read, libpng can check what follows it. Otherwise the rows below the window are not
  // decoded, so the chunks are checked here.
  if (interlaced_ || row_ == height_) return call([&] { png_read_end(png_, info_); });
  size_t at = signature_bytes;
  for (;;) {
    const auto chunk = next_chunk(bytes_, at);
    if (!chunk) throw BadPicture("the picture is cut short");
    if (chunk->name != "IEND") continue;
    if (std::memcmp(&bytes_[at - sizeof crc_of_end], crc_of_end, sizeof crc_of_end) != 0)
      throw BadPicture("IEND: CRC error");
    return;
  }
}

}  // namespace feedline::pictures
