// Makes rows from pictures as they are stored or encoded, as far as crop, resize and flip only choose pixels. Each row
// must be one of those that docs/pipeline.md allows. It must be the same with a cache, while that is empty and later; and
// made of the stored numbers that travel, once they are unpacked. (kept_pictures_fuzz.cc damages what a cache keeps.)
//
// covers: flowgraph/rows/picture_writer.cc
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/audit.h"
#include "draw.h"
#include "flowgraph/rows/picture_writer.h"
#include "require.h"
#include "tests/pictures/encode.h"
#include "tests/support/scratch_entries.h"
#include "tests/unpack/slow_cast.h"
#include "unpack/unpack.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;
using pictures::Size;

constexpr int64_t most_pixels = 48;

/// How rows are made.
struct Case {
  PictureOrigin origin;
  pictures::GeometrySpec geometry;
  pictures::Finish finish;
  bool encoded() const { return std::holds_alternative<pictures::DecodeOptions>(origin); }
  bool wide() const { return encoded() && std::get<pictures::DecodeOptions>(origin).bits == 16; }
};

Size draw_size(Draw& draw, int64_t most) {
  const auto side = [&] { return static_cast<int64_t>(1 + draw.below(static_cast<uint64_t>(most))); };
  return {side(), side()};
}

Case draw_case(Draw& draw) {
  Case of;
  of.finish.channels = draw.coin() ? 3 : 1;
  of.finish.dtype = static_cast<DType>(2 + draw.below(dtype_count - 2));
  of.finish.filter = pictures::Filter::nearest;
  of.finish.channels_first = draw.coin();
  if (draw.coin()) of.finish.scale = draw.coin() ? 0.0625f : -2.0f;
  for (int c = 0; draw.coin() && c < of.finish.channels; c++) {
    of.finish.mean.assign(static_cast<size_t>(of.finish.channels), 3.0f);
    of.finish.std.assign(static_cast<size_t>(of.finish.channels), 0.75f);
    of.finish.mean[static_cast<size_t>(c)] = -0.5f;
  }
  if (draw.coin()) {
    const Size size = draw_size(draw, 6);
    of.origin = StoredPixels{size.height, size.width, of.finish.channels, draw.coin()};
  } else {
    of.origin = pictures::DecodeOptions{
        .channels = of.finish.channels, .bits = draw.coin() ? 16 : 8, .max_pixels = most_pixels};
  }
  pictures::GeometrySpec& geometry = of.geometry;
  const uint64_t how = draw.below(4);  // crop; resize; crop, then resize; resize, then crop
  if (how != 1) geometry.crop = draw_size(draw, 5);
  geometry.crop_randomly = how != 1 && draw.coin();
  geometry.crop_after_resize = how == 3;
  if (how == 0 || how == 2) {
    geometry.padding = static_cast<int64_t>(draw.below(3));
    of.finish.fill = static_cast<uint8_t>(draw.below(256));
  }
  if (how > 0) geometry.resize = draw_size(draw, 6);
  if (how == 3 && draw.coin()) geometry.shorter = std::exchange(geometry.resize, std::nullopt)->height;
  if (draw.coin()) geometry.flip = 0.5;
  return of;
}

/// A picture, with the channels of a pixel side by side.
struct Picture {
  int64_t height, width;
  size_t channels;
  std::vector<uint8_t> bytes;
  uint8_t at(int64_t y, int64_t x, size_t c) const { return bytes[static_cast<size_t>(y * width + x) * channels + c]; }
};

template <typename Pixel>
Picture make_picture(int64_t height, int64_t width, size_t channels, const Pixel& pixel) {
  Picture picture{height, width, channels, {}};
  for (int64_t y = 0; y < height; y++)
    for (int64_t x = 0; x < width; x++)
      for (size_t c = 0; c < channels; c++) picture.bytes.push_back(pixel(y, x, c));
  return picture;
}

std::vector<Picture> crops_of(const Picture& from, const pictures::GeometrySpec& spec, uint8_t fill) {
  std::vector<Picture> crops;
  const int64_t rows = from.height + 2 * spec.padding - spec.crop->height,
                columns = from.width + 2 * spec.padding - spec.crop->width;
  const auto middle = [](int64_t free) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(free) / 2)); };
  for (int64_t top = 0; top <= rows && columns >= 0; top++)
    for (int64_t left = 0; left <= columns; left++) {
      if (!spec.crop_randomly && (top != middle(rows) || left != middle(columns))) continue;
      crops.push_back(
          make_picture(spec.crop->height, spec.crop->width, from.channels, [&](int64_t y, int64_t x, size_t c) {
            y += top - spec.padding;
            x += left - spec.padding;
            return y < 0 || y >= from.height || x < 0 || x >= from.width ? fill : from.at(y, x, c);
          }));
    }
  return crops;
}

