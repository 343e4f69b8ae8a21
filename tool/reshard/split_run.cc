#include "tool/reshard/split_run.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/byte_size.h"
#include "base/mul_div.h"
#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "io/output_file.h"
#include "tool/common/interrupt.h"
#include "tool/common/lock.h"
#include "tool/common/meter.h"
#include "tool/common/terminal.h"
#include "tool/reshard/shuffle_buckets.h"
#include "tool/reshard/shuffle_key.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t range_bytes = uint64_t{64} << 20;          // the input that a thread scatters to buckets at a time
constexpr uint64_t least_bucket_buffer = uint64_t{64} << 10;  // so that writes to buckets are large
// Buckets have at most `fair_bucket` bytes, because larger ones make nothing faster. They are larger only if there
// would otherwise be more than `many_buckets` of them.
constexpr uint64_t fair_bucket = uint64_t{128} << 20, many_buckets = 4096;
constexpr size_t told_bad = 20;  // how many bad places are listed at most if they end the split

/// Lets tests simulate a disk with one free block.
using SpaceOp = HookedCall<"disk space", ENOSPC>;

class Split {
 public:
  Split(SplitJob job, std::string folder, uint64_t memory)
      : job_(std::move(job)),
        folder_(std::move(folder)),
        job_path_(job_path(folder_, job_.options.name)),
        buckets_folder_(fmt::format("{}/.{}.split", folder_, job_.options.name)),
        memory_(memory) {}

  SplitResult run() {
    std::optional<SplitJob> under_way = load_job(job_path_, job_);
    if (under_way) {
      job_ = std::move(*under_way);
    } else {
      count();
      refuse_foreign_files();
    }
    const std::vector<uint64_t> missing = missing_shards();
    // If somebody has removed a shard whose buckets are gone, too, all records must be written to buckets again.
    const bool scatters_again =
        job_.buckets && !std::ranges::all_of(missing, [&](uint64_t i) { return has_buckets(i); });
    if (scatters_again) job_.buckets.reset();
    remove_leftovers();
    if (!missing.empty()) check_space(missing.size());
    if (!under_way || scatters_again) save_job(job_path_, job_);
    SplitResult result{.shards = job_.shards,
                       .kept = job_.shards - missing.size(),
                       .records = job_.map.records(),
                       .framed_bytes = job_.map.framed_bytes(),
                       .files = {},
                       .bad = job_.bad};
    try {
      write(missing);
    } catch (const Error& error) {
      const bool output_failed =
          error.category() == Category::io_error && std::ranges::none_of(job_.inputs, [&](const FileIdentity& input) {
            return input.path == error.place().file;
          });
      if (!output_failed && error.category() != Category::stalled) throw;
      throw Error(error.category(), error.message() + "; run the same command again to continue", error.place());
    }
    std::error_code ignored;
    fs::remove_all(buckets_folder_, ignored);
    for (const FileIdentity& input : job_.inputs)
      if (identify(input.path) != input)
        throw Error(
            Category::io_error,
            "changed while it was read, so the new shards may be wrong; split again with a different --out or --name",
            Place::of_file(input.path));
    for (uint64_t i = 0; i < job_.shards; i++) result.files.push_back(job_.shard(i));
    return result;
  }

 private:
  std::string path(uint64_t shard) const { return folder_ + "/" + job_.shard(shard); }

  /// Counts the records of the inputs. Sets the job's number of shards and its map from the result.
  void count() {
    uint64_t bytes = 0;
    for (const FileIdentity& file : job_.inputs) bytes += file.size;
    Progress progress("counting", bytes);
    std::vector<std::vector<io::BadRegion>> damage;
    job_.map = map_records(job_.inputs, job_.options.record_limit, damage, [&](uint64_t more) {
      Interrupt::check();
      progress.add(more);
    });
    progress.done();
    note_damage(damage);
    const uint64_t framed = job_.map.framed_bytes();
    job_.shards = shards_of(job_.options, framed);
    if (job_.shards > most_shards)
      throw Error(
          Category::bad_pipeline,
          fmt::format("{} would need {} shards of this size, but a split can have at most {} shards; use a larger "
                      "--shard-size",
                      format_byte_size(framed), format_count(job_.shards), format_count(most_shards)));
    std::vector<uint64_t> begins;
    if (job_.options.shuffle) {
      begins = job_.map.ranges(range_bytes);
    } else {
      for (uint64_t i = 0; i < job_.shards; i++) begins.push_back(job_.begin(i));
    }
    job_.map.thin_marks(begins);
  }

