// Decoders: whole pictures and windows of them, every kind of storing, and damage.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "pictures/decode/exif.h"
#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/png_decoder.h"
#include "pictures/encode.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::pictures;
using namespace feedline::test;

namespace {

template <typename Decoder>
Pixels decoded(const std::string& bytes, const DecodeOptions& options = {}, Window window = {}, int shrink_by = 1) {
  Decoder decoder(std::as_bytes(std::span(bytes)), options);
  if constexpr (std::is_same_v<Decoder, JpegDecoder>) decoder.shrink(shrink_by);
  if (window == Window{}) window = {0, 0, decoder.width(), decoder.height()};
  Pixels pixels{window.width, window.height, decoder.channels(), {}};
  const auto row_bytes = static_cast<size_t>(window.width * decoder.channels());
  pixels.bytes.resize(static_cast<size_t>(window.height) * row_bytes);
  decoder.begin(window);
  for (int64_t y = 0; y < window.height; y++)
    decoder.read_row(pixels.bytes.data() + static_cast<size_t>(y) * row_bytes);
  decoder.finish();
  return pixels;
}

Pixels crop(const Pixels& whole, const Window& window) {
  Pixels part{window.width, window.height, whole.channels, {}};
  const auto pixel = static_cast<size_t>(whole.channels);
  for (int64_t y = window.y; y < window.y + window.height; y++) {
    const auto begin = whole.bytes.begin() + (y * whole.width + window.x) * whole.channels;
    part.bytes.insert(part.bytes.end(), begin,
                      begin + static_cast<ptrdiff_t>(static_cast<size_t>(window.width) * pixel));
  }
  return part;
}

std::string why(const std::function<void()>& body) {
  try {
    body();
  } catch (const BadPicture& bad) {
    return bad.what();
  }
  return "no error";
}

Window random_window(std::minstd_rand& random, int64_t width, int64_t height) {
  Window window;
  window.width = 1 + static_cast<int64_t>(random()) % width;
  window.height = 1 + static_cast<int64_t>(random()) % height;
  window.x = static_cast<int64_t>(random()) % (width - window.width + 1);
  window.y = static_cast<int64_t>(random()) % (height - window.height + 1);
  return window;
}

}  // namespace

TEST_CASE("a window of a JPEG has the pixels of the whole picture") {
  std::minstd_rand random(7);
  int windows = 0;
  for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}})
    for (const bool progressive : {false, true})
      for (const bool fast : {false, true})
        for (const auto& [width, height] : {std::pair<int64_t, int64_t>{203, 147}, {64, 64}, {17, 90}}) {
          const std::string bytes = to_jpeg(picture_of(width, height, 3, static_cast<uint32_t>(windows)),
                                            {.across = across, .down = down, .progressive = progressive});
          for (const int channels : {1, 3}) {
            const DecodeOptions options{.channels = channels, .fast_dct = fast};
            const Pixels whole = decoded<JpegDecoder>(bytes, options);
            for (int times = 0; times < 20; times++, windows++) {
              const Window window = random_window(random, width, height);
              INFO(across << "x" << down << (progressive ? " progressive " : " ") << width << "x" << height << ": "
                          << window.x << "," << window.y << " " << window.width << "x" << window.height);
              REQUIRE(decoded<JpegDecoder>(bytes, options, window).bytes == crop(whole, window).bytes);
            }
          }
        }
  CHECK(windows >= 2000);
}

TEST_CASE("a window of a JPEG that is decoded smaller has the pixels of the whole smaller picture") {
  std::minstd_rand random(17);
  for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}})
    for (const bool progressive : {false, true})
      for (const int by : {2, 4, 8}) {
        const std::string bytes =
            to_jpeg(picture_of(303, 187, 3, 4), {.across = across, .down = down, .progressive = progressive});
        const Pixels whole = decoded<JpegDecoder>(bytes, {}, {}, by);
        CHECK((whole.width == (303 + by - 1) / by && whole.height == (187 + by - 1) / by));
        for (int times = 0; times < 20; times++) {
          const Window window = random_window(random, whole.width, whole.height);
          INFO(across << "x" << down << " 1/" << by << ": " << window.x << "," << window.y << " " << window.width << "x"
                      << window.height);
          REQUIRE(decoded<JpegDecoder>(bytes, {}, window, by).bytes == crop(whole, window).bytes);
        }
      }
}

