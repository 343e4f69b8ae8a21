// SentRows that a rank has received: how their batches lie in memory, the shapes of a batch, and its bytes. Whatever is sent is
// refused, or unpacked within the batch's memory into what a simple reading says.
//
// covers: flowgraph/plan/feed_facts.cc flowgraph/batch/packing.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/mul_div.h"
#include "rank_feeds.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;

/// A slow, simple reading of what a batch can be.
bool can_be(const SentFeed& feed, const FeedFacts& facts, const std::vector<Shape>& shapes, int64_t rows) {
  if (rows < 0 || rows > facts.rows / facts.frames) return false;
  for (size_t t = 0; t < facts.tensors.size(); t++) {
    const BatchTensor& tensor = facts.tensors[t];
    std::vector<int64_t> axes(shapes[t].begin(), shapes[t].end()), wanted(tensor.shape.begin(), tensor.shape.end());
    const bool padded = tensor.part == Part::padded, dense = tensor.part == Part::dense || tensor.part == Part::valid;
    if (!dense && !padded) wanted.clear();
    if (dense && feed.spec.window) wanted.insert(wanted.begin(), facts.frames);
    if (!dense) wanted.insert(wanted.begin(), axes.size() > padded ? axes[padded] : -1);
    if (dense || padded) wanted.insert(wanted.begin(), padded ? rows * facts.frames : rows);
    if (axes != wanted) return false;
    Wide bytes = size_of(tensor.dtype);
    for (const int64_t axis : axes) {
      if (axis < 0) return false;
      bytes *= static_cast<uint64_t>(axis);
    }
    if (bytes > tensor.capacity) return false;
    const bool splits = tensor.part == Part::offsets || tensor.part == Part::step_splits;
    if (splits && axes[0] == 0) return false;
    if (tensor.part == Part::row_splits && axes[0] != rows * facts.frames + 1) return false;
  }
  return true;
}

/// A slow, simple reading of the bytes: whether all that they say lies in the batch or in the table.
bool is_usable(const SentFeed& feed, const SentRows& rows) {
  int64_t divided = 0;
  for (size_t t = 0; t < rows.bytes.size(); t++) {
    const BatchTensor& tensor = feed.facts.tensors[t];
    const std::string& bytes = rows.bytes[t];
    std::vector<int64_t> numbers(bytes.size() / 8);
    std::ranges::copy(bytes.substr(0, numbers.size() * 8), reinterpret_cast<char*>(numbers.data()));
    if (tensor.dtype == DType::boolean)
      for (const char byte : bytes)
        if (byte != 0 && byte != 1) return false;
    const bool splits =
        tensor.part == Part::offsets || tensor.part == Part::step_splits || tensor.part == Part::row_splits;
    if (splits && (numbers.front() != 0 || numbers.back() != divided)) return false;
    for (size_t i = 1; splits && i < numbers.size(); i++)
      if (numbers[i] < numbers[i - 1]) return false;
    if (tensor.name == "packed row")
      for (const int64_t number : numbers)
        if (number < 0 || number > table_rows) return false;
    divided = rows.shapes[t].elements() - (splits ? 1 : 0);
  }
  return true;
}

/// Checks the tensors that were made of the rows: each lies in the memory, and the others' bytes are as they were.
void check_unpacked(const SentFeed& feed, const SentRows& rows, const BatchContent& content, const OutputBlock& before,
                    const OutputBlock& block) {
  const size_t packed = feed.facts.buffer_bytes;
  std::vector<std::pair<size_t, size_t>> written = {{0, 0}, {block.span().size(), block.span().size()}};
  for (const NamedTensor& named : content.tensors) {
    const TensorView& tensor = named.tensor;
    const auto at = static_cast<size_t>(static_cast<std::byte*>(tensor.data) - block.data());
    require(at + tensor.size_bytes() <= block.span().size(), "a tensor lies in the batch");
    if (at >= packed) written.emplace_back(at, at + tensor.size_bytes());
    if (named.name != "row") continue;
    const size_t column = static_cast<size_t>(std::ranges::find(feed.facts.tensors, "packed row", &BatchTensor::name) -
                                              feed.facts.tensors.begin());
    for (size_t i = 0; i < rows.bytes[column].size() / 8; i++) {
      int64_t number;
      std::memcpy(&number, rows.bytes[column].data() + 8 * i, 8);
      const float wanted[] = {number > 0 ? static_cast<float>(2 * number - 1) : 0, static_cast<float>(2 * number)};
      require(std::memcmp(block.data() + at + i * table_row_bytes, wanted, table_row_bytes) == 0, "a table's row");
    }
  }
  std::ranges::sort(written);
  for (size_t i = 1; i < written.size(); i++)
    require(std::ranges::equal(block.span().subspan(written[i - 1].second, written[i].first - written[i - 1].second),
                               before.span().subspan(written[i - 1].second, written[i].first - written[i - 1].second)),
            "other bytes stay as they are");
}