  void note_damage(const std::vector<std::vector<io::BadRegion>>& damage) {
    size_t regions = 0;
    for (size_t i = 0; i < damage.size(); i++)
      for (const io::BadRegion& region : damage[i]) {
        const Error error = region.error(job_.inputs[i].path);
        if (regions++ < told_bad || job_.options.skip_bad) print_error("{}", error.what());
        job_.bad.push_back(error_json(error));
        job_.bad.back()["skipped_bytes"] = region.length;
      }
    if (regions == 0 || job_.options.skip_bad) return;
    throw Error(Category::bad_pipeline,
                fmt::format("the inputs have {}, so nothing was written; use --skip-bad to leave these out and to "
                            "write the {}",
                            format_count(regions, "bad place"), format_count(job_.map.records(), "good record")));
  }

  /// Throws if a file with the name of a shard exists. Precondition: this is the first run of the job.
  void refuse_foreign_files() const {
    for (uint64_t i = 0; i < job_.shards; i++) {
      std::error_code missing;
      if (fs::exists(path(i), missing))
        throw Error(Category::bad_pipeline,
                    "exists already and was not written by a split; choose a different --out or --name",
                    Place::of_file(path(i)));
    }
  }

  /// Removes the unfinished files and the buckets that killed runs have left.
  void remove_leftovers() const {
    std::error_code nothing_there;
    if (!job_.buckets) fs::remove_all(buckets_folder_, nothing_there);
    const std::string of_job = fs::path(job_path_).filename().string(), of_shards = job_.options.name + "-";
    const std::string after_number = fmt::format("-of-{:05}.tfrecord", job_.shards);
    io::remove_unfinished(folder_, [&](std::string_view name) {
      return name == of_job || (name.starts_with(of_shards) && name.find(after_number) == of_shards.size() + 5);
    });
  }

  /// Returns whether the shard exists, and is therefore complete.
  bool has(uint64_t shard) const {
    std::error_code unknown;
    return fs::is_regular_file(path(shard), unknown);
  }

  std::vector<uint64_t> missing_shards() const {
    std::vector<uint64_t> missing;
    for (uint64_t i = 0; i < job_.shards; i++)
      if (!has(i)) missing.push_back(i);
    return missing;
  }

  /// Returns whether the buckets that hold the shard's records exist.
  bool has_buckets(uint64_t shard) const {
    const uint64_t unit = shard / job_.buckets->shards_per_unit;
    for (uint64_t b = 0; b < job_.buckets->buckets_per_unit; b++) {
      std::error_code unknown;
      const std::string bucket = bucket_path(buckets_folder_, unit * job_.buckets->buckets_per_unit + b);
      if (rank(unit, b) < rank(unit, b + 1) && !fs::exists(bucket, unknown)) return false;
    }
    return true;
  }

  /// Throws if the disk has too little space for the files that must still be written. If plain records are to be
  /// compressed, their size is not known and counts as 0.
  void check_space(uint64_t missing) const {
    struct statvfs status {};
    if (statvfs(folder_.c_str(), &status) != 0) return;  // unknown; the writer will notice
    if (injected<SpaceOp>()) status.f_bavail = 1;
    const double free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
    double output = static_cast<double>(job_.map.framed_bytes());
    double needed = 0;
    if (job_.options.shuffle && !job_.buckets) needed = output;
    if (job_.options.gzip) {
      output = 0;
      for (const MappedFile& file : job_.map.files())
        if (file.compression != Compression::none) output += static_cast<double>(file.identity.size);
    }
    output *= static_cast<double>(missing) / static_cast<double>(job_.shards);
    // Buckets are removed when their shards are complete, so only the records that threads are working on are on the
    // disk twice.
    needed += job_.options.shuffle ? std::min(output, static_cast<double>(memory_)) : output;
    if (needed <= free) return;
    throw Error(
        Category::io_error,
        fmt::format("the disk of the folder has {} free, but the split needs about {}{}; free some disk space, or "
                    "choose an --out on a different disk",
                    format_byte_size(static_cast<uint64_t>(free)), format_byte_size(static_cast<uint64_t>(needed)),
                    job_.options.shuffle ? ", because --shuffle also stores a copy of the records there" : ""),
        Place::of_file(folder_));
  }