TEST_CASE("a JPEG of one channel, of three, and of four") {
  const Pixels grey = picture_of(40, 30, 1, 1), colour = picture_of(40, 30, 3, 2);
  CHECK(decoded<JpegDecoder>(to_jpeg(grey)).channels == 1);
  CHECK(decoded<JpegDecoder>(to_jpeg(colour)).channels == 3);
  const Pixels once = decoded<JpegDecoder>(to_jpeg(grey)), three = decoded<JpegDecoder>(to_jpeg(grey), {.channels = 3});
  for (size_t i = 0; i < once.bytes.size(); i++)
    for (size_t c = 0; c < 3; c++) REQUIRE(three.bytes[3 * i + c] == once.bytes[i]);

  const Pixels cmyk = picture_of(40, 30, 4, 3);
  const std::string stored = to_jpeg(cmyk, {.quality = 100, .across = 1, .down = 1, .stored = JCS_CMYK});
  const Pixels rgb = decoded<JpegDecoder>(stored);
  CHECK(rgb.channels == 3);
  int64_t apart = 0;
  for (size_t i = 0; i < cmyk.bytes.size() / 4; i++)
    for (size_t c = 0; c < 3; c++) {  // libjpeg writes Adobe's marker, which says that the values are inverted
      const int wanted = cmyk.bytes[4 * i + 3] * cmyk.bytes[4 * i + c] / 255;
      apart = std::max<int64_t>(apart, std::abs(wanted - int{rgb.bytes[3 * i + c]}));
    }
  CHECK(apart <= 4);
  for (const auto kind : {JCS_CMYK, JCS_YCCK})
    CHECK(why([&] { decoded<JpegDecoder>(to_jpeg(cmyk, {.stored = kind}), {.channels = 1}); }) ==
          "a picture in CMYK cannot be decoded to one channel; use decode_image { channels: 3 }");
}

TEST_CASE("a PNG of every kind has the pixels that were stored, whole and in windows") {
  std::minstd_rand random(3);
  for (const int channels : {1, 2, 3, 4})
    for (const int bits : {8, 16})
      for (const bool interlaced : {false, true}) {
        const Pixels stored = picture_of(61, 43, channels, static_cast<uint32_t>(channels));
        const std::string bytes = to_png(stored, {.bits = bits, .interlaced = interlaced});
        const int colours = channels <= 2 ? 1 : 3;  // alpha is dropped
        Pixels wanted{61, 43, colours, {}};
        for (size_t i = 0; i < stored.bytes.size(); i++)
          if (static_cast<int>(i % static_cast<size_t>(channels)) < colours) wanted.bytes.push_back(stored.bytes[i]);
        const Pixels whole = decoded<PngDecoder>(bytes);
        CHECK(whole.channels == colours);
        CHECK(whole.bytes == wanted.bytes);
        for (int times = 0; times < 20; times++) {
          const Window window = random_window(random, 61, 43);
          REQUIRE(decoded<PngDecoder>(bytes, {}, window).bytes == crop(wanted, window).bytes);
        }
        if (colours == 1) {
          const Pixels three = decoded<PngDecoder>(bytes, {.channels = 3});
          for (size_t i = 0; i < whole.bytes.size(); i++) REQUIRE(three.bytes[3 * i + 1] == whole.bytes[i]);
        }
      }
}

