#include "tool/stats/collect_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/machine.h"
#include "base/mutex.h"
#include "feedline_pipeline.pb.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/common/threads.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/stats/stats_pipeline.h"
#include "trainer_bridge/picture_output.h"

namespace feedline::tool {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t unknown = UINT64_MAX;  // a number of samples that is not known

// Of long rows of floats, only some values of each part (channel or column) are counted by value: at least
// looked_at_in_row in each row, and up to looked_at_in_all in all rows together.
constexpr uint64_t looked_at_in_row = 4, looked_at_in_all = 1 << 20;

/// Returns how the classes of an output of one_hot are found in its rows; nullopt for other outputs.
std::optional<ClassVectors> vectors_of(const std::string& name, const Pipeline& pipeline) {
  for (const config::Output& output : pipeline.message().output()) {
    const config::Normalize& normalize = output.normalize();
    if (output.name() != name || !output.has_one_hot()) continue;
    if (normalize.mean_size() > 1 || normalize.std_size() > 1) return std::nullopt;
    const auto normalized = [&](double value) {
      if (normalize.has_scale()) value *= normalize.scale();
      if (normalize.mean_size() > 0) value -= normalize.mean(0);
      return normalize.std_size() > 0 ? value / normalize.std(0) : value;
    };
    const config::OneHot& one_hot = output.one_hot();
    const double on = one_hot.has_on_value() ? one_hot.on_value() : 1;
    return ClassVectors{one_hot.classes(), normalized(on), normalized(one_hot.off_value())};
  }
  return std::nullopt;
}

OutputShape shape_of(const ElementSpec& element, const Pipeline& given, const StatsPipeline& fed, uint64_t samples) {
  OutputShape shape{.frames = given.message().has_window(), .vectors = vectors_of(element.name, given)};
  if (const auto step = fed.steps.find(element.name); step != fed.steps.end()) shape.step = step->second;
  if (const auto features = fed.features.find(element.name); features != fed.features.end())
    shape.parts = static_cast<int64_t>(features->second.size());  // a stack's columns, or 1
  if (const auto picture = PictureOutput::of(element, given)) {
    shape.parts = picture->channels();
    shape.parts_first = picture->channels_first();
    shape.pictures = picture->frames() / (shape.frames ? element.shape[0] : 1);
    samples *= static_cast<uint64_t>(picture->frames());
  }
  shape.looked_at = static_cast<size_t>(std::max(looked_at_in_row, looked_at_in_all / std::max<uint64_t>(samples, 1)));
  return shape;
}

/// Threads that take the batches of a feeder and count them.
class Collector {
 public:
  /// Counts the first `most` samples of the epoch. `empty` has the statistics of each output, to which no rows were
  /// added. `skip`: records whose values are not a whole number of steps are left out; otherwise they are an error.
  Collector(Feeder& feeder, std::vector<OutputStats> empty, uint64_t most, bool skip, const Options& options)
      : feeder_(feeder),
        empty_(std::move(empty)),
        most_(most),
        skip_(skip),
        rank_(static_cast<uint64_t>(options.rank)),
        ranks_(static_cast<uint64_t>(options.world_size)) {}

  /// Returns the statistics of this rank's samples.
  std::vector<OutputStats> run(unsigned threads) {
    std::vector<std::vector<OutputStats>> parts(threads, empty_);
    Threads workers;
    {
      const Lock lock(mutex_);
      running_ = threads;
    }
    try {
      for (auto& part : parts) workers.start([this, &part] { work(part); });
    } catch (...) {
      feeder_.stop();  // ends the workers that were started
      throw;
    }
    watch();
    workers.join();
    Interrupt::check();
    const Lock lock(mutex_);
    if (error_) throw *error_;
    for (size_t i = 1; i < parts.size(); i++)
      for (size_t output = 0; output < empty_.size(); output++) parts[0][output].merge(parts[i][output]);
    return std::move(parts[0]);
  }

  // These functions are called after run(), and count what this rank has fed.
  uint64_t samples() const {
    const Lock lock(mutex_);
    return samples_;
  }
  /// Returns how many records turned out bad after the data was counted.
  uint64_t lost() const {
    const Lock lock(mutex_);
    return lost_;
  }
  /// Returns how many records were left out because their values are not a whole number of steps.
  uint64_t partial() const {
    const Lock lock(mutex_);
    return partial_;
  }

