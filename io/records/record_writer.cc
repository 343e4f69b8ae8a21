#include <fmt/format.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "feedline/records.h"
#include "io/output_file.h"
#include "io/records/crc32c.h"
#include "io/records/record_scanner.h"

namespace feedline {
namespace {

constexpr size_t block_bytes = 256 << 10;

// Compresses everything that is written into one gzip member.
class GzipStream {
 public:
  explicit GzipStream(io::OutputFile& file) : file_(file), level_memory_(ISAL_DEF_LVL3_DEFAULT), out_(block_bytes) {
    isal_deflate_init(&stream_);
    stream_.gzip_flag = IGZIP_GZIP;
    stream_.level = 3;
    stream_.level_buf = level_memory_.data();
    stream_.level_buf_size = static_cast<uint32_t>(level_memory_.size());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min<size_t>(bytes.size(), 1 << 30));  // ISA-L counts bytes with 32 bits
      // The const_cast is safe, because ISA-L does not write through next_in.
      stream_.next_in = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(part.data()));
      stream_.avail_in = static_cast<uint32_t>(part.size());
      while (stream_.avail_in > 0) deflate();
      bytes = bytes.subspan(part.size());
    }
  }

  void finish() {
    stream_.end_of_stream = 1;
    stream_.avail_in = 0;
    do {
      deflate();
    } while (stream_.internal_state.state != ZSTATE_END);
  }

 private:
  void deflate() {
    stream_.next_out = out_.data();
    stream_.avail_out = static_cast<uint32_t>(out_.size());
    if (const int error = isal_deflate(&stream_); error != COMP_OK)
      throw Error(Category::io_error, fmt::format("cannot be compressed: ISA-L error {}", error),
                  Place::of_file(file_.path()));
    file_.write(std::as_bytes(std::span(out_)).first(out_.size() - stream_.avail_out));
  }

  io::OutputFile& file_;
  std::vector<uint8_t> level_memory_;
  std::vector<uint8_t> out_;
  isal_zstream stream_;
};

}  // namespace

struct RecordWriter::Impl {
  Impl(std::string path, const Options& options) : file(std::move(path)) {
    if (options.compression == Compression::gzip)
      gzip.emplace(file);
    else if (options.compression != Compression::none)
      throw Error(Category::bad_pipeline, "this compression cannot be written; set 'compression' to 'none' or 'gzip'",
                  Place::of_file(file.path()));
    buffer.reserve(block_bytes);
  }

  void put(std::span<const std::byte> part) {
    if (buffer.size() + part.size() > block_bytes) flush();
    if (part.size() > block_bytes) return pass_on(part);
    buffer.insert(buffer.end(), part.begin(), part.end());
  }
  void flush() {
    pass_on(buffer);
    buffer.clear();
  }
  void pass_on(std::span<const std::byte> part) {
    if (gzip)
      gzip->write(part);
    else
      file.write(part);
  }

  io::OutputFile file;
  std::optional<GzipStream> gzip;
  std::vector<std::byte> buffer;
  uint64_t records = 0, bytes = 0;
};

RecordWriter::RecordWriter(std::string file) : RecordWriter(std::move(file), Options()) {}
RecordWriter::RecordWriter(std::string file, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(file), options)) {}
RecordWriter::~RecordWriter() = default;

void RecordWriter::write(std::span<const std::byte> payload) {
  impl_->file.check_open();
  if (payload.size() > UINT32_MAX)
    throw Error(Category::record_too_large,
                fmt::format("record {} would have a payload of {} bytes, but readers accept at most {} bytes",
                            impl_->records, payload.size(), UINT32_MAX),
                Place::of_file(impl_->file.path()));
  std::array<std::byte, io::header_bytes> header;
  const uint64_t length = payload.size();
  std::memcpy(header.data(), &length, 8);
  const uint32_t length_crc = io::mask_crc(io::crc32c(std::span(header).first(8)));
  std::memcpy(header.data() + 8, &length_crc, 4);
  const uint32_t payload_crc = io::mask_crc(io::crc32c(payload));
  impl_->put(header);
  impl_->put(payload);
  impl_->put(std::as_bytes(std::span(&payload_crc, 1)));
  impl_->records++;
  impl_->bytes += length + io::frame_bytes;
}

void RecordWriter::close() {
  impl_->file.check_open();
  impl_->flush();
  if (impl_->gzip) impl_->gzip->finish();
  impl_->file.publish();
}

uint64_t RecordWriter::records() const noexcept { return impl_->records; }
uint64_t RecordWriter::bytes() const noexcept { return impl_->bytes; }

}  // namespace feedline
