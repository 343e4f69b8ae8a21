#include "pictures/decode/jpeg_decoder.h"

// Included after jpeglib.h, which jerror.h needs.
#include <jerror.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "pictures/decode/exif.h"

namespace feedline::pictures {
namespace {

// With chroma subsampling, the first and the last column of a cropped row differ from those of the whole row, because
// their neighbours are missing. Two more columns on each side make all wanted ones equal.
constexpr int64_t margin = 2;

constexpr std::string_view end_marker("\xff\xd9");
constexpr unsigned exif_marker = JPEG_APP0 + 1, start_of_scan = 0xda;
constexpr int most_scans = 100;  // encoders write about ten, and each costs as much as a pass over the picture
constexpr char too_many_coefficients[] =
    "the coefficients of this picture of several scans need more memory than decode_image.max_pixels allows; raise "
    "decode_image.max_pixels";
constexpr char too_many_scans[] = "the picture has more than 100 scans";
static_assert(sizeof too_many_coefficients <= JMSG_LENGTH_MAX);

}  // namespace

void JpegDecoder::fail(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  // libjpeg's own message would mislead users: it speaks of files on disk, because some builds of libjpeg write there
  // what exceeds the memory limit.
  if (info->err->msg_code == JERR_NO_BACKING_STORE)
    std::strcpy(errors->message, too_many_coefficients);
  else
    info->err->format_message(info, errors->message);
  std::longjmp(errors->jump, 1);
}

void JpegDecoder::note(j_common_ptr info, int level) {
  if (level >= 0) return;
  info->err->num_warnings++;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (info->err->msg_code == JWRN_JPEG_EOF) errors->cut = true;
  if (info->err->msg_code == JWRN_HIT_MARKER) errors->scan_ended = true;
}

void JpegDecoder::count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most_scans) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  std::strcpy(errors->message, too_many_scans);
  std::longjmp(errors->jump, 1);
}

template <typename Body>
void JpegDecoder::call(Body body) {
  if (setjmp(errors_.jump)) throw BadPicture(errors_.message);
  body();
}

JpegDecoder::JpegDecoder(std::span<const std::byte> bytes, const DecodeOptions& options)
    : bytes_(bytes), errors_(), progress_(), info_() {
  info_.err = jpeg_std_error(&errors_.base);
  errors_.base.error_exit = fail;
  errors_.base.emit_message = note;
  errors_.base.output_message = keep_quiet;
  progress_.progress_monitor = count_scans;
  try {
    call([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      info_.mem->max_memory_to_use = static_cast<long>(decoder_memory(options));
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                   static_cast<unsigned long>(bytes.size()));
      jpeg_read_header(&info_, TRUE);
    });
    check_size(info_.image_width, info_.image_height, options);
    if (options.channels == 1 && is_cmyk())
      throw BadPicture("a picture in CMYK cannot be decoded to one channel; use decode_image { channels: 3 }");
    channels_ = options.channels != 0 ? options.channels : std::min(info_.num_components, 3);
    // If a progressive picture lacks scans, smoothing would guess coefficients from neighbouring blocks. A window may
    // lack these blocks, and would then differ from the whole picture.
    info_.do_block_smoothing = FALSE;
    info_.dct_method = options.fast_dct ? JDCT_IFAST : JDCT_ISLOW;
    info_.out_color_space = channels_ == 1 ? JCS_GRAYSCALE : is_cmyk() ? JCS_CMYK : JCS_RGB;
    shrink(1);
  } catch (...) {
    jpeg_destroy_decompress(&info_);
    throw;
  }
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&info_); }

bool JpegDecoder::is_cmyk() const noexcept {
  return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
}