  void write(const std::vector<uint64_t>& missing) {
    if (missing.empty()) return;
    if (job_.options.shuffle && job_.map.records() > 0) return write_shuffled();
    write_in_order(missing);
  }

  void write_in_order(const std::vector<uint64_t>& missing) {
    Progress progress("writing", job_.map.framed_bytes() / job_.shards * missing.size());
    // Each thread writes several consecutive shards, so that its cursor continues where the last shard ended. On
    // compressed inputs, this costs half as much as a cursor that begins the file again.
    const size_t runs = std::min<size_t>(workers(), missing.size());
    tbb::parallel_for(size_t{0}, runs, [&](size_t run) {
      RecordCursor cursor(job_.map);
      for (size_t i = missing.size() * run / runs; i < missing.size() * (run + 1) / runs; i++) {
        RecordWriter writer(path(missing[i]), writer_options());
        Meter meter(progress);
        cursor.read(job_.begin(missing[i]), job_.begin(missing[i] + 1), [&](uint64_t, const io::RecordView& record) {
          writer.write({record.data, record.size});
          meter.add(record.size + io::frame_bytes);
        });
        writer.close();
      }
    });
  }

  RecordWriter::Options writer_options() const {
    return {.compression = job_.options.gzip ? Compression::gzip : Compression::none};
  }

  uint64_t workers() const { return static_cast<uint64_t>(tbb::this_task_arena::max_concurrency()); }
  uint64_t units() const { return div_up(job_.shards, job_.buckets->shards_per_unit); }

  /// Writes the records to buckets, unless an earlier run has done so. Then writes the buckets of each unit to the
  /// shards of that unit.
  void write_shuffled() {
    if (!job_.buckets) {
      job_.buckets = plan_buckets();
      scatter();
      save_job(job_path_, job_);
    }
    Progress progress("shuffling, pass 2 of 2:", job_.map.framed_bytes());
    tbb::enumerable_thread_specific<BucketReader> readers;
    tbb::parallel_for(uint64_t{0}, units(), [&](uint64_t unit) { write_unit(unit, readers.local(), progress); });
  }

  /// Returns how shards and buckets are divided into units of work. Buckets are small enough that each thread can hold
  /// one in memory, unless `memory_` is too small for the write buffers of so many buckets.
  Buckets plan_buckets() const {
    const uint64_t all = bucket_memory(job_.map.framed_bytes(), job_.map.records());
    const uint64_t of_worker = std::max<uint64_t>(memory_ / workers(), 1);
    const uint64_t size = std::min(of_worker, std::max(fair_bucket, all / many_buckets));
    // Buckets have equal numbers of records, not of bytes, so some are larger: a tenth is added as a reserve.
    const uint64_t wanted = std::max<uint64_t>(div_up(all + all / 10, size), 1);
    const uint64_t most = std::max<uint64_t>(memory_ / least_bucket_buffer, 1);
    const uint64_t buckets = std::min(wanted, most);
    Buckets plan;
    plan.shards_per_unit = std::max<uint64_t>(job_.shards / buckets, 1);
    plan.buckets_per_unit = plan.shards_per_unit > 1 ? 1 : div_up(buckets, job_.shards);
    return plan;
  }

  /// Returns the rank (the position in the random order) of a bucket's first record. The records of a unit are divided
  /// equally among its buckets.
  uint64_t rank(uint64_t unit, uint64_t bucket) const {
    const Buckets& buckets = *job_.buckets;
    const uint64_t begin = job_.begin(std::min(unit * buckets.shards_per_unit, job_.shards));
    const uint64_t end = job_.begin(std::min((unit + 1) * buckets.shards_per_unit, job_.shards));
    return begin + shard_begin(bucket, buckets.buckets_per_unit, end - begin);
  }

