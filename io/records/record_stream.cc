#include "io/records/record_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/load.h"
#include "io/read/source.h"
#include "io/records/crc32c.h"
#include "io/records/other_format.h"

namespace feedline::io {
namespace {

// The bytes that are read at a time: so few that they are still in the core's L2 cache when they are scanned.
constexpr size_t bytes_at_once = 256 << 10;
// A record of at least this size is read exactly up to its end and the next header, so that no bytes must be moved to
// make room.
constexpr uint64_t large_record = bytes_at_once / 4;

Compression detect(const SourceFile& file) {
  std::array<std::byte, 18> first;
  const auto bytes = std::span(first).first(std::min<uint64_t>(first.size(), file.size()));
  file.read_at(0, bytes);
  return detect_compression(bytes);
}

}  // namespace

RecordStream::RecordStream(const std::string& file, Compression compression, uint64_t record_limit)
    : RecordStream(all_files().open(file), compression, record_limit) {}

RecordStream::RecordStream(std::shared_ptr<const SourceFile> file, Chain, uint64_t record_limit)
    : file_(std::move(file)), limit_(std::min<uint64_t>(record_limit, UINT32_MAX)), chain_(true) {
  reserve(bytes_at_once);
}

RecordStream::RecordStream(std::shared_ptr<const SourceFile> file, Compression compression, uint64_t record_limit)
    : file_(std::move(file)),
      limit_(std::min<uint64_t>(record_limit, UINT32_MAX)),
      chain_(false),
      compression_(compression == Compression::automatic ? detect(*file_) : compression) {
  if (!plain()) {
    inflater_.emplace(compression_);
    input_ = std::make_unique_for_overwrite<std::byte[]>(bytes_at_once);
  }
  reserve(bytes_at_once);
}

RecordStream::Found RecordStream::next() {
  number_ += std::exchange(count_, 0);
  for (;;) {
    RecordScanner scanner({buffer_.get() + begin_, end_ - begin_}, limit_);
    const auto stop = scanner.next(views_, count_);
    offset_ = position_of(begin_);
    begin_ += scanner.position();
    if (count_ > 0) return Found::records;  // the next call will stop for the same reason
    switch (stop) {
      case RecordScanner::Stop::full:
        break;
      case RecordScanner::Stop::end:
        if (fill(1)) break;
        if (std::exchange(inflate_failed_, false)) return report(Category::bad_compression, inflater_->message(), 0);
        return Found::end;
      case RecordScanner::Stop::incomplete: {
        const uint64_t wanted = scanner.wanted();
        if (fill(std::max<uint64_t>(wanted, header_bytes))) break;
        if (chain_) return Found::end;
        return report_cut(wanted);
      }
      case RecordScanner::Stop::error:
        if (chain_) return Found::end;
        return report_damage(scanner.damage(), scanner.wanted());
    }
  }
}

// Reads until [begin_, end_) holds at least `wanted` bytes. Returns false if the stream ends before that.
bool RecordStream::fill(uint64_t wanted) {
  if (plain() && file_->size() - position_of(begin_) < wanted) return false;
  const size_t target = wanted >= large_record ? wanted + header_bytes : bytes_at_once;
  // In a compressed stream, a record's length does not prove that so many bytes follow. So the buffer at most doubles
  // each time that it has been filled.
  while (end_ - begin_ < wanted && !source_ended_) {
    const size_t have = end_ - begin_;
    reserve(plain() ? target : std::min(target, std::max(bytes_at_once, 2 * have)));
    const size_t room = std::min(capacity_, target) - have;
    end_ += read({buffer_.get() + end_, room});
  }
  return end_ - begin_ >= wanted;
}

// Moves [begin_, end_) to the front of the buffer, which gets a capacity of at least `capacity` bytes.
void RecordStream::reserve(size_t capacity) {
  const size_t have = end_ - begin_;
  if (capacity > capacity_) {
    auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity);
    if (have > 0) std::memcpy(larger.get(), buffer_.get() + begin_, have);
    buffer_ = std::move(larger);
    capacity_ = capacity;
  } else if (begin_ > 0 && have > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, have);
  }
  buffer_offset_ += begin_;
  begin_ = 0;
  end_ = have;
}

// Reads the next bytes of the stream, and returns how many. They are fewer than asked for only at the end of the
// stream.
size_t RecordStream::read(std::span<std::byte> into) {
  if (plain()) {
    const size_t size = std::min<uint64_t>(into.size(), file_->size() - file_position_);
    file_->read_at(file_position_, into.first(size));
    file_position_ += size;
    source_ended_ = size < into.size();
    return size;
  }
  if (failure_) std::rethrow_exception(failure_);
  std::span<std::byte> left = into;
  while (!left.empty() && !source_ended_) {
    const bool last = file_position_ == file_->size();
    const auto status = inflater_->run(input_left_, left, last);
    inflate_failed_ = status == Inflater::Status::error;
    source_ended_ = status != Inflater::Status::more;
    if (source_ended_ || !input_left_.empty() || last) continue;
    const size_t size = std::min<uint64_t>(bytes_at_once, file_->size() - file_position_);
    try {
      file_->read_at(file_position_, {input_.get(), size});
    } catch (...) {
      // What was inflated or skipped in this call is lost, so a later call could not continue without a gap.
      failure_ = std::current_exception();
      throw;
    }
    file_position_ += size;
    input_left_ = {input_.get(), size};
  }
  return into.size() - left.size();
}