Orientation JpegDecoder::orientation() const noexcept {
  // The EXIF data is searched for here, because libjpeg would keep all APP1 markers, however many, in memory that is
  // not planned. libjpeg has accepted the header. So between the markers there is only what libjpeg skips: fill bytes,
  // and markers that have no length.
  const auto number = [&](size_t at) { return std::to_integer<unsigned>(bytes_[at]); };
  const auto has_length = [](unsigned marker) { return marker >= 0xc0 && marker != 0xff && marker / 8 != 0xd0 / 8; };
  for (size_t at = 2; at + 4 <= bytes_.size();) {
    const unsigned marker = number(at + 1);
    if (number(at) != 0xff || !has_length(marker)) {
      at++;
      continue;
    }
    const size_t length = number(at + 2) << 8 | number(at + 3);  // counts its own two bytes and the content
    if (marker == start_of_scan || length < 2 || length > bytes_.size() - at - 2) break;
    const auto content = bytes_.subspan(at + 4, length - 2);
    const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
    if (marker == exif_marker && text.starts_with(exif_begins)) return exif_orientation(content);
    at += 2 + length;
  }
  return {};
}

void JpegDecoder::shrink(int by) {
  info_.scale_num = 1;
  info_.scale_denom = static_cast<unsigned>(by);
  call([&] { jpeg_calc_output_dimensions(&info_); });
}

void JpegDecoder::begin(const Window& window) {
  window_ = window;
  JDIMENSION first = static_cast<JDIMENSION>(std::max<int64_t>(0, window.x - margin));
  const auto end = static_cast<JDIMENSION>(std::min(width(), window.x + window.width + margin));
  JDIMENSION columns = end - first;
  call([&] {
    jpeg_start_decompress(&info_);
    if (columns < info_.output_width) jpeg_crop_scanline(&info_, &first, &columns);
    if (window_.y > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window_.y));
  });
  first_column_ = first;
  if (info_.output_width != window.width || info_.output_components != channels_)
    row_.resize(size_t{info_.output_width} * static_cast<size_t>(info_.output_components));
}

void JpegDecoder::read_row(uint8_t* row) {
  JSAMPROW rows[] = {row_.empty() ? row : row_.data()};
  call([&] { jpeg_read_scanlines(&info_, rows, 1); });
  if (row_.empty()) return;
  const auto skipped = static_cast<size_t>(window_.x - first_column_);
  const auto pixels = static_cast<size_t>(window_.width);
  if (info_.out_color_space != JCS_CMYK) {
    const auto size = static_cast<size_t>(channels_);
    std::memcpy(row, row_.data() + skipped * size, pixels * size);
    return;
  }
  const uint8_t* from = row_.data() + skipped * 4;
  for (size_t i = 0; i < pixels; i++, from += 4)  // Adobe's programs store CMYK inverted
    for (size_t c = 0; c < 3; c++)
      *row++ = static_cast<uint8_t>(info_.saw_Adobe_marker ? from[3] * from[c] / 255
                                                           : (255 - from[3]) * (255 - from[c]) / 255);
}

void JpegDecoder::finish() {
  // If the last row is decoded, or if the scan has ended before that row, libjpeg can check at no cost what follows the
  // scan.
  const bool reads_end = errors_.scan_ended || info_.output_scanline == info_.output_height;
  if (reads_end && !errors_.cut) {
    if (info_.output_scanline < info_.output_height)
      row_.resize(size_t{info_.output_width} * static_cast<size_t>(info_.output_components));
    JSAMPROW rows[] = {row_.data()};
    call([&] {
      while (info_.output_scanline < info_.output_height) jpeg_read_scanlines(&info_, rows, 1);
      jpeg_finish_decompress(&info_);
    });
  }
  if (errors_.cut) throw BadPicture("the picture is cut short");
  if (reads_end) return;
  // The rows below the window are not decoded. So the end marker is searched for in the bytes; a scan never contains
  // one.
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  const size_t end = text.rfind(end_marker), read = bytes_.size() - info_.src->bytes_in_buffer;
  if (end == std::string_view::npos || end + end_marker.size() < read) throw BadPicture("the picture is cut short");
}

}  // namespace feedline::pictures