  /// Reads the inputs and writes each record to its bucket.
  void scatter() {
    const ShuffleKeys keys(job_.options.seed);
    const uint64_t records = job_.map.records();
    std::vector<uint64_t> ranks;
    for (uint64_t unit = 0; unit < units(); unit++)
      for (uint64_t b = 0; b < job_.buckets->buckets_per_unit; b++) ranks.push_back(rank(unit, b));
    // If there are fewer records than shards, buckets at the end may be empty. No record has the rank at which they
    // begin, so there is no key for it.
    const auto known = std::lower_bound(ranks.begin(), ranks.end(), records);
    std::vector<uint64_t> bounds = keys_at(keys, records, {ranks.begin(), known});
    if (!bounds.empty()) bounds.front() = 0;
    BucketWriter writer(buckets_folder_, std::move(bounds), memory_);
    Progress progress("shuffling, pass 1 of 2:", job_.map.framed_bytes());
    const std::vector<uint64_t> begins = job_.map.ranges(range_bytes);
    tbb::parallel_for(size_t{0}, begins.size() - 1, [&](size_t i) {
      RecordCursor cursor(job_.map);
      Meter meter(progress);
      cursor.read(begins[i], begins[i + 1], [&](uint64_t number, const io::RecordView& record) {
        writer.add(keys(number), record);
        meter.add(record.size + io::frame_bytes);
      });
    });
    job_.buckets->bytes = writer.finish();
    job_.buckets->bytes.resize(ranks.size(), 0);
  }

  /// Writes the missing shards of a unit, and then removes its buckets.
  void write_unit(uint64_t unit, BucketReader& reader, Progress& progress) {
    const Buckets& buckets = *job_.buckets;
    const uint64_t first = unit * buckets.shards_per_unit;
    const uint64_t end = std::min(first + buckets.shards_per_unit, job_.shards);
    Meter meter(progress);
    uint64_t shard = first, number = job_.begin(first);
    std::unique_ptr<RecordWriter> writer;  // writes `shard`; null if the shard exists already
    const auto open = [&] {
      if (!has(shard)) writer = std::make_unique<RecordWriter>(path(shard), writer_options());
    };
    // Closes the shards that end at or before `record`, and opens the next shard.
    const auto close_until = [&](uint64_t record) {
      while (shard < end && job_.begin(shard + 1) <= record) {
        if (writer) std::exchange(writer, nullptr)->close();
        if (++shard < end) open();
      }
    };
    if (!any_missing(first, end)) return remove_buckets(unit);
    open();
    for (uint64_t b = 0; b < buckets.buckets_per_unit; b++) {
      const uint64_t bucket = unit * buckets.buckets_per_unit + b;
      const uint64_t records = rank(unit, b + 1) - rank(unit, b);
      if (records == 0) continue;
      reader.read({bucket_path(buckets_folder_, bucket), buckets.bytes.at(bucket), records}, memory_ / workers(),
                  [&](std::span<const std::byte> payload) {
                    close_until(number);
                    if (writer) writer->write(payload);
                    number++;
                    meter.add(payload.size() + io::frame_bytes);
                  });
    }
    close_until(number);
    remove_buckets(unit);
  }

  bool any_missing(uint64_t first, uint64_t end) const {
    for (uint64_t i = first; i < end; i++)
      if (!has(i)) return true;
    return false;
  }

  void remove_buckets(uint64_t unit) const {
    std::error_code ignored;
    for (uint64_t b = 0; b < job_.buckets->buckets_per_unit; b++)
      fs::remove(bucket_path(buckets_folder_, unit * job_.buckets->buckets_per_unit + b), ignored);
  }

  SplitJob job_;
  const std::string folder_, job_path_, buckets_folder_;
  const uint64_t memory_;
};

}  // namespace

SplitResult run_split(const SplitOptions& options, const std::vector<std::string>& inputs, const std::string& folder,
                      uint64_t memory) {
  SplitJob job;
  job.options = options;
  for (const std::string& input : inputs) job.inputs.push_back(identify(input));
  const LockedFolder lock(folder);
  return Split(std::move(job), folder, memory).run();
}

}  // namespace feedline::tool
