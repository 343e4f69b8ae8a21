#include "tool/feeding/feed.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "feedline/log.h"
#include "ranks/current_error.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/common/threads.h"
#include "tool/feeding/feed_view.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/feeding/state_file.h"
#include "trainer_bridge/report_json.h"

namespace feedline::tool {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Holds lines of the log back while a live view is on the terminal, because the view would be drawn over them.
class KeptLog {
 public:
  KeptLog()
      : sink_(set_log_sink([this](LogLevel level, std::string_view line) {
          const Lock lock(mutex_);
          lines_.emplace_back(level, line);
        })) {}
  ~KeptLog() {
    set_log_sink(sink_);
    write();
  }
  KeptLog(const KeptLog&) = delete;
  KeptLog& operator=(const KeptLog&) = delete;

  bool has_lines() const {
    const Lock lock(mutex_);
    return !lines_.empty();
  }
  /// Passes the lines that were held back to the log sink that was set before.
  void write() {
    std::vector<std::pair<LogLevel, std::string>> lines;
    {
      const Lock lock(mutex_);
      lines.swap(lines_);
    }
    if (!sink_) return;
    for (const auto& [level, line] : lines) sink_(level, line);
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_ FEEDLINE_GUARDED_BY(mutex_);
  const LogSink sink_;
};

class Feed {
 public:
  Feed(const Pipeline& pipeline, Options options, const FeedOptions& how)
      : idle_memory_(own_memory()),
        how_(how),
        state_(how.state.empty() ? nullptr : std::make_unique<StateFile>(how.state)),
        met_(options.communicator != nullptr),
        feeder_(pipeline, std::move(options)) {
    if (!how_.quiet) print_warnings(feeder_);
    if (const std::string address = feeder_.monitor_address(); !address.empty())
      print_error("the monitor is at {}", address);
    if (state_ && state_->restore(feeder_, how_.accept_changes)) {
      result_.resumed = feeder_.get_state();
      first_step_ = Json::parse(result_.resumed).at("step").get<uint64_t>();
    }
    result_.replicas = feeder_.replicas();
    first_epoch_ = feeder_.epoch();
    trained_.resize(static_cast<size_t>(feeder_.replicas()));
  }

  FeedResult run() {
    Threads replicas;
    {
      const Lock lock(mutex_);
      running_ = feeder_.replicas();
      result_.steps = UINT64_MAX;
    }
    try {
      for (int i = 0; i < feeder_.replicas(); i++) replicas.start([this, i] { serve(i); });
      watch();
    } catch (...) {
      const Lock lock(mutex_);
      stop();  // ends the replicas that were started
      throw;
    }
    replicas.join();
    sample_memory();
    keep_state();
    Report report = report_with_ranks();
    const Lock lock(mutex_);
    result_.rss_peak_bytes = rss_peak_;
    result_.interrupted = Interrupt::happened();
    result_.report = std::move(report);
    result_.records = records_;
    result_.next_wait_s = result_.report.next_wait_s - waited_at_start_;
    if (started_) {
      result_.wall_s = std::max(std::chrono::duration<double>(ended_ - *started_).count(), 1e-9);
      result_.cpu_s = cpu_seconds() - cpu_at_start_;
    }
    return std::move(result_);
  }

 private:
  /// Returns the report, with the audit of all ranks if they have a communicator. All ranks whose feed ended well must
  /// make this call. A signal ends the wait for the other ranks.
  Report report_with_ranks() FEEDLINE_EXCLUDES(mutex_) {
    Report report = feeder_.report();
    bool audited = false;
    std::exception_ptr failed;
    if (begin_audit()) {
      Threads auditing;
      auditing.start([&] {
        try {
          report.last_epoch = feeder_.audit_ranks();
          audited = true;
        } catch (...) {
          failed = std::current_exception();
        }
        const Lock lock(mutex_);
        running_--;
        changed_.notify_all();
      });
      try {
        watch();
      } catch (...) {
        const Lock lock(mutex_);
        stop();  // ends the wait of `auditing`
        throw;
      }
    }
    const Lock lock(mutex_);
    if (!audited && (result_.error || Interrupt::happened())) {
      if (met_ && report.last_epoch && report.last_epoch->verdict == EpochAudit::Verdict::open)
        report.last_epoch->why = "the run ended before the ranks added up their audits";
      return report;
    }
    try {
      if (failed) std::rethrow_exception(failed);
      if (report.last_epoch && report.last_epoch->verdict == EpochAudit::Verdict::differs)
        report.differing_epochs = std::max<uint64_t>(1, report.differing_epochs);
    } catch (const Error& error) {  // another rank did not reach the end of the run
      result_.error = Error(error.category(), fmt::format("not all ranks reached the end of the run, so it is unknown "
                                                          "whether the epochs delivered all of the data: {}",
                                                          error.message()));
      if (report.last_epoch) report.last_epoch->why = error.what();
    }
    return report;
  }

  /// Returns whether this rank's feed ended well. If so, counts the thread that will audit the epoch as running.
  bool begin_audit() {
    const Lock lock(mutex_);
    if (result_.error || Interrupt::happened()) return false;
    running_ = 1;
    return true;
  }

