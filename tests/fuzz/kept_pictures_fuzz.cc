// Rows of pictures with a cache: they must be those without one, also where a disk gives entries of another length or of
// another size than was kept, and no byte is read or written beside them.
// covers: flowgraph/rows/kept_picture.cc
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mul_div.h"
#include "draw.h"
#include "flowgraph/plan/cache_plan.h"
#include "flowgraph/rows/picture_writer.h"
#include "io/cache/memory_entries.h"
#include "require.h"
#include "tests/pictures/encode.h"
#include "tests/support/scratch_entries.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using test::Draw;
using test::ExactBlock;
using test::OutputBlock;
using test::require;

constexpr int64_t max_pixels = 600, many_pixels = 8 * pictures::longest_side;

// Caches that differ in one thing each have other files: what one has kept is of no use to another.
bool digests_differ() {
  const std::string kept = "cache { where: DISK dir: '/nowhere' limit: '1MiB' ", decode = "decode_image {} ",
                    resize = "resize { size: [8, 8] } ", value = "default_value { bytes_value: 'a' } ";
  const std::array<std::string, 4> texts[] = {{value, decode, resize, "what: DECODED"},
                                              {"", decode, resize, "what: DECODED"},
                                              {"default_value { bytes_value: 'b' } ", decode, resize, "what: DECODED"},
                                              {"default_value { bytes_value: '' } ", decode, resize, "what: DECODED"},
                                              {value, "decode_image { dct: FAST } ", resize, "what: DECODED"},
                                              {value, "decode_image { channels: 1 } ", resize, "what: DECODED"},
                                              {value + "key: 'other' ", decode, resize, "what: DECODED"},
                                              {value, decode, resize, "what: RESIZED"},
                                              {value, decode, "resize { size: [8, 9] } ", "what: RESIZED"},
                                              {value, decode, resize, "what: RECORDS"}};
  DataSet data;
  data.samples = 10;
  DataFile& file = data.files.emplace_back();
  file.samples = {0, 10};
  file.index.records = 10;
  file.index.end = 1000;
  file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {1000, 10}};
  std::vector<uint64_t> contents;
  for (const auto& [of_value, of_decode, of_resize, what] : texts) {
    const auto spec = validate(parse_pipeline("source { files: 'a' } feature { name: 'image' dtype: BYTES " + of_value +
                                              "} output { name: 'image' feature: 'image' " + of_decode + of_resize +
                                              "} " + kept + what + " } batch { global_batch_size: 1 }"),
                               [](const FilePatterns& patterns) {
                                 return FileList{patterns.files, {}};
                               });
    contents.push_back(CachePlan(spec, data, {.mean = 100}).content());
  }
  require(std::set(contents.begin(), contents.end()).size() == contents.size(), "two caches have the same digest");
  return true;
}

std::vector<std::string> make_pictures() {
  using test::picture_of, test::to_jpeg, test::to_png;
  std::string cut = to_jpeg(picture_of(20, 20, 3, 1)), warns = to_jpeg(picture_of(17, 19, 3, 2));
  cut.resize(cut.size() / 2);
  warns.resize(warns.size() - 12);
  return {to_png(picture_of(12, 17, 3, 3)),
          to_png(picture_of(19, 11, 1, 4), {.bits = 16}),
          to_jpeg(picture_of(21, 14, 3, 5), {.exif = test::exif_of(6, false)}),
          to_png(picture_of(1, 30, 3, 6)),
          to_png(picture_of(30, 1, 3, 7), {.exif = test::exif_of(8, true)}),
          to_jpeg(picture_of(16, 16, 1, 8), {.stored = JCS_GRAYSCALE}),
          to_png(picture_of(32, 20, 3, 9)),  // more than max_pixels
          cut,
          warns,
          "no picture"};
}

