#include "flowgraph/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/audit.h"
#include "base/draws.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/plan/reader_memory.h"

namespace feedline::flow {
namespace {

// Returns the number of samples in a step over all ranks. Throws Error bad_pipeline if it is not a multiple of the
// number of replicas.
int64_t choose_global_batch(const PipelineSpec& spec, const Ranks& ranks) {
  const int64_t replicas = ranks.all_replicas();
  if (spec.batch_size_per_replica > 0) return spec.batch_size_per_replica * replicas;
  const int64_t size = spec.global_batch_size;
  if (size % replicas == 0) return size;
  const int64_t below = size / replicas * replicas;
  throw Error(
      Category::bad_pipeline,
      fmt::format("batch.global_batch_size: {} rows cannot be divided evenly among {} replicas{}; set it to {}{}", size,
                  replicas, ranks.world_size > 1 ? fmt::format(" of {} ranks", ranks.world_size) : "",
                  below > 0 ? fmt::format("{} or ", below) : "", below + replicas));
}

// Returns the number of passes in an epoch; -1 if it has no end. Throws Error bad_pipeline if the samples would be too
// many to count, or if data without a good record is repeated without end. If the data ends with an Error
// (DataSet::raised), and each epoch continues where the epoch before it ended, throws that Error.
int64_t checked_passes(const PipelineSpec& spec, const DataSet& data, int64_t global_batch) {
  if (!data.raised.empty()) {
    const Error& bad = data.raised.front();
    if (spec.epoch_steps > 0)
      throw Error(
          bad.category(),
          fmt::format("{}; epoch.steps repeats the data without end, but errors.on_error: RAISE ends the feed at this "
                      "bad record; set errors.on_error: SKIP_RECORD, or remove epoch.steps",
                      bad.message()),
          bad.place());
    return 1;
  }
  if (spec.repeat < 0 && data.samples == 0)
    throw Error(Category::bad_pipeline,
                "epoch.repeat: -1 repeats the samples without end, but the data has no samples; correct source.files, "
                "source.range or 'filter', or the files");
  if (const int64_t most_steps = countable_steps(global_batch); spec.epoch_steps > most_steps)
    throw Error(Category::bad_pipeline,
                fmt::format("epoch.steps: {} steps of {} samples have more samples than can be counted; write at most "
                            "{}",
                            spec.epoch_steps, global_batch, most_steps));
  const int64_t most =
      (std::numeric_limits<int64_t>::max() - global_batch) / std::max<int64_t>(1, static_cast<int64_t>(data.samples));
  if (spec.repeat > most)
    throw Error(Category::bad_pipeline,
                fmt::format("epoch.repeat: {} passes over this data have more samples than can be counted; write at "
                            "most {}, or -1 to repeat without end",
                            spec.repeat, most));
  return spec.repeat;
}

}  // namespace

Schedule::Schedule(PipelineSpec pipeline, std::shared_ptr<const DataSet> counted, const Ranks& who, int thread_count)
    : spec(std::move(pipeline)),
      shared_data(std::move(counted)),
      data(*shared_data),
      ranks(who),
      global_batch(choose_global_batch(spec, ranks)),
      steps(plan_orders()),
      parser(record_parser(spec)),
      formulas(spec),
      replicas(who.replicas),
      threads(thread_count),
      frames(spec.window ? spec.window->size : 1) {
  for (const FeatureSpec& feature : spec.features)
    zeros.resize(std::max(zeros.size(), static_cast<size_t>(std::max<int64_t>(0, feature.length))));
  audit_keys = flow::audit_keys(data.files);
  replica_batch = global_batch / ranks.all_replicas();
  plan_epoch();
}

Steps Schedule::plan_orders() {
  // If the data ends with an error, the epoch ends with that error, after the last full step.
  const bool ends = !data.raised.empty();
  const int64_t passes = checked_passes(spec, data, global_batch), epoch_steps = spec.epoch_steps;
  const LastBatchPolicy policy = ends ? LastBatchPolicy::drop : spec.last_batch_policy;
  const auto add_order = [&](FileRange files, const ShuffleSpec& shuffle, const Lanes& of_lanes) {
    orders.push_back(std::make_unique<Order>(data, files, shuffle, spec.interleave, spec.window, of_lanes));
  };
  if (!spec.mixture) {
    const uint64_t samples = count_samples(data, data.all_files(), spec.window);
    // If a pass is a whole number of steps, all passes are cut into lanes in the same way.
    const bool whole_steps = samples % static_cast<uint64_t>(global_batch) == 0;
    const uint32_t count =
        choose_lanes(spec.shuffle, global_batch, samples, (passes != 1 || epoch_steps > 0) && !whole_steps);
    add_order(data.all_files(), spec.shuffle, {count, static_cast<uint64_t>(global_batch) / count, 0});
    const bool picks_rows = ranks.world_size > 1 && orders[0]->picks_rows(global_batch);
    const int64_t of_epoch = passes < 0 ? -1 : static_cast<int64_t>(samples) * passes;
    return {{of_epoch, epoch_steps}, global_batch, policy, count, picks_rows, ranks};
  }

  MixtureSpec mixing = *spec.mixture;
  if (ends && mixing.stop != MixtureStop::all_exhausted) mixing.stop = MixtureStop::first_exhausted;
  std::vector<uint64_t> sizes;
  for (uint32_t source = 0; source < spec.sources.size(); source++)
    sizes.push_back(count_samples(data, data.files_of(source), spec.window) *
                    static_cast<uint64_t>(std::max<int64_t>(1, passes)));
  const bool begin_again =
      passes != 1 || mixing.stop == MixtureStop::cycle_until_all || mixing.stop == MixtureStop::cycle_forever;
  const uint32_t count =
      choose_lanes(spec.shuffle, global_batch, std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}), begin_again);
  mixture.emplace(mixing, sizes, spec.shuffle, count, static_cast<uint64_t>(global_batch),
                  static_cast<uint64_t>(epoch_steps * global_batch));
  for (uint32_t source = 0; source < spec.sources.size(); source++) {
    ShuffleSpec shuffle = spec.shuffle;
    shuffle.seed = key_of({spec.shuffle.seed, source});
    shuffle.buffer_size = static_cast<int64_t>(mixture->part_of(source, static_cast<uint64_t>(shuffle.buffer_size)));
    shuffle.buffer_bytes = mixture->part_of(source, shuffle.buffer_bytes);
    add_order(data.files_of(source), shuffle, mixture->lanes()[source]);
  }
  // Steps can compute which rows of a step come from which lane only if every lane gives a full step a fixed number of
  // rows. In a mixture this number varies with the samples that each source gives. So Steps treats the whole mixture as
  // one lane, and a MixedStream (mixed_stream.h) distributes the rows over the real lanes.
  return {{static_cast<int64_t>(mixture->samples()), epoch_steps}, global_batch, policy, 1, false, ranks};
}