TEST_CASE("a PNG is decoded to 16 bits") {
  const Pixels pixels = picture_of(31, 23, 3, 5);
  for (const int bits : {8, 16})
    for (const bool interlaced : {false, true}) {
      const std::string bytes = to_png(pixels, {.bits = bits, .interlaced = interlaced});
      PngDecoder decoder(std::as_bytes(std::span(bytes)), {.bits = 16});
      const Window window{4, 3, 20, 15};
      decoder.begin(window);
      std::vector<uint16_t> row(static_cast<size_t>(window.width) * 3);
      for (int64_t y = 0; y < window.height; y++) {
        decoder.read_row(row.data());
        for (size_t i = 0; i < row.size(); i++) {
          const int byte = pixels.bytes[static_cast<size_t>(((window.y + y) * 31 + window.x) * 3) + i];
          REQUIRE(row[i] == 256 * byte + (bits == 8 ? byte : 255 - byte));
        }
      }
      decoder.finish();
    }
}

TEST_CASE("the orientation is read from EXIF data, and damage of it is none") {
  const Orientation wanted[] = {{},
                                {},
                                {.mirrored = true},
                                {.mirrored = true, .upside_down = true},
                                {.upside_down = true},
                                {.transposed = true},
                                {.transposed = true, .mirrored = true},
                                {.transposed = true, .mirrored = true, .upside_down = true},
                                {.transposed = true, .upside_down = true},
                                {}};
  const Pixels pixels = picture_of(20, 10, 3, 1);
  const auto of_png = [](const std::string& png) {
    return PngDecoder(std::as_bytes(std::span(png)), {.apply_exif = true}).orientation();
  };
  for (int value = 0; value < 10; value++)
    for (const bool big_endian : {false, true})
      for (const uint32_t type : {1, 3, 4}) {
        INFO(value << (big_endian ? " big-endian, type " : " little-endian, type ") << type);
        const std::string exif = exif_of(value, big_endian, type), prefixed = std::string("Exif\0\0", 6) + exif;
        const std::string jpeg = to_jpeg(pixels, {.exif = exif}), plain = to_png(pixels);
        const JpegDecoder from_jpeg(std::as_bytes(std::span(jpeg)), {.apply_exif = true});
        CHECK(from_jpeg.orientation() == wanted[value]);
        CHECK(of_png(to_png(pixels, {.exif = exif})) == wanted[value]);
        CHECK(of_png(to_png(pixels, {.exif = prefixed})) == wanted[value]);
        CHECK(of_png(before_end(plain, png_chunk("eXIf", exif))) == wanted[value]);  // after the pixels
        CHECK(of_png(before_end(plain, png_chunk("eXIf", prefixed))) == wanted[value]);
        CHECK(of_png(plain + png_chunk("eXIf", exif)) == Orientation());  // after the picture
        for (size_t size = 0; size < exif.size() - 8; size++)  // the orientation is the last but 6 to 8 bytes
          CHECK(exif_orientation(std::as_bytes(std::span(exif)).first(size)) == Orientation());
      }
}

TEST_CASE("a picture that is cut anywhere is refused, whole and in windows") {
  const Pixels pixels = picture_of(50, 40, 3, 9);
  const Window top{3, 2, 20, 5};
  for (const bool progressive : {false, true}) {
    const std::string jpeg = to_jpeg(pixels, {.progressive = progressive});
    for (size_t size = 0; size < jpeg.size(); size += size + 8 < jpeg.size() ? 7 : 1) {
      INFO("JPEG of " << size << " of " << jpeg.size() << " bytes");
      CHECK(why([&] { decoded<JpegDecoder>(jpeg.substr(0, size)); }) != "no error");
      CHECK(why([&] { decoded<JpegDecoder>(jpeg.substr(0, size), {}, top); }) != "no error");
    }
    CHECK(why([&] { decoded<JpegDecoder>(jpeg + "more"); }) == "no error");
  }
  for (const bool interlaced : {false, true}) {
    const std::string png = to_png(pixels, {.interlaced = interlaced});
    for (size_t size = 0; size < png.size(); size += size + 30 < png.size() ? 11 : 1) {
      INFO("PNG of " << size << " of " << png.size() << " bytes");
      CHECK(why([&] { decoded<PngDecoder>(png.substr(0, size)); }) != "no error");
      CHECK(why([&] { decoded<PngDecoder>(png.substr(0, size), {}, top); }) != "no error");
    }
  }
}

