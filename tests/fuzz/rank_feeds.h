// Feeds whose rows are sent from rank to rank, and rows of them, for fuzz targets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../support/npy.h"
#include "../support/open_tables.h"
#include "../support/temp_dir.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/table/table.h"
#include "other_rank.h"

namespace feedline::test {

using Part = flow::BatchTensor::Part;

inline constexpr int64_t table_rows = 5;
inline constexpr size_t table_row_bytes = 8;

/// A pipeline whose rows are sent, and what the rank that reads says of its batches.
struct SentFeed {
  flow::PipelineSpec spec, packed;
  flow::FeedFacts facts;
  flow::Tables tables = {};
};

inline SentFeed make_feed(const std::string& sources, const std::string& outputs) {
  static const TempDir dir;
  std::vector<float> numbers(2 * table_rows);
  std::iota(numbers.begin(), numbers.end(), 1.f);
  dir.write("t.npy", npy("<f4", "(5, 2)", in_memory(numbers)));
  dir.write("names.txt", "a\nb\n");
  dir.write("five.txt", "a\nb\nc\nd\ne\n");
  SentFeed feed;
  feed.spec =
      flow::validate(parse_pipeline(sources +
                                        "batch { global_batch_size: 12 last_batch_policy: PARTIAL valid_mask: 'ok' } "
                                        "memory { limit: '4MiB' } feature { name: 'id' dtype: INT64 } output { name: "
                                        "'id' feature: 'id' } output { name: 'row' feature: 'id' lookup { table: "
                                        "'t.npy' on_device: true } } " +
                                        outputs,
                                    dir.path()),
                     [](const flow::FilePatterns& patterns) {
                       return flow::FileList{patterns.files, {}};
                     });
  feed.tables = open_tables(feed.spec, 1 << 20);
  feed.packed = flow::pack(feed.spec).spec;
  if (feed.packed.mixture) feed.packed.mixture->reweighted = {{.shares = {2, 3}, .since_epoch = 0, .taken = {0, 0}}};
  auto data = std::make_shared<flow::DataSet>();
  for (uint32_t source = 0; source < feed.spec.sources.size(); source++) {
    flow::DataFile& file = data->files.emplace_back();
    file.source = source;
    file.index.records = 100;
    file.samples = {0, 100};
    file.index.largest_record = 30;
    file.index.payload_bytes = 3000;
    file.index.end = 4600;
    file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {4600, 100}};
    data->samples += 100;
  }
  feed.facts = flow::facts_of(
      flow::Plan(feed.packed, data, {.rank = 0, .world_size = 1, .replicas = 2}, 1, {}, nullptr, feed.tables));
  return feed;
}

inline const SentFeed& one_of_the_feeds(Draw& draw) {
  const std::string in_list = "where: FEATURE_LIST kind: ";
  static const SentFeed feeds[] = {
      make_feed(
          "source { files: 'a' } ",
          "feature { name: 'x' dtype: FLOAT32 shape: 3 } output { name: 'half' dtype: FLOAT16 feature: 'x' normalize "
          "{ std: 3 } } feature { name: 'b' dtype: BYTES length: 5 } output { name: 'bits' dtype: FLOAT32 feature: 'b' "
          "unpack_bits { bit_offset: 3 shape: [4, 8] } } feature { name: 'v' dtype: INT64 kind: VARIABLE } output { "
          "name: 'v' feature: 'v' } feature { name: 'raw' dtype: BYTES } output { name: 'raw' feature: 'raw' } "),
      make_feed("source { files: 'a' record_type: SEQUENCE_EXAMPLE } ",
                "feature { name: 'p' dtype: FLOAT32 " + in_list +
                    "FIXED_SEQUENCE shape: 2 } output { name: 'p' dtype: "
                    "FLOAT16 feature: 'p' } feature { name: 'n' dtype: INT64 " +
                    in_list +
                    "RAGGED } output { name: 'n' dtype: "
                    "INT32 feature: 'n' } feature { name: 's' dtype: BYTES " +
                    in_list +
                    "VARIABLE } output { name: 's' feature: "
                    "'s' } feature { name: 'f' dtype: BYTES " +
                    in_list + "FIXED_SEQUENCE } output { name: 'f' feature: 'f' }"),
      make_feed("source { files: 'a' } window { size: 3 } ",
                "feature { name: 'x' dtype: FLOAT32 shape: 3 } output { name: 'x' dtype: FLOAT16 feature: 'x' }"),
      make_feed(
          "source { files: 'a' weight: 1 } source { files: 'b' weight: 2 } mixture { stop: CYCLE_FOREVER } epoch { "
          "steps: 40 } ",
          "feature { name: 'k' dtype: INT64 } feature { name: 'y' dtype: FLOAT32 } output { name: 'pair' dtype: "
          "FLOAT32 "
          "stack { features: ['id', 'k', 'y'] } normalize { mean: [1, 2, 3] std: [1, 2, 3] } } output { name: 'class' "
          "feature: 'k' one_hot { classes: 3 } } output { name: 'far' dtype: FLOAT16 feature: 'k' lookup { table: "
          "'t.npy' } } output "
          "{ "
          "name: 'where' feature: '@record' } output { name: 'score' dtype: FLOAT32 expression { formula: 'id * 3' } "
          "} feature { name: 'tags' dtype: BYTES shape: 2 } output { name: 'tags' dtype: INT32 feature: 'tags' "
          "vocabulary { keys_file: 'names.txt' } } output { name: 'hash' feature: 'tags' hash { buckets: 99 } } output "
          "{ name: 'rows' "
          "feature: 'tags' lookup { table: 't.npy' keys_file: 'five.txt' unknown: 4 } }")};
  return draw.one_of(feeds);
}

