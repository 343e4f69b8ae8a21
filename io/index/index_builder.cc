#include "io/index/index_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/audit.h"

namespace feedline::io {

IndexBuilder::IndexBuilder(uint64_t stride, uint64_t start)
    : stride_(stride),
      start_(start),
      // The first record of a chain makes no entry in the chain. Whether it is the first one in its stride depends on
      // the records before the chain, which the chain does not know.
      first_stride_(start == 0 ? 0 : start / stride + 1),
      first_group_(group_of(start)),
      wanted_(first_stride_ * stride),
      end_(start) {}

void IndexBuilder::StrideGroup::add(const StrideGroup& other) noexcept {
  sum += other.sum;
  smallest = std::min(smallest, other.smallest);
  largest = std::max(largest, other.largest);
}

IndexBuilder::StrideGroup& IndexBuilder::group(uint64_t number) {
  if (groups_.size() <= number - first_group_) groups_.resize(number - first_group_ + 1);
  return groups_[number - first_group_];
}

void IndexBuilder::add(uint64_t offset, std::span<const RecordView> records) {
  if (records.empty()) return;
  const uint64_t begin = offset;
  uint64_t number = group_of(offset);
  StrideGroup part;
  for (const RecordView& record : records) {
    if (wanted_ <= offset) {
      group(number).add(part);
      part = {};
      number = group_of(offset);
      const auto before = static_cast<uint64_t>(&record - records.data());
      for (; wanted_ <= offset; wanted_ += stride_) entries_.push_back({offset, records_ + before});
    }
    part.sum += audit_term(offset, record.stored_crc);
    part.smallest = std::min(part.smallest, record.size);
    part.largest = std::max(part.largest, record.size);
    offset += record.size + frame_bytes;
  }
  group(number).add(part);
  records_ += records.size();
  payload_bytes_ += offset - begin - records.size() * frame_bytes;
  end_ = offset;
}

std::optional<IndexBuilder::Meeting> IndexBuilder::meeting(uint64_t offset) const {
  // Finds the first entry at or after `offset` (entries ascend), and from there on the first entry that begins a group.
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), offset,
                                   [](const IndexEntry& entry, uint64_t value) { return entry.offset < value; });
  const uint64_t stride = first_stride_ + static_cast<uint64_t>(at - entries_.begin());
  const uint64_t first = (stride + strides_per_group - 1) / strides_per_group * strides_per_group - first_stride_;
  if (first >= entries_.size()) return std::nullopt;
  return Meeting{entries_[first].offset, entries_[first].record};
}

void IndexBuilder::append(const IndexBuilder& chain, const Meeting& from) {
  for (; wanted_ <= from.offset; wanted_ += stride_) entries_.push_back({from.offset, records_});
  for (size_t i = wanted_ / stride_ - chain.first_stride_; i < chain.entries_.size(); i++)
    entries_.push_back({chain.entries_[i].offset, chain.entries_[i].record - from.record + records_});
  wanted_ = chain.wanted_;
  for (size_t g = group_of(from.offset) - chain.first_group_; g < chain.groups_.size(); g++)
    group(chain.first_group_ + g).add(chain.groups_[g]);
  const uint64_t records = chain.records_ - from.record;
  records_ += records;
  payload_bytes_ += chain.end_ - from.offset - records * frame_bytes;
  end_ = chain.end_;
}

void IndexBuilder::put_into(MessageWriter& message) const {
  message.put(Totals{start_, end_, records_, payload_bytes_});
  message.put_rows(std::span<const IndexEntry>(entries_));
  message.put_rows(std::span<const StrideGroup>(groups_));
}

// Returns whether append() and meeting() can safely work with this chain, which another rank has sent.
bool IndexBuilder::holds_in(uint64_t file_size) const noexcept {
  const auto fits = [](uint64_t records, uint64_t bytes) { return records <= bytes / frame_bytes; };
  if (start_ >= end_ || end_ > file_size || records_ == 0 || !fits(records_, end_ - start_) ||
      payload_bytes_ != end_ - start_ - records_ * frame_bytes || groups_.empty() ||
      groups_.size() > group_of(end_ - 1) - first_group_ + 1)
    return false;
  IndexEntry before{start_, 0};
  uint64_t stride_begin = first_stride_ * stride_;
  for (const IndexEntry& entry : entries_) {
    if (entry.offset < before.offset || entry.record < before.record || entry.offset < stride_begin ||
        entry.offset >= end_ || entry.record >= records_ ||
        (entry.offset == before.offset) != (entry.record == before.record) ||
        !fits(entry.record - before.record, entry.offset - before.offset) ||
        !fits(records_ - entry.record, end_ - entry.offset))
      return false;
    before = entry;
    stride_begin += stride_;
  }
  return std::all_of(groups_.begin(), groups_.end(), [](const StrideGroup& group) {
    return group.smallest <= group.largest || (group.largest == 0 && group.smallest == UINT32_MAX && group.sum == 0);
  });
}

IndexBuilder IndexBuilder::get_from(MessageReader& message, uint64_t stride, uint64_t file_size) {
  const auto totals = message.get<Totals>();
  IndexBuilder chain(stride, totals.start);
  chain.end_ = totals.end;
  chain.records_ = totals.records;
  chain.payload_bytes_ = totals.payload_bytes;
  chain.entries_ = message.get_rows<IndexEntry>();
  chain.groups_ = message.get_rows<StrideGroup>();
  chain.wanted_ = (chain.first_stride_ + chain.entries_.size()) * stride;
  if (!chain.holds_in(file_size))
    throw Error(Category::bad_pipeline,
                fmt::format("another rank says that it counted {} records at offsets {} to {}, which this file cannot "
                            "hold; all ranks must read the same file with the same version of feedline",
                            chain.records_, chain.start_, chain.end_));
  return chain;
}

FileIndex IndexBuilder::finish(uint64_t stream_size) {
  FileIndex index;
  index.stride = stride_;
  index.records = records_;
  index.payload_bytes = payload_bytes_;
  index.end = end_;
  index.stream_size = stream_size;
  for (; wanted_ < stream_size; wanted_ += stride_) entries_.push_back({end_, records_});
  entries_.push_back({end_, records_});
  groups_.resize(stream_size == 0 ? 0 : group_of(stream_size - 1) + 1);
  StrideGroup all;
  std::vector<uint64_t> sums;
  sums.reserve(groups_.size());
  for (const StrideGroup& group : groups_) {
    all.add(group);
    sums.push_back(group.sum);
  }
  index.audit = all.sum;
  index.smallest_record = records_ ? all.smallest : 0;
  index.largest_record = all.largest;
  index.entries = std::move(entries_);
  index.sums = std::move(sums);
  return index;
}

}  // namespace feedline::io