TEST_CASE("what follows the pixels must be the end of the picture") {
  const Pixels pixels = picture_of(50, 40, 3, 9);
  const Window top{3, 2, 20, 5}, bottom{3, 35, 20, 5};
  for (const bool interlaced : {false, true}) {
    const std::string png = to_png(pixels, {.interlaced = interlaced}), end = png_chunk("IEND", "");
    REQUIRE(png.ends_with(end));
    const std::string pixels_end = png.substr(0, png.size() - end.size());
    const auto refused = [&](const std::string& bytes, bool whole_only = false) {
      INFO(bytes.size() << " of " << png.size() << " bytes" << (interlaced ? ", interlaced" : ""));
      CHECK(why([&] { decoded<PngDecoder>(bytes); }) != "no error");
      CHECK(why([&] { decoded<PngDecoder>(bytes, {}, bottom); }) != "no error");
      if (!whole_only) CHECK(why([&] { decoded<PngDecoder>(bytes, {}, top); }) != "no error");
    };
    for (size_t cut = 1; cut <= end.size(); cut++) refused(png.substr(0, png.size() - cut));
    for (size_t from_end = 1; from_end <= end.size(); from_end++) {
      std::string wrong = png;
      wrong[wrong.size() - from_end] ^= 1;
      refused(wrong);
    }
    refused(pixels_end + png_chunk("tEXt", std::string("Comment\0IEND", 12)));  // a text is no end
    std::string wrong = png;  // the CRC of the pixels, and the Adler-32 in them
    wrong[pixels_end.size() - 1] ^= 1;
    refused(wrong, true);
    refused(before_end(png, png_chunk("NEWc", "")), true);  // a chunk that one must know to understand the picture
    const auto taken = [&](const std::string& bytes) {
      for (const Window& window : {Window{}, top, bottom})
        CHECK(why([&] { decoded<PngDecoder>(bytes, {}, window); }) == "no error");
    };
    taken(before_end(png, png_chunk("neWc", "more")));
    taken(before_end(png, png_chunk("tEXt", std::string("Comment\0text", 12))));
    taken(png + "more");
  }

  for (const int restarts : {0, 1}) {
    const std::string jpeg = to_jpeg(pixels, {.quality = 95, .restarts = restarts}),
                      whole = to_jpeg(picture_of(20, 10, 3, 1));
    const size_t scan = jpeg.find("\xff\xda");
    REQUIRE(scan != std::string::npos);
    for (size_t at = scan + 40; at + 40 < jpeg.size(); at += 97) {
      INFO("cut after " << at << " of " << jpeg.size() << " bytes");
      if (jpeg[at - 1] == '\xff' || jpeg[at] == '\xff') continue;
      const std::string cut = jpeg.substr(0, at), end = "\xff\xd9";
      // Another picture, a table that is no table, and a scan follow. The end marker at the end belongs to another picture.
      for (const std::string& more : {whole, "\xff\xdb" + std::string(2, '\0') + end, jpeg.substr(scan, 14) + end}) {
        CHECK(why([&] { decoded<JpegDecoder>(cut + more); }) != "no error");
        CHECK(why([&] { decoded<JpegDecoder>(cut + more, {}, bottom); }) != "no error");
      }
      // As TensorFlow, libjpeg takes a scan that ends early, but properly.
      CHECK(why([&] { decoded<JpegDecoder>(cut + end); }) == "no error");
    }
    CHECK(why([&] { decoded<JpegDecoder>(jpeg + whole); }) == "no error");
    CHECK(why([&] { decoded<JpegDecoder>(jpeg + "more"); }) == "no error");
  }
}

