#include "picture_ceilings.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/compiled_for.h"

namespace feedline::bench {

BareJpeg::BareJpeg() : errors_(), info_() {
  info_.err = jpeg_std_error(&errors_);
  jpeg_create_decompress(&info_);
}

BareJpeg::~BareJpeg() { jpeg_destroy_decompress(&info_); }

BareJpeg::Rows BareJpeg::decode(std::string_view picture, const pictures::Window& window) {
  jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(picture.data()), picture.size());
  jpeg_read_header(&info_, TRUE);
  info_.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info_);
  constexpr int64_t margin = 2;  // without it, the outermost columns would be others than in the whole picture
  auto first = static_cast<JDIMENSION>(std::max<int64_t>(0, window.x - margin));
  auto columns =
      static_cast<JDIMENSION>(std::min<int64_t>(info_.output_width, window.x + window.width + margin) - int64_t{first});
  if (columns < info_.output_width) jpeg_crop_scanline(&info_, &first, &columns);
  if (window.y > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window.y));
  const size_t row_bytes = size_t{info_.output_width} * 3;
  pixels_.resize(row_bytes * static_cast<size_t>(window.height));
  for (size_t y = 0; y < static_cast<size_t>(window.height); y++) {
    JSAMPROW row = pixels_.data() + y * row_bytes;
    jpeg_read_scanlines(&info_, &row, 1);
  }
  jpeg_abort_decompress(&info_);
  return {pixels_.data() + static_cast<size_t>(window.x - first) * 3, row_bytes};
}

void decode_bare_png(std::string_view picture, std::vector<uint8_t>& pixels) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_read_fn(png, &picture, [](png_structp from, png_bytep to, size_t bytes) {
    auto& left = *static_cast<std::string_view*>(png_get_io_ptr(from));
    if (bytes > left.size()) std::abort();
    std::memcpy(to, left.data(), bytes);
    left.remove_prefix(bytes);
  });
  png_read_info(png, info);
  png_read_update_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info), rows = png_get_image_height(png, info);
  pixels.resize(row_bytes * rows);
  for (size_t y = 0; y < rows; y++) png_read_row(png, pixels.data() + y * row_bytes, nullptr);
  png_destroy_read_struct(&png, &info, nullptr);
}

BareResize::BareResize(int64_t from, int64_t to)
    : from_(static_cast<size_t>(from)), to_(static_cast<size_t>(to)), row_(3 * from_ + 1) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  taps_ = static_cast<size_t>(std::ceil(2 * scale)) + 1;
  for (int64_t i = 0; i < to; i++) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    // All taps lie in the picture; those that are too far away weigh nothing.
    const auto first = std::clamp<int64_t>(static_cast<int64_t>(centre - scale), 0, from - static_cast<int64_t>(taps_));
    firsts_.push_back(static_cast<size_t>(first));
    std::vector<double> triangle;
    double sum = 0;
    for (size_t k = 0; k < taps_; k++) {
      const double distance = std::abs(static_cast<double>(first) + static_cast<double>(k) + 0.5 - centre);
      sum += triangle.emplace_back(std::max(0.0, 1 - distance / scale));
    }
    for (const double weight : triangle) weights_.push_back(static_cast<float>(weight / sum));
  }
}

void BareResize::operator()(BareJpeg::Rows pixels, const float* scale, const float* bias, float* out) {
  compiled_for<resize>(simd_level())(*this, pixels, scale, bias, out);
}

void BareResize::resize(BareResize& of, BareJpeg::Rows pixels, const float* scale, const float* bias, float* out) {
  using Four = float __attribute__((vector_size(16)));
  const Four scales = {scale[0], scale[1], scale[2], 0}, biases = {bias[0], bias[1], bias[2], 0};
  for (size_t y = 0; y < of.to_; y++) {
    float* const row = of.row_.data();
    std::fill_n(row, 3 * of.from_, 0.0f);
    for (size_t k = 0; k < of.taps_; k++) {
      const float weight = of.weights_[y * of.taps_ + k];
      const uint8_t* from = pixels.first + (of.firsts_[y] + k) * pixels.bytes;
      for (size_t i = 0; i < 3 * of.from_; i++) row[i] += weight * static_cast<float>(from[i]);
    }
    for (size_t x = 0; x < of.to_; x++) {
      Four sum = {0, 0, 0, 0};
      for (size_t k = 0; k < of.taps_; k++) {
        Four pixel;  // and the first value of the next one
        std::memcpy(&pixel, row + 3 * (of.firsts_[x] + k), sizeof pixel);
        sum += of.weights_[x * of.taps_ + k] * pixel;
      }
      sum = sum * scales + biases;
      for (size_t c = 0; c < 3; c++) out[(c * of.to_ + y) * of.to_ + x] = sum[c];
    }
  }
}

}  // namespace feedline::bench
