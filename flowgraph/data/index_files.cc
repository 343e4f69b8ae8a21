#include "flowgraph/data/index_files.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/parallel_for_each.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/absolute_path.h"
#include "base/byte_size.h"
#include "base/mul_div.h"
#include "base/mutex.h"
#include "base/rank_message.h"
#include "base/worker_arena.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/data/error_limits.h"
#include "io/index/count_records.h"
#include "io/index/index_store.h"
#include "io/read/source.h"
#include "io/records/record_stream.h"
#include "ranks/rank_group.h"

namespace feedline::flow {
namespace {

// Adds one warning for all texts in `all`, such as "FIRST TEXT (and 3 more files)". Adds no warning if `all` is empty.
void warn_of(const std::vector<std::string>& all, std::vector<std::string>& warnings) {
  const std::string more = all.size() > 1 ? fmt::format(" (and {} more files)", all.size() - 1) : "";
  if (!all.empty()) warnings.push_back(all.front() + more);
}

[[noreturn]] void refuse_without_index(const SourceSpec& source, const DataFile& file, const std::string& why) {
  std::string command = "feedline index " + shell_word(file.id.uri);
  if (!source.index.dir.empty()) command += " --dir " + shell_word(source.index.dir);
  if (source.index.stride != io::default_stride) command += fmt::format(" --stride {}", source.index.stride);
  if (source.record_limit != io::default_record_limit)
    command += fmt::format(" --record-limit {}", source.record_limit);
  throw Error(Category::bad_pipeline,
              fmt::format("index.mode is REQUIRE, but this file has no valid index: {}; make the index with `{}`", why,
                          command),
              {file.id.uri, -1, -1, ""});
}

// Throws Error bad_pipeline. `rank` is the number, among all ranks, of the rank that sent the description.
[[noreturn]] void refuse(size_t rank, const std::string& why) {
  throw Error(Category::bad_pipeline,
              fmt::format("rank {} sent an invalid description of its files: {}; all ranks must run the same version "
                          "of feedline",
                          rank, why));
}

/// Bytes [begin, end) of a file, which one rank counts.
struct Part {
  size_t file;
  uint64_t begin, end;
};

// The smallest size of a file, in bytes, whose index saves more reading than it costs to open.
constexpr uint64_t worth_keeping = 1 << 20;

// The ranks' shares are cut only at multiples of this many bytes of a file, so that small files are not cut.
constexpr uint64_t cut_bytes = 1 << 20;

class IndexFiles {
 public:
  IndexFiles(const PipelineSpec& spec, DataSet& data, WorkerArena& arena, RankGroup& ranks,
             const std::function<void(uint64_t, uint64_t)>& on_progress, size_t message_bytes)
      : spec_(spec),
        data_(data),
        arena_(arena),
        ranks_(ranks),
        on_progress_(on_progress),
        message_bytes_(message_bytes) {}

  void run() {
    find();
    if (data_.lazy) return;
    deal();
    count();
    if (ranks_.size() > 1) {
      share();
      join();
    }
    const Lock lock(mutex_);
    warn_of(not_kept_, data_.warnings);
  }

 private:
  using Chains = std::vector<io::IndexBuilder>;

  const SourceSpec& source_of(const DataFile& file) const { return spec_.sources[file.source]; }
  io::CountOptions options_of(const DataFile& file) const { return count_options(source_of(file)); }
  bool compressed(const DataFile& file) const {
    const SourceSpec& source = source_of(file);
    return io::RecordStream(file.id.uri, source.compression, source.record_limit).compression() != Compression::none;
  }
  const std::vector<Part>& mine() const { return parts_[ranks_.rank()]; }
  bool keeps(const DataFile& file) const { return keeps_index(source_of(file), file.id); }

  void find();
  void deal();
  void count();
  void share();
  void join();
  void keep(const DataFile& file);
  /// What a rank tells of a file: its index, or the chains of its part of the file.
  struct Item {
    size_t file;
    bool chains;
  };
  std::vector<Item> items_of(size_t rank) const;
  void tell(const Item& item, MessageWriter& message) const;
  void take_index(size_t rank, size_t file, MessageReader& message);
  void take_chains(size_t rank, size_t number, MessageReader& message, Chains& chains) const;
  io::FileIndex received(size_t rank, const DataFile& file, std::string_view bytes) const;
  io::CountDamage damage_of(size_t file);
  void note_damage(size_t file, bool first_of_file, const io::BadRegion& region);

