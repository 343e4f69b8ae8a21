// Records with a cache: a chunk is filled with the pieces that were kept, and with nothing else, also where a disk gives
// entries of another length.
// covers: flowgraph/chunk/record_cache.cc flowgraph/data/file_pieces.h
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "draw.h"
#include "flowgraph/chunk/record_cache.h"
#include "flowgraph/data/file_pieces.h"
#include "flowgraph/plan/plan.h"
#include "io/cache/memory_entries.h"
#include "io/index/index_builder.h"
#include "require.h"
#include "tests/io/frames.h"
#include "tests/support/scratch_entries.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using test::Draw;
using test::ExactBlock;
using test::OutputBlock;
using test::require;

/// Files of records, with damage between them, and their bytes.
struct Files {
  explicit Files(Draw& draw) {
    for (uint64_t f = 0; f <= draw.below(2); f++) {
      std::string& all = bytes.emplace_back();
      const uint64_t stride = 1 + draw.near(64) % 200;
      io::IndexBuilder builder(stride);
      std::vector<io::BadRegion> bad;
      for (uint64_t i = draw.below(24); i > 0; i--) {
        if (draw.below(6) == 1) {
          bad.push_back({all.size(), 1 + draw.below(40), builder.records(), Category::bad_data_crc, "why"});
          all.append(bad.back().length, '\x77');
        }
        const std::string payload(draw.near(stride) % 300, static_cast<char>('a' + i));
        const io::RecordView record{nullptr, static_cast<uint32_t>(payload.size()), static_cast<uint32_t>(i)};
        builder.add(all.size(), {&record, 1});
        all += test::frame(payload);
      }
      DataFile& file = data.files.emplace_back();
      file.id = {"file " + std::to_string(f), all.size(), 1};
      file.index = builder.finish(all.size());
      file.index.bad = std::move(bad);
      if (draw.below(4) == 1) file.index.compression = Compression::gzip;
      const uint64_t end = std::min(file.index.records, draw.near(file.index.records));
      file.samples = Selection(std::min(end, draw.below(4)), end);
      data.samples += file.samples.samples();
      data.bytes += all.size();
    }
  }
  DataSet data;
  std::vector<std::string> bytes;
};

PipelineSpec records_spec() {
  return validate(
      parse_pipeline("source { files: 'a' record_type: RAW } feature { name: 'record' dtype: BYTES } output { "
                     "name: 'record' feature: 'record' } cache { what: RECORDS limit: '1MiB' } batch { "
                     "global_batch_size: 1 last_batch_policy: PARTIAL }"),
      [](const FilePatterns& patterns) {
        return FileList{patterns.files, {}};
      });
}