 private:
  void work(std::vector<OutputStats>& stats) {
    try {
      std::vector<int64_t> rows;
      while (const Batch batch = take()) {
        const Found found = find_rows(batch, rows);
        const size_t partial = remove_partial_steps(batch, stats, rows);
        for (OutputStats& output : stats) output.add(batch, {.rows = rows, .first = found.first});
        const Lock lock(mutex_);
        samples_ += found.samples - partial;
        lost_ += found.lost;
        partial_ += partial;
      }
    } catch (const Error& thrown) {
      fail(thrown);
    } catch (const std::exception& thrown) {
      fail(Error(Category::io_error, thrown.what()));
    }
    const Lock lock(mutex_);
    running_--;
    changed_.notify_all();
  }

  void fail(const Error& error) {
    {
      const Lock lock(mutex_);
      if (!error_) error_ = error;
    }
    feeder_.stop();  // wakes the other threads, whose errors are those of a stopped feeder
  }

  /// Returns the next batch of the epoch, or an empty batch after the last one. One thread waits in the feeder at a
  /// time.
  Batch take() {
    const Lock lock(taking_);
    if (ended_) return {};
    Batch batch = feeder_.next();
    // For a sample of a mixture, only the first steps of the epoch are counted, and the epoch has more steps.
    ended_ = !batch || first_row(batch) >= most_;
    return ended_ ? Batch() : std::move(batch);
  }

  /// Returns the index, in the epoch, of the first row of the batch's step.
  uint64_t first_row(const Batch& batch) const { return batch->step() * static_cast<uint64_t>(batch->rows()) * ranks_; }

  struct Found {
    uint64_t first = 0;    // the index, in the epoch, of the batch's first row; with windows, of its first frame
    uint64_t samples = 0;  // rows that have a sample
    uint64_t lost = 0;     // rows whose record turned out bad
  };

  /// Sets `rows` to the rows of the batch that are to be counted; with windows, to the frames.
  Found find_rows(const Batch& batch, std::vector<int64_t>& rows) const {
    const auto valid = batch->at("@valid").as<const bool>();
    const auto batch_rows = static_cast<uint64_t>(batch->rows());
    const uint64_t first = first_row(batch) + rank_ * batch_rows, frames = valid.size() / batch_rows;
    const uint64_t there = std::min(batch_rows, most_ - std::min(most_, first));
    Found found{.first = first * frames};
    rows.clear();
    for (uint64_t row = 0; row < there; row++) {
      const size_t before = rows.size();
      for (uint64_t frame = row * frames; frame < (row + 1) * frames; frame++)
        if (valid[frame]) rows.push_back(static_cast<int64_t>(frame));
      if (rows.size() > before)
        found.samples++;
      else if (most_ != unknown)
        found.lost++;
    }
    return found;
  }

  /// Removes the rows that the given pipeline would refuse, because their values do not fill whole steps. Returns how
  /// many rows were removed. Throws Error wrong_count if there is such a row and bad records are not skipped.
  size_t remove_partial_steps(const Batch& batch, const std::vector<OutputStats>& stats,
                              std::vector<int64_t>& rows) const {
    size_t removed = 0;
    for (const OutputStats& output : stats) {
      removed += output.remove_partial_steps(batch, rows);
      if (removed > 0 && !skip_)
        throw Error(Category::wrong_count,
                    fmt::format("the values of output '{}' in a record do not fill whole steps of the shape {}; "
                                "`feedline run` says which record it is",
                                output.element().name, to_string(output.shape())));
    }
    return removed;
  }

  /// Shows how far the work is until all threads have ended.
  void watch() {
    const uint64_t all = most_ == unknown ? 0 : most_;
    Progress progress("statistics", all, "sample");
    Lock lock(mutex_);
    while (!changed_.wait_for(lock, 20ms, [&]() FEEDLINE_REQUIRES(mutex_) { return running_ == 0; })) {
      const uint64_t done = samples_ * ranks_;
      lock.unlock();
      if (Interrupt::happened()) feeder_.stop();
      progress.set(done, all);
      lock.lock();
    }
  }

  Feeder& feeder_;
  const std::vector<OutputStats> empty_;
  const uint64_t most_;
  const bool skip_;
  const uint64_t rank_, ranks_;