  const PipelineSpec& spec_;
  DataSet& data_;
  WorkerArena& arena_;
  RankGroup& ranks_;
  const std::function<void(uint64_t, uint64_t)>& on_progress_;
  const size_t message_bytes_;

  // Indexed by file:
  std::vector<bool> found_;     // this rank has found a stored index
  std::vector<size_t> giver_;   // the first rank that has found a stored index; ranks_.size(): no rank has
  std::vector<bool> wanted_;    // some rank has found no stored index
  std::vector<bool> in_parts_;  // the file is counted in parts
  std::vector<Chains> chains_;  // of files counted in parts: first what this rank found, then what all ranks found

  std::vector<std::vector<Part>> parts_;  // by rank: the parts that it counts

  Mutex mutex_;
  uint64_t done_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> not_kept_ FEEDLINE_GUARDED_BY(mutex_);
  uint64_t bad_regions_ FEEDLINE_GUARDED_BY(mutex_) = 0, failures_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  size_t first_bad_file_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> first_failure_ FEEDLINE_GUARDED_BY(mutex_);
};

// Looks for stored indexes, and lets the ranks tell each other for which files they have found one.
void IndexFiles::find() {
  std::vector<io::KeptIndex> kept(data_.files.size());
  arena_.execute([&] {
    tbb::parallel_for(size_t{0}, kept.size(), [&](size_t f) {
      const DataFile& file = data_.files[f];
      if (keeps(file)) kept[f] = io::find_index(file.id, options_of(file), source_of(file).index.dir);
    });
  });
  std::string mine;
  for (size_t f = 0; f < kept.size(); f++) {
    found_.push_back(kept[f].index.has_value());
    mine += found_[f] ? '1' : '0';
    if (found_[f]) data_.files[f].index = std::move(*kept[f].index);
  }
  const std::vector<std::string> all = ranks_.all_gather(mine);
  for (size_t rank = 0; rank < all.size(); rank++)
    if (all[rank].size() != kept.size() || all[rank].find_first_not_of("01") != std::string::npos)
      refuse(ranks_.number_in_all(rank), "it does not say for each file whether the file has an index");
  std::vector<std::string> refused;
  for (size_t f = 0; f < kept.size(); f++) {
    const auto has = [&](const std::string& found) { return found[f] == '1'; };
    giver_.push_back(static_cast<size_t>(std::find_if(all.begin(), all.end(), has) - all.begin()));
    wanted_.push_back(!std::all_of(all.begin(), all.end(), has));
    if (giver_[f] < all.size()) continue;
    const DataFile& file = data_.files[f];
    if (source_of(file).index.mode == IndexMode::require) refuse_without_index(source_of(file), file, kept[f].why);
    if (kept[f].refused) refused.push_back(fmt::format("a file is counted again, because {}", kept[f].why));
  }
  warn_of(refused, data_.warnings);
  std::map<std::string, std::vector<std::string>> to_keep;  // by the folder that the pipeline names
  for (size_t f = 0; f < kept.size(); f++)
    if (const DataFile& file = data_.files[f]; giver_[f] == all.size() && keeps(file))
      to_keep[source_of(file).index.dir].push_back(file.id.uri);
  for (const auto& [dir, files] : to_keep) io::remove_unfinished_indexes(files, dir);
  // The index of a small file is not stored, so a lazy epoch would not spare later runs the counting. Counting a few
  // small files at the start costs less than a lazy epoch.
  uint64_t small = 0;
  for (size_t f = 0; f < kept.size(); f++) {
    const DataFile& file = data_.files[f];
    if (giver_[f] < all.size() || source_of(file).index.mode != IndexMode::lazy) continue;
    small += file.id.size;
    if (keeps(file) || small >= worth_keeping) data_.lazy = true;
  }
}

// Lays the files that have no index on any rank end to end, and cuts them into equal shares, one for each rank. Every
// rank computes the shares of all ranks, so that no rank must trust what a different rank says.
void IndexFiles::deal() {
  in_parts_.resize(data_.files.size());
  chains_.resize(data_.files.size());
  const auto weight = [&](size_t f) {  // even an empty file must be looked at
    return giver_[f] < ranks_.size() ? 0 : std::max<uint64_t>(1, data_.files[f].id.size);
  };
  uint64_t total = 0, first = 0;
  for (size_t f = 0; f < data_.files.size(); f++) total += weight(f);
  parts_.resize(ranks_.size());
  size_t rank = 0;  // the first rank whose share ends after the file begins
  const auto border = [&](size_t of_rank) { return mul_div(total, of_rank, ranks_.size()); };
  for (size_t f = 0; f < data_.files.size(); first += weight(f++)) {
    const auto cut = [&](size_t of_rank) -> uint64_t {  // the offset in the file at which the share of `of_rank` begins
      if (border(of_rank) <= first) return 0;
      return border(of_rank) >= first + weight(f) ? weight(f) : (border(of_rank) - first) / cut_bytes * cut_bytes;
    };
    std::vector<std::pair<size_t, Part>> parts;
    while (rank < ranks_.size() && border(rank + 1) <= first) rank++;
    for (size_t r = rank; r < ranks_.size() && cut(r) < weight(f); r++)
      if (const uint64_t begin = cut(r), end = cut(r + 1); begin < end)
        parts.push_back({r, {f, begin, std::min(end, data_.files[f].id.size)}});
    // A compressed file cannot be counted in parts, so the rank of the first part counts all of it.
    if (parts.size() > 1 && compressed(data_.files[f])) {
      parts.resize(1);
      parts[0].second.end = data_.files[f].id.size;
    }
    in_parts_[f] = parts.size() > 1;
    for (const auto& [r, part] : parts) parts_[r].push_back(part);
  }
}

// Counts this rank's share.
void IndexFiles::count() {
  for (const Part& part : mine()) data_.counted_bytes += part.end - part.begin;
  const auto progress = [&](uint64_t bytes) {
    const Lock lock(mutex_);
    done_ += bytes;
    if (on_progress_) on_progress_(done_, data_.counted_bytes);
  };
  arena_.execute([&] {
    tbb::parallel_for_each(mine(), [&](const Part& part) {
      DataFile& file = data_.files[part.file];
      if (keeps(file)) io::let_mtime_settle(file.id);
      if (in_parts_[part.file]) {
        chains_[part.file] =
            io::count_part(io::all_files().open(file.id.uri), part.begin, part.end, options_of(file), progress);
      } else {
        file.index = io::count_records(file.id.uri, options_of(file), progress, damage_of(part.file));
        keep(file);
      }
    });
  });
}

void IndexFiles::keep(const DataFile& file) {
  if (!keeps(file)) return;
  try {
    io::keep_index(file.index, file.id, io::all_files().stat(file.id.uri), options_of(file), source_of(file).index.dir);
  } catch (const Error& error) {
    const Lock lock(mutex_);
    not_kept_.push_back(
        fmt::format("the index of {} cannot be stored, so this file will be counted again at the next start: {}",
                    file.id.uri, error.what()));
  }
}

// Exchanges between the ranks the indexes that some ranks lack, and the chains of records that were found in parts of
// files.
void IndexFiles::share() {
  std::vector<std::vector<Item>> items;
  for (size_t rank = 0; rank < ranks_.size(); rank++) items.push_back(items_of(rank));
  std::vector<size_t> told(ranks_.size());             // by rank: how many of its items it has told
  std::map<std::pair<size_t, size_t>, Chains> chains;  // by file and rank
  const auto has_more = [&](size_t rank) { return told[rank] < items[rank].size(); };
  for (bool more = true; more;) {
    const size_t me = ranks_.rank();
    MessageWriter mine;
    for (size_t i = told[me]; i < items[me].size() && mine.size() < message_bytes_; i++) tell(items[me][i], mine);
    const std::vector<std::string> all = ranks_.all_gather(mine.take());
    more = false;
    for (size_t rank = 0; rank < all.size(); rank++) {
      MessageReader message(all[rank], static_cast<int>(ranks_.number_in_all(rank)));
      for (bool first = true; has_more(rank) && (first || !message.at_end()); first = false) {
        const Item& item = items[rank][told[rank]++];
        if (item.chains)
          take_chains(rank, item.file, message, chains[{item.file, rank}]);
        else
          take_index(rank, item.file, message);
      }
      if (!message.at_end()) refuse(ranks_.number_in_all(rank), "the message has bytes after its end");
      more = more || has_more(rank);
    }
  }
  for (Chains& of_file : chains_) of_file.clear();
  for (auto& [place, of_part] : chains)
    for (io::IndexBuilder& chain : of_part) chains_[place.first].push_back(std::move(chain));
}

std::vector<IndexFiles::Item> IndexFiles::items_of(size_t rank) const {
  std::vector<Item> items;
  for (size_t f = 0; f < data_.files.size(); f++)
    if (giver_[f] == rank && wanted_[f]) items.push_back({f, false});
  for (const Part& part : parts_[rank]) items.push_back({part.file, in_parts_[part.file]});
  return items;
}

void IndexFiles::tell(const Item& item, MessageWriter& message) const {
  const DataFile& file = data_.files[item.file];
  if (item.chains) {
    message.put<uint64_t>(chains_[item.file].size());
    for (const io::IndexBuilder& chain : chains_[item.file]) chain.put_into(message);
  } else {
    // The time of modification is not sent, because each rank's copy of a file has its own.
    message.put_text(io::index_bytes(file.index, {file.id.uri, file.id.size, 0}, options_of(file)));
  }
}

void IndexFiles::take_index(size_t rank, size_t file, MessageReader& message) {
  const std::string_view bytes = message.get_text();
  if (rank != ranks_.rank() && !found_[file]) data_.files[file].index = received(rank, data_.files[file], bytes);
}

void IndexFiles::take_chains(size_t rank, size_t number, MessageReader& message, Chains& chains) const {
  const DataFile& file = data_.files[number];
  for (auto count = message.get<uint64_t>(); count > 0; count--) try {
      chains.push_back(io::IndexBuilder::get_from(message, source_of(file).index.stride, file.id.size));
    } catch (const Error& error) {
      refuse(ranks_.number_in_all(rank), fmt::format("{}: {}", file.id.uri, error.message()));
    }
}

io::FileIndex IndexFiles::received(size_t rank, const DataFile& file, std::string_view bytes) const {
  io::IndexFile got =
      io::parse_index(std::as_bytes(std::span(bytes)), {file.id.uri, file.id.size, 0}, options_of(file));
  if (!got.index) refuse(ranks_.number_in_all(rank), fmt::format("its index of {} {}", file.id.uri, got.refused));
  return std::move(*got.index);
}

// Makes the indexes of the files that were counted in parts from the chains of all ranks. Every rank does this for
// itself. Usually io::join_parts() then has nothing left to read.
void IndexFiles::join() {
  std::vector<size_t> files;
  for (size_t f = 0; f < in_parts_.size(); f++)
    if (in_parts_[f]) files.push_back(f);
  arena_.execute([&] {
    tbb::parallel_for_each(files, [&](size_t f) {
      DataFile& file = data_.files[f];
      file.index = io::join_parts(io::all_files().open(file.id.uri), std::exchange(chains_[f], {}), options_of(file),
                                  damage_of(f));
    });
  });
  for (const Part& part : mine())
    if (part.begin == 0 && in_parts_[part.file]) keep(data_.files[part.file]);
}

io::CountDamage IndexFiles::damage_of(size_t file) {
  return [this, file, first = true](const io::BadRegion& region) mutable {
    note_damage(file, std::exchange(first, false), region);
  };
}

// Ends the counting as soon as it is known that the data will be refused. So data with very many bad records takes
// neither the time nor the memory that counting them all would take.
void IndexFiles::note_damage(size_t file, bool first_of_file, const io::BadRegion& region) {
  const std::string& path = data_.files[file].id.uri;
  const Lock lock(mutex_);
  if (++bad_regions_ > spec_.memory_limit / 2 / sizeof(io::BadRegion))
    throw bad_regions_fill_memory(spec_, bad_regions_, region.error(path));
  if (spec_.on_error == OnError::raise || (spec_.on_error == OnError::skip_file && !first_of_file)) return;
  failures_++;
  if (!first_failure_ || file < first_bad_file_) {
    first_bad_file_ = file;
    first_failure_ = region.error(path);
  }
  if (const auto limit = exceeds_max_failures(spec_, failures_))
    throw Error(first_failure_->category(), fmt::format("{}; the first: {}", *limit, first_failure_->what()));
}

}  // namespace

Error bad_regions_fill_memory(const PipelineSpec& spec, uint64_t regions, const Error& last) {
  return Error(
      Category::bad_pipeline,
      fmt::format(
          "memory.limit: the list of {} damaged places takes more than half of the limit of {}; raise memory.limit, or "
          "name the files with the most damage in source.exclude; the last damaged place: {}",
          regions, format_byte_size(spec.memory_limit), last.message()),
      last.place());
}

bool keeps_index(const SourceSpec& source, const io::FileId& file) {
  return file.size >= worth_keeping || source.index.given;
}

io::CountOptions count_options(const SourceSpec& source) {
  return {.compression = source.compression, .record_limit = source.record_limit, .stride = source.index.stride};
}

void index_files(const PipelineSpec& spec, DataSet& data, WorkerArena& arena, RankGroup& ranks,
                 const std::function<void(uint64_t done, uint64_t total)>& on_progress, size_t message_bytes) {
  IndexFiles(spec, data, arena, ranks, on_progress, message_bytes).run();
}

}  // namespace feedline::flow