  /// Ends all replicas.
  void stop() FEEDLINE_REQUIRES(mutex_) {
    stopping_ = true;
    feeder_.stop();
    changed_.notify_all();
  }

  /// The body of a replica's thread.
  void serve(int replica) {
    std::optional<Error> error;
    uint64_t steps = 0;
    try {
      how_.replay ? replay(replica, steps) : take_all(replica, steps);
    } catch (...) {
      error = current_error();
    }
    const Lock lock(mutex_);
    result_.steps = std::min(result_.steps, steps);
    ended_ = Clock::now();
    if (error && !stopping_) {
      result_.error = std::move(error);
      stop();
    }
    running_--;
    changed_.notify_all();
  }

  /// Takes all batches of the run, and calls train() for each of them. Counts them in `steps`.
  void take_all(int replica, uint64_t& steps) {
    for (uint64_t epoch = first_epoch_; epoch < how_.epochs; epoch++) {
      while (how_.steps == 0 || steps < how_.steps) {
        const Batch batch = feeder_.next(replica);
        if (!batch) {
          note_trained(replica, {epoch + 1, 0});
          break;
        }
        batch->ready_on(Stream::host);
        if (how_.rows) how_.rows->check(batch);
        if (steps >= how_.warm_up_steps) start_clock();
        if (!train(batch->valid_count(), steps)) return;
        note_trained(replica, {epoch, static_cast<int64_t>(batch->step()) + 1});
        if (stopping_) return;
      }
    }
  }

  /// Takes how_.replay batches, then calls train() for them again and again. Keeps only their numbers of records,
  /// because the simulated trainer does not look at the data.
  void replay(int replica, uint64_t& steps) {
    std::vector<int64_t> batches;
    while (batches.size() < how_.replay) {
      const Batch batch = feeder_.next(replica);
      if (!batch) break;
      batches.push_back(batch->valid_count());
    }
    start_clock();
    const uint64_t wanted = steps_wanted().value_or(UINT64_MAX);
    while (!batches.empty() && steps < wanted && !stopping_ && train(batches[steps % batches.size()], steps)) continue;
  }

  /// Returns the number of steps that each replica makes; nullopt: not known, without end, or too large for 64 bits.
  std::optional<uint64_t> steps_wanted() const {
    if (how_.steps) return how_.steps;
    if (feeder_.steps_per_epoch() < 0) return std::nullopt;
    const uint64_t epochs = how_.epochs - std::min(how_.epochs, first_epoch_);
    uint64_t steps = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(feeder_.steps_per_epoch()), epochs, &steps)) return std::nullopt;
    return steps - std::min(steps, first_step_);
  }

  /// The first call starts the clock of the run. Later calls do nothing.
  void start_clock() {
    if (started_flag_.exchange(true)) return;
    const Lock lock(mutex_);
    if (how_.warm_up_steps > 0) waited_at_start_ = feeder_.report().next_wait_s;
    started_ = Clock::now();
    cpu_at_start_ = cpu_seconds();
  }

  /// Does the trainer's step, which takes how_.step_ms, and counts it. Returns false if the run ended during the step.
  bool train(int64_t records, uint64_t& steps) {
    if (how_.step_ms > 0) {
      Lock lock(mutex_);
      if (changed_.wait_for(lock, std::chrono::duration<double, std::milli>(how_.step_ms),
                            [&] { return stopping_.load(); }))
        return false;
    }
    if (started_flag_) records_ += static_cast<uint64_t>(records);
    steps++;
    return true;
  }

  /// How far a replica has trained: all epochs before `epoch`, and `step` steps of `epoch`.
  struct Trained {
    uint64_t epoch = 0;
    int64_t step = 0;
    auto operator<=>(const Trained&) const = default;
  };

  void note_trained(int replica, const Trained& trained) {
    if (!state_) return;
    const Lock lock(mutex_);
    trained_[static_cast<size_t>(replica)] = trained;
  }

  /// Saves the state that all replicas have reached. Called only by the main thread. If saving fails, the run ends.
  void keep_state() {
    if (!state_) return;
    std::optional<Trained> all;
    {
      const Lock lock(mutex_);
      all = *std::min_element(trained_.begin(), trained_.end());
    }
    if (!all) return;
    try {
      state_->save(feeder_.get_state(all->epoch, all->step));
    } catch (const Error& error) {
      const Lock lock(mutex_);
      if (!result_.error) result_.error = error;
      stop();
    }
  }

