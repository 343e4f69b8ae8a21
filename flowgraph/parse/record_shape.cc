#include "flowgraph/parse/record_shape.h"

#include <bit>
#include <utility>

namespace feedline::flow {
namespace {

using Action = EntryShape::Action;

constexpr size_t most_known = 1024;  // beyond this a record is so long that computing its offsets costs little

/// Fills `shape` from the record. Returns false if the record's entries do not make a shape.
bool take_apart(RecordLayout& layout, const uint8_t* record, uint32_t size, uint64_t wanted, RecordShape& shape) {
  const uint8_t* const end = record + size;
  const uint8_t* p = record;
  if (size == 0 || *p++ != wire::tag(1, wire::delimited)) return false;  // Example.features
  uint32_t size_of_features;
  p = wire::read_size(p, end, size_of_features);
  if (!p || p + size_of_features != end) return false;

  const auto offset = [&](const uint8_t* at) { return static_cast<uint32_t>(at - record); };
  const uint8_t* learned = record;  // known bytes and payloads cover all bytes before this one
  for (EntryShape* before = layout.start(); p != end;) {
    EntryShape* const entry = before->next[0];
    uint32_t payload_size;
    const uint8_t* payload = entry->match(p, end, payload_size);
    if (!payload) payload = entry->match_long(p, end, payload_size);
    if (!payload || entry->use.action == Action::think || shape.known.size() > most_known) return false;
    wanted &= ~entry->use.bit;
    for (; payload - learned > 8; learned += 8) shape.known.push_back({offset(learned), load<uint64_t>(learned)});
    shape.known.push_back({offset(payload - 8), load<uint64_t>(payload - 8)});  // a header has 8 bytes or more
    if (entry->use.action != Action::skip) shape.values.push_back({offset(payload), payload_size, entry->use});
    p = learned = payload + payload_size;
    before = entry;
  }
  return wanted == 0;
}

}  // namespace

void RecordShapes::learn(RecordLayout& layout, const uint8_t* record, uint32_t size, uint64_t wanted) {
  Bucket& bucket = buckets_[size % buckets];
  if (std::exchange(bucket.last_size, size) != size || !std::has_single_bit(++bucket.tries)) return;
  RecordShape& shape = bucket.shape;
  shape.size = size;
  shape.known.clear();
  shape.values.clear();
  if (!take_apart(layout, record, size, wanted, shape)) shape.known.clear();
}

}  // namespace feedline::flow
