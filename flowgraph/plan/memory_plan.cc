#include "flowgraph/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/byte_size.h"
#include "flowgraph/plan/reader_memory.h"
#include "flowgraph/table/table.h"
#include "io/read/read_backend.h"

namespace feedline::flow {
namespace {

constexpr uint64_t reads_ahead = 8, fewest_reads_ahead = 2;
constexpr uint64_t bytes_ahead = 4 << 20;
// The memory that a file takes beside its index: its DataFile, its place in lists of files, and what the search for its
// index leaves in the heap. Its name is stored four times: in the pipeline's spec, the data set, the table of open
// files and the FeedFacts.
constexpr uint64_t bytes_of_file = 2 * sizeof(DataFile), names_of_file = 4, of_allocation = 16;
// The limits of most_batches_ahead().
constexpr uint64_t small_batches_bytes = 8 << 20, most_small_batches = 32;
constexpr uint64_t chunks_of_section = 3;      // of a compressed file, between two seek points
constexpr uint64_t reads_ahead_of_blocks = 6;  // few, so that the blocks that BLOCK mixes stay in the CPU's cache
// The maximum numbers of reads and bytes that are in flight from a disk, so that the disk stays busy while all threads
// work.
constexpr uint64_t most_in_flight = io::BackendOptions().depth, bytes_in_flight = 64 << 20;

// product() returns this number if the product is larger (saturating arithmetic). It is far beyond any memory, so fit()
// refuses such a plan. Sums of such values do not overflow.
constexpr uint64_t too_much = uint64_t{1} << 48;

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? too_much : std::min(result, too_much);
}

uint64_t sum_of(const std::vector<MemoryLine>& lines) {
  uint64_t sum = 0;
  for (const MemoryLine& line : lines) sum += product(line.count, line.bytes);
  return sum;
}

// Returns the maximum number of values that `payload` bytes of records can hold. A packed varint takes at least one
// byte, a float four, and a string at least its tag and length.
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

// Returns the maximum number of values of a sequence that a record of `payload` bytes can have. In a feature list each
// step takes its own tags and lengths.
uint64_t most_sequence_values(const FeatureSpec& feature, uint64_t payload) {
  if (!feature.in_list()) return most_values(feature.dtype, payload);
  const auto each = static_cast<uint64_t>(feature.shape.elements());
  const uint64_t packed = each * (feature.dtype == DType::float32 ? 4 : 1) + 2;
  const uint64_t apart = each * (feature.dtype == DType::float32 ? 5 : 2);
  return payload / (4 + (feature.dtype == DType::bytes ? apart : std::min(packed, apart))) * each;
}

// Returns the maximum number of bytes that the columns of `rows` rows take in a slot, if the payloads of the rows
// together have `payload` bytes.
uint64_t arena_bytes(const Schedule& schedule, uint32_t rows, uint64_t payload) {
  return rows * (sizeof(io::RecordView) + sizeof(uint64_t)) + alignof(io::RecordView) +
         schedule.parser->arena_bound(rows, payload) + schedule.formulas.arena_bound(rows);
}

}  // namespace

uint64_t most_batches_ahead(uint64_t batch_bytes) noexcept {
  return std::min(small_batches_bytes / batch_bytes, most_small_batches);
}