// Returns the pictures that may come out; none if the picture is too small.
std::vector<Picture> shaped(const Picture& picture, const Case& of) {
  const pictures::GeometrySpec& spec = of.geometry;
  std::vector<Picture> all = {picture};
  if (spec.crop && !spec.crop_after_resize) all = crops_of(picture, spec, of.finish.fill);
  for (Picture& from : all) {
    if (!spec.resize && !spec.shorter) continue;
    Size to = spec.resize.value_or(Size{});
    if (spec.shorter) {
      const int64_t longer = *spec.shorter * std::max(from.height, from.width) / std::min(from.height, from.width);
      to = from.width < from.height ? Size{longer, *spec.shorter} : Size{*spec.shorter, longer};
    }
    from = make_picture(to.height, to.width, from.channels, [&, from](int64_t y, int64_t x, size_t c) {
      return from.at((2 * y + 1) * from.height / (2 * to.height), (2 * x + 1) * from.width / (2 * to.width), c);
    });
  }
  if (spec.crop_after_resize) all = crops_of(all[0], spec, 0);
  for (size_t i = 0, count = all.size(); i < count && spec.flip > 0; i++)
    all.push_back(
        make_picture(all[i].height, all[i].width, all[i].channels,
                     [from = all[i]](int64_t y, int64_t x, size_t c) { return from.at(y, from.width - 1 - x, c); }));
  return all;
}

// Returns the tensor of a picture. Here integers that were normalised are rounded to the nearest.
std::string tensor_of(const Picture& picture, const Case& of) {
  const pictures::Finish& finish = of.finish;
  const auto planes = finish.channels_first ? picture.channels : 1,
             together = finish.channels_first ? 1 : picture.channels;
  std::string row;
  for (size_t plane = 0; plane < planes; plane++)
    for (int64_t y = 0; y < picture.height; y++)
      for (int64_t x = 0; x < picture.width; x++)
        for (size_t i = 0; i < together; i++) {
          const size_t c = plane + i;
          unpack::ChannelMath steps{.normalize = finish.normalizes(), .normalize_scale = finish.scale.value_or(1)};
          if (!finish.mean.empty()) steps.mean = finish.mean[c];
          if (!finish.std.empty()) steps.std = finish.std[c];
          const uint64_t value = picture.at(y, x, c) * (of.wide() ? uint64_t{257} : uint64_t{1});
          long double real = decode(
              DType::float32, make_element(of.wide() ? DType::uint16 : DType::uint8, value, steps, DType::float32));
          if (finish.is_integer()) real = std::nearbyint(real);
          const uint64_t bits = encode(finish.dtype, real);
          row.append(reinterpret_cast<const char*>(&bits), size_of(finish.dtype));
        }
  return row;
}

/// A value of the feature, and the rows that may be made of it; none if it must fail.
struct Value {
  std::string bytes;
  std::vector<std::string> rows;
};

Value draw_value(Draw& draw, const Case& of) {
  const auto channels = static_cast<size_t>(of.finish.channels);
  const auto* stored = std::get_if<StoredPixels>(&of.origin);
  const Size size = stored ? Size{stored->height, stored->width} : draw_size(draw, 8);
  const auto seed = draw.any<uint16_t>();
  const Picture picture = make_picture(size.height, size.width, channels, [&](int64_t y, int64_t x, size_t c) {
    return static_cast<uint8_t>(mix64(seed + static_cast<uint64_t>(y * 64 + x * 4) + c));
  });
  Value value;
  for (const Picture& each : shaped(picture, of)) value.rows.push_back(tensor_of(each, of));
  if (!stored) {
    value.bytes = to_png({size.width, size.height, of.finish.channels, picture.bytes});
    if (draw.below(8) == 7) {
      value.bytes.resize(draw.below(33));  // within its header
      value.rows.clear();
    }
    if (size.height * size.width > most_pixels) value.rows.clear();
    return value;
  }
  value.bytes.assign(picture.bytes.begin(), picture.bytes.end());
  for (size_t i = 0, plane = value.bytes.size() / channels; i < value.bytes.size() && stored->channels_first; i++)
    value.bytes[i] = static_cast<char>(picture.bytes[i % plane * channels + i / plane]);
  return value;
}

/// The rows of some values, and for each whether it failed.
struct Rows {
  std::vector<std::string> rows;
  std::vector<std::string> failures;
  bool operator==(const Rows&) const = default;
};

Rows write(const PictureWriter& writer, const std::vector<Value>& values, size_t row_bytes, size_t gap,
           const KeptRows* kept = nullptr) {
  std::vector<ExactBlock> blocks;
  std::vector<std::span<const std::byte>> spans;
  for (const Value& value : values) blocks.emplace_back(value.bytes);
  for (const ExactBlock& block : blocks) spans.push_back(block.span());
  const size_t stride = row_bytes + gap;
  const OutputBlock out((values.size() - 1) * stride + row_bytes), scratch(writer.scratch_bytes());
  RowOutcome outcome;
  writer.write(spans, {.first = 7, .kept = kept}, out.data(), stride, scratch.span(), outcome);
  Rows rows{{}, std::vector<std::string>(values.size())};
  for (const RowError& failure : outcome.failed) {
    require(failure.category == Category::bad_image, "a picture fails with another category");
    rows.failures[failure.row] = failure.message;
  }
  for (size_t i = 0; i < values.size(); i++) {
    const std::span row = out.span().subspan(i * stride, row_bytes);
    rows.rows.emplace_back(rows.failures[i].empty() ? std::string(reinterpret_cast<const char*>(row.data()), row.size())
                                                    : "");
    if (i + 1 < values.size())
      require(std::ranges::all_of(out.span().subspan(i * stride + row_bytes, stride - row_bytes),
                                  [](std::byte byte) { return byte == OutputBlock::untouched; }),
              "a byte between rows was written");
  }
  return rows;
}

