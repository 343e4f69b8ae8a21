#include <optional>
#include <utility>

#include "feedline/records.h"
#include "io/records/record_stream.h"

namespace feedline {

struct RecordReader::Impl {
  Impl(std::string path, const Options& options)
      : file(std::move(path)), stream(file, options.compression, options.record_limit) {}

  const std::string file;
  io::RecordStream stream;
  std::optional<Error> error;
  const io::RecordView* next = nullptr;  // [next, end) are the records of stream.records() that were not handed out yet
  const io::RecordView* end = nullptr;
  uint64_t offset = 0, number = 0;  // where the record *next begins, and how many good records lie before it
};

RecordReader::RecordReader(std::string file) : RecordReader(std::move(file), Options()) {}
RecordReader::RecordReader(std::string file, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(file), options)) {}
RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

ReadResult RecordReader::next(Record& record) {
  Impl& s = *impl_;
  if (s.next == s.end) {
    switch (s.stream.next()) {
      case io::RecordStream::Found::end:
        return ReadResult::end;
      case io::RecordStream::Found::damage:
        s.error.emplace(s.stream.damage().error(s.file));
        return ReadResult::error;
      case io::RecordStream::Found::records:
        break;
    }
    s.next = s.stream.records().data();
    s.end = s.next + s.stream.records().size();
    s.offset = s.stream.offset();
    s.number = s.stream.number();
  }
  const io::RecordView& view = *s.next++;
  record = {{view.data, view.size}, s.offset, s.number++, view.stored_crc};
  s.offset += view.size + io::frame_bytes;
  return ReadResult::record;
}

const Error& RecordReader::error() const { return *impl_->error; }

RecordReader::Region RecordReader::skipped() const {
  const io::BadRegion& damage = impl_->stream.damage();
  return {damage.offset, damage.length};
}

Compression RecordReader::compression() const { return impl_->stream.compression(); }
uint64_t RecordReader::file_position() const { return impl_->stream.position(); }
uint64_t RecordReader::file_size() const { return impl_->stream.size(); }

}  // namespace feedline
