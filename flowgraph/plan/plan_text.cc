// The text of a plan, which `feedline check` prints.
#include <fmt/format.h>

#include <algorithm>

#include "base/append.h"
#include "base/byte_size.h"
#include "base/format_count.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/table/table.h"

namespace feedline::flow {
namespace {

std::string interleaving(const InterleaveSpec& interleave) {
  if (!interleave.on()) return "one after another";
  return fmt::format("interleaved, {} files open, {} samples of each file in turn", interleave.cycle_length,
                     interleave.block_length);
}

}  // namespace

// Appends how many records of a source are samples, unless all of them are.
void Plan::sources_text(std::string& text, size_t number) const {
  uint64_t records = 0, samples = 0;
  for (const DataFile& file : data.files) {
    if (file.source != number) continue;
    records += file.index.records;
    samples += file.samples.samples();
  }
  if (samples == records) return;
  const std::string& name = spec.sources[number].name;
  append(text, "source   {}{} of {} records\n", name.empty() ? "" : name + ": ", samples, records);
}

// Appends how the samples of each source are ordered.
void Plan::order_text(std::string& text) const {
  for (size_t s = 0; s < orders.size(); s++) {
    const Order& order = *orders[s];
    const std::string& name = spec.sources[s].name;
    if (mixture)
      append(text, "mixture  {}: {}\n", name.empty() ? fmt::format("source[{}]", s) : name, mixture->text(s));
    if (spec.window && !spec.window->key.empty())
      append(text, "window   {} groups of records that have the same '{}'\n", order.windows()->groups(),
             spec.window->key);
    if (order.mode() == ShuffleMode::global)
      append(text, "shuffle  every sample by itself, {} samples in a read of up to {}\n", order.picks(),
             format_byte_size(memory.slot_data_bytes));
    else if (order.mode() == ShuffleMode::buffer)
      append(text, "shuffle  a buffer of {} samples, files {}{}\n", order.buffer(),
             spec.shuffle.shuffle_files ? "in random order, " : "", interleaving(order.interleave()));
    else if (order.mode() == ShuffleMode::block)
      append(text,
             "shuffle  {} blocks of up to {} in random order, {} lanes that mix {} blocks each, about {} samples\n",
             order.blocks().size(), format_byte_size(memory.slot_data_bytes), order.lanes().count, order.mixed_blocks(),
             std::min(order.samples(), order.lanes().count * order.mixed_blocks() * order.samples() /
                                           std::max<size_t>(1, order.blocks().size())));
    else
      append(text, "order    files {}, {}reads of up to {}\n", interleaving(order.interleave()),
             data.lazy ? "" : fmt::format("{} ", order.blocks().size()), format_byte_size(memory.slot_data_bytes));
  }
}

std::string Plan::text() const {
  std::string text;
  uint64_t samples = 0;
  for (const auto& order : orders) samples += order->samples();
  const std::string counted =
      data.lazy ? "counted while they are fed"
                : fmt::format("{}, counted and verified in {:.2f} s", format_count(samples, "sample"), data.count_s);
  append(text, "data     {}, {}, {}\n", format_count(data.files.size(), "file"), format_byte_size(data.bytes), counted);
  if (data.skipped_total > 0) append(text, "         {} bad regions or files are left out\n", data.skipped_total);
  for (const Error& error : data.raised) append(text, "         the feed will end with this error: {}\n", error.what());
  for (size_t s = 0; s < spec.sources.size(); s++) sources_text(text, s);
  order_text(text);
  if (steps_per_epoch >= 0 && samples_per_epoch >= 0)
    append(text, "epoch    {} in {}", format_count(static_cast<uint64_t>(samples_per_epoch), "sample"),
           format_count(static_cast<uint64_t>(steps_per_epoch), "step"));
  else if (steps_per_epoch >= 0)
    append(text, "epoch    {}", format_count(static_cast<uint64_t>(steps_per_epoch), "step"));
  else
    append(text, "epoch    {}", data.lazy ? "of a length that is known after the first one" : "without an end");
  if (spec.window)
    append(text, ", windows of {} records with stride {} and shift {}", spec.window->size, spec.window->stride,
           spec.window->shift);
  if (spec.epoch_steps > 0)
    append(text, ", each continues where the one before it ended");
  else if (spec.repeat != 1)
    append(text, ", {}", spec.repeat < 0 ? "pass after pass" : fmt::format("{} passes", spec.repeat));
  if (dropped_per_epoch > 0)
    append(text, ", {} dropped at the end", format_count(static_cast<uint64_t>(dropped_per_epoch)));
  constexpr const char* policies[] = {"DROP", "PARTIAL", "PAD"};
  append(text, "\nbatch    {}: {}{} x {}, last batch: {}\n", format_count(static_cast<uint64_t>(global_batch), "row"),
         ranks.world_size > 1 ? fmt::format("{} ranks x ", ranks.world_size) : "",
         format_count(static_cast<uint64_t>(replicas), "replica"), replica_batch,
         policies[static_cast<int>(spec.last_batch_policy)]);
  for (const BatchTensor& tensor : memory.tensors) {
    if (tensor.name == "@valid") continue;
    const bool dense = tensor.part == BatchTensor::Part::dense || tensor.part == BatchTensor::Part::valid;
    const std::string dense_rows = spec.window ? fmt::format("[rows, {}", frames) : "[rows";
    const char* rows = dense                                      ? dense_rows.c_str()
                       : tensor.part == BatchTensor::Part::padded ? "[rows, longest"
                                                                  : "[any";
    std::string axes;
    for (int64_t axis : tensor.shape) axes += fmt::format(", {}", axis);
    append(text, "output   {:<24} {:<8} {}{}]\n", tensor.name, name(tensor.dtype), rows, axes);
  }
  for (const auto& table : tables)
    if (table) append(text, "table    {}\n", table->text());
  if (cache) text += cache->text(spec);
  for (const MemoryLine& line : memory.lines)
    if (line.count * line.bytes > 0)
      append(text, "memory   {:<26} {:>5} x {:>10} = {:>10}\n", line.what, line.count, format_byte_size(line.bytes),
             format_byte_size(line.count * line.bytes));
  append(text, "memory   {:<26} {:>31} of {}\n", "in all", format_byte_size(memory.bytes()),
         format_byte_size(spec.memory_limit));
  append(text, "threads  {}{}\n", threads, data.lazy ? "" : ", and one that reads");
  return text;
}

}  // namespace feedline::flow
