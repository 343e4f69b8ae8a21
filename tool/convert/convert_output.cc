#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/format_count.h"
#include "io/index/index.h"
#include "tool/common/text_file.h"
#include "tool/convert/convert.h"

namespace feedline::tool {
namespace {

uint64_t shards_for(uint64_t records, uint64_t bytes, uint64_t shard_bytes) {
  const uint64_t wanted = (bytes + shard_bytes / 2) / shard_bytes;
  return std::clamp<uint64_t>(wanted, 1, std::clamp<uint64_t>(records, 1, most_shards));
}

}  // namespace

ShardWriter::ShardWriter(OutputFolder& out, const ConvertTarget& target, std::string name, uint64_t records,
                         uint64_t bytes, Progress& progress)
    : out_(out), records_(records), shards_(shards_for(records, bytes, target.shard_bytes)), meter_(progress) {
  set_.name = std::move(name);
  open();
}

void ShardWriter::open() {
  set_.shards.push_back(shard_name(set_.name, set_.shards.size(), shards_));
  writer_.emplace(out_.place(set_.shards.back()));
}

void ShardWriter::begin_record() {
  if (next_ == records_) refuse_count();
  if (next_ == shard_begin(set_.shards.size(), shards_, records_)) {
    writer_->close();
    open();
  }
  next_++;
}

void ShardWriter::refuse_count() const {
  throw Error(Category::io_error,
              fmt::format("the input has changed since its records were counted: it has {} records than the {} that "
                          "were counted; convert the input again when nothing writes to it",
                          next_ == records_ ? "more" : "fewer", format_count(records_)));
}

void ShardWriter::write(std::span<const std::byte> record, const std::string& input) {
  begin_record();
  if (record.size() > io::default_record_limit)
    refuse_input(input,
                 fmt::format("record {} would have {} bytes, but readers accept at most {} bytes; leave out or shrink "
                             "the largest values of the record",
                             set_.records, record.size(), io::default_record_limit));
  writer_->write(record);
  set_.records++;
  set_.payload_bytes += record.size();
  meter_.add(record.size());
}

Converted::Set ShardWriter::finish() {
  if (next_ < records_) refuse_count();
  writer_->close();
  writer_.reset();
  return std::move(set_);
}

void publish(OutputFolder& out, Converted& result, const std::vector<std::string>& comments,
             const std::vector<TextFeature>& features) {
  const Converted::Set& set = result.sets.front();
  result.pipeline = pipeline_text(comments, set.pattern(), features, set.records, set.payload_bytes);
  out.publish();
  write_text(out.pipeline(), result.pipeline);
}

void refuse_input(const std::string& file, const std::string& why) {
  throw Error(Category::bad_pipeline, why, Place::of_file(file));
}

std::optional<float> to_float32(double number) noexcept {
  const auto rounded = static_cast<float>(number);
  return std::isfinite(number) && !std::isfinite(rounded) ? std::nullopt : std::optional(rounded);
}

}  // namespace feedline::tool