void records_like_without(Draw& draw) {
  static const PipelineSpec of_all = records_spec();
  const Files files(draw);
  const auto data = std::make_shared<const DataSet>(files.data);
  PipelineSpec spec = of_all;
  spec.cache->limit = draw.below(4) == 1 ? draw.near(data->bytes) : 1 << 20;
  std::shared_ptr<const CachePlan> cache;
  try {
    cache = std::make_shared<const CachePlan>(spec, *data, KeptSizes());
  } catch (const Error&) {
    return;  // the limit is too small for any records
  }
  if (!cache->why_off().empty()) return;
  const Plan plan(spec, data, {}, 1, {}, cache);
  const uint64_t entries = draw.below(4) == 1 ? draw.near(cache->layout().entries) % 64 : cache->layout().entries;
  const OutputBlock memory(cache->store_bytes());
  std::ranges::fill(memory.span(), std::byte{0});
  io::MemoryEntries in_memory(cache->layout().entries, memory.span());
  test::ScratchEntries on_disk(entries);
  io::EntryStore& store = draw.coin() ? static_cast<io::EntryStore&>(on_disk) : in_memory;
  RecordCache records(plan, store);

  Ticket ticket;
  for (uint32_t f = 0; f < data->files.size(); f++) {
    const uint64_t samples = data->files[f].samples.samples(), first = samples > 0 ? draw.below(samples) : 0;
    if (samples > 0) ticket.add(*data, f, first, 1 + draw.below(samples - first));
  }
  if (ticket.rows == 0) return;
  constexpr size_t gap = 5;  // bytes before each extent, of which nothing is written
  std::string filled, all(gap, '\xa5');
  std::vector<size_t> places;
  for (const Extent& extent : ticket.extents) {
    places.push_back(all.size());
    all += files.bytes[extent.file].substr(extent.offset, extent.length) + std::string(gap, '\xa5');
  }
  ExactBlock block(all);
  Chunk chunk(0, {block.data(), block.size()}, {});
  chunk.ticket = ticket;
  for (const size_t place : places) chunk.extents.push_back(block.data() + place);
  const auto each_piece = [&](auto&& call) {
    for (size_t e = 0; e < ticket.extents.size(); e++) {
      const Extent& extent = ticket.extents[e];
      for_each_piece(data->files[extent.file].index, extent.offset, extent.offset + extent.length,
                     [&](const Piece& piece) {
                       const auto entry = cache->pieces()->entry_of(extent.file, piece.number);
                       call(e, piece, entry && *entry < store.entries() ? entry : std::nullopt,
                            places[e] + piece.offset - extent.offset);
                     });
    }
  };

  // Every piece is kept, unless one of its bytes is wrong.
  const size_t wrong = draw.below(3) == 1 ? draw.below(all.size()) : all.size();
  if (wrong < all.size()) block.data()[wrong] ^= std::byte{1};
  const std::string before(block.text());
  records.keep(chunk);
  require(block.text() == before, "bytes are changed that are kept");
  const std::string_view right = all;
  each_piece([&](size_t, const Piece& piece, std::optional<uint64_t> entry, size_t at) {
    const bool is_good = wrong < at || wrong >= at + piece.bytes;
    if (entry) require(store.has(*entry) == is_good, "a piece is not kept, or it is with a wrong byte");
  });
  bool all_there = true;
  std::optional<uint64_t> changed;
  if (!on_disk.kept.empty() && draw.coin()) {
    auto of = on_disk.kept.begin();
    std::advance(of, draw.below(on_disk.kept.size()));
    const size_t size = of->second.size();
    of->second.resize(draw.near(size) % 5000, '\x11');
    if (of->second.size() != size) changed = of->first;
  }
  std::fill_n(block.data(), block.size(), std::byte{0xa5});
  const auto missing = records.fetch(chunk);
  uint64_t rows = 0;
  std::string wanted(all.size(), '\xa5');  // with what is found, and as it is where something is missing
  each_piece([&](size_t e, const Piece& piece, std::optional<uint64_t> entry, size_t at) {
    const bool is_missing = std::ranges::any_of(missing, [&](const RecordCache::Missing& part) {
      return part.extent == e && part.offset <= piece.offset && piece.offset + piece.bytes <= part.offset + part.length;
    });
    all_there &= entry && store.has(*entry);
    require(is_missing == (!entry || !store.has(*entry) || entry == changed),
            "another piece is missing than is not kept");
    wanted.replace(at, piece.bytes, is_missing ? block.text().substr(at, piece.bytes) : right.substr(at, piece.bytes));
    for (uint32_t row = 0; is_missing && row < ticket.rows; row++) {
      const Extent& extent = chunk.extent_of(row);
      const uint64_t record = extent.record_of(row);
      rows += &extent == &chunk.ticket.extents[e] && record >= piece.first_record && record < piece.end_record;
    }
  });
  require(block.text() == wanted, "other bytes than were kept, or bytes outside of the pieces");
  require(records.has(ticket) == all_there, "a ticket is there in part, or is not");
  if (!missing.empty() && data->files[ticket.extents.front().file].compressed()) rows = ticket.rows;
  require(records.not_found() == rows && records.found() == ticket.rows - rows,
          "other rows are counted than are missing");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  records_like_without(draw);
  return 0;
}
