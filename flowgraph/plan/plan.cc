#include "flowgraph/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>

#include "base/audit.h"
#include "base/byte_size.h"
#include "flowgraph/order/draws.h"
#include "flowgraph/plan/reader_memory.h"
#include "io/read/read_backend.h"

namespace feedline::flow {
namespace {

constexpr uint64_t reads_ahead = 8, fewest_reads_ahead = 2;
constexpr uint64_t bytes_ahead = 4 << 20;
// The limits of a replica's buffers if the pipeline does not say how many batches to prefetch. Small batches are then
// made many at a time, so that a slow trainer rarely makes the feed wake a thread.
constexpr uint64_t small_batches_bytes = 8 << 20, most_small_batches = 32;
constexpr uint64_t reads_ahead_of_blocks = 6;  // few, so that what a shuffle mixes stays in the cache
// How much is read ahead from a disk, so that the disk stays busy while all threads are.
constexpr uint64_t most_in_flight = io::BackendOptions().depth, bytes_in_flight = 64 << 20;

// Stands for products that are too large. It is far beyond any memory, so such a plan is refused, and sums of such
// values do not overflow.
constexpr uint64_t too_much = uint64_t{1} << 48;

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? too_much : std::min(result, too_much);
}

// Returns the most values that `payload` bytes of records can hold. A packed varint takes at least one byte, a float
// four, and a string at least its tag and length.
uint64_t most_values(DType dtype, uint64_t payload) {
  switch (dtype) {
    case DType::float32:
      return payload / 4;
    case DType::bytes:
      return payload / 2;
    default:
      return payload;
  }
}

uint64_t largest_record(std::span<const DataFile> files) {
  uint64_t largest = 0;
  for (const DataFile& file : files) largest = std::max(largest, file.index.largest_record);
  return largest;
}

// Returns the number of samples in a step over all ranks. Throws Error bad_pipeline if it is no multiple of the number
// of replicas.
int64_t choose_global_batch(const PipelineSpec& spec, const Ranks& ranks) {
  const int64_t replicas = ranks.all_replicas();
  if (spec.batch_size_per_replica > 0) return spec.batch_size_per_replica * replicas;
  const int64_t size = spec.global_batch_size;
  if (size % replicas == 0) return size;
  const int64_t below = size / replicas * replicas;
  throw Error(
      Category::bad_pipeline,
      fmt::format("batch.global_batch_size: {} rows do not divide by {} replicas{}; the nearest sizes that do are "
                  "{}{}",
                  size, replicas, ranks.world_size > 1 ? fmt::format(" of {} ranks", ranks.world_size) : "",
                  below > 0 ? fmt::format("{} and ", below) : "", below + replicas));
}

// Returns the number of passes in an epoch; -1 if it has no end. Throws Error bad_pipeline if the samples would be too
// many to count, or if data without a good record is repeated without end.
int64_t checked_passes(const PipelineSpec& spec, const DataSet& data, int64_t global_batch) {
  if (!data.raised.empty()) return 1;
  if (spec.repeat < 0 && data.samples == 0)
    throw Error(Category::bad_pipeline, "epoch.repeat: -1 repeats the data without end, but it has no good record");
  if (spec.repeat >
      (std::numeric_limits<int64_t>::max() - global_batch) / std::max<int64_t>(1, static_cast<int64_t>(data.samples)))
    throw Error(Category::bad_pipeline,
                fmt::format("epoch.repeat: {} passes are too many to count; -1 repeats without end", spec.repeat));
  return spec.repeat;
}

}  // namespace

Plan::Plan(PipelineSpec pipeline, DataSet counted, const Ranks& who, int thread_count)
    : Plan(std::move(pipeline), std::make_shared<const DataSet>(std::move(counted)), who, thread_count) {}

Plan::Plan(PipelineSpec pipeline, std::shared_ptr<const DataSet> counted, const Ranks& who, int thread_count,
           const MoreMemory& more)
    : spec(std::move(pipeline)),
      shared_data(std::move(counted)),
      data(*shared_data),
      ranks(who),
      global_batch(choose_global_batch(spec, ranks)),
      steps(plan_orders()),
      parser(spec),
      formulas(spec),
      replicas(who.replicas),
      threads(thread_count),
      frames(spec.window ? spec.window->size : 1) {
  for (const FeatureSpec& feature : spec.features)
    zeros.resize(std::max(zeros.size(), static_cast<size_t>(std::max<int64_t>(0, feature.length))));
  audit_keys = flow::audit_keys(data.files);
  replica_batch = global_batch / ranks.all_replicas();
  plan_epoch();
  plan_slots();
  plan_outputs();
  fit_memory(more ? more(*this) : MemoryLine{});
}