/// How pictures are shaped, as a pipeline may say.
struct Shape {
  explicit Shape(Draw& draw) {
    const auto side = [&] { return static_cast<int64_t>(1 + draw.near(8) % 24); };
    const auto size = [&] { return pictures::Size{side(), side()}; };
    decode.channels = finish.channels = draw.coin() ? 3 : 1;
    decode.bits = draw.coin() ? 8 : 16;
    decode.apply_exif = draw.coin();
    decode.may_shrink = draw.below(8) == 1;
    if (draw.below(4) == 1) decode.max_pixels = many_pixels;
    switch (draw.below(5)) {
      case 0:
        geometry.crop = size();
        geometry.padding = static_cast<int64_t>(draw.below(4));
        break;
      case 1:
        geometry.resize = size();
        break;
      case 2:
        geometry.crop = size();
        geometry.crop_after_resize = true;
        geometry.shorter = side();
        break;
      case 3:
        geometry.crop = size();
        geometry.crop_after_resize = draw.coin();
        geometry.resize = size();
        break;
      default:
        geometry.area = pictures::RandomArea();
        geometry.crop_randomly = true;
        geometry.resize = size();
    }
    if (geometry.crop) geometry.crop_randomly = draw.coin();
    if (draw.coin()) geometry.flip = 0.5;
    static constexpr DType types[] = {DType::uint8, DType::uint16, DType::float16, DType::float32};
    finish.dtype = draw.one_of(types);
    finish.filter = static_cast<pictures::Filter>(draw.below(4));
    finish.channels_first = draw.coin();
    finish.fill = draw.any<uint8_t>();
    if (draw.coin()) finish.scale = 0.25f;
    if (draw.coin()) finish.mean.assign(static_cast<size_t>(finish.channels), 3.f), finish.std = finish.mean;
    if (draw.below(4) == 1) stored = StoredPixels{side(), side(), finish.channels, draw.coin()};
  }
  PictureOrigin origin() const { return stored ? PictureOrigin(*stored) : PictureOrigin(decode); }

  pictures::DecodeOptions decode{.max_pixels = max_pixels};
  pictures::GeometrySpec geometry;
  pictures::Finish finish;
  std::optional<StoredPixels> stored;
};

/// A row, or why there is none, and how many warnings the decoder gave.
struct Made {
  std::string bytes;
  uint64_t warnings = 0;
  bool operator==(const Made&) const = default;
};

Made row_of(const PictureWriter& writer, std::span<const std::byte> picture, size_t row_bytes, uint64_t epoch,
            const KeptRows* kept) {
  static std::vector<std::byte> memory;  // large, and the same for all rows
  const size_t size = writer.scratch_bytes();
  memory.resize(std::max(memory.size(), size + 1));
  memory[size] = std::byte{0x5a};
  const OutputBlock row(row_bytes);
  RowOutcome outcome;
  writer.write({&picture, 1}, {.epoch = epoch, .first = 7, .kept = kept}, row.data(), row_bytes,
               std::span(memory).first(size), outcome);
  require(memory[size] == std::byte{0x5a}, "bytes after the scratch memory are written");
  if (!outcome.failed.empty()) return {outcome.failed[0].message, outcome.warnings};
  return {std::string(reinterpret_cast<const char*>(row.data()), row_bytes), outcome.warnings};
}