/// The packed tensors of a batch.
struct SentRows {
  int64_t rows = 0;
  std::vector<Shape> shapes = {};
  std::vector<std::string> bytes = {};
};

/// Returns rows as a rank could have read them, if a batch has room for so many.
inline SentRows rows_of(Draw& draw, const SentFeed& feed, uint64_t samples) {
  const int64_t frames = feed.facts.frames;
  SentRows all{.rows = static_cast<int64_t>(samples)};
  const auto rows = static_cast<size_t>(all.rows * frames);
  size_t divided = 0;  // elements that the next splits divide
  for (size_t t = 0; t < feed.facts.tensors.size(); t++) {
    const flow::BatchTensor& tensor = feed.facts.tensors[t];
    const Shape one = feed.spec.window ? tensor.shape.with_rows(frames) : tensor.shape;
    const bool dense = tensor.part == Part::dense || tensor.part == Part::valid;
    const bool variable = !dense && feed.packed.outputs[static_cast<size_t>(tensor.output)].variable;
    const bool padded = !dense && feed.packed.outputs[static_cast<size_t>(tensor.output)].padded;
    const bool splits = tensor.part == Part::offsets || tensor.part == Part::step_splits;
    const uint64_t each = padded && !splits ? tensor.row_bytes() * rows : size_of(tensor.dtype);
    const uint64_t most = tensor.capacity / std::max<uint64_t>(1, each) - splits;
    const auto some = static_cast<int64_t>(std::max<uint64_t>(std::min(draw.below(9), most), splits && divided > 0));
    Shape shape = one.with_rows(all.rows);
    if (tensor.part == Part::padded) shape = tensor.shape.with_rows(some).with_rows(all.rows);
    if (tensor.part == Part::values || tensor.part == Part::bytes) shape = {some};
    if (tensor.part == Part::offsets) shape = {variable || padded ? 1 + some : static_cast<int64_t>(rows) + 1};
    if (tensor.part == Part::step_splits) shape = {1 + some};
    if (tensor.part == Part::row_splits) shape = {static_cast<int64_t>(rows) + 1};
    const auto elements = static_cast<size_t>(shape.elements());
    std::string bytes = letters(elements * size_of(tensor.dtype), 'a');
    if (tensor.dtype == DType::boolean)
      for (char& byte : bytes) byte = static_cast<char>(byte & 1);
    if (tensor.dtype == DType::int64 && tensor.part != Part::values && elements > 0) {
      std::vector<int64_t> numbers(elements);  // numbers of rows of the table, or splits
      for (size_t i = 0; i < elements; i++)
        numbers[i] = dense ? static_cast<int64_t>(i) % (table_rows + 1) : static_cast<int64_t>(divided * i / elements);
      if (!dense) numbers.back() = static_cast<int64_t>(divided);
      bytes = in_memory(numbers);
    }
    divided = tensor.part == Part::values || tensor.part == Part::bytes ? elements : elements - 1;
    all.shapes.push_back(shape);
    all.bytes.push_back(std::move(bytes));
  }
  return all;
}

}  // namespace feedline::test
