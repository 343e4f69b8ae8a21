#include "flowgraph/plan/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/append.h"
#include "base/audit.h"
#include "base/byte_size.h"
#include "base/format_count.h"
#include "base/mul_div.h"
#include "feedline/error.h"
#include "flowgraph/data/file_pieces.h"
#include "io/cache/disk_entries.h"
#include "io/cache/memory_entries.h"
#include "io/index/index_store.h"

namespace feedline::flow {
namespace {

constexpr uint64_t version = 2;  // the version of what entries hold; it goes into content_
// Sizes are planned this many standard errors larger than they were measured.
constexpr double caution = 4;

const char* name(CacheWhat what) { return what == CacheWhat::decoded ? "DECODED" : "RESIZED"; }

// Returns the bytes of memory, or of the disk, that each entry takes besides its content.
uint64_t row_bytes(const CacheSpec& spec) {
  return spec.where == CacheWhere::memory ? io::MemoryEntries::table_bytes(1 << 16) >> 16
                                          : io::EntryFile::table_bytes(1 << 20) >> 20;
}

// Returns the bytes that a cache takes besides its entries: a file's header, and what is lost by rounding.
uint64_t fixed_bytes(const CacheSpec& spec) { return spec.where == CacheWhere::disk ? 2 * 4096 : io::entry_alignment; }

}  // namespace

CacheParts::CacheParts(const PipelineSpec& spec) {
  for (const OutputSpec& output : spec.outputs) {
    of_output.push_back(-1);
    const std::optional<KeptStep> step = output.kept_step();
    if (!step || !step->why_not.empty() || output.internal) continue;
    const int feature = output.jobs[0].column.number;
    const auto known = std::ranges::find_if(
        parts, [&](const Part& part) { return part.feature == feature && part.step.text == step->text; });
    of_output.back() = static_cast<int>(known - parts.begin());
    if (known == parts.end()) parts.push_back({static_cast<int>(of_output.size()) - 1, feature, *step});
  }
}

CachePlan::CachePlan(const PipelineSpec& spec, const DataSet& data, const KeptSizes& sizes)
    : spec_(*spec.cache), parts_(spec), samples_(data.samples), order_(samples_, hash64("cache")) {
  spec_.what == CacheWhat::records ? keep_pieces(spec, data) : keep_samples(spec, data, sizes);
}

// Returns the bytes that the cache may take. If there is a cache file already, sets layout_ to the layout of the file,
// and returns nullopt. Returns nullopt, too, if the cache is off.
std::optional<uint64_t> CachePlan::room(const PipelineSpec& spec, const DataSet& data) {
  if (spec_.where == CacheWhere::memory) return spec_.limit;
  choose_file(spec, data);
  if (!why_off_.empty()) return std::nullopt;
  if (const auto found = io::EntryFile::layout_of(path_, content_)) {
    uint64_t most = 0;
    if (spec_.what == CacheWhat::records)
      for (const DataFile& file : data.files) most += pieces_of(file.index);
    else
      most = samples_ * parts_.parts.size();
    if (found->entries > most) {  // otherwise memory would be planned for so large a table
      why_off_ = fmt::format(
          "{} is damaged: it says that it has {} entries, but this data has at most {}; remove this "
          "file",
          path_, found->entries, most);
      return std::nullopt;
    }
    layout_ = *found;
    return std::nullopt;
  }
  try {
    return std::min(spec_.limit, io::EntryFile::free_bytes(path_, prefix_));
  } catch (const Error& error) {
    why_off_ = error.what();
    return std::nullopt;
  }
}

// Does nothing if something is cached. Otherwise even the first sample (or unit of pieces) did not fit. Turns the cache
// off if that is because the disk is too full. Throws Error bad_pipeline if it is because cache.limit is too small.
// `what` names the sample or the unit, and `bytes` is what was planned for it.
void CachePlan::refuse_if_none(uint64_t room, uint64_t bytes, const char* what) {
  if (kept_ > 0) return;
  if (room < spec_.limit) {
    why_off_ = fmt::format("the disk of {} has only {} free, but one {} takes {}", path_, format_byte_size(room), what,
                           format_byte_size(bytes));
    return;
  }
  throw Error(Category::bad_pipeline,
              fmt::format("cache: limit: {} cannot hold one {}, which takes {}; raise cache.limit, or remove 'cache'",
                          format_byte_size(spec_.limit), what, format_byte_size(bytes)));
}

void CachePlan::keep_samples(const PipelineSpec& spec, const DataSet& data, const KeptSizes& sizes) {
  for (uint64_t sample = 0; const DataFile& file : data.files) {
    first_sample_.push_back(sample);
    selections_.push_back(file.samples);
    sample += file.samples.samples();
  }
  const auto parts = static_cast<uint64_t>(parts_.parts.size());
  sample_bytes_ = sizes.mean + caution * sizes.error;
  for (const CacheParts::Part& part : parts_.parts)
    sample_bytes_ += static_cast<double>(round_up(part.step.bytes, io::entry_alignment));
  if (samples_ == 0 || parts == 0 || sample_bytes_ < 1) {
    why_off_ = "there is nothing to keep";
    return;
  }
  const auto rows = static_cast<double>(parts * row_bytes(spec_));
  const auto fixed = static_cast<double>(fixed_bytes(spec_));
  const std::optional<uint64_t> room = this->room(spec, data);
  if (!room) {
    kept_ = std::min(samples_, layout_.entries / parts);
    return;
  }
  // Returns the bytes to plan for this number of samples. The cached samples may by chance be larger than the others.
  const auto bytes_of = [&](uint64_t samples) {
    const auto count = static_cast<double>(samples);
    return count * sample_bytes_ +
           caution * sizes.spread * std::sqrt(count * (1 - count / static_cast<double>(samples_)));
  };
  const auto fits = [&](uint64_t samples) {
    return bytes_of(samples) + static_cast<double>(samples) * rows + fixed <= static_cast<double>(*room);
  };
  kept_ = fits(samples_) ? samples_ : 0;
  for (uint64_t too_many = samples_; too_many - kept_ > 1;) {
    const uint64_t middle = kept_ + (too_many - kept_) / 2;
    (fits(middle) ? kept_ : too_many) = middle;
  }
  refuse_if_none(*room, static_cast<uint64_t>(std::ceil(bytes_of(1) + rows + fixed)), "sample");
  layout_.entries = kept_ * parts;
  layout_.data_bytes = round_up(static_cast<uint64_t>(std::ceil(bytes_of(kept_))), io::entry_alignment);
}

void CachePlan::keep_pieces(const PipelineSpec& spec, const DataSet& data) {
  if (samples_ == 0) {
    why_off_ = "there is nothing to keep";
    return;
  }
  KeptPieces& pieces = pieces_.emplace(data);
  const uint64_t row = row_bytes(spec_), fixed = fixed_bytes(spec_), limit = spec_.limit - std::min(spec_.limit, fixed);
  const std::optional<uint64_t> room = this->room(spec, data);
  if (!why_off_.empty()) return;
  if (room) {
    pieces.keep(limit, *room - std::min(*room, fixed), row);
    layout_ = pieces.layout();
  } else {
    pieces.keep_entries(limit, layout_.entries, row);
  }
  kept_ = pieces.samples();
  if (const KeptPieces::Unit& unit = pieces.too_large(); room)
    refuse_if_none(*room, unit.bytes + unit.entries * row + fixed,
                   unit.compressed ? "whole compressed file" : "part of a file");
  else if (kept_ == 0)
    why_off_ = fmt::format("{} was made with a different layout; remove this file", path_);
}

// Two runs share a cache file if they have the same data and make the same entries of the same samples. So a cache
// file's name has two digests. `content_` covers everything that decides from which bytes of a record an entry is made,
// and what is made of them. `place` is the same for all cache files that serve the same choice of samples from the same
// data files.
void CachePlan::choose_file(const PipelineSpec& spec, const DataSet& data) {
  uint64_t place = 0;
  const auto add = [](uint64_t& digest, uint64_t value) { digest = mix64(digest ^ mix64(value)); };
  content_ = version;
  for (const uint64_t value : {data.digest, spec_.limit, static_cast<uint64_t>(spec_.what)}) add(content_, value);
  for (const CacheParts::Part& part : parts_.parts) {
    const FeatureSpec& feature = spec.features[static_cast<size_t>(part.feature)];
    for (const std::string& text : {part.step.text, feature.key}) add(content_, hash64(text));
    for (const uint64_t value : {static_cast<uint64_t>(feature.where), uint64_t{feature.has_default}})
      add(content_, value);
    for (const std::string& value : feature.default_bytes) add(content_, hash64(value));  // if a record lacks it
  }
  for (const SourceSpec& source : spec.sources) add(content_, static_cast<uint64_t>(source.record_type));
  for (const SourceSpec& source : spec.sources)
    for (const uint64_t value : {source.begin.value, uint64_t{source.begin.percent}, source.end.value,
                                 uint64_t{source.end.percent}, uint64_t{source.num_shards}, uint64_t{source.shard_id}})
      add(place, value);
  add(place, hash64(spec.filter_text));
  for (const DataFile& file : data.files) {
    add(place, hash64(file.id.uri));
    const uint64_t samples = file.samples.samples();
    add(content_, samples);
    add(content_, samples > 0 ? file.samples.record(0) : 0);
    add(content_, file.id.changed);
    if (pieces_) {
      add(content_, samples > 0 ? file.samples.record(samples - 1) : 0);
      add(content_, file.index.stride);
    }
    add(content_, file.kept_audit.value_or(0));
  }
  prefix_ = fmt::format("{:016x}-", place);
  path_ = io::cache_place(fmt::format("{}{:016x}{}", prefix_, content_, io::EntryFile::suffix), spec_.dir);
  if (path_.empty()) why_off_ = "there is no folder for the cache; set cache.dir, HOME or XDG_CACHE_HOME";
}

uint64_t CachePlan::store_bytes() const noexcept {
  if (kept_ == 0) return 0;
  return spec_.where == CacheWhere::disk ? io::DiskEntries::memory_bytes(layout_.entries)
                                         : io::MemoryEntries::table_bytes(layout_.entries) + layout_.data_bytes;
}

uint64_t CachePlan::scratch_bytes() const noexcept {
  uint64_t most = 0;
  if (spec_.where == CacheWhere::disk && kept_ > 0)
    for (const CacheParts::Part& part : parts_.parts) most = std::max(most, part.step.entry_bytes);
  return round_up(most, io::entry_alignment);
}

std::string CachePlan::text(const PipelineSpec& spec) const {
  std::string text;
  if (!why_off_.empty()) {
    append(text, "cache    off: {}\n", why_off_);
  } else if (pieces_) {
    return text_of_pieces();
  } else {
    append(text, "cache    {} pictures of {} of {} ({:.1f} %), about {} each, {}\n", name(spec_.what),
           format_count(kept_), format_count(samples_, "sample"), 100 * share(),
           format_byte_size(static_cast<uint64_t>(sample_bytes_)),
           spec_.where == CacheWhere::memory ? "in memory" : "in " + path_);
    append(text, "         these are {} once, and found again in every later epoch{}\n",
           spec_.what == CacheWhat::decoded ? "decoded" : "decoded and resized",
           spec_.where == CacheWhere::memory ? "" : " and run");
  }
  for (size_t o = 0; o < spec.outputs.size(); o++) {
    const OutputSpec& output = spec.outputs[o];
    const std::optional<KeptStep> step = output.kept_step();
    if (step && !step->why_not.empty())
      append(text, "         output '{}' is not kept: {}\n", output.name, step->why_not);
  }
  return text;
}

std::string CachePlan::text_of_pieces() const {
  std::string text;
  append(text, "cache    RECORDS: {} of {} ({:.1f} %), {} in {} of files, {}\n", format_count(kept_),
         format_count(samples_, "sample"), 100 * share(), format_byte_size(layout_.data_bytes),
         format_count(layout_.entries, "piece"), spec_.where == CacheWhere::memory ? "in memory" : "in " + path_);
  if (pieces_->compressed() > 0)
    append(text,
           "         {} of {} compressed files are kept inflated{}; a compressed file is kept whole or not at all\n",
           format_count(pieces_->kept_compressed()), format_count(pieces_->compressed()),
           spec_.where == CacheWhere::memory ? "" : " for all runs");
  if (pieces_->plain() > 0)
    append(text,
           "         uncompressed files: the cache helps if they are read with O_DIRECT or from a slow file system; "
           "otherwise it\n         only copies what the page cache holds\n");
  return text;
}

}  // namespace feedline::flow