void check_cached(const Case& of, const std::vector<Value>& values, const Rows& wanted, size_t row_bytes) {
  for (const CacheWhat what : {CacheWhat::decoded, CacheWhat::resized}) {
    const PictureRows pictures{of.origin, of.geometry, of.finish, {}, CacheSpec{.what = what, .dir = {}}};
    const KeptStep step = *kept_step(pictures);
    if (!step.why_not.empty()) continue;
    const PictureWriter writer(pictures);
    ScratchEntries store(values.size());
    const OutputBlock scratch(step.entry_bytes);
    std::vector<uint64_t> entries(values.size());
    std::iota(entries.begin(), entries.end(), uint64_t{0});
    entries[0] = KeptRows::none;
    const KeptRows kept{store, entries, scratch.span()};
    for (const char* when : {"an empty cache", "a cache"})
      require(write(writer, values, row_bytes, 0, &kept) == wanted, std::string("a row is another with ") + when);
  }
}

// The rows from the numbers that travel: they are normalised, cast and laid out where they arrive.
void check_stored_numbers(const Case& of, const std::vector<Value>& values, const Size& size, const Rows& wanted) {
  const std::optional<RowSpec> stored = of_stored_numbers(PictureRows{of.origin, of.geometry, of.finish, {}});
  require(!stored == (of.finish.is_integer() && of.finish.normalizes()), "rows travel in another way");
  if (!stored) return;
  unpack::UnpackSpec spec;
  spec.stored = of.wide() ? DType::uint16 : DType::uint8;
  spec.out = of.finish.dtype;
  const auto bits = static_cast<int64_t>(8 * size_of(spec.stored)), channels = int64_t{of.finish.channels};
  spec.shape =
      of.finish.channels_first ? Shape{channels, size.height, size.width} : Shape{size.height, size.width, channels};
  spec.stride_bits = of.finish.channels_first
                         ? std::vector<int64_t>{bits, bits * channels * size.width, bits * channels}
                         : std::vector<int64_t>{bits * channels * size.width, bits * channels, bits};
  spec.channel_axis = of.finish.channels_first ? 0 : 2;
  if (of.finish.normalizes()) spec.normalize = unpack::Normalize{of.finish.scale, of.finish.mean, of.finish.std};
  const unpack::Unpacker unpack(spec);
  const Rows packed = write(PictureWriter(std::get<PictureRows>(*stored)), values, spec.row_bytes(), 0);
  for (size_t i = 0; i < values.size(); i++) {
    require(packed.failures[i] == wanted.failures[i], "another picture fails where rows travel");
    if (!packed.failures[i].empty()) continue;
    std::string row(wanted.rows[i].size(), '\0');
    const auto* from = reinterpret_cast<const std::byte*>(packed.rows[i].data());
    unpack({&from, 1}, reinterpret_cast<std::byte*>(row.data()));
    require(row == wanted.rows[i], "a row is another after it has travelled");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  Case of = draw_case(draw);
  std::optional<Size> made = of.geometry.made();
  if (const auto* stored = std::get_if<StoredPixels>(&of.origin)) {
    try {
      const auto window = pictures::geometry_of(of.geometry, stored->width, stored->height, {Draws(0), Draws(0)}).made;
      made = {window.height, window.width};
    } catch (const pictures::BadPicture&) {
      return 0;  // such a pipeline is refused
    }
  }
  if (!made) return 0;
  const size_t row_bytes =
      static_cast<size_t>(made->height * made->width * of.finish.channels) * size_of(of.finish.dtype);
  std::vector<Value> values;
  for (size_t left = 1 + draw.below(6); left > 0; left--) values.push_back(draw_value(draw, of));
  const size_t gap = size_of(of.finish.dtype) * draw.below(3);
  const PictureWriter plain({of.origin, of.geometry, of.finish, {}});
  require((plain.heap_bytes() > 0) == of.encoded(), "other rows than those of encoded pictures take heap memory");
  const Rows rows = write(plain, values, row_bytes, gap);
  for (size_t i = 0; i < values.size(); i++) {
    require(rows.failures[i].empty() != values[i].rows.empty(), "another picture fails");
    if (rows.failures[i].empty())
      require(std::ranges::count(values[i].rows, rows.rows[i]) > 0, "a row is none that there may be");
  }
  check_cached(of, values, rows, row_bytes);
  check_stored_numbers(of, values, *made, rows);
  return 0;
}
