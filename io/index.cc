#include "io/index.h"

#include <algorithm>
#include <utility>

#include "io/record_stream.h"

namespace feedline::io {

FileIndex count_records(const std::string& file, const CountOptions& options,
                        const std::function<void(uint64_t bytes)>& progress) {
  RecordStream stream(file, options.compression, options.record_limit);
  FileIndex index;
  index.compression = stream.compression();
  index.stride = options.stride;
  uint64_t told = 0;
  uint64_t wanted = 0;  // offset at or behind which the next entry's record begins
  for (auto found = stream.next(); found != RecordStream::Found::end; found = stream.next()) {
    if (found == RecordStream::Found::damage) {
      index.bad.push_back(stream.damage());
    } else {
      uint64_t offset = stream.offset(), largest = index.largest_record;
      for (const RecordView& record : stream.records()) {
        for (; wanted <= offset; wanted += index.stride) index.entries.push_back({offset, index.records});
        offset += record.size + frame_bytes;
        largest = std::max<uint64_t>(largest, record.size);
        index.records++;
      }
      index.payload_bytes += offset - stream.offset() - stream.records().size() * frame_bytes;
      index.largest_record = largest;
      index.end = offset;
    }
    if (progress && stream.position() != told) progress(stream.position() - std::exchange(told, stream.position()));
  }
  for (; wanted < stream.stream_size(); wanted += index.stride) index.entries.push_back({index.end, index.records});
  index.entries.push_back({index.end, index.records});
  if (progress && stream.position() != told) progress(stream.position() - told);
  return index;
}

}  // namespace feedline::io
