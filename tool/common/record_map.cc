#include "tool/common/record_map.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <utility>

#include "io/index/count_records.h"
#include "io/read/source.h"

namespace feedline::tool {
namespace {

// Marks (records whose offsets are known) are at least `least_stride` bytes apart. If a range begins between two marks,
// reading begins at the first of them, and the bytes before the range are read in vain. `most_marks` bounds the memory
// of all marks to about 16 MiB. If the files have more than 64 GiB together, the marks are therefore farther apart.
constexpr uint64_t least_stride = 64 << 10, most_marks = 1 << 20;

}  // namespace

FileIdentity identify(const std::string& path) {
  const io::FileId file = io::all_files().stat(path);
  return {io::absolute_name({}, path), file.size, file.version};
}

RecordMap::RecordMap(std::vector<MappedFile> files, uint64_t record_limit)
    : files_(std::move(files)), first_{0}, record_limit_(record_limit) {
  for (const MappedFile& file : files_) first_.push_back(first_.back() + file.records);
}

size_t RecordMap::file_of(uint64_t record) const noexcept {
  // The file is the last one whose first record is at or before `record`. A file without records has the same first
  // record as the file after it, so it is not the last one.
  return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end() - 1, record) - first_.begin()) - 1;
}

uint64_t RecordMap::framed_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const MappedFile& file : files_) bytes += file.framed_bytes();
  return bytes;
}

void RecordMap::thin_marks(std::span<const uint64_t> records) {
  auto wanted = records.begin();
  for (size_t i = 0; i < files_.size(); i++) {
    std::vector<io::IndexEntry>& marks = files_[i].marks;
    std::vector<io::IndexEntry> kept;
    if (!marks.empty()) kept.push_back(marks.front());
    auto mark = marks.begin();
    for (; wanted != records.end() && *wanted < first_[i + 1]; ++wanted) {
      while (std::next(mark) != marks.end() && first_[i] + std::next(mark)->record <= *wanted) ++mark;
      if (kept.back().record != mark->record) kept.push_back(*mark);
    }
    marks = std::move(kept);
  }
}

std::vector<uint64_t> RecordMap::ranges(uint64_t bytes) const {
  std::vector<uint64_t> begins;
  for (size_t i = 0; i < files_.size(); i++) {
    uint64_t next = 0;  // the file offset at which the next range may begin
    for (const io::IndexEntry& mark : files_[i].marks) {
      if (mark.record == files_[i].records || (mark.record > 0 && mark.offset < next)) continue;
      begins.push_back(first_[i] + mark.record);
      next = mark.offset + bytes;
    }
  }
  begins.push_back(records());
  return begins;
}

RecordMap map_records(const std::vector<FileIdentity>& files, uint64_t record_limit,
                      std::vector<std::vector<io::BadRegion>>& damage, const std::function<void(uint64_t)>& progress) {
  uint64_t total = 0;
  for (const FileIdentity& file : files) total += file.size;
  io::CountOptions options;
  options.record_limit = record_limit;
  options.stride = std::max(least_stride, total / most_marks);

  std::vector<MappedFile> mapped(files.size());
  damage.assign(files.size(), {});
  tbb::parallel_for(size_t{0}, files.size(), [&](size_t i) {
    io::FileIndex index = io::count_records(files[i].path, options, progress);
    MappedFile& file = mapped[i];
    file.identity = files[i];
    file.compression = index.compression;
    file.records = index.records;
    file.payload_bytes = index.payload_bytes;
    if (file.records > 0) file.marks.push_back(index.entries.front());
    if (file.compression == Compression::none) {
      for (const io::IndexEntry& entry : index.entries)
        if (entry.record < file.records && entry.record > file.marks.back().record) file.marks.push_back(entry);
    }
    for (const io::BadRegion& region : index.bad) file.bad_offsets.push_back(region.offset);
    damage[i] = std::move(index.bad);
  });
  return RecordMap(std::move(mapped), record_limit);
}

void RecordCursor::read(uint64_t begin, uint64_t end,
                        const std::function<void(uint64_t, const io::RecordView&)>& on_record) {
  if (begin >= end) return;
  seek(begin);
  for (uint64_t number = begin; number < end; number++) {
    if (number == map_.first_record(file_ + 1)) seek(number);
    on_record(number, next());
  }
}

void RecordCursor::seek(uint64_t record) {
  const size_t file = map_.file_of(record);
  const MappedFile& mapped = map_.files()[file];
  const uint64_t local = record - map_.first_record(file);
  const auto mark =
      std::prev(std::upper_bound(mapped.marks.begin(), mapped.marks.end(), local,
                                 [](uint64_t r, const io::IndexEntry& entry) { return r < entry.record; }));
  const auto at = [&] { return stream_->number() + view_; };
  if (!stream_ || file != file_ || local < at() || mark->record > at()) {
    file_ = file;
    stream_.emplace(mapped.identity.path, mapped.compression, map_.record_limit());
    view_ = 0;
    if (mapped.compression == Compression::none) stream_->go_on_at(mark->offset, mark->record);
  }
  while (at() < local) next();
}

io::RecordView RecordCursor::next() {
  while (view_ == stream_->records().size()) {
    view_ = 0;
    switch (stream_->next()) {
      case io::RecordStream::Found::records:
        break;
      case io::RecordStream::Found::end:
        throw Error(Category::io_error,
                    "changed after its records were counted, and now ends early; when nothing writes to this file, "
                    "split again with a different --out or --name",
                    Place::of_file(map_.files()[file_].identity.path));
      case io::RecordStream::Found::damage: {
        const auto& known = map_.files()[file_].bad_offsets;
        const io::BadRegion& region = stream_->damage();
        if (!std::binary_search(known.begin(), known.end(), region.offset))
          throw region.error(map_.files()[file_].identity.path);
      }
    }
  }
  return stream_->records()[view_++];
}

}  // namespace feedline::tool
