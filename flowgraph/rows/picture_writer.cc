#include "flowgraph/rows/picture_writer.h"

#include <algorithm>
#include <utility>

#include "base/audit.h"
#include "base/draws.h"
#include "io/cache/entry_store.h"

namespace feedline::flow {
namespace {

// Arguments of key_of(), so that crops and flips are chosen independently of each other.
const uint64_t crops = hash64("pictures: crop"), flips = hash64("pictures: flip");

struct Sample {
  const pictures::GeometrySpec& geometry;
  pictures::Choices choices;
};

}  // namespace

PictureWriter::PictureWriter(PictureRows rows)
    : rows_(std::move(rows)),
      crop_key_(key_of({rows_.keys.seed, crops, hash64(rows_.keys.crop_group)})),
      flip_key_(key_of({rows_.keys.seed, flips, hash64(rows_.keys.flip_group)})) {
  if (keeps_pictures(rows_.cache)) kept_.emplace(rows_.origin, rows_.geometry, rows_.finish, *rows_.cache);
}

uint64_t PictureWriter::scratch_bytes() const noexcept {
  if (const auto* decode = std::get_if<pictures::DecodeOptions>(&rows_.origin))
    return pictures::render_memory(*decode, rows_.geometry.least_resized_height());
  const auto& [height, width, channels, channels_first] = std::get<StoredPixels>(rows_.origin);
  const auto [rows, columns] = rows_.geometry.crop.value_or(pictures::Size{height, width});
  return pictures::render_memory({.max_pixels = std::max(height * width, rows * columns)});
}

uint64_t PictureWriter::heap_bytes() const noexcept {
  const auto* decode = std::get_if<pictures::DecodeOptions>(&rows_.origin);
  return decode ? pictures::decoder_memory(*decode) : 0;
}

void PictureWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out,
                          size_t stride, std::span<std::byte> scratch, RowOutcome& outcome) const {
  for (size_t row = 0; row < values.size(); row++) try {
      const uint64_t number = rows.sample(row);
      const Sample sample{
          rows_.geometry,
          {Draws(key_of({crop_key_, rows.epoch, number})), Draws(key_of({flip_key_, rows.epoch, number}))}};
      std::byte* const to = out + row * stride;
      if (rows.kept && rows.kept->entries[row] != KeptRows::none &&
          write_kept(values[row], *rows.kept, rows.kept->entries[row], sample.choices, {to, stride}, scratch, outcome))
        continue;
      // A lambda with a single reference fits into std::function itself. So no memory is allocated for each picture.
      const auto geometry_of = [&sample](int64_t width, int64_t height) {
        return pictures::geometry_of(sample.geometry, width, height, sample.choices);
      };
      if (const auto* decode = std::get_if<pictures::DecodeOptions>(&rows_.origin))
        outcome.warnings += pictures::render(values[row], *decode, geometry_of, rows_.finish, to, scratch);
      else
        pictures::render(view_of(std::get<StoredPixels>(rows_.origin), values[row]), geometry_of, rows_.finish, to,
                         scratch);
    } catch (const pictures::BadPicture& bad) {
      outcome.failed.push_back({static_cast<uint32_t>(row), Category::bad_image, -1, bad.what()});
    }
}

// Makes a row from its entry in the cache. If there is no entry yet, makes and stores the entry first. Returns false if
// there is no entry and none can be kept now, or if the entry in the store is not whole (KeptPicture::is_whole()).
bool PictureWriter::write_kept(std::span<const std::byte> value, const KeptRows& kept, uint64_t entry,
                               const pictures::Choices& choices, std::span<std::byte> out, std::span<std::byte> scratch,
                               RowOutcome& outcome) const {
  const std::span<std::byte> place = kept_->is_row() ? out : kept.scratch;
  std::span<const std::byte> bytes = kept.store.find(entry, place);
  if (!bytes.empty() && !kept_->is_whole(bytes)) return false;
  if (!bytes.empty())
    outcome.found++;
  else
    bytes = make_entry(value, kept.store, entry, place, scratch);
  if (bytes.empty()) return false;
  kept_->finish(bytes, choices, out.data(), scratch);
  return true;
}

// Makes an entry and stores it in the cache. Returns an empty span if the entry cannot be stored: because another
// thread is making it, there is no room, or the decoder gave an error or warnings. The error or the warnings are
// reported when the caller then decodes the picture without the cache.
std::span<const std::byte> PictureWriter::make_entry(std::span<const std::byte> value, io::EntryStore& store,
                                                     uint64_t entry, std::span<std::byte> place,
                                                     std::span<std::byte> scratch) const {
  const uint64_t bytes = kept_bytes(value);
  const std::span<std::byte> made = bytes > 0 ? store.claim(entry, bytes, place) : std::span<std::byte>();
  if (made.empty()) return {};
  bool is_good = false;
  try {
    is_good = kept_->make(value, made, scratch);
  } catch (const pictures::BadPicture&) {
  }
  if (!is_good) {
    store.give_up(entry);
    return {};
  }
  store.keep(entry, made);
  return made;
}

uint64_t PictureWriter::kept_bytes(std::span<const std::byte> value) const try {
  return kept_->bytes_of(value);
} catch (const pictures::BadPicture&) {
  return 0;
}

}  // namespace feedline::flow
