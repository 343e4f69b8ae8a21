// Rows of pictures with a cache: the bytes are those without one, whatever was kept before.
#include "flowgraph/rows/picture_writer.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/cache/memory_entries.h"
#include "pictures/encode.h"
#include "support/catch.h"
#include "support/scratch_entries.h"

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;

namespace {

constexpr size_t pictures_count = 24;

std::vector<std::string> encoded_pictures() {
  std::vector<std::string> pictures;
  for (size_t i = 0; i < pictures_count; i++) {
    const auto n = static_cast<int64_t>(i);
    const Pixels pixels = picture_of(30 + n % 7, 41 - n % 11, i % 5 == 0 ? 1 : 3, static_cast<uint32_t>(i));
    pictures.push_back(i % 3 == 0   ? to_png(pixels)
                       : i % 3 == 1 ? to_jpeg(pixels, {.stored = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_YCbCr})
                       : pixels.channels == 1 ? to_png(pixels)
                                              : to_jpeg(pixels, {.exif = exif_of(1 + static_cast<int>(i % 8), true)}));
  }
  pictures[7].resize(pictures[7].size() / 2);
  pictures[8] = "no picture";
  return pictures;
}

struct Case {
  pictures::GeometrySpec geometry;
  pictures::Finish finish;
  pictures::DecodeOptions decode = {.max_pixels = 1 << 14};
};

/// The rows of three epochs and their failures, as text.
std::string rows_of(const Case& of, const std::vector<std::string>& encoded, const std::optional<CacheSpec>& cache,
                    io::EntryStore* store, uint64_t* found = nullptr) {
  const PictureRows pictures{
      of.decode, of.geometry, of.finish, {.seed = 5, .crop_group = "a", .flip_group = "b"}, cache};
  const PictureWriter writer(pictures);
  const std::optional<KeptStep> step = kept_step(pictures);
  const auto size = pictures::geometry_of(of.geometry, 64, 64, {Draws(0), Draws(0)}).made;
  const auto row_bytes = static_cast<size_t>(size.height * size.width * of.finish.channels) * size_of(of.finish.dtype);
  std::vector<std::byte> scratch(writer.scratch_bytes()), row(row_bytes);
  std::vector<std::byte> entry(step ? step->entry_bytes : 0);
  std::string text;
  for (uint64_t epoch = 0; epoch < 3; epoch++)
    for (uint64_t i = 0; i < encoded.size(); i++) {
      const uint64_t number = (i * 5 + epoch) % encoded.size();
      std::optional<KeptRows> kept;
      if (store) kept.emplace(KeptRows{*store, std::span(&number, 1), entry});
      const std::span<const std::byte> value = std::as_bytes(std::span(encoded[number]));
      RowOutcome outcome;
      writer.write({&value, 1}, {.epoch = epoch, .first = i, .kept = kept ? &*kept : nullptr}, row.data(), row_bytes,
                   scratch, outcome);
      if (found) *found += outcome.found;
      text += std::to_string(outcome.warnings);
      if (outcome.failed.empty())
        text.append(reinterpret_cast<const char*>(row.data()), row.size());
      else
        text += outcome.failed[0].message;
    }
  return text;
}

const pictures::Size small{12, 16};

std::vector<Case> cases() {
  using pictures::Filter;
  const pictures::Finish bytes, halves{.dtype = DType::float16,
                                       .filter = Filter::bilinear_antialiased,
                                       .channels_first = true,
                                       .scale = 0.01f,
                                       .mean = {0.5f, 0.4f, 0.3f},
                                       .std = {0.2f, 0.25f, 0.3f}};
  std::vector<Case> all = {
      {{.crop = small}, bytes},
      {{.crop = small, .crop_randomly = true, .flip = 0.5}, bytes},
      {{.crop = pictures::Size{40, 40}, .crop_randomly = true, .padding = 6}, {.fill = 9}},
      {{.area = pictures::RandomArea(), .crop_randomly = true, .resize = small, .flip = 0.5}, halves},
      {{.resize = small}, halves},
      {{.resize = pictures::Size{30, 24}, .flip = 0.5}, {.filter = Filter::area}},
      {{.crop = small, .crop_after_resize = true, .shorter = 20}, halves},
      {{.crop = small, .crop_randomly = true, .crop_after_resize = true, .shorter = 20, .flip = 0.4}, halves},
      {{.crop = small, .crop_randomly = true, .crop_after_resize = true, .resize = pictures::Size{20, 33}, .flip = 0.4},
       {.dtype = DType::float32, .channels = 1}},
      {{.crop = small, .crop_randomly = true, .crop_after_resize = true, .resize = pictures::Size{20, 33}},
       {.filter = Filter::nearest}},
      {{.crop = pictures::Size{34, 30}, .crop_randomly = true}, bytes},  // some pictures are smaller
      {{.crop = pictures::Size{20, 30}, .padding = 3, .resize = small}, {.filter = Filter::area, .fill = 200}},
  };
  const size_t count = all.size();
  for (size_t i = 0; i < count; i++) {
    Case other = all[i];
    other.decode.apply_exif = true;
    if (i % 2 == 0) other.decode.bits = 16;
    if (i % 2 == 0 && other.finish.dtype == DType::uint8) other.finish.dtype = DType::uint16;
    all.push_back(other);
  }
  return all;
}

}  // namespace