TEST_CASE("a picture of more scans than any encoder writes is refused") {
  const std::string jpeg = to_jpeg(picture_of(64, 64, 3, 1), {.progressive = true});
  // The first scan has the DC coefficients. It may come again and again.
  const size_t first = jpeg.find("\xff\xda"), second = jpeg.find("\xff\xc4", first);
  REQUIRE(second != std::string::npos);
  const auto with = [&](int scans) {
    std::string bytes = jpeg.substr(0, first);
    for (int i = 0; i < scans; i++) bytes += jpeg.substr(first, second - first);
    return bytes + jpeg.substr(second);
  };
  CHECK(why([&] { decoded<JpegDecoder>(with(1)); }) == "no error");
  CHECK(why([&] { decoded<JpegDecoder>(with(50)); }) == "no error");
  CHECK(why([&] { decoded<JpegDecoder>(with(101)); }) == "the picture has more than 100 scans");
}

TEST_CASE("10,000 damaged pictures are decoded or refused") {
  std::minstd_rand random(11);
  std::map<std::string, int> outcomes;
  std::vector<std::string> pictures;
  for (const bool progressive : {false, true})
    pictures.push_back(to_jpeg(picture_of(40, 30, 3, 1), {.progressive = progressive}));
  pictures.push_back(to_jpeg(picture_of(40, 30, 1, 2)));
  for (const bool interlaced : {false, true})
    pictures.push_back(to_png(picture_of(40, 30, 3, 3), {.interlaced = interlaced}));
  pictures.push_back(to_png(picture_of(40, 30, 1, 4), {.bits = 16}));
  const DecodeOptions options{.max_pixels = 1 << 20};
  for (int times = 0; times < 10000; times++) {
    std::string bytes = pictures[static_cast<size_t>(times) % pictures.size()];
    for (auto flips = 1 + random() % 4; flips > 0; flips--)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    if (random() % 8 == 0) bytes.erase(random() % bytes.size(), 1 + random() % 20);
    const auto format = format_of(std::as_bytes(std::span(bytes)));
    if (!format) continue;
    const bool is_jpeg = format == Format::jpeg;
    const std::string message =
        why([&] { is_jpeg ? decoded<JpegDecoder>(bytes, options) : decoded<PngDecoder>(bytes, options); });
    outcomes[(is_jpeg ? "JPEG " : "PNG ") + std::string(message == "no error" ? "decoded" : "refused")]++;
  }
  CHECK(outcomes["JPEG decoded"] > 1000);  // damage of a scan is seldom seen
  CHECK(outcomes["JPEG refused"] > 100);
  CHECK(outcomes["PNG refused"] > 1000);  // its parts have checksums
}

TEST_CASE("pictures that promise too much are refused after their header") {
  const std::string jpeg = to_jpeg(picture_of(100, 100, 3, 1)), png = to_png(picture_of(100, 100, 3, 1));
  const DecodeOptions small{.max_pixels = 9999}, enough{.max_pixels = 10000};
  const std::string wanted = "the header says 100 x 100 pixels, but decode_image.max_pixels allows 9999 pixels";
  CHECK(why([&] { decoded<JpegDecoder>(jpeg, small); }) == wanted);
  CHECK(why([&] { decoded<PngDecoder>(png, small); }) == wanted);
  CHECK(why([&] { decoded<JpegDecoder>(jpeg, enough); }) == "no error");
  CHECK(why([&] { decoded<PngDecoder>(png, enough); }) == "no error");

  std::string huge = jpeg;  // the frame's header has height and width, two bytes each, after its length and precision
  const size_t frame = huge.find("\xff\xc0");
  for (size_t i = frame + 5; i < frame + 9; i++) huge[i] = static_cast<char>(i % 2 ? 0xfd : 0xfd);
  CHECK(why([&] { decoded<JpegDecoder>(huge); }).find("the header says 65021 x 65021 pixels") == 0);
}

