#include "flowgraph/batch/empty_epoch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/format_count.h"
#include "flowgraph/plan/schedule.h"

namespace feedline::flow {
namespace {

Error error_of(const std::string& why) {
  return Error(Category::bad_pipeline, why + "; to allow an epoch without steps, write epoch { allow_empty: true }");
}

std::string no_window(const Schedule& schedule) {
  const WindowSpec& window = *schedule.spec.window;
  uint64_t most = 0;
  for (const DataFile& file : schedule.data.files)
    most = window.across_files ? most + file.samples.samples() : std::max(most, file.samples.samples());
  const std::string usable = format_count(most, "usable record");
  return fmt::format(
      "window: a window spans {}, but {}; lower window.size or window.stride",
      format_count(schedule.orders.front()->windows()->span(), "record"),
      !window.key.empty()
          ? fmt::format("nowhere do that many consecutive records have the same value of '{}'", window.key)
      : window.across_files ? fmt::format("the data has {}", usable)
                            : fmt::format("no file has more than {}", usable));
}

std::string too_few(const Schedule& schedule, int64_t samples) {
  return fmt::format(
      "{} has {}, but with last_batch_policy DROP a step needs a whole global batch of {}; lower the batch size, or "
      "set batch.last_batch_policy to PARTIAL or PAD",
      schedule.mixture           ? "an epoch of the mixture"
      : schedule.spec.repeat > 1 ? "an epoch"
                                 : "the data",
      format_count(static_cast<uint64_t>(samples), schedule.spec.window ? "window" : "sample"),
      format_count(static_cast<uint64_t>(schedule.global_batch), "row"));
}

// A pattern may have matched files that are not the ones with the data. So the message names the first file.
std::string no_record(const DataSet& data) {
  const std::string files = format_count(data.files.size(), "file");
  if (data.skipped_total > 0)
    return fmt::format("the data has no good records: {}, {}; see what is damaged with `feedline verify FILE...`",
                       files, format_count(data.skipped_total, "failure"));
  const io::FileId& first = data.files.front().id;
  return fmt::format("the data has no records: {}, {}'{}' of {}; check source.files", files,
                     data.files.size() > 1 ? "the first of them " : "", first.uri, format_count(first.size, "byte"));
}

std::string why_empty(const Schedule& schedule, uint64_t chosen) {
  const DataSet& data = schedule.data;
  uint64_t records = 0, samples = 0;
  for (const DataFile& file : data.files) records += file.index.records;
  for (const auto& order : schedule.orders) samples += order->samples();
  if (records == 0) return no_record(data);
  if (chosen == 0)
    return fmt::format("source: 'range', num_shards and shard_id choose none of {}; choose a larger part",
                       format_count(records, "record"));
  if (data.samples == 0) {
    const std::string& text = schedule.spec.filter_text;
    return fmt::format("filter: the formula keeps none of {}: {}", format_count(chosen, "record"),
                       text.substr(0, text.find('\n')));
  }
  if (schedule.spec.window && samples == 0) return no_window(schedule);
  for (size_t s = 0; s < schedule.orders.size() && schedule.mixture && schedule.samples_per_epoch == 0; s++)
    if (schedule.orders[s]->samples() == 0)
      return fmt::format(
          "mixture: an epoch ends when the first source is exhausted, and source[{}] has no samples; remove this "
          "source, or change its 'range' or the filter so that samples remain",
          s);
  return "";
}

}  // namespace

void refuse_empty_epoch(const Schedule& schedule, uint64_t chosen) {
  if (schedule.data.lazy || !schedule.data.raised.empty()) return;
  const std::string why = why_empty(schedule, chosen);
  // Endless passes over no samples would never give a step.
  if (schedule.spec.repeat < 0 && !why.empty()) throw Error(Category::bad_pipeline, why);
  if (schedule.steps_per_epoch != 0 || schedule.spec.allow_empty) return;
  throw error_of(!why.empty() ? why : too_few(schedule, schedule.samples_per_epoch));
}

Error empty_epoch(const Schedule& schedule, int64_t samples) {
  return error_of(samples == 0 ? no_record(schedule.data) : too_few(schedule, samples));
}

}  // namespace feedline::flow