  /// Runs in the main thread until all threads that running_ counts have ended: shows how far the run is, samples the
  /// memory, saves the state and handles signals.
  void watch() {
    std::optional<KeptLog> log;  // destroyed after `line`: writes the log when the view has gone
    LiveLine line;
    Clock::time_point shown = Clock::now();
    uint64_t records = records_, bytes = feeder_.report().read_bytes;
    double rate = 0, bytes_rate = 0;
    Json shown_report;  // what was shown last on a terminal; null: nothing
    if (!how_.quiet && line.on_terminal() && !how_.replay) log.emplace();
    const std::chrono::duration<double, std::milli> state_every(how_.state_every_ms);
    Clock::time_point kept = shown;
    const auto look_every = state_ ? std::clamp<std::chrono::duration<double, std::milli>>(state_every, 1ms, 20ms)
                                   : std::chrono::duration<double, std::milli>(20ms);
    Lock lock(mutex_);
    while (!changed_.wait_for(lock, look_every, [&]() FEEDLINE_REQUIRES(mutex_) { return running_ == 0; })) {
      if (Interrupt::happened() && !stopping_) stop();
      lock.unlock();
      sample_memory();
      if (Clock::now() - kept >= state_every) {
        keep_state();
        kept = Clock::now();
      }
      const double elapsed = seconds_since(shown);
      if (log) {
        if (log->has_lines()) {
          line.clear();
          log->write();
        }
        if (line.due() && (shown_report.is_null() || elapsed >= 1)) {  // people cannot read faster changes
          const Report report = feeder_.report();
          Json now = report_json(report);
          std::vector<std::string> lines =
              feed_view(now, shown_report, shown_report.is_null() ? report.wall_s : elapsed, line.columns());
          lines.insert(lines.begin(), progress_text(report));
          line.show_lines(lines);
          shown_report = std::move(now);
          shown = Clock::now();
        }
      } else if (!how_.quiet && line.due()) {
        const Report report = feeder_.report();
        const auto smooth = [&](double& value, uint64_t& before, uint64_t now) {
          const double current = static_cast<double>(now - before) / elapsed;
          value = value == 0 ? current : 0.7 * value + 0.3 * current;
          before = now;
        };
        smooth(rate, records, records_);
        smooth(bytes_rate, bytes, report.read_bytes);
        line.show(live_text(report, rate, bytes_rate));
        shown = Clock::now();
      }
      lock.lock();
    }
  }

  /// Returns how far the run is.
  std::string progress_text(const Report& now) const {
    std::string text = fmt::format("step {}", format_count(now.steps));
    const uint64_t steps = steps_wanted().value_or(0);
    if (steps) text += fmt::format("/{}", format_count(steps));
    if (steps > now.steps && now.steps > 0) {
      const double step_s = now.wall_s / static_cast<double>(now.steps);
      text += fmt::format(", {} left", format_seconds(step_s * static_cast<double>(steps - now.steps)));
    }
    return text;
  }

  std::string live_text(const Report& now, double rate, double bytes_rate) const {
    std::string text = progress_text(now);
    text += fmt::format("  {}, {}/s, {}/s", format_count(now.records, "record"), format_rate(rate),
                        format_byte_size(static_cast<uint64_t>(bytes_rate)));
    // How much a trainer waits says something only if its steps take time, and only after its first batch.
    const bool real_trainer = how_.step_ms > 0 && !how_.replay && now.steps > 0;
    if (real_trainer) text += fmt::format("  trainer waits {:.0f} % of the time", 100 * now.next_wait_ratio);
    if (!now.waited_for.empty() && (!real_trainer || now.next_wait_ratio >= 0.005))
      text += fmt::format("{} for {}", real_trainer ? "," : "  waits", now.waited_for);
    return text;
  }

  void sample_memory() {
    const uint64_t now = own_memory();
    rss_peak_ = std::max(rss_peak_, now - std::min(now, idle_memory_));
  }

  const uint64_t idle_memory_;  // own_memory() before the feeder was made
  const FeedOptions how_;
  const std::unique_ptr<StateFile> state_;  // null: no state is kept
  const bool met_;                          // the ranks have a communicator
  Feeder feeder_;
  uint64_t first_epoch_ = 0, first_step_ = 0;  // where the run begins
  uint64_t rss_peak_ = 0;                      // bytes above idle_memory_; used only by the main thread

  std::atomic<bool> stopping_ = false, started_flag_ = false;
  std::atomic<uint64_t> records_ = 0;
  Mutex mutex_;
  Condition changed_;
  int running_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::vector<std::optional<Trained>> trained_ FEEDLINE_GUARDED_BY(mutex_);  // by replica; nullopt: no step yet
  FeedResult result_ FEEDLINE_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> started_ FEEDLINE_GUARDED_BY(mutex_);
  Clock::time_point ended_ FEEDLINE_GUARDED_BY(mutex_);
  double cpu_at_start_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  double waited_at_start_ FEEDLINE_GUARDED_BY(mutex_) = 0;  // Report::next_wait_s when the clock started
};

}  // namespace

std::optional<double> FeedResult::per_second(uint64_t amount) const {
  if (steps < 2 || wall_s < 0.01) return std::nullopt;
  return static_cast<double>(amount) / wall_s;
}

Json errors_json(const Report& report, const std::optional<Error>& last) {
  std::vector<Error> errors = report.errors;
  if (last) errors.push_back(*last);
  return feedline::errors_json(errors);
}

FeedResult feed(const Pipeline& pipeline, Options options, const FeedOptions& how) {
  return Feed(pipeline, std::move(options), how).run();
}

}  // namespace feedline::tool