// Skips `bytes` bytes of the stream from begin_ on, or fewer if the stream ends before. Returns how many were skipped.
uint64_t RecordStream::discard(uint64_t bytes) {
  uint64_t left = bytes;
  for (;;) {
    const size_t size = std::min<uint64_t>(left, end_ - begin_);
    begin_ += size;
    left -= size;
    if (left == 0 || !fill(1)) return bytes - left;
  }
}

void RecordStream::go_on_at(uint64_t offset, uint64_t number) {
  go_to(offset);
  count_ = 0;
  number_ = number;
}

// Moves begin_ to `offset` of the file, which is not compressed. Empties the buffer if `offset` does not lie in it.
void RecordStream::go_to(uint64_t offset) {
  if (buffer_offset_ <= offset && offset <= position_of(end_)) {
    begin_ = offset - buffer_offset_;
  } else {
    file_position_ = buffer_offset_ = offset;
    begin_ = end_ = 0;
    source_ended_ = false;
  }
}

RecordStream::Found RecordStream::report(Category category, std::string message, uint64_t length) {
  damage_ = {offset_, length, number_, category, std::move(message)};
  return Found::damage;
}

// Reports that the stream ends inside the record at begin_. `wanted` is the size of that record, or 0 if it is unknown.
RecordStream::Found RecordStream::report_cut(uint64_t wanted) {
  // The number of bytes that are left of a plain file is known without reading them.
  const uint64_t length = plain() ? file_->size() - offset_ : discard(UINT64_MAX);
  if (plain()) go_to(file_->size());
  if (std::exchange(inflate_failed_, false)) return report(Category::bad_compression, inflater_->message(), length);
  if (wanted == 0)
    return report(Category::truncated_length,
                  fmt::format("{} bytes are left, but a record's header has {}: the file was cut short, or these bytes "
                              "are not a record",
                              length, header_bytes),
                  length);
  return report(
      Category::truncated_data,
      fmt::format("the header states a record of {} bytes, but {} are left: the file was cut short", wanted, length),
      length);
}

// Reports that the record at begin_ is damaged, and finds out where to continue. With bad_data_crc, `wanted` is the
// size of the record.
RecordStream::Found RecordStream::report_damage(Category category, uint64_t wanted) {
  const std::byte* const bytes = buffer_.get() + begin_;
  const uint64_t start = offset_;
  const auto stated = load<uint64_t>(bytes);
  std::string message;
  if (category == Category::bad_length_crc) {
    message = fmt::format("the checksum of the length {} is {:08x}, but the header says {:08x}", stated,
                          mask_crc(crc32c({bytes, 8})), load<uint32_t>(bytes + 8));
    if (start == 0) {
      const auto looks = detect_compression({bytes, std::min<size_t>(end_ - begin_, 18)});
      const std::string_view other = other_format({bytes, end_ - begin_});
      const char* const format = looks == Compression::gzip ? "gzip" : "zlib";
      if (looks != Compression::none && !plain())
        message +=
            fmt::format(": the inflated file looks like {}: it was compressed twice; decompress it once", format);
      else if (looks != Compression::none)
        message += fmt::format(
            ": the file looks like {}, but is read as uncompressed; leave out the setting compression, so that it is "
            "recognised",
            format);
      else
        message += other.empty() ? ": the file is damaged, or is not a TFRecord file"
                                 : fmt::format(": the file is not a TFRecord file, but looks like {}", other);
    }
  } else if (category == Category::record_too_large) {
    message = fmt::format(
        "the header states a payload of {} bytes, but record_limit is {} bytes; if the record is not damaged, raise "
        "the limit (source.record_limit, or --record-limit of a command)",
        stated, limit_);
  } else {
    message =
        fmt::format("the payload's checksum is {:08x}, but the record says {:08x}",
                    mask_crc(crc32c({bytes + header_bytes, stated})), load<uint32_t>(bytes + header_bytes + stated));
  }

  // A wrong bit in a compressed stream may change everything that follows. So if the inflater has found the stream
  // damaged, the record is assumed to be damaged for the same reason.
  const Category known = category;
  if (inflate_failed_ && !inflater_->stored()) {
    category = Category::bad_compression;
    message = inflater_->message() + "; here " + message;
  }

  uint64_t length = 0;
  if (plain()) {
    if (!resync_)
      resync_.emplace([this](uint64_t offset, std::span<std::byte> into) { file_->read_at(offset, into); },
                      file_->size(), limit_);
    const uint64_t next = resync_->after(start);
    length = next - start;
    go_to(next);
  } else if (known == Category::bad_data_crc) {
    length = discard(wanted);
  } else if (known == Category::record_too_large) {
    length = discard(stated > UINT64_MAX - frame_bytes ? UINT64_MAX : stated + frame_bytes);
  } else {
    // A compressed stream cannot be read from any other place, so only the bytes in the buffer can be searched.
    Resync buffered(
        [&](uint64_t offset, std::span<std::byte> into) { std::memcpy(into.data(), bytes + offset, into.size()); },
        end_ - begin_, limit_);
    length = discard(buffered.end_of_record(0).value_or(UINT64_MAX));
  }
  return report(category, std::move(message), length);
}

}  // namespace feedline::io
