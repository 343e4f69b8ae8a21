#include "flowgraph/chunk/lazy_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "flowgraph/data/error_limits.h"
#include "flowgraph/data/index_files.h"
#include "flowgraph/plan/reader_memory.h"
#include "flowgraph/plan/schedule.h"
#include "io/index/index_store.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

const SourceSpec& source_of(const Schedule& schedule, uint32_t file) {
  return schedule.spec.sources[schedule.data.files[file].source];
}

// A file of which nothing can be read any more once `stopped` is set.
class StoppableFile final : public io::SourceFile {
 public:
  StoppableFile(std::shared_ptr<const io::SourceFile> file, const std::atomic<bool>& stopped)
      : file_(std::move(file)), stopped_(stopped) {}
  const std::string& path() const noexcept override { return file_->path(); }
  uint64_t size() const noexcept override { return file_->size(); }
  uint64_t version() const noexcept override { return file_->version(); }
  void check_unchanged() const override { file_->check_unchanged(); }
  void read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (stopped_) throw Error(Category::io_error, "the feed was stopped", Place::of_file(path()));
    file_->read_at(offset, into);
  }

 private:
  const std::shared_ptr<const io::SourceFile> file_;
  const std::atomic<bool>& stopped_;
};

}  // namespace

void LazyReader::begin_file() {
  const SourceSpec& source = source_of(schedule_, file_);
  const io::FileId& id = schedule_.data.files[file_].id;
  if (!counted_) {
    io::let_mtime_settle(id);
    builder_.emplace(source.index.stride);
  }
  stream_.emplace(std::make_shared<const StoppableFile>(io::all_files().open(id.uri), stopped_), source.compression,
                  source.record_limit);
  if (builder_ && stream_->compression() != Compression::none)
    stream_->find_seek_points(io::seek_spacing(source.index.stride), [this](const io::SeekPoint& point, auto window) {
      return seek_points_.add(point, window);
    });
  told_ = 0;
}

void LazyReader::end_file() {
  if (builder_) {
    const io::FileId& id = schedule_.data.files[file_].id;
    const SourceSpec& source = source_of(schedule_, file_);
    io::FileIndex index = builder_->finish(stream_->stream_size());
    index.compression = stream_->compression();
    index.seek_points = seek_points_.take_entries();
    index.windows = seek_points_.take_windows();
    index.bad = std::exchange(bad_, {});
    builder_.reset();
    if (keeps_index(source, id)) try {
        io::keep_index(index, id, io::all_files().stat(id.uri), count_options(source), source.index.dir);
      } catch (const Error& error) {
        log_warning(fmt::format("the index of {} cannot be stored, so this file will be counted again next time: {}",
                                id.uri, error.what()));
      }
    indexes_.push_back(std::move(index));
  }
  stream_.reset();
  file_++;
}

// Notes a bad region. Throws an Error if the data must end with the region: if `on_error` is RAISE, if max_failures is
// exceeded, or if the bad regions are too many for an index or for the memory.
void LazyReader::pass_over(const io::BadRegion& region, Chunk& chunk) {
  const PipelineSpec& spec = schedule_.spec;
  const std::string& path = schedule_.data.files[file_].id.uri;
  if (builder_) {
    io::check_bad_regions(bad_.size(), region, path);
    bad_.push_back(region);
    if (bad_.size() > io::kept_messages) bad_.back().message = {};
    bad_regions_++;
  }
  if (bad_regions_ * sizeof(io::BadRegion) + chunk.passed_over.size() * 2 * sizeof(BadRecord) > spec.memory_limit / 2)
    throw bad_regions_fill_memory(spec, bad_regions_ + chunk.passed_over.size(), region.error(path));
  if (spec.on_error == OnError::raise) throw region.error(path);
  chunk.passed_over.push_back({chunk.ticket.rows, region.error(path)});
  // If the region exceeds max_failures, this throw only ends the reading. The feed ends when the graph notes the bad
  // regions of the chunk.
  passed_over_++;
  if (exceeds_max_failures(spec, passed_over_)) throw region.error(path);
}

// If records_ is empty, because all its records have been copied into chunks, sets it to the next records. Returns
// false if there are no more records: either the pass is over, or error_ is set.
bool LazyReader::next_records(Chunk& chunk) {
  while (records_.empty() && !error_ && file_ < schedule_.data.files.size()) {
    try {
      if (!stream_) begin_file();
      const auto found = stream_->next();
      bytes_read_ += stream_->position() - std::exchange(told_, stream_->position());
      if (found == io::RecordStream::Found::end) {
        end_file();
      } else if (found == io::RecordStream::Found::damage) {
        pass_over(stream_->damage(), chunk);
      } else {
        records_ = stream_->records();
        if (builder_) builder_->add(stream_->offset(), records_);
      }
    } catch (const Error& error) {
      error_ = error;
    }
  }
  return !records_.empty();
}

// Copies as many of records_ into the chunk as fit, one after another as in the file. `used` is the number of bytes in
// the chunk. Returns false if no record fits, or if error_ is set.
bool LazyReader::take(Chunk& chunk, uint64_t& used) {
  Ticket& ticket = chunk.ticket;
  uint64_t bytes = 0;
  uint32_t rows = 0;
  const DataFile& file = schedule_.data.files[file_];
  for (; rows < records_.size() && ticket.rows + rows < most_lazy_rows; rows++) {
    // When the feed began, memory was planned for a record as long as the whole file. A longer record shows that the
    // file has grown.
    if (records_[rows].size > file.index.largest_record) break;
    const uint64_t size = records_[rows].size + io::frame_bytes;
    if (used + bytes + size > most_lazy_bytes && ticket.rows + rows > 0) break;
    bytes += size;
  }
  const auto all = stream_->records();
  const uint64_t offset = stream_->offset() + static_cast<uint64_t>(records_.front().data - all.front().data);
  const uint64_t number = stream_->number() + (all.size() - records_.size());
  if (rows == 0) {
    if (records_.front().size > file.index.largest_record)
      error_ =
          Error(Category::io_error, "the file has grown since the feed began; feed files only after they are complete",
                {file.id.uri, static_cast<int64_t>(offset), static_cast<int64_t>(number), {}});
    return false;
  }
  std::byte* const to = chunk.data().data() + used;
  std::memcpy(to, records_.front().data - io::header_bytes, bytes);
  if (Extent* last = ticket.extents.empty() ? nullptr : &ticket.extents.back();
      last && last->file == file_ && last->offset + last->length == offset) {
    last->length += bytes;
    last->rows += rows;
  } else {
    ticket.extents.push_back({.file = file_,
                              .offset = offset,
                              .length = bytes,
                              .rows = rows,
                              .first_row = ticket.rows,
                              .first_record = number});
    chunk.extents.push_back(to);
  }
  ticket.rows += rows;
  used += bytes;
  records_ = records_.subspan(rows);
  return true;
}

void LazyReader::fill(Chunk& chunk) {
  chunk.ticket = {};
  chunk.extents.clear();
  chunk.passed_over.clear();
  uint64_t used = 0;
  while (next_records(chunk) && take(chunk, used)) {
  }
  if (chunk.ticket.rows > 0) return;
  if (error_) {
    ended_ = true;
    chunk.failed = error_;
    return;
  }
  file_ = 0;
  passed_over_ = 0;
  if (!counted_) counted_ = std::move(indexes_);
  uint64_t audit = 0;
  for (size_t f = 0; f < counted_->size(); f++) audit += schedule_.audit_keys[f] * (*counted_)[f].audit;
  chunk.ticket.audit = audit;
}

}  // namespace feedline::flow
