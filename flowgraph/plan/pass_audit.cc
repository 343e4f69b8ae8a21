#include "flowgraph/plan/pass_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/audit.h"
#include "base/mul_div.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/order/windows.h"
#include "io/read/source.h"
#include "io/records/record_stream.h"

namespace feedline::flow {
namespace {

// The limit for what is read before the feed begins in order to sum up a pass: one in most_read_one_in of all samples,
// or always_read_bytes if that is more.
constexpr uint64_t most_read_one_in = 50, always_read_bytes = 64 << 20;

/// Thrown if a pass cannot be summed up; says why, in words for the user.
struct Unknown {
  std::string why;
};

class PassSums {
 public:
  PassSums(const PipelineSpec& spec, DataSet& data) : spec_(spec), data_(data), keys_(audit_keys(data.files)) {}

  void run() {
    for (uint32_t f = 0; f < data_.files.size(); f++) data_.files[f].pass_audit = of_samples(f);
    if (spec_.window) weigh_windows();
  }

 private:
  /// Returns the audit of a file's samples, each counted once.
  uint64_t of_samples(uint32_t f) const {
    const DataFile& file = data_.files[f];
    const uint64_t samples = file.samples.samples();
    if (samples == 0) return 0;
    if (file.kept_audit) return *file.kept_audit;
    if (samples == file.index.records) return keys_[f] * file.index.audit;
    // Takes the sums of whole groups of strides from the index, and reads the records that are left at both ends.
    const auto& entries = file.index.entries;
    const uint64_t first = file.samples.record(0), end = first + samples;
    const auto group_begin = [&](size_t group) {
      return entries[std::min<size_t>(group * io::strides_per_group, entries.size() - 1)].record;
    };
    size_t from = 0, to = file.index.sums.size();
    while (from < to && group_begin(from) < first) from++;
    while (to > from && group_begin(to) > end) to--;
    uint64_t sum = 0;
    for (size_t group = from; group < to; group++) sum += file.index.sums[group];
    const auto once = [](uint64_t) { return uint64_t{1}; };
    if (from == to) return read(f, 0, samples, once);
    sum *= keys_[f];
    sum += read(f, 0, group_begin(from) - first, once);
    return sum + read(f, group_begin(to) - first, end - group_begin(to), once);
  }

  /// Changes each file's audit so that a sample counts as often as windows contain it.
  void weigh_windows() {
    const WindowSpec& window = *spec_.window;
    const Windows windows(data_, data_.all_files(), window);
    if (std::gcd(window.shift, window.stride) != 1 || window.size % window.shift != 0)
      throw Unknown{
          fmt::format("windows of {} frames with stride {} and shift {}: the indexes do not say in how many windows "
                      "each frame is",
                      window.size, window.stride, window.shift)};
    const uint64_t common = static_cast<uint64_t>(window.size / window.shift);
    uint64_t at_edges = 0;
    windows.for_each_edge([&](uint64_t begin, uint64_t end) { at_edges += end - begin; });
    const uint64_t frames = windows.file_starts().back();
    const uint64_t allowed =
        std::max(frames / most_read_one_in, data_.bytes > 0 ? mul_div(always_read_bytes, frames, data_.bytes) : 0);
    if (at_edges > allowed)
      throw Unknown{
          fmt::format("{} of {} frames are near the end of a file or a change of window.key, and these are "
                      "too many to read for the audit",
                      at_edges, frames)};
    for (DataFile& file : data_.files) *file.pass_audit *= common;
    windows.for_each_edge([&](uint64_t begin, uint64_t end) {
      windows.for_each_file(begin, end, [&](uint32_t f, uint64_t first, uint64_t count) {
        const uint64_t before = windows.file_starts()[f];
        *data_.files[f].pass_audit +=
            read(f, first, count, [&](uint64_t sample) { return windows.uses(before + sample) - common; });
      });
    });
  }

  /// Reads the samples [first, first + count) of a file. Returns the sum of weight(sample) times the sample's audit
  /// term, multiplied by the key of the file.
  template <typename Weight>
  uint64_t read(uint32_t f, uint64_t first, uint64_t count, const Weight& weight) const {
    if (count == 0) return 0;
    const DataFile& file = data_.files[f];
    if (file.compressed())
      throw Unknown{fmt::format("only a part of the compressed file {} is fed, or a part of it is fed more than once",
                                file.id.uri)};
    Ticket ticket;
    ticket.add(data_, f, first, count);
    io::RecordStream stream(io::all_files().open(file.id.uri), Compression::none,
                            spec_.sources[file.source].record_limit);
    uint64_t sum = 0;
    for (const Extent& extent : ticket.extents) {
      uint64_t record = extent.first_record - extent.skip, rows = 0;
      stream.go_on_at(extent.offset, 0);
      while (rows < extent.rows) {
        if (stream.next() != io::RecordStream::Found::records)
          throw Unknown{fmt::format("{} has changed since it was counted", file.id.uri)};
        uint64_t offset = stream.offset();
        for (const io::RecordView& view : stream.records()) {
          const bool chosen = record >= extent.first_record && (!extent.kept || extent.kept->has(record));
          if (chosen && rows < extent.rows)
            sum += weight(first + extent.first_row + rows++) * audit_term(offset, view.stored_crc);
          record++;
          offset += view.size + io::frame_bytes;
        }
      }
    }
    return keys_[f] * sum;
  }

  const PipelineSpec& spec_;
  DataSet& data_;
  const std::vector<uint64_t> keys_;
};

}  // namespace

void sum_passes(const PipelineSpec& spec, DataSet& data) {
  if (data.lazy) return;  // the data has not been counted
  data.no_pass_audit.clear();
  if (!data.raised.empty()) {
    data.no_pass_audit = "the data ends with an error";
    return;
  }
  try {
    PassSums(spec, data).run();
  } catch (const Unknown& unknown) {
    data.no_pass_audit = unknown.why;
  }
}

}  // namespace feedline::flow