std::vector<BatchTensor> tensors_of(const PipelineSpec& spec) {
  std::vector<BatchTensor> tensors;
  const auto add = [&](std::string name, BatchTensor::Part part, int output, DType dtype, const Shape& shape) {
    tensors.push_back({.name = std::move(name), .part = part, .output = output, .dtype = dtype, .shape = shape});
  };
  using Part = BatchTensor::Part;
  add("@valid", Part::valid, -1, DType::boolean, {});
  if (!spec.valid_mask.empty()) add(spec.valid_mask, Part::valid, -1, DType::boolean, {});
  for (int o = 0; o < static_cast<int>(spec.outputs.size()); o++) {
    const OutputSpec& output = spec.outputs[static_cast<size_t>(o)];
    if (output.internal) continue;
    if (output.dense()) {
      add(output.name, Part::dense, o, output.dtype, output.shape);
      continue;
    }
    const FeatureSpec& feature = spec.features[static_cast<size_t>(output.feature)];
    if ((output.padded ? output.dtype : feature.dtype) == DType::bytes) {
      add(output.name + ".bytes", Part::bytes, o, DType::uint8, {});
      add(output.name + ".offsets", Part::offsets, o, DType::int64, {});
    } else if (output.padded) {
      add(output.name, Part::padded, o, output.dtype, output.shape);
    } else {
      add(output.name + ".values", Part::values, o, output.dtype, output.shape);
    }
    if (!output.variable) continue;
    if (feature.nested()) add(output.name + ".step_splits", Part::step_splits, o, DType::int64, {});
    add(output.name + ".row_splits", Part::row_splits, o, DType::int64, {});
  }
  return tensors;
}

MemoryPlan::MemoryPlan(const Schedule& schedule) {
  plan_slots(schedule);
  plan_outputs(schedule);
}

void MemoryPlan::plan_slots(const Schedule& schedule) {
  const DataSet& data = schedule.data;
  if (data.lazy) {
    slot_data_bytes = lazy_slot_bytes(data.largest_record());
    slot_arena_bytes = arena_bytes(schedule, most_lazy_rows, slot_data_bytes);
  }
  uint32_t of_threads = 0;
  for (const auto& order : schedule.orders) {
    const bool inflates = !data.lazy && std::ranges::any_of(data.in(order->files()), &DataFile::compressed);
    const bool picks = order->mode() == ShuffleMode::global || order->mode() == ShuffleMode::buffer;
    if (picks) {
      const uint64_t rows = order->picks() * (order->windows() ? order->windows()->span() : 1);
      slot_data_bytes = std::max(slot_data_bytes, order->picks() * order->pick_bytes());
      slot_arena_bytes = std::max(slot_arena_bytes, arena_bytes(schedule, static_cast<uint32_t>(rows),
                                                                rows * data.largest_record(order->files())));
    }
    for (const Block& block : order->blocks()) {
      Ticket ticket;
      if (order->windows() && order->mode() == ShuffleMode::none)
        ticket.add(data, block.file, block.first, block.rows);
      else
        order->add_samples(ticket, block.file, block.first, block.rows);
      slot_data_bytes = std::max(slot_data_bytes, slot_bytes(ticket));
      if (schedule.steps.picks_rows() && Order::picks_rows(block, schedule.global_batch))
        slot_data_bytes = std::max(slot_data_bytes, order->most_picked_bytes(block, schedule.global_batch));
      slot_arena_bytes = std::max(slot_arena_bytes, arena_bytes(schedule, ticket.rows, ticket.payload_bytes()));
    }
    if (!inflates) continue;
    // The sources of a mixture take turns, and so do interleaved files, so each of them keeps its own inflater. Each
    // thread has one more, and a second one for samples at random places, as it cannot read these ahead.
    if (order->mode() != ShuffleMode::global)
      open_inflaters += order->interleave().on() ? order->interleave().cycle_length : 1;
    of_threads = std::max(of_threads, static_cast<uint32_t>(schedule.threads) * (picks ? 2 : 1));
  }
  inflaters = open_inflaters + of_threads;
  slot_data_bytes = round_up(slot_data_bytes, io::block_bytes);
  slot_arena_bytes = round_up(slot_arena_bytes, io::block_bytes);
}