  Mutex taking_;
  bool ended_ FEEDLINE_GUARDED_BY(taking_) = false;
  mutable Mutex mutex_;
  Condition changed_;
  unsigned running_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  uint64_t samples_ FEEDLINE_GUARDED_BY(mutex_) = 0, lost_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  uint64_t partial_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ FEEDLINE_GUARDED_BY(mutex_);
};

/// Adds up the statistics of all ranks.
void merge_ranks(const Exchange& ranks, const std::vector<OutputStats>& empty, CollectedStats& stats) {
  MessageWriter mine;
  mine.put(stats.samples);
  mine.put(stats.bad_records);
  mine.put(stats.missing_of);
  for (const auto& [feature, count] : stats.missing) mine.put(count);
  for (OutputStats& output : stats.outputs) output.put(mine);
  const std::vector<std::string> all = ranks(mine.take());
  stats.outputs = empty;
  stats.samples = stats.bad_records = stats.missing_of = 0;
  for (auto& [feature, count] : stats.missing) count = 0;
  for (size_t rank = 0; rank < all.size(); rank++) {
    MessageReader theirs(all[rank], static_cast<int>(rank));
    stats.samples += theirs.get<uint64_t>();
    stats.bad_records += theirs.get<uint64_t>();
    stats.missing_of += theirs.get<uint64_t>();
    for (auto& [feature, count] : stats.missing) count += theirs.get<uint64_t>();
    for (size_t i = 0; i < empty.size(); i++) {
      OutputStats of_rank = empty[i];
      of_rank.get(theirs);
      stats.outputs[i].merge(of_rank);
    }
    theirs.end();
  }
}

}  // namespace

CollectedStats collect_stats(const Pipeline& pipeline, Options options, const std::optional<SampleSize>& sample) {
  const Interrupt interrupt;
  const unsigned threads = cpus_of_this_rank();
  StatsPipeline fed = for_stats(pipeline, sample.has_value(), threads);
  const std::shared_ptr<Transport> ranks = options.communicator;
  CollectedStats stats;
  uint64_t counted = unknown;  // the number of samples to count
  if (sample) {
    const auto samples = static_cast<uint64_t>(Feeder(fed.pipeline, options).samples_per_epoch());
    stats.samples_of_data = static_cast<int64_t>(samples);
    counted = samples > 0 ? sample->of(samples) : 0;
    // The epoch ends with the sample, so that nothing after the sample is read. The report has the numbers of missing
    // values only after the epoch has ended.
    const uint64_t step = static_cast<uint64_t>(fed.rows) * static_cast<uint64_t>(options.world_size);
    if (counted > 0 && !pipeline.message().has_mixture())
      fed.pipeline = fed.pipeline.with("epoch.steps", std::to_string((counted + step - 1) / step));
  }
  const Options of_rank = options;
  std::vector<OutputStats> empty;
  uint64_t known_bad = 0;  // without a sample: bad records that are not among the samples of any rank
  {
    Feeder feeder(fed.pipeline, std::move(options));
    print_warnings(feeder);
    if (!sample) {
      stats.samples_of_data = feeder.samples_per_epoch();
      if (stats.samples_of_data >= 0) counted = static_cast<uint64_t>(stats.samples_of_data);
    }
    for (const ElementSpec& element : feeder.elements())
      empty.emplace_back(element, shape_of(element, pipeline, fed, counted));
    const bool skip = pipeline.message().errors().on_error() != config::Errors::RAISE;
    Collector collector(feeder, empty, counted, skip, of_rank);
    stats.outputs = collector.run(threads);
    stats.samples = collector.samples();
    stats.report = feeder.report();
    if (!sample) {
      stats.report.last_epoch = feeder.audit_ranks();
      if (stats.report.last_epoch && stats.report.last_epoch->verdict == EpochAudit::Verdict::differs)
        stats.report.differing_epochs = std::max<uint64_t>(1, stats.report.differing_epochs);
    }
    stats.bad_records = collector.lost() + collector.partial();
    // If a sample is taken, the feed reads ahead of the last step and may find bad records there. These are not
    // counted.
    if (sample)
      stats.bad_records_of_data = stats.report.skipped_total;
    else if (ranks && counted != unknown && !pipeline.message().has_window())
      known_bad = stats.report.skipped_total;  // bad_records may include lost records of other ranks
    else
      known_bad = stats.report.bad_records - std::min(stats.report.bad_records, collector.lost());
  }
  stats.features = std::move(fed.features);
  stats.missing.insert(stats.report.missing.begin(), stats.report.missing.end());
  stats.missing_of = stats.report.missing_of;
  if (ranks) merge_ranks(exchange_over(ranks), empty, stats);
  stats.bad_records += known_bad;
  for (OutputStats& output : stats.outputs) output.settle();
  return stats;
}

}  // namespace feedline::tool