Steps Plan::plan_orders() {
  // If the data ends with an error, the epoch ends with it, after the last full step.
  const bool ends = !data.raised.empty();
  const int64_t passes = checked_passes(spec, data, global_batch), epoch_steps = ends ? 0 : spec.epoch_steps;
  const LastBatchPolicy policy = ends ? LastBatchPolicy::drop : spec.last_batch_policy;
  const auto add_order = [&](FileRange files, const ShuffleSpec& shuffle, const Lanes& of_lanes) {
    orders.push_back(std::make_unique<Order>(data, files, shuffle, spec.interleave, spec.window, of_lanes));
  };
  if (!spec.mixture) {
    const uint64_t samples = count_samples(data, data.all_files(), spec.window);
    const uint32_t count = choose_lanes(spec.shuffle, global_batch, samples);
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
  const uint32_t count =
      choose_lanes(spec.shuffle, global_batch, std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
  const uint64_t lane_step = static_cast<uint64_t>(global_batch) / count;
  mixture.emplace(mixing, sizes, spec.shuffle.seed, count, static_cast<uint64_t>(epoch_steps) * lane_step);
  for (uint32_t source = 0; source < spec.sources.size(); source++) {
    ShuffleSpec shuffle = spec.shuffle;
    shuffle.seed = key_of({spec.shuffle.seed, source});
    shuffle.buffer_size = static_cast<int64_t>(mixture->part_of(source, static_cast<uint64_t>(shuffle.buffer_size)));
    shuffle.buffer_bytes = mixture->part_of(source, shuffle.buffer_bytes);
    const uint64_t most = std::max<uint64_t>(1, mixture->most_of(source, lane_step));
    add_order(data.files_of(source), shuffle, {count, most, mixture->rotation(source)});
  }
  return {{static_cast<int64_t>(mixture->samples()), epoch_steps}, global_batch, policy, count, false, ranks};
}

void Plan::plan_epoch() {
  if (data.lazy && ranks.world_size > 1)
    throw Error(Category::bad_pipeline,
                "source: index.mode: LAZY is for one process: ranks have to know their steps before; use BUILD");
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
    none = mixture ? "epochs of a mixture of so many steps end within passes over its sources"
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

// Returns how many passes over a source's samples an epoch has. Returns nothing if the epoch ends within a pass.
std::optional<uint64_t> Plan::passes_over(uint32_t source) const {
  if (!mixture) return static_cast<uint64_t>(spec.repeat);
  const uint64_t size = orders[source]->samples(), taken = mixture->amounts()[source];
  if (size == 0) return 0;
  return taken % size == 0 ? std::optional(taken / size) : std::nullopt;
}

void Plan::plan_slots() {
  if (data.lazy) {
    slot_data_bytes = lazy_slot_bytes(largest_record(data.files));
    slot_arena_bytes = arena_bytes(most_lazy_rows, slot_data_bytes);
  }
  for (const auto& order : orders) {
    bool inflates = false;
    if (order->mode() == ShuffleMode::global || order->mode() == ShuffleMode::buffer) {
      const uint64_t rows = order->picks() * (order->windows() ? order->windows()->span() : 1);
      slot_data_bytes = std::max(slot_data_bytes, order->picks() * order->pick_bytes());
      slot_arena_bytes = std::max(
          slot_arena_bytes, arena_bytes(static_cast<uint32_t>(rows), rows * largest_record(data.in(order->files()))));
    }
    for (const Block& block : order->blocks()) {
      Ticket ticket;
      if (order->windows() && order->mode() == ShuffleMode::none)
        ticket.add(data, block.file, block.first, block.rows);
      else
        order->add_samples(ticket, block.file, block.first, block.rows);
      const bool compressed = data.files[block.file].compressed();
      slot_data_bytes = std::max(slot_data_bytes, slot_bytes(ticket, compressed));
      if (steps.picks_rows() && Order::picks_rows(block, global_batch))
        slot_data_bytes = std::max(slot_data_bytes, order->most_picked_bytes(block, global_batch));
      slot_arena_bytes =
          std::max(slot_arena_bytes, arena_bytes(ticket.rows, ticket.bytes() - ticket.rows * io::frame_bytes));
      inflates |= compressed;
    }
    if (inflates) inflaters++;  // each source keeps an inflater of its own, as the sources of a mixture take turns
  }
  if (inflaters > 0) inflaters += static_cast<uint32_t>(threads);
  slot_data_bytes = round_up(slot_data_bytes, io::block_bytes);
  slot_arena_bytes = round_up(slot_arena_bytes, io::block_bytes);
}

uint64_t Plan::arena_bytes(uint32_t rows, uint64_t payload) const {
  return rows * (sizeof(io::RecordView) + sizeof(uint64_t)) + alignof(io::RecordView) +
         parser.arena_bound(rows, payload) + formulas.arena_bound(rows);
}

// Returns the most chunks that a step, and the samples that are mixed with it, hold at once.
uint64_t Plan::chunks_of_step() const {
  if (data.lazy) return lazy_chunks_of(static_cast<uint64_t>(global_batch), largest_record(data.files));
  uint64_t chunks = 0;
  for (uint32_t source = 0; source < orders.size(); source++) chunks += chunks_of_step(source);
  return chunks;
}

uint64_t Plan::chunks_of_step(uint32_t source) const {
  const Order& order = *orders[source];
  if (order.samples() == 0) return 0;
  const Rows& rows = steps.of_rank(Steps::Kind::full);
  const uint64_t samples = order.lanes().count * order.lanes().step;
  const bool one_pass =
      !mixture ? spec.repeat == 1 : !mixture->epochs_go_on() && mixture->amounts()[source] <= order.samples();
  // At the end of a pass blocks of the next pass are open, too; and of several passes if passes are shorter than steps.
  const uint64_t passes = one_pass ? 1 : samples / order.samples() + 2;
  const auto of_rank = static_cast<uint64_t>(rows.count());
  const uint64_t picks = ((mixture ? mixture->most_of(source, of_rank) : of_rank) + order.picks() - 1) / order.picks();
  switch (order.mode()) {
    case ShuffleMode::none:
      if (order.windows()) return order.open_in_windows(samples) * passes;
      if (order.interleave().on()) return order.open_when_interleaved(samples) * passes;
      // If rows are picked, the block of the previous step is held until the next block is opened.
      return order.largest_span(samples + (steps.picks_rows() ? 1 : 0), one_pass).blocks;
    case ShuffleMode::buffer:
      return order.open_in_buffer(samples) * passes + picks;
    case ShuffleMode::global:
      return picks;
    case ShuffleMode::block:
      break;
  }
  // The rows of a last step are divided differently, so that a rank's rows may reach into one more lane at either end.
  const int64_t lane_step = steps.lane_step();
  const auto mine = static_cast<uint64_t>((rows.last - 1) / lane_step - rows.first / lane_step + 1);
  return std::min<uint64_t>(order.lanes().count, mine + (ranks.world_size > 1 ? 2 : 0)) * order.open_blocks() * passes;
}

void Plan::plan_outputs() {
  const uint64_t rows = product(static_cast<uint64_t>(replica_batch), static_cast<uint64_t>(frames));
  const bool any_variable = std::any_of(spec.outputs.begin(), spec.outputs.end(),
                                        [](const OutputSpec& output) { return !output.internal && !output.dense(); });
  const uint64_t payload = !any_variable ? 0
                           : in_file_order() && !spec.window && !mixture && !data.lazy
                               ? orders[0]->largest_span(rows, spec.repeat == 1).bytes
                               : product(rows, largest_record(data.files));
  const auto add = [&](std::string name, BatchTensor::Part part, int output, DType dtype, Shape shape,
                       uint64_t elements) {
    const uint64_t capacity = product(elements, static_cast<uint64_t>(shape.elements()) * size_of(dtype));
    tensors.push_back({std::move(name), part, output, dtype, shape, buffer_bytes, capacity});
    buffer_bytes += round_up(std::max<uint64_t>(capacity, 1), tensor_alignment);
  };
  using Part = BatchTensor::Part;
  add("@valid", Part::valid, -1, DType::boolean, {}, rows);
  if (!spec.valid_mask.empty()) add(spec.valid_mask, Part::valid, -1, DType::boolean, {}, rows);
  for (int o = 0; o < static_cast<int>(spec.outputs.size()); o++) {
    const OutputSpec& output = spec.outputs[static_cast<size_t>(o)];
    if (output.internal) continue;
    const FeatureSpec* feature = output.dense() ? nullptr : &spec.features[static_cast<size_t>(output.feature)];
    if (output.dense()) {
      add(output.name, Part::dense, o, output.dtype, output.shape, rows);
    } else if (output.padded) {
      const auto step = static_cast<uint64_t>(std::max<int64_t>(1, feature->shape.elements()));
      const uint64_t most = feature->max_values >= 0 ? static_cast<uint64_t>(feature->max_values)
                                                     : most_values(feature->dtype, largest_record(data.files));
      const uint64_t most_steps = product(rows, std::max<uint64_t>(1, most / step));
      if (feature->dtype == DType::bytes) {
        const uint64_t padding = feature->default_bytes.empty() ? 0 : feature->default_bytes.front().size();
        add(output.name + ".bytes", Part::bytes, o, DType::uint8, {}, payload + product(most_steps, step * padding));
        add(output.name + ".offsets", Part::offsets, o, DType::int64, {}, product(most_steps, step) + 1);
      } else {
        add(output.name, Part::padded, o, output.dtype, output.shape, most_steps);
      }
    } else if (output.variable) {
      uint64_t values = most_values(feature->dtype, payload);
      if (feature->max_values >= 0)
        values = std::min(values, product(rows, static_cast<uint64_t>(feature->max_values)));
      if (feature->dtype == DType::bytes) {
        add(output.name + ".bytes", Part::bytes, o, DType::uint8, {}, payload);
        add(output.name + ".offsets", Part::offsets, o, DType::int64, {}, values + 1);
      } else {
        add(output.name + ".values", Part::values, o, output.dtype, output.shape, values);
      }
      add(output.name + ".row_splits", Part::row_splits, o, DType::int64, {}, rows + 1);
    } else {
      const auto each = static_cast<uint64_t>(output.shape.elements());
      uint64_t defaults = 0;
      for (const std::string& value : feature->default_bytes) defaults += value.size();
      add(output.name + ".bytes", Part::bytes, o, DType::uint8, {}, payload + rows * defaults);
      add(output.name + ".offsets", Part::offsets, o, DType::int64, {}, rows * each + 1);
    }
  }
  lends = rows == 1 && std::any_of(spec.features.begin(), spec.features.end(),
                                   [](const FeatureSpec& feature) { return feature.dtype == DType::bytes; });
  buffer_bytes = round_up(buffer_bytes, io::block_bytes);
  buffers_per_replica = static_cast<uint32_t>(spec.host_prefetch) + 1;
}

void Plan::fit_memory(const MemoryLine& more) {
  const uint64_t chunks = step_chunks = chunks_of_step();
  auto buffers = static_cast<uint64_t>(replicas) * buffers_per_replica;
  const uint64_t lent = lent_chunks();
  // A step needs all its chunks at once; one more chunk is on its way, and one is being emptied. The end of an epoch
  // holds a slot until every replica has taken it. Because one replica may lag `host_prefetch` batches and ends behind
  // another, several ends may hold a slot at once.
  const uint64_t ends =
      replicas > 1 && steps_per_epoch >= 0 ? static_cast<uint64_t>(spec.host_prefetch / (steps_per_epoch + 1)) + 1 : 1;
  const uint64_t fewest_slots = chunks + std::max<uint64_t>(2, ends) + lent;
  // If records are large, fewer chunks are read ahead, so that a chunk is still in the cache when its turn comes.
  const uint64_t in_order =
      std::clamp(bytes_ahead / std::max<uint64_t>(1, slot_data_bytes), fewest_reads_ahead, reads_ahead);
  const uint64_t ahead = spec.shuffle.mode == ShuffleMode::block  ? reads_ahead_of_blocks
                         : spec.shuffle.mode == ShuffleMode::none ? chunks + in_order
                                                                  : reads_ahead;
  read_ahead = static_cast<uint64_t>(threads) + ahead;
  read_ahead_of_disk = read_ahead;
  if (!data.lazy && slot_data_bytes > 0)
    read_ahead_of_disk = std::max(read_ahead, std::min(most_in_flight, bytes_in_flight / slot_data_bytes));
  const uint64_t of_page_cache = std::max(fewest_slots, chunks + read_ahead + lent);
  const uint64_t wanted_slots = std::max(fewest_slots, chunks + read_ahead_of_disk + lent);

  uint64_t index_bytes = 0;
  for (const DataFile& file : data.files)
    index_bytes += file.index.memory_bytes() + (file.samples.kept() ? file.samples.kept()->memory_bytes() : 0) +
                   (file.key_changes ? file.key_changes->memory_bytes() : 0);
  const uint64_t slot_bytes = slot_data_bytes + slot_arena_bytes;
  const uint64_t counting = data.lazy ? lazy_reader_bytes(spec, data) : 0;
  const uint64_t others = product(buffers, buffer_bytes) + index_bytes + order_bytes() +
                          inflaters * inflater_memory_bytes + counting + product(more.count, more.bytes);

  const uint64_t affordable =
      others >= spec.memory_limit || slot_bytes == 0 ? 0 : (spec.memory_limit - others) / slot_bytes;
  slots = static_cast<uint32_t>(slot_bytes == 0 ? fewest_slots : std::clamp(affordable, fewest_slots, wanted_slots));
  slots_of_page_cache = static_cast<uint32_t>(std::min<uint64_t>(slots, of_page_cache));
  if (spec.more_small_batches && !lends) {
    const uint64_t used = others + slots * slot_bytes, bytes = product(static_cast<uint64_t>(replicas), buffer_bytes);
    const uint64_t most =
        std::clamp<uint64_t>(small_batches_bytes / buffer_bytes, buffers_per_replica, most_small_batches);
    const uint64_t more_of_each = used >= spec.memory_limit ? 0 : (spec.memory_limit - used) / bytes;
    buffers_per_replica = static_cast<uint32_t>(std::min(most, buffers_per_replica + more_of_each));
    buffers = static_cast<uint64_t>(replicas) * buffers_per_replica;
  }
  memory = {{"read slots: bytes as read", slots, slot_data_bytes},
            {"read slots: columns", slots, slot_arena_bytes},
            {"batches", buffers, buffer_bytes},
            more,
            {"inflating", inflaters, inflater_memory_bytes},
            {"counting while reading", 1, counting},
            {"index", 1, index_bytes},
            {"order", 1, order_bytes()}};
  if (memory_bytes() <= spec.memory_limit) return;

  const uint64_t per_row = product(buffers, buffer_bytes) / static_cast<uint64_t>(replica_batch);
  const uint64_t without_batches =
      fewest_slots * slot_bytes + index_bytes + order_bytes() + inflaters * inflater_memory_bytes + counting +
      product(more.count, more.bytes) +
      buffers * (io::block_bytes + tensor_alignment * tensors.size());  // the most that alignment adds
  std::string advice = fmt::format("set memory.limit to at least \"{}MiB\"", (memory_bytes() >> 20) + 1);
  if (without_batches < spec.memory_limit && per_row > 0)
    if (const uint64_t fit = (spec.memory_limit - without_batches) / per_row; fit > 0)
      advice +=
          fmt::format(", or a global batch of at most {} rows", fit * static_cast<uint64_t>(ranks.all_replicas()));
  if (data.lazy)
    advice += fmt::format(", or source.record_limit: index.mode LAZY plans for records of {}",
                          format_byte_size(largest_record(data.files)));
  if (spec.host_prefetch > 1) advice += ", or a smaller parallelism.host_prefetch";
  for (const BatchTensor& tensor : tensors)
    if (tensor.part != BatchTensor::Part::dense && tensor.capacity > buffer_bytes / 2)
      advice += fmt::format(", or bound output '{}' by feature.max_values",
                            spec.outputs[static_cast<size_t>(tensor.output)].name);
  throw Error(
      Category::bad_pipeline,
      fmt::format("memory.limit: the plan needs {} ({} for {} batches, {} for {} read slots), the limit is {}; {}",
                  format_byte_size(memory_bytes()), format_byte_size(product(buffers, buffer_bytes)), buffers,
                  format_byte_size(slots * slot_bytes), slots, format_byte_size(spec.memory_limit), advice));
}

uint64_t Plan::order_bytes() const noexcept {
  uint64_t sum = 0;
  for (const auto& order : orders) sum += order->memory_bytes();
  return sum;
}

uint64_t Plan::memory_bytes() const noexcept {
  uint64_t sum = 0;
  for (const MemoryLine& line : memory) sum += product(line.count, line.bytes);
  return sum;
}

}  // namespace feedline::flow