void MemoryPlan::plan_outputs(const Schedule& schedule) {
  const PipelineSpec& spec = schedule.spec;
  const DataSet& data = schedule.data;
  const uint64_t rows = product(static_cast<uint64_t>(schedule.replica_batch), static_cast<uint64_t>(schedule.frames));
  const bool any_variable = std::any_of(spec.outputs.begin(), spec.outputs.end(),
                                        [](const OutputSpec& output) { return !output.internal && !output.dense(); });
  const uint64_t payload = !any_variable ? 0
                           : schedule.in_file_order() && !spec.window && !schedule.mixture && !data.lazy
                               ? schedule.orders[0]->largest_span(rows, spec.repeat == 1).bytes
                               : product(rows, data.largest_record());
  using Part = BatchTensor::Part;
  const auto most_elements = [&](const BatchTensor& tensor) -> uint64_t {
    if (tensor.part == Part::dense || tensor.part == Part::valid) return rows;
    if (tensor.part == Part::row_splits) return rows + 1;
    const OutputSpec& output = spec.outputs[static_cast<size_t>(tensor.output)];
    const FeatureSpec& feature = spec.features[static_cast<size_t>(output.feature)];
    if (output.padded) {
      const auto step = static_cast<uint64_t>(std::max<int64_t>(1, feature.shape.elements()));
      const uint64_t most = feature.max_values >= 0 ? static_cast<uint64_t>(feature.max_values)
                                                    : most_sequence_values(feature, data.largest_record());
      const uint64_t most_steps = product(rows, std::max<uint64_t>(1, most / step));
      const uint64_t padding = feature.default_bytes.empty() ? 0 : feature.default_bytes.front().size();
      return tensor.part == Part::bytes     ? payload + product(most_steps, step * padding)
             : tensor.part == Part::offsets ? product(most_steps, step) + 1
                                            : most_steps;
    }
    if (output.variable) {
      const uint64_t allowed =
          feature.max_values >= 0 ? product(rows, static_cast<uint64_t>(feature.max_values)) : too_much;
      const uint64_t values = std::min(allowed, most_values(feature.dtype, payload));
      return tensor.part == Part::bytes         ? payload
             : tensor.part == Part::offsets     ? values + 1
             : tensor.part == Part::step_splits ? std::min(allowed, payload / 2) + 1  // an empty step has 2 bytes
                                                : values;
    }
    uint64_t defaults = 0;
    for (const std::string& value : feature.default_bytes) defaults += value.size();
    return tensor.part == Part::bytes ? payload + rows * defaults
                                      : rows * static_cast<uint64_t>(output.shape.elements()) + 1;
  };
  tensors = tensors_of(spec);
  for (BatchTensor& tensor : tensors) {
    tensor.offset = buffer_bytes;
    tensor.capacity = product(most_elements(tensor), tensor.row_bytes());
    buffer_bytes += round_up(std::max<uint64_t>(tensor.capacity, 1), tensor_alignment);
  }
  lends = rows == 1 && std::any_of(spec.features.begin(), spec.features.end(),
                                   [](const FeatureSpec& feature) { return feature.dtype == DType::bytes; });
  buffer_bytes = round_up(buffer_bytes, io::block_bytes);
  buffers_per_replica = static_cast<uint32_t>(spec.host_prefetch) + 1;
}