FeedFacts heard_facts(Draw& draw, const SentFeed& feed) {
  const std::string sent = to_message(feed.facts), message = draw.coin() ? changed(draw, sent) : sent;
  try {
    FeedFacts facts = facts_in(message, 0, feed.packed);
    require(message != sent || to_message(facts) == sent, "what was said is heard");
    require(facts.identity.global_batch > 0 && facts.frames == feed.facts.frames, "numbers are divisors");
    return facts;
  } catch (const Error&) {
    require(message != sent, "a description is taken");
    throw;
  }
}

/// Unpacks rows that have arrived.
void unpack_arrived(Draw& draw) {
  const SentFeed& feed = one_of_the_feeds(draw);
  SentFeed heard{feed.spec, feed.packed, heard_facts(draw, feed), feed.tables};
  for (size_t t = 0; t < heard.facts.tensors.size(); t++) heard.facts.tensors[t].name = feed.facts.tensors[t].name;
  const PackedBatches batches(heard.spec, heard.facts, heard.tables);
  require(batches.buffer_bytes() <= 2 * most_batch_bytes, "a batch can be counted");
  if (batches.buffer_bytes() > 1 << 20) return;
  const auto most = static_cast<uint64_t>(batches.rows());
  SentRows rows = rows_of(draw, feed, draw.below(4) == 3 ? draw.near(most) % (2 * most) : 1 + draw.below(most));
  for (uint64_t changes = draw.below(4); changes > 0; changes--) {
    const size_t t = draw.below(rows.shapes.size());
    const BatchTensor& tensor = heard.facts.tensors[t];
    Shape& shape = rows.shapes[t];
    const size_t axis = draw.below(shape.rank());
    const uint64_t bound = draw.coin() ? static_cast<uint64_t>(shape[axis]) : tensor.capacity / size_of(tensor.dtype);
    if (draw.below(8) < 7)
      shape[axis] = static_cast<int64_t>(draw.near(bound));
    else if (shape.rank() < Shape::max_rank)
      shape = shape.with_rows(static_cast<int64_t>(draw.near(1)));
  }
  const bool fits = batches.can_have(rows.shapes, rows.rows);
  require(fits == can_be(heard, heard.facts, rows.shapes, rows.rows), "shapes are those of a batch");
  if (!fits) return;
  OutputBlock block(batches.buffer_bytes());
  for (size_t t = 0; t < rows.bytes.size(); t++) {
    const BatchTensor& tensor = heard.facts.tensors[t];
    std::string& bytes = rows.bytes[t];
    if (draw.below(8) == 7) bytes = changed(draw, bytes);
    bytes.resize(static_cast<size_t>(rows.shapes[t].elements()) * size_of(tensor.dtype));
    if (tensor.dtype == DType::int64 && !bytes.empty() && draw.below(4) == 3) {  // a split, or the number of a row
      const uint64_t number = draw.near(draw.coin() ? table_rows : t > 0 ? rows.shapes[t - 1].elements() : 0);
      std::memcpy(bytes.data() + 8 * draw.below(bytes.size() / 8), &number, sizeof number);
    }
    std::ranges::copy(std::as_bytes(std::span(bytes)), block.data() + tensor.offset);
  }
  const OutputBlock before(block.span().size());
  std::ranges::copy(block.span(), before.data());
  const bool usable = is_usable(heard, rows);
  try {
    batches.check_arrived(block.data(), rows.shapes, rows.rows, 0);
    require(usable, "rows that cannot be used are refused");
  } catch (const Error&) {
    require(!usable, "rows that can be used are taken");
    throw;
  }
  BatchBuffer buffer;
  buffer.memory = block.data();
  buffer.content = batches.content(block.data());
  buffer.content.rows = rows.rows;
  batches.set_shapes(rows.shapes, buffer.content);
  batches.unpack(buffer);
  check_unpacked(heard, rows, buffer.content, before, block);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_one_of({unpack_arrived}, data, size);
}