TEST_CASE("rows with a cache are those without one") {
  const std::vector<std::string> encoded = encoded_pictures();
  int kept_cases = 0;
  for (const Case& of : cases())
    for (const CacheWhat what : {CacheWhat::decoded, CacheWhat::resized}) {
      const std::string plain = rows_of(of, encoded, std::nullopt, nullptr);
      for (const CacheWhere where : {CacheWhere::memory, CacheWhere::disk}) {
        const CacheSpec cache{.where = where, .what = what, .dir = {}, .limit = 1 << 20};
        const std::optional<KeptStep> step = kept_step(PictureRows{of.decode, of.geometry, of.finish, {}, cache});
        REQUIRE(step);
        if (!step->why_not.empty()) {
          CHECK(what == CacheWhat::resized);
          continue;
        }
        kept_cases++;
        constexpr size_t memory_bytes = size_t{4} << 20;
        const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, memory_bytes), std::free);
        std::memset(memory.get(), 0, memory_bytes);
        io::MemoryEntries in_memory(pictures_count, {static_cast<std::byte*>(memory.get()), memory_bytes});
        ScratchEntries like_a_disk(pictures_count);
        io::EntryStore& store = where == CacheWhere::memory ? static_cast<io::EntryStore&>(in_memory) : like_a_disk;
        uint64_t found = 0;
        INFO("case " << kept_cases << ", " << step->text);
        REQUIRE(rows_of(of, encoded, cache, &store, &found) == plain);
        CHECK(store.kept_entries() > pictures_count / 2);
        CHECK(store.kept_entries() < pictures_count);  // two are broken
        CHECK(found == 2 * store.kept_entries());
        if (step->bytes > 0) CHECK(store.kept_bytes() == store.kept_entries() * step->bytes);
      }
    }
  CHECK(kept_cases >= 60);
}

TEST_CASE("an entry on a disk that is no whole one is not used") {
  const std::vector<std::string> encoded = {to_png(picture_of(30, 41, 3, 1))};
  const Case crop{{.crop = small, .crop_randomly = true}, {}};
  const Case turned{{.crop = small}, {.dtype = DType::float32}};
  const Case resize{{.resize = small}, {}}, flip{{.resize = small, .flip = 0.5}, {.dtype = DType::float32}};
  const Case shorter{{.crop = small, .crop_randomly = true, .crop_after_resize = true, .shorter = 20}, {}};
  const auto head = [](uint32_t height, uint32_t width) {
    const uint32_t size[] = {height, width, 0, 0};
    return std::string(reinterpret_cast<const char*>(size), sizeof size);
  };
  for (const auto& [of, what] : {std::pair(crop, CacheWhat::decoded), std::pair(turned, CacheWhat::decoded),
                                 std::pair(resize, CacheWhat::resized), std::pair(flip, CacheWhat::resized),
                                 std::pair(shorter, CacheWhat::resized)}) {
    const CacheSpec cache{.where = CacheWhere::disk, .what = what, .dir = {}, .limit = 1};
    const std::string plain = rows_of(of, encoded, std::nullopt, nullptr);
    ScratchEntries store(1);
    REQUIRE(rows_of(of, encoded, cache, &store) == plain);
    const std::string whole = store.kept.at(0);
    for (const std::string& entry : {whole.substr(0, 1), whole.substr(0, 16), whole.substr(0, whole.size() - 1),
                                     whole + "x", head(41, 31) + whole.substr(16), head(0, 0) + whole.substr(16),
                                     head(0xffffffff, 0xffffffff) + whole.substr(16)}) {
      if (entry.size() == whole.size() &&
          kept_step(PictureRows{of.decode, of.geometry, of.finish, {}, cache})->bytes > 0)
        continue;  // it has no head, so these are other pixels
      INFO(entry.size() << " bytes in place of " << whole.size());
      store.kept[0] = entry;
      REQUIRE(rows_of(of, encoded, cache, &store) == plain);
    }
  }
}

TEST_CASE("steps have one text only if they make the same") {
  const CacheSpec decoded{.what = CacheWhat::decoded, .dir = {}, .limit = 1},
      resized{.what = CacheWhat::resized, .dir = {}, .limit = 1};
  const auto text = [&](const Case& of, const CacheSpec& cache) {
    return kept_step(PictureRows{of.decode, of.geometry, of.finish, {}, cache})->text;
  };
  const Case crop{{.crop = small, .crop_randomly = true}, {}}, other_crop{{.crop = pictures::Size{3, 3}}, {}};
  CHECK(text(crop, decoded) == text(other_crop, decoded));
  Case grey = crop, fast = crop, turned = crop, deep = crop;
  grey.finish.channels = 1;
  fast.decode.fast_dct = true;
  turned.decode.apply_exif = true;
  deep.decode.bits = 16;
  for (const Case& other : {grey, fast, turned, deep}) CHECK(text(crop, decoded) != text(other, decoded));

  const Case resize{{.resize = small}, {}};
  Case mirrored = resize, larger = resize, scaled = resize, planes = resize, cut = resize;
  mirrored.geometry.flip = 0.5;
  larger.geometry.resize = pictures::Size{13, 16};
  scaled.finish.scale = 2;
  planes.finish.channels_first = true;
  cut.geometry.crop = pictures::Size{20, 20};
  CHECK(text(resize, resized) == text(mirrored, resized));
  for (const Case& other : {larger, scaled, planes, cut}) CHECK(text(resize, resized) != text(other, resized));
}
