// Pictures for tests, encoded by the same libraries that decode them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

// After <cstdio>, which it needs.
#include <jpeglib.h>
#include <png.h>

namespace feedline::test {

/// Pixels of uint8, row-major: height x width x channels.
struct Pixels {
  int64_t width = 0, height = 0;
  int channels = 0;
  std::vector<uint8_t> bytes;
};

/// Returns a picture of smooth gradients, edges and some noise: what compression changes in many ways.
inline Pixels picture_of(int64_t width, int64_t height, int channels, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  Pixels pixels{width, height, channels, {}};
  pixels.bytes.reserve(static_cast<size_t>(width * height * channels));
  for (int64_t y = 0; y < height; y++)
    for (int64_t x = 0; x < width; x++)
      for (int c = 0; c < channels; c++) {
        const int64_t gradient = (x * (3 + c) + y * (5 - c)) % 256;
        const int64_t edge = ((x / 13 + y / 7 + c) % 3) * 60;
        pixels.bytes.push_back(static_cast<uint8_t>((gradient + edge + static_cast<int64_t>(random() % 24)) % 256));
      }
  return pixels;
}

struct JpegOptions {
  int quality = 90;
  int across = 2, down = 2;  // how many columns and rows of pixels share a pixel of colour
  bool progressive = false;
  int restarts = 0;                  // rows of blocks between two restart markers; 0: there are none
  J_COLOR_SPACE stored = JCS_YCbCr;  // JCS_GRAYSCALE for one channel
  std::string exif = {};             // a TIFF structure
};

/// Returns the TIFF structure of EXIF data that has an orientation, as a number of this type: 3 is SHORT, 4 is LONG, 1 is
/// BYTE.
inline std::string exif_of(int orientation, bool big_endian, uint32_t type = 3) {
  std::string tiff(big_endian ? "MM" : "II");
  const auto add = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) tiff.push_back(static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - i : i)));
  };
  add(42, 2);
  add(8, 4);  // where the directory is
  add(2, 2);  // its entries
  for (const auto& [tag, value] : {std::pair<uint32_t, int>{0x0100, 7}, {0x0112, orientation}}) {
    const int bytes = type == 1 ? 1 : type == 4 ? 4 : 2;
    add(tag, 2);
    add(type, 2);
    add(1, 4);
    add(static_cast<uint32_t>(value), bytes);
    add(0, 4 - bytes);
  }
  add(0, 4);
  return tiff;
}

inline std::string to_jpeg(const Pixels& pixels, const JpegOptions& options = {}) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(pixels.width);
  info.image_height = static_cast<JDIMENSION>(pixels.height);
  info.input_components = pixels.channels;
  info.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : pixels.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (pixels.channels != 1) jpeg_set_colorspace(&info, options.stored);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.comp_info[0].h_samp_factor = pixels.channels == 1 ? 1 : options.across;
  info.comp_info[0].v_samp_factor = pixels.channels == 1 ? 1 : options.down;
  if (options.progressive) jpeg_simple_progression(&info);
  info.restart_in_rows = options.restarts;
  jpeg_start_compress(&info, TRUE);
  if (!options.exif.empty()) {
    const std::string marker = std::string("Exif\0\0", 6) + options.exif;
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  const auto row_bytes = static_cast<size_t>(pixels.width * pixels.channels);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(pixels.bytes.data() + info.next_scanline * row_bytes);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

struct PngOptions {
  int bits = 8;  // 16: the pixel is the upper byte, and its complement the lower one
  bool interlaced = false;
  std::string exif = {};  // a TIFF structure
};

/// The channels are 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
inline std::string to_png(const Pixels& pixels, const PngOptions& options = {}) {
  constexpr int types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                           PNG_COLOR_TYPE_RGB_ALPHA};
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp from, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(from))->append(reinterpret_cast<char*>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(pixels.width), static_cast<png_uint_32>(pixels.height), options.bits,
               types[pixels.channels], options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::string exif = options.exif;
  if (!exif.empty())
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), reinterpret_cast<png_bytep>(exif.data()));
  std::vector<uint8_t> stored = pixels.bytes;
  if (options.bits == 16) {
    stored.clear();
    for (const uint8_t byte : pixels.bytes) stored.insert(stored.end(), {byte, static_cast<uint8_t>(byte ^ 0xff)});
  }
  const size_t row_bytes = stored.size() / static_cast<size_t>(pixels.height);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < pixels.height; y++) rows.push_back(stored.data() + static_cast<size_t>(y) * row_bytes);
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

/// Returns the chunk of a PNG.
inline std::string png_chunk(const std::string& name, const std::string& content) {
  std::string chunk;
  const auto add = [&](uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<char>(number >> shift));
  };
  add(static_cast<uint32_t>(content.size()));
  chunk += name + content;
  uint32_t crc = 0xffffffff;
  for (const char c : name + content) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  add(~crc);
  return chunk;
}

/// Returns the PNG with this in front of its last chunk, IEND.
inline std::string before_end(const std::string& png, const std::string& chunk) {
  return png.substr(0, png.size() - 12) + chunk + png.substr(png.size() - 12);
}

}  // namespace feedline::test
