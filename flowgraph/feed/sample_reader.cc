#include "flowgraph/feed/sample_reader.h"

#include <algorithm>

namespace feedline::flow {

SampleReader::SampleReader(const DataSet& data, const SourceSpec& source, const DataFile& file)
    : data_(data), file_(file), stream_(file.id.uri, source.compression, source.record_limit) {}

SampleReader::Found SampleReader::find(uint64_t number, bool stops_at_damage) {
  number_ = number;
  while (number >= stream_.number() + stream_.records().size()) {
    if (!data_.lazy && !file_.compressed()) {
      const auto& entries = file_.index.entries;
      const auto after = std::upper_bound(entries.begin(), entries.end(), number,
                                          [](uint64_t n, const io::IndexEntry& entry) { return n < entry.record; });
      if (after != entries.begin() && after[-1].record > stream_.number() + stream_.records().size())
        stream_.go_on_at(after[-1].offset, after[-1].record);
    }
    const uint64_t before = stream_.position();
    const auto next = stream_.next();
    if (next == io::RecordStream::Found::end) return Found::end;
    if (next == io::RecordStream::Found::damage && data_.lazy && stops_at_damage) return Found::damage;
    bytes_read_ += stream_.position() - std::min(before, stream_.position());
  }
  return Found::record;
}

}  // namespace feedline::flow