void MemoryPlan::fit(const Schedule& schedule, const RowWriters& writers, const Tables& tables,
                     const std::vector<MemoryLine>& more) {
  const PipelineSpec& spec = schedule.spec;
  const DataSet& data = schedule.data;
  const uint64_t chunks = step_chunks = schedule.chunks_of_step();
  auto buffers = static_cast<uint64_t>(schedule.replicas) * buffers_per_replica;
  const uint64_t lent = lent_chunks(schedule.replicas);
  // A step needs all its chunks at once. Besides, one chunk is being read, and the rows of a further chunk are being
  // written. The end of an epoch also takes a slot, until every replica has received it. The slowest replica may be
  // `host_prefetch` batches or ends of epochs behind the fastest. So several ends may take a slot each.
  const uint64_t ends = schedule.replicas > 1 && schedule.steps_per_epoch >= 0
                            ? static_cast<uint64_t>(spec.host_prefetch / (schedule.steps_per_epoch + 1)) + 1
                            : 1;
  const uint64_t fewest_slots = chunks + std::max<uint64_t>(2, ends) + lent;
  // If records are large, fewer chunks are read ahead, so that a chunk is still in the CPU's cache when its turn comes.
  const uint64_t in_order =
      std::clamp(bytes_ahead / std::max<uint64_t>(1, slot_data_bytes), fewest_reads_ahead, reads_ahead);
  const uint64_t ahead = spec.shuffle.mode == ShuffleMode::block  ? reads_ahead_of_blocks
                         : spec.shuffle.mode == ShuffleMode::none ? chunks + in_order
                                                                  : reads_ahead;
  read_ahead = static_cast<uint64_t>(schedule.threads) + ahead;
  // Each thread inflates a section of its own, which has a few chunks.
  if (inflaters > 0) read_ahead += chunks_of_section * static_cast<uint64_t>(schedule.threads);
  read_ahead_of_disk = read_ahead;
  if (!data.lazy && slot_data_bytes > 0)
    read_ahead_of_disk = std::max(read_ahead, std::min(most_in_flight, bytes_in_flight / slot_data_bytes));
  const uint64_t of_page_cache = std::max(fewest_slots, chunks + read_ahead + lent);
  const uint64_t wanted_slots = std::max(fewest_slots, chunks + read_ahead_of_disk + lent);

  uint64_t index_bytes = 0, files_bytes = 0;
  for (const DataFile& file : data.files) {
    files_bytes += bytes_of_file + names_of_file * (file.id.uri.size() + sizeof(std::string) + of_allocation);
    index_bytes += file.index.memory_bytes() + (file.samples.kept() ? file.samples.kept()->memory_bytes() : 0) +
                   (file.key_changes ? file.key_changes->memory_bytes() : 0);
  }
  uint64_t table_bytes = 0;
  for (const auto& table : tables)
    if (table) table_bytes += table->memory_bytes();
  const uint64_t slot_bytes = slot_data_bytes + slot_arena_bytes;
  const auto threads = static_cast<uint64_t>(schedule.threads);
  scratch_bytes = round_up(writers.scratch_bytes(), tensor_alignment);
  // The memory that does not depend on the numbers of slots and batches.
  std::vector<MemoryLine> fixed = more;
  fixed.insert(fixed.end(), {{"inflating", inflaters, inflater_memory_bytes},
                             {"making rows", threads, scratch_bytes},
                             {"decoders of pictures", threads, writers.heap_bytes()},
                             {"counting while reading", 1, data.lazy ? lazy_reader_bytes(spec, data) : 0},
                             {"tables", 1, table_bytes},
                             {"files", 1, files_bytes},
                             {"index", 1, index_bytes},
                             {"order", 1, schedule.order_bytes()}});
  const uint64_t fixed_bytes = sum_of(fixed), others = product(buffers, buffer_bytes) + fixed_bytes;

  const uint64_t affordable =
      others >= spec.memory_limit || slot_bytes == 0 ? 0 : (spec.memory_limit - others) / slot_bytes;
  slots = static_cast<uint32_t>(slot_bytes == 0 ? fewest_slots : std::clamp(affordable, fewest_slots, wanted_slots));
  slots_of_page_cache = static_cast<uint32_t>(std::min<uint64_t>(slots, of_page_cache));
  if (spec.more_small_batches && !lends) {
    const uint64_t used = others + slots * slot_bytes,
                   one_of_each = product(static_cast<uint64_t>(schedule.replicas), buffer_bytes);
    const uint64_t most = std::max<uint64_t>(buffers_per_replica, most_batches_ahead(buffer_bytes));
    const uint64_t more_of_each = used >= spec.memory_limit ? 0 : (spec.memory_limit - used) / one_of_each;
    buffers_per_replica = static_cast<uint32_t>(std::min(most, buffers_per_replica + more_of_each));
    buffers = static_cast<uint64_t>(schedule.replicas) * buffers_per_replica;
  }
  lines = {{"read slots: bytes as read", slots, slot_data_bytes},
           {"read slots: columns", slots, slot_arena_bytes},
           {"batches", buffers, buffer_bytes}};
  lines.insert(lines.end(), fixed.begin(), fixed.end());
  if (bytes() <= spec.memory_limit) return;

  const uint64_t per_row = product(buffers, buffer_bytes) / static_cast<uint64_t>(schedule.replica_batch);
  const uint64_t most_alignment = buffers * (io::block_bytes + tensor_alignment * tensors.size());
  const uint64_t without_batches = fewest_slots * slot_bytes + fixed_bytes + most_alignment;
  std::string advice = fmt::format("set memory.limit to at least \"{}MiB\"", (bytes() >> 20) + 1);
  if (without_batches < spec.memory_limit && per_row > 0)
    if (const uint64_t fit = (spec.memory_limit - without_batches) / per_row; fit > 0)
      advice += fmt::format(", or set a global batch of at most {} rows",
                            fit * static_cast<uint64_t>(schedule.ranks.all_replicas()));
  if (data.lazy)
    advice += fmt::format(", or set a smaller source.record_limit (index.mode LAZY plans for records of {})",
                          format_byte_size(data.largest_record()));
  // Returns whether the plan would fit if something took `least` bytes of memory instead of `now` bytes. If so, the
  // advice names the setting that makes it smaller.
  const auto fits_with = [&](uint64_t now, uint64_t least) { return bytes() - now + least <= spec.memory_limit; };
  const uint64_t of_slots = product(slots, slot_bytes), of_batches = product(buffers, buffer_bytes);
  if (spec.shuffle.mode == ShuffleMode::block && chunks > 1 && fits_with(of_slots, product(3, slot_bytes))) {
    // A block of a compressed file is at least what lies between two places at which inflating can begin.
    const bool sections = std::ranges::any_of(
        data.files, [&](const DataFile& file) { return longest_section(file.index) > spec.shuffle.block_bytes; });
    advice += ", or set fewer shuffle.lanes, or ";
    advice += sections ? "write the compressed files anew with `feedline split`" : "a smaller shuffle.block_size";
  }
  // With fewer batches ahead, fewer slots are needed, too: ends of epochs take slots, and so do batches that point into
  // slots.
  if (spec.host_prefetch > 1 &&
      fits_with(of_batches + of_slots,
                product(2 * static_cast<uint64_t>(schedule.replicas), buffer_bytes) + product(chunks + 2, slot_bytes)))
    advice += ", or set a smaller parallelism.host_prefetch";
  for (const MemoryLine& line : more)
    if (line.what == "cache" && spec.cache && spec.cache->where == CacheWhere::memory &&
        fits_with(product(line.count, line.bytes), 0))
      advice += ", or set a smaller cache.limit";
  for (const BatchTensor& tensor : tensors) {
    if (tensor.output < 0 || tensor.capacity <= buffer_bytes / 2) continue;
    const OutputSpec& output = spec.outputs[static_cast<size_t>(tensor.output)];
    if (output.dense()) continue;
    if (!output.variable && !output.padded)
      advice += fmt::format(
          ", or, if all values of output '{}' have one length, set it as feature.length, and the "
          "output's dtype to UINT8",
          output.name);
    else if (tensor.part != BatchTensor::Part::bytes)  // the number of values does not bound their bytes
      advice += fmt::format(", or set feature.max_values for the feature of output '{}'", output.name);
  }
  throw Error(Category::bad_pipeline,
              fmt::format("memory.limit: the feed needs {} ({} for {} batches, {} for {} read buffers), but the limit "
                          "is {}; {}",
                          format_byte_size(bytes()), format_byte_size(product(buffers, buffer_bytes)), buffers,
                          format_byte_size(slots * slot_bytes), slots, format_byte_size(spec.memory_limit), advice));
}

uint64_t MemoryPlan::bytes() const noexcept { return sum_of(lines); }

}  // namespace feedline::flow