void Schedule::plan_epoch() {
  if (data.lazy && ranks.world_size > 1)
    throw Error(Category::bad_pipeline,
                "source: index.mode: LAZY works only with one rank, because several ranks must know the number of "
                "their steps before the first batch; set source.index.mode: BUILD");
  steps_per_epoch = data.lazy ? -1 : steps.per_epoch();
  if (steps_per_epoch < 0) {
    samples_per_epoch = -1;
    return;
  }
  samples_per_epoch = steps.full() * global_batch + steps.remainder();
  dropped_per_epoch = spec.last_batch_policy == LastBatchPolicy::drop ? steps.remainder() : 0;
  std::string& none = expected_audit.why_none;
  none = data.no_pass_audit;
  const bool goes_on = steps.epochs_go_on();
  if (goes_on && (mixture || !PassBorders::apply_to(*orders[0], global_batch)))
    none = mixture ? "with epoch.steps an epoch ends within a pass over a source of the mixture"
                   : "a step takes more than half of the data";
  uint64_t sum = 0;
  for (const DataFile& file : data.files) {
    const std::optional<uint64_t> passes = passes_over(file.source);
    if (file.samples.samples() > 0 && !passes && !goes_on)
      none = fmt::format("the epoch ends within a pass over source[{}] of the mixture", file.source);
    if (!none.empty()) return;
    sum += (goes_on ? 1 : passes.value_or(0)) * *file.pass_audit;
  }
  if (goes_on)
    expected_audit.passes = {PassBorders(*orders[0], global_batch), sum, static_cast<uint64_t>(steps.full())};
  else
    expected_audit.sum = sum;
}