TEST_CASE("a progressive picture of 16,384 x 16,384 is refused before its coefficients are allocated") {
  // The header of a small picture says another size. The frame's header has height and width, two bytes each, after its
  // length and precision.
  const auto enlarged = [](std::string jpeg) {
    const size_t frame = jpeg.find("\xff\xc2");
    REQUIRE(frame != std::string::npos);
    for (size_t i = frame + 5; i < frame + 9; i++) jpeg[i] = static_cast<char>((i - frame) % 2 ? 0x40 : 0);
    return jpeg;
  };
  const std::string colour = enlarged(to_jpeg(picture_of(40, 30, 3, 1), {.progressive = true}));
  CHECK(why([&] { decoded<JpegDecoder>(colour); }) ==
        "the header says 16384 x 16384 pixels, but decode_image.max_pixels allows 16777216 pixels");
  // Four coefficients of 2 bytes for each pixel are more than the memory plan has for a decoder.
  const std::string cmyk =
      enlarged(to_jpeg(picture_of(40, 30, 4, 1), {.across = 1, .down = 1, .progressive = true, .stored = JCS_CMYK}));
  CHECK(why([&] {
          decoded<JpegDecoder>(cmyk, {.max_pixels = 1 << 28}, {0, 0, 8, 8});
        }) ==
        "the coefficients of this picture of several scans need more memory than decode_image.max_pixels allows; raise "
        "decode_image.max_pixels");
}

TEST_CASE("the memory of a decoder does not grow with markers, and EXIF is found after them") {
  const std::string jpeg = to_jpeg(picture_of(16, 16, 3, 1), {.progressive = true, .exif = exif_of(6, false)});
  std::string markers;  // 13 MB, and fill bytes before the next marker
  for (int i = 0; i < 200; i++) markers += "\xff\xe1\xff\xff" + std::string(65533, 'x');
  const std::string longer = jpeg.substr(0, 2) + markers + "\xff\xff" + jpeg.substr(2);
  const DecodeOptions options{.max_pixels = 16 * 16, .apply_exif = true};
  CHECK(why([&] { decoded<JpegDecoder>(longer, options); }) == "no error");
  CHECK(JpegDecoder(std::as_bytes(std::span(longer)), options).orientation() ==
        Orientation{.transposed = true, .mirrored = true});
}

TEST_CASE("a format is told by its first bytes") {
  const auto format = [](const std::string& bytes) { return format_of(std::as_bytes(std::span(bytes))); };
  CHECK(format(to_jpeg(picture_of(8, 8, 3, 1))) == Format::jpeg);
  CHECK(format(to_png(picture_of(8, 8, 3, 1))) == Format::png);
  for (const char* other : {"", "\xff", "\xff\xd8", "\x89PN", "GIF89a"}) CHECK_FALSE(format(other));
}

TEST_CASE("bytes that are no picture are told from those of another format") {
  const auto told = [](const std::string& bytes) { return no_format(std::as_bytes(std::span(bytes))); };
  const std::string neither = "the value is neither a JPEG nor a PNG", other = neither + ", but looks like ";
  CHECK(told("") == "the value is empty, and neither a JPEG nor a PNG");
  for (const char* unknown : {"x", "\xff\xd8", "some text that is long enough", "RIFF1234WAVE"})
    CHECK(told(unknown) == neither);
  const std::pair<std::string, const char*> formats[] = {{"GIF89a", "a GIF"},
                                                         {"GIF87a", "a GIF"},
                                                         {std::string("RIFF\0\0\0\0WEBPVP8 ", 16), "a WebP"},
                                                         {std::string("\0\0\0\x20"
                                                                      "ftypavif",
                                                                      12),
                                                          "an AVIF"},
                                                         {std::string("\0\0\0\x20"
                                                                      "ftypheic",
                                                                      12),
                                                          "a HEIC"},
                                                         {std::string("II*\0", 4), "a TIFF"},
                                                         {std::string("MM\0*", 4), "a TIFF"},
                                                         {"\x93NUMPY", "an array of numpy.save"},
                                                         {"BM1234", "a BMP"}};
  for (const auto& [bytes, name] : formats)
    CHECK(told(bytes) == other + name + "; store the picture as a JPEG or a PNG");
  for (const auto& [bytes, name] :
       {std::pair{"/9j/4AAQ", "a JPEG"}, {"iVBORw0KGgoAAAA", "a PNG"}, {"data:image/png;base64,", "a picture"}})
    CHECK(told(bytes) == other + name + " as base64 text; decode the base64 text, and store the bytes");
}