// Changes the length of an entry or the size that it says. Returns whether rows can be made of it: it has as many pixels
// as it says.
bool change_entry(Draw& draw, std::string& entry, bool has_head, uint64_t pixel_bytes) {
  constexpr size_t head_bytes = 16;
  if (!has_head || entry.size() < head_bytes || draw.coin()) {
    const uint64_t bounds[] = {entry.size(), head_bytes, pixel_bytes};
    entry.resize(draw.near(draw.one_of(bounds)) % 5000, '\x11');
    return false;
  }
  std::array<uint32_t, 2> size;  // height and width
  std::memcpy(size.data(), entry.data(), sizeof size);
  switch (draw.below(5)) {
    case 0:
      std::swap(size[0], size[1]);
      break;
    case 1:  // a row that no scratch memory is for
      size = {1, static_cast<uint32_t>(draw.coin() ? many_pixels : pictures::longest_side + 1)};
      entry.resize(head_bytes + size[1] * pixel_bytes);
      break;
    case 2:  // no pixels
      size[draw.below(2)] = 0;
      entry.resize(head_bytes);
      break;
    default:
      size[0] = static_cast<uint32_t>(draw.near(draw.coin() ? size[0] : entry.size() / pixel_bytes));
      size[1] = static_cast<uint32_t>(draw.near(size[1]));
  }
  std::memcpy(entry.data(), size.data(), sizeof size);
  return Wide{size[0]} * size[1] * pixel_bytes == entry.size() - head_bytes && size[0] > 0;
}

void pictures_like_without(Draw& draw) {
  static const std::vector<std::string> encoded = make_pictures();
  const Shape shape(draw);
  try {
    if (shape.stored)
      pictures::geometry_of(shape.geometry, shape.stored->width, shape.stored->height, {Draws(0), Draws(0)});
  } catch (const pictures::BadPicture&) {
    return;  // a pipeline says so before the start
  }
  const CacheSpec cache{.where = draw.coin() ? CacheWhere::disk : CacheWhere::memory,
                        .what = draw.coin() ? CacheWhat::decoded : CacheWhat::resized,
                        .dir = {},
                        .limit = 1};
  const ChoiceKeys keys{.seed = 5, .crop_group = "a", .flip_group = "b"};
  PictureRows pictures{shape.origin(), shape.geometry, shape.finish, keys};
  const PictureWriter plain(pictures);
  pictures.cache = cache;
  const PictureWriter kept(pictures);
  const KeptStep step = *kept_step(pictures);
  if (!step.why_not.empty()) return;
  const pictures::Size made = shape.geometry.made().value_or(pictures::Size{1, 1});
  const size_t row_bytes =
      static_cast<size_t>(made.height * made.width * shape.finish.channels) * size_of(shape.finish.dtype);
  const size_t pixel_bytes = static_cast<size_t>(shape.finish.channels) *
                             (cache.what == CacheWhat::resized ? size_of(shape.finish.dtype) : shape.decode.bits / 8u);
  const OutputBlock memory(1 << 16);
  std::ranges::fill(memory.span(), std::byte{0});
  io::MemoryEntries in_memory(encoded.size(), memory.span());
  test::ScratchEntries on_disk(encoded.size());
  io::EntryStore& store = cache.where == CacheWhere::disk ? static_cast<io::EntryStore&>(on_disk) : in_memory;
  ExactBlock scratch(std::string(cache.where == CacheWhere::disk ? step.entry_bytes : 0, '\x5a'));
  for (int i = 0; i < 12 && !draw.empty(); i++) {
    const uint64_t number = draw.below(encoded.size()), epoch = draw.below(3);
    std::string picture = encoded[number];
    if (shape.stored)
      picture.assign(static_cast<size_t>(shape.stored->height * shape.stored->width * shape.stored->channels),
                     static_cast<char>(number));
    const ExactBlock value(picture);
    const auto entry = on_disk.kept.find(number);
    const std::string whole = entry == on_disk.kept.end() ? "" : entry->second;
    const bool is_other =
        !whole.empty() && draw.coin() && change_entry(draw, entry->second, step.bytes == 0, pixel_bytes);
    const KeptRows rows{store, {&number, 1}, {scratch.data(), scratch.size()}};
    const Made with = row_of(kept, value.span(), row_bytes, epoch, &rows);
    if (!is_other)
      require(with == row_of(plain, value.span(), row_bytes, epoch, nullptr), "a row with a cache is another one");
    if (!whole.empty()) entry->second = whole;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool checked = digests_differ();
  Draw draw(data, size);
  pictures_like_without(draw);
  return 0;
}