// Returns how many passes over a source's samples an epoch has; nullopt if the epoch ends within a pass.
std::optional<uint64_t> Schedule::passes_over(uint32_t source) const {
  if (!mixture) return static_cast<uint64_t>(spec.repeat);
  const uint64_t size = orders[source]->samples(), taken = mixture->amounts()[source];
  if (size == 0) return 0;
  return taken % size == 0 ? std::optional(taken / size) : std::nullopt;
}

uint64_t Schedule::chunks_of_step() const {
  if (data.lazy) return lazy_chunks_of(static_cast<uint64_t>(global_batch), data.largest_record());
  uint64_t chunks = 0;
  for (uint32_t source = 0; source < orders.size(); source++) chunks += chunks_of_step(source);
  return chunks;
}

uint64_t Schedule::chunks_of_step(uint32_t source) const {
  const Order& order = *orders[source];
  if (order.samples() == 0) return 0;
  const Rows& rows = steps.of_rank(Steps::Kind::full);
  const uint64_t samples = order.lanes().count * order.lanes().step;
  const bool one_pass =
      !mixture ? spec.repeat == 1 : !mixture->epochs_go_on() && mixture->amounts()[source] <= order.samples();
  // Near the end of a pass, blocks of the next pass are open, too. If passes are shorter than steps, blocks of several
  // passes are open.
  const uint64_t passes = one_pass ? 1 : samples / order.samples() + 2;
  const auto of_rank = static_cast<uint64_t>(rows.count());
  const uint64_t picks = ((mixture ? mixture->most_of(source, of_rank) : of_rank) + order.picks() - 1) / order.picks();
  switch (order.mode()) {
    case ShuffleMode::none:
      if (order.windows()) return order.open_in_windows(samples) * passes;
      if (order.interleave().on()) return order.open_when_interleaved(samples) * passes;
      // If a rank reads only its own rows of a block (Steps::picks_rows()), the previous step's block stays open until
      // the next block is opened.
      return order.largest_span(samples + (steps.picks_rows() ? 1 : 0), one_pass).blocks;
    case ShuffleMode::buffer:
      return order.open_in_buffer(samples) * passes + picks;
    case ShuffleMode::global:
      return picks;
    case ShuffleMode::block:
      break;
  }
  return lanes_of_rank(order) * order.open_blocks() * passes;
}

// Returns an upper bound for how many lanes of an order this rank reads.
uint64_t Schedule::lanes_of_rank(const Order& order) const {
  const Lanes& lanes = order.lanes();
  if (ranks.world_size == 1) return lanes.count;
  if (!mixture) {
    // The rows of a last step are divided differently, so a rank's rows may reach into one more lane at each end.
    const Rows& rows = steps.of_rank(Steps::Kind::full);
    const int64_t lane_step = steps.lane_step();
    const auto mine = static_cast<uint64_t>((rows.last - 1) / lane_step - rows.first / lane_step + 1);
    return std::min<uint64_t>(lanes.count, mine + 2);
  }
  constexpr uint32_t most_compared = 1024;  // lanes; more are not compared one by one
  if (lanes.count > most_compared) return lanes.count;
  // A step takes consecutive samples of each source, which are dealt to the lanes in turn. So the lanes before lane l
  // have l / count of the step's rows, with an error of at most off(l) / count rows for all sources together.
  const auto off = [&](uint32_t lane) {
    int64_t now = 0, least = 0, most = 0;  // in units of 1 / count rows
    for (uint64_t item = 0; item < lanes.count; item++) {
      now += (item * lanes.stride % lanes.count < lane ? lanes.count : 0) - int64_t{lane};
      least = std::min(least, now);
      most = std::max(most, now);
    }
    return (most - least) * std::ssize(orders);
  };
  std::vector<bool> reads(lanes.count);
  for (const Steps::Kind kind : {Steps::Kind::full, steps.kind(steps.full())}) {
    const int64_t samples = steps.rows(kind);
    if (samples == 0) continue;
    const Rows& rows = steps.of_rank(kind);
    for (uint32_t lane = 0; lane < lanes.count; lane++)
      if (samples * lane - off(lane) < rows.last * lanes.count &&
          samples * (lane + 1) + off(lane + 1) > rows.first * lanes.count)
        reads[lane] = true;
  }
  return static_cast<uint64_t>(std::count(reads.begin(), reads.end(), true));
}

uint64_t Schedule::order_bytes() const noexcept {
  uint64_t sum = 0;
  for (const auto& order : orders) sum += order->memory_bytes();
  return sum;
}

}  // namespace feedline::flow
