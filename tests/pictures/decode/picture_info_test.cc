// What headers say of pictures, also of broken ones.
#include "pictures/decode/picture_info.h"

#include <string>

#include "pictures/encode.h"
#include "support/catch.h"

using namespace feedline::pictures;
using namespace feedline::test;

namespace {

PictureInfo info_of(const std::string& picture) { return picture_info(std::as_bytes(std::span(picture))); }

}  // namespace

TEST_CASE("a header says format, size and channels") {
  for (const int channels : {1, 2, 3, 4}) {
    const Pixels pixels = picture_of(31, 17, channels, 1);
    INFO(channels);
    for (const int bits : {8, 16}) {
      const PictureInfo png = info_of(to_png(pixels, {.bits = bits}));
      CHECK(png.format == Format::png);
      CHECK((png.width == 31 && png.height == 17));
      CHECK(png.channels == (channels < 3 ? 1 : 3));  // without alpha
    }
    if (channels == 2) continue;
    const PictureInfo jpeg = info_of(to_jpeg(pixels, {.stored = channels == 4 ? JCS_CMYK : JCS_YCbCr}));
    CHECK(jpeg.format == Format::jpeg);
    CHECK((jpeg.width == 31 && jpeg.height == 17));
    CHECK(jpeg.channels == (channels == 1 ? 1 : 3));
  }
}

TEST_CASE("pixels that are kept are those of the libraries and of feedline itself") {
  for (const char* part : {"libjpeg-turbo ", "libpng ", "feedline 3"})
    CHECK_THAT(decoder_versions(), Catch::Contains(part));
}

TEST_CASE("a header that cannot be read, or that promises too much, is refused") {
  const std::string jpeg = to_jpeg(picture_of(100, 100, 3, 1)), png = to_png(picture_of(100, 100, 3, 1));
  const size_t frame = jpeg.find("\xff\xc0");
  CHECK_THROWS_WITH(info_of("GIF89a"),
                    Catch::StartsWith("the value is neither a JPEG nor a PNG, but looks like a GIF"));
  for (size_t size : {size_t{4}, size_t{20}, frame}) CHECK_THROWS_AS(info_of(jpeg.substr(0, size)), BadPicture);
  for (size_t size : {8, 18, 30}) CHECK_THROWS_AS(info_of(png.substr(0, size)), BadPicture);

  std::string huge = jpeg;  // the frame's header has height and width, two bytes each, after its length and precision
  for (size_t i = frame + 5; i < frame + 9; i++) huge[i] = '\xfd';
  CHECK_THROWS_WITH(info_of(huge), Catch::Contains("the header says 65021 x 65021 pixels"));
  CHECK_THROWS_WITH(info_of(to_png(picture_of(65537, 1, 1, 1))),
                    "the header says 65537 x 1 pixels, but a side may have at most 65536 pixels");
  CHECK_THROWS_WITH(info_of(to_png(picture_of(1, 65537, 1, 1))), Catch::Contains("a side may have at most 65536"));
  CHECK(info_of(to_png(picture_of(65536, 1, 1, 1))).width == 65536);
  CHECK(info_of(to_png(picture_of(1, 65536, 1, 1))).height == 65536);
}
