// What the fuzz target `feed` draws: a pipeline, and the files that it names. Beside it, what docs/pipeline.md says of
// which samples the data has, in file order.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "feed_data.h"
#include "io/records/record_scanner.h"
#include "support/memory_source.h"

namespace feedline::test {

using flow::LastBatchPolicy;
using flow::MixtureStop;
using flow::OnError;
using flow::RecordType;
using flow::ShuffleMode;

/// An output, and what its tensors must have.
struct Output {
  std::string name;
  DType dtype = DType::unset;
  Shape shape = {};    // dense: of a row
  size_t feature = 0;  // not dense: the feature that is passed through
  /// Dense: returns the bytes of a record's row; nullopt if it cannot be made.
  std::function<std::optional<std::string>(const DrawnRecord&)> row = {};
};

struct DrawnFile {
  std::string uri;
  uint32_t source = 0;
  Compression format = Compression::none;
  int level = 0;
  std::optional<size_t> damaged_at = {};  // damage that counting finds: how many good records of the file lie before it
  std::string bytes = {};                 // as they are before they are compressed
  std::vector<DrawnRecord*> records = {};
  std::string stored() const { return compressed(bytes, format, level); }
};

struct DrawnSource {
  enum class Part : uint8_t { all, range, percent, shard } part = Part::all;
  uint64_t first = 0, last = 0;  // of the range, or the number of the shard and how many there are
};

/// A sample: its frames. Null: a short window lacks it.
using Sample = std::vector<const DrawnRecord*>;

struct Case {
  explicit Case(Draw& draw) {
    draw_order(draw);
    draw_features(draw);
    draw_files(draw);
  }

  RecordType type = RecordType::example;
  int world = 1, replicas = 1;
  int64_t batch = 1;
  LastBatchPolicy policy = LastBatchPolicy::drop;
  OnError on_error = OnError::raise;
  bool max_failures = false, absent_is_error = false;
  ShuffleMode mode = ShuffleMode::none;
  bool interleaved = false, mixed = false, filters = false, lazy = false, large = false;
  int64_t frames = 0, shift = 1, stride = 1;  // of windows; 0 frames: there are none
  bool drop_remainder = true, across_files = false, by_key = false;
  MixtureStop stop = MixtureStop::first_exhausted;
  int64_t repeat = 1, epoch_steps = 0;

  std::vector<FeatureSpec> features;  // the first two are id and n, but for RAW
  std::vector<Output> outputs;
  bool sums = false, numbered = false, cached = false;
  std::deque<DrawnRecord> records;
  std::vector<DrawnFile> files;
  std::vector<DrawnSource> sources;

  /// Returns the whole pipeline as text.
  std::string text() const;

  bool in_file_order() const { return mode == ShuffleMode::none && !mixed && !interleaved; }
  /// Returns whether a record is none for the pipeline's features, so that no formula sees it.
  bool is_refused(const DrawnRecord& record) const {
    if (record.malformed) return true;
    for (size_t f = 0; f < features.size(); f++)
      if (!fits(features[f], record.held[f])) return true;
    return false;
  }
  /// Returns whether its row cannot be made, although the record is good.
  bool row_fails(const DrawnRecord& record) const {
    return std::ranges::any_of(outputs, [&](const Output& output) { return output.row && !output.row(record); });
  }
  bool is_bad(const DrawnRecord& record) const {
    int64_t sum = 0;
    return record.damaged || is_refused(record) || (sums && __builtin_add_overflow(record.id, record.n, &sum)) ||
           row_fails(record);
  }
  Values values(size_t feature, const DrawnRecord& record) const {
    return flat(steps_of(features[feature], record.held[feature]));
  }

  /// Returns the records of each file that counting finds good and leaves in.
  std::vector<std::vector<const DrawnRecord*>> counted() const;
  /// Returns the samples of each file before the filter: a part of those of counted().
  std::vector<std::vector<const DrawnRecord*>> chosen() const;
  bool is_kept(const DrawnRecord& record) const {
    return (!filters && !by_key) || (!is_refused(record) && (!filters || record.n >= 1));
  }
  /// Returns the samples of each source, in file order.
  std::vector<std::vector<Sample>> samples() const;

  /// Damages records in a way that counting has not seen.
  void hide_damage(MemorySource& source);
  bool hides_damage_in_streams() const { return std::ranges::any_of(hidden_, &Hidden::in_stream); }

 private:
  void draw_order(Draw& draw);
  void draw_features(Draw& draw);
  void draw_files(Draw& draw);
  void add_dense(std::string name, const std::string& text, DType dtype, Shape shape,
                 std::function<std::optional<std::string>(const DrawnRecord&)> row) {
    output_text_ += "output { name: '" + name + "' " + text + " } ";
    outputs.push_back({.name = std::move(name), .dtype = dtype, .shape = shape, .row = std::move(row)});
  }
  void add_output(size_t feature);
  void add_record(Draw& draw, DrawnFile& file);
  void damage(Draw& draw, DrawnFile& file);

  std::string order_text_, output_text_, cache_text_;
  uint64_t stride_ = 16;  // of the indexes
  struct Hidden {
    size_t file, record;
    uint64_t byte;  // of the file, or of what it is compressed to
    bool in_stream;
  };
  std::vector<Hidden> hidden_;
};

inline void Case::draw_order(Draw& draw) {
  const auto rarely = [&](uint64_t one_in) { return draw.below(one_in) == one_in - 1; };
  type = static_cast<RecordType>(draw.below(3));
  replicas = static_cast<int>(1 + draw.below(3));
  lazy = rarely(6);  // index.mode LAZY must give the same, so there is nothing that it cannot have
  large = rarely(8);
  world = !lazy && (large ? draw.coin() : rarely(8)) ? 2 : 1;
  batch = static_cast<int64_t>(1 + draw.below(9)) * replicas * world;
  policy = static_cast<LastBatchPolicy>(draw.below(3));
  on_error = draw.one_of(
      {OnError::skip_record, OnError::raise, OnError::skip_record, lazy ? OnError::raise : OnError::skip_file});
  if (!lazy) mode = static_cast<ShuffleMode>(draw.below(4));
  mixed = !lazy && rarely(4);
  filters = !lazy && type != RecordType::raw && rarely(4);
  numbered = !lazy && draw.coin();
  if (!lazy && rarely(4)) {
    frames = static_cast<int64_t>(1 + draw.below(4));
    shift = static_cast<int64_t>(1 + draw.below(4));
    stride = static_cast<int64_t>(1 + draw.below(3));
    drop_remainder = draw.coin();
    across_files = draw.coin();
    by_key = type != RecordType::raw && draw.coin();
  }
  const auto field = [](const std::string& name, auto value) { return " " + name + ": " + std::to_string(value); };
  constexpr const char* policies[] = {"DROP", "PARTIAL", "PAD"};
  constexpr const char* modes[] = {"NONE", "BLOCK", "GLOBAL", "BUFFER"};
  constexpr const char* stops[] = {"FIRST_DATASET_EXHAUSTED", "ALL_DATASETS_EXHAUSTED",
                                   "CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED", "CYCLE_FOREVER"};
  constexpr const char* skips[] = {"RAISE", "SKIP_RECORD", "SKIP_FILE"};
  const int64_t indivisible = replicas * world > 1 && rarely(32) ? 1 : 0;
  stride_ = draw.one_of({16, 64, 256, 4096, 16384});
  std::string& text = order_text_;
  text = "seed: 5 memory { limit: '64MiB' } parallelism { threads: 1 host_prefetch: 1 } batch {";
  text += draw.coin() ? field("global_batch_size", batch + indivisible)
                      : field("batch_size_per_replica", batch / replicas / world);
  text += std::string(" last_batch_policy: ") + policies[static_cast<size_t>(policy)];
  if (draw.coin()) text += " valid_mask: 'mask'";
  text += std::string(" } shuffle { mode: ") + modes[static_cast<size_t>(mode)];
  if (mode == ShuffleMode::buffer || (mode == ShuffleMode::block && draw.coin()))
    text += field("buffer_size", 1 + draw.below(draw.coin() ? 4 : 64));
  if (mode == ShuffleMode::block && draw.coin())
    text += " block_size: '" + std::to_string(draw.coin() ? stride_ : 16384) + "'";
  if (mode == ShuffleMode::block && draw.coin())
    text += field("lanes", draw.below(4) == 3 ? batch : batch / static_cast<int64_t>(1 + draw.below(4)));
  if (mode != ShuffleMode::none && draw.coin()) text += " reshuffle_each_epoch: false";
  if (mode == ShuffleMode::buffer && draw.coin()) text += " shuffle_files: true";
  text += " } ";
  if (frames > 0)
    text += "window {" + field("size", frames) + field("shift", shift) + field("stride", stride) +
            " drop_remainder: " + (drop_remainder ? "true" : "false") + (across_files ? " across_files: true" : "") +
            (by_key ? " key: 'n'" : "") + " } ";
  if (filters) text += "filter: 'n >= 1' ";
  if (!lazy && (mode == ShuffleMode::none || mode == ShuffleMode::buffer) && rarely(6)) {
    interleaved = true;
    text += "interleave {" + field("cycle_length", 2 + draw.below(3));
    text += field("block_length", 1 + draw.below(4)) + " } ";
  }
  if (mixed) {
    stop = static_cast<MixtureStop>(draw.below(4));
    text += std::string("mixture { stop: ") + stops[static_cast<size_t>(stop)] + " } ";
  }
  if (mixed ? stop == MixtureStop::cycle_forever : !lazy && rarely(4))
    epoch_steps = static_cast<int64_t>(1 + draw.below(5));
  else if (!lazy && rarely(4))
    repeat = static_cast<int64_t>(
        rarely(4) ? std::clamp<uint64_t>(draw.near((uint64_t{1} << 40) / (1 + draw.below(61))), 1, INT64_MAX)
                  : 2 + draw.below(2));
  text +=
      "epoch { allow_empty: true" + (epoch_steps > 0 ? field("steps", epoch_steps) : field("repeat", repeat)) + " } ";
  max_failures = on_error != OnError::raise && rarely(4);
  absent_is_error = rarely(8);
  text += std::string("errors { on_error: ") + skips[static_cast<size_t>(on_error)] +
          (max_failures ? field("max_failures", 1 + draw.below(6)) : "") +
          " absent_feature: " + (absent_is_error ? "ERROR" : "IGNORE") + " } ";
  cached = !lazy && rarely(4);
  if (cached) cache_text_ = "cache { what: RECORDS limit: '" + std::to_string(4096 << draw.below(8)) + "' } ";
}

inline void Case::draw_features(Draw& draw) {
  add_dense("f", "feature: '@file'", DType::int64, {},
            [](const DrawnRecord& record) { return wire::raw(int64_t{record.file}); });
  add_dense("o", "feature: '@offset'", DType::int64, {},
            [](const DrawnRecord& record) { return wire::raw(record.offset); });
  if (numbered) {
    add_dense("number", "feature: '@record'", DType::int64, {},
              [](const DrawnRecord& record) { return wire::raw(record.number); });
    add_dense("s", "dtype: UINT8 feature: '@source'", DType::uint8, {},
              [this](const DrawnRecord& record) { return wire::raw(static_cast<uint8_t>(files[record.file].source)); });
  }
  if (type == RecordType::raw) {
    FeatureSpec record;
    record.name = record.key = "record";
    record.dtype = DType::bytes;
    if (frames > 0 || draw.coin()) record.length = static_cast<int64_t>(1 + draw.below(9));
    features.push_back(record);
    return add_output(0);
  }
  const bool sequence = type == RecordType::sequence_example;
  for (const char* name : {"id", "n"}) {
    FeatureSpec feature;
    feature.name = feature.key = name;
    feature.dtype = DType::int64;
    if (sequence) feature.where = flow::Where::context;
    features.push_back(feature);
  }
  add_dense("id", "feature: 'id'", DType::int64, {}, [](const DrawnRecord& record) { return wire::raw(record.id); });
  if (draw.coin()) {
    sums = true;
    add_dense("sum", "dtype: INT64 expression { formula: 'id + n' }", DType::int64, {}, [](const DrawnRecord& record) {
      return wire::raw(static_cast<uint64_t>(record.id) + static_cast<uint64_t>(record.n));
    });
  }
  if (draw.coin())
    add_dense("hot", "one_hot { classes: 3 } feature: 'n'", DType::float32, {3}, [](const DrawnRecord& record) {
      if (record.n < 0 || record.n > 2) return std::optional<std::string>();
      return std::optional(
          wire::raw(std::array<float, 3>{record.n == 0 ? 1.f : 0, record.n == 1 ? 1.f : 0, record.n == 2 ? 1.f : 0}));
    });
  const size_t more = draw.below(4);
  for (size_t number = 0; number < more; number++) {
    features.push_back(drawn_feature(draw, number, sequence, frames > 0));
    if (draw.below(8) < 7) add_output(features.size() - 1);
  }
}

// Adds an output that passes the feature through.
inline void Case::add_output(size_t number) {
  const FeatureSpec& feature = features[number];
  const bool bytes = feature.dtype == DType::bytes;
  const std::string from = "feature: '" + feature.name + "'";
  if (feature.kind != FeatureKind::fixed || (bytes && feature.length < 0)) {
    output_text_ += "output { name: '" + feature.name + "' " + from + " } ";
    outputs.push_back({.name = feature.name, .dtype = feature.dtype, .feature = number});
    return;
  }
  std::vector<int64_t> axes(feature.shape.begin(), feature.shape.end());
  if (bytes) axes.push_back(feature.length);
  add_dense(feature.name, from, bytes ? DType::uint8 : feature.dtype, Shape(axes),
            [this, number](const DrawnRecord& record) { return joined(values(number, record)); });
}

inline void Case::draw_files(Draw& draw) {
  const size_t count = 1 + draw.below(draw.below(8) == 7 ? 24 : 4);
  sources.resize(mixed ? 1 + (count > 1) : 1 + (count > 1 && draw.below(4) == 3));
  for (DrawnSource& source : sources) {
    const uint64_t part = draw.below(8);
    if (part < 5 || lazy) continue;
    source.part = static_cast<DrawnSource::Part>(part - 4);
    source.first = draw.below(part == 7 ? 3 : 50);
    source.last = source.first + (part == 7 ? 1 : 0) + draw.below(part == 7 ? 3 : 51);
  }
  const bool packs = draw.below(4) == 3;
  for (size_t f = 0; f < count; f++) {
    DrawnFile& file = files.emplace_back();
    file.uri = "memory://" + std::to_string(f);
    file.source = static_cast<uint32_t>(f * sources.size() / count);
    if (packs) {
      file.format = draw.one_of({Compression::gzip, Compression::zlib, Compression::none});
      file.level = draw.coin() ? 6 : 0;
    }
    for (size_t left = draw.below(draw.coin() ? 61 : 9); left > 0; left--) add_record(draw, file);
    damage(draw, file);
  }
}

inline void Case::add_record(Draw& draw, DrawnFile& file) {
  Draw nothing(nullptr, 0);
  Draw& from = draw.below(3) == 0 ? draw : nothing;  // most records are plain ones, so that inputs are small
  DrawnRecord& record = records.emplace_back();
  record.id = static_cast<int64_t>(records.size());
  record.file = static_cast<uint32_t>(&file - files.data());
  record.offset = file.bytes.size();
  record.n =
      from.below(8) == 7 ? static_cast<int64_t>(from.near(draw.coin() ? 3 : uint64_t{1} << 63)) : record.id / 3 % 3;
  record.malformed = type != RecordType::raw && from.below(32) == 31;
  for (size_t f = 0; f < features.size(); f++) {
    if (type != RecordType::raw && f < 2)
      record.held.push_back({.steps = {{DType::int64, {wire::raw(f == 0 ? record.id : record.n)}}}});
    else
      record.held.push_back(drawn_held(from, features[f], static_cast<uint64_t>(record.id) << 8 | f));
  }
  if (type == RecordType::raw) {
    Held& held = record.held[0];
    held.there = true;
    held.steps.resize(1);
    held.steps[0].dtype = DType::bytes;
    if (held.steps[0].values.size() != 1 || large)
      held.steps[0].values = {
          value_of(DType::bytes, static_cast<uint64_t>(record.id), large ? 5000 : 1 + from.below(40))};
    record.payload = held.steps[0].values[0];
  } else {
    record.payload = payload_of(features, record, type == RecordType::sequence_example);
    if (large) record.payload += wire::delimited(1, wire::entry("more", wire::bytes_feature({std::string(5000, 'm')})));
  }
  file.bytes += frame_of(record.payload);
  file.records.push_back(&record);
}

// Damages a record, or cuts the file, before the data is counted; or notes a record that is damaged afterwards.
inline void Case::damage(Draw& draw, DrawnFile& file) {
  const uint64_t how = draw.below(12);
  if (how < 6 || file.records.empty() || (lazy && how > 8)) return;
  const size_t number = draw.below(file.records.size());
  DrawnRecord& record = *file.records[number];
  const uint64_t header = draw.below(io::header_bytes),
                 payload = io::header_bytes + draw.below(record.payload.size() + 4);
  if (how == 6 || how == 7) {
    file.bytes[record.offset + (how == 6 ? header : payload)] ^= 4;
    record.counted = false;
    file.damaged_at = number;
  } else if (how == 8) {
    const uint64_t end = record.offset + draw.below(frame_of(record.payload).size());
    file.bytes.resize(end);
    for (size_t later = number; later < file.records.size(); later++) file.records[later]->counted = false;
    if (end > record.offset) file.damaged_at = number;
  } else if (file.format != Compression::none && (how == 11 || file.level > 0)) {
    hidden_.push_back({static_cast<size_t>(&file - files.data()), 0, draw.below(file.stored().size()), true});
  } else {
    hidden_.push_back(
        {static_cast<size_t>(&file - files.data()), number, record.offset + (how == 9 ? header : payload), false});
  }
}

inline void Case::hide_damage(MemorySource& source) {
  for (const auto& [number, first, byte, in_stream] : hidden_) {
    DrawnFile& file = files[number];
    if (in_stream) {
      for (DrawnRecord* record : file.records) record->may_be_lost = true;
      source.bytes_of(file.uri)[byte] ^= 4;
      continue;
    }
    file.bytes[byte] ^= 4;
    file.records[first]->damaged = true;
    // Without its length the records after it cannot be found, up to the next that the index knows: the first one of a
    // stride.
    if (byte - file.records[first]->offset < io::header_bytes)
      for (size_t later = first + 1; later < file.records.size(); later++) {
        if (file.records[later]->offset / stride_ > file.records[later - 1]->offset / stride_) break;
        file.records[later]->damaged = true;
      }
    source.bytes_of(file.uri) = file.stored();
  }
}

inline std::string Case::text() const {
  std::string text;
  for (size_t s = 0; s < sources.size(); s++) {
    constexpr const char* types[] = {"EXAMPLE", "SEQUENCE_EXAMPLE", "RAW"};
    text += std::string("source { record_limit: '1MiB' record_type: ") + types[static_cast<size_t>(type)];
    for (const DrawnFile& file : files)
      if (file.source == s) text += " files: '" + file.uri + "'";
    const auto& [part, first, last] = sources[s];
    const std::string unit = part == DrawnSource::Part::percent ? "%" : "";
    if (part == DrawnSource::Part::shard)
      text += " shard_id: " + std::to_string(first) + " num_shards: " + std::to_string(last);
    else if (part != DrawnSource::Part::all)
      text += " range: '" + std::to_string(first) + unit + ":" + std::to_string(last) + unit + "'";
    if (mixed) text += " weight: " + std::to_string(1 + 2 * s);
    text += " index { stride: '" + std::to_string(stride_) + "' } } ";
  }
  if (type != RecordType::raw || features[0].length >= 0)
    for (const FeatureSpec& feature : features) text += text_of(feature);
  return text + order_text_ + output_text_ + cache_text_;
}

inline std::vector<std::vector<const DrawnRecord*>> Case::counted() const {
  std::vector<std::vector<const DrawnRecord*>> all;
  for (const DrawnFile& file : files) {
    auto& good = all.emplace_back();
    if (on_error == OnError::skip_file && file.damaged_at) continue;
    for (const DrawnRecord* record : file.records)
      if (record->counted) good.push_back(record);
  }
  return all;
}

inline std::vector<std::vector<const DrawnRecord*>> Case::chosen() const {
  const auto all = counted();
  std::vector<std::vector<const DrawnRecord*>> parts(files.size());
  bool ended = false;
  for (size_t s = 0; s < sources.size(); s++) {
    uint64_t count = 0;
    for (size_t f = 0; f < files.size(); f++) count += files[f].source == s ? all[f].size() : 0;
    const auto& [part, first, last] = sources[s];
    uint64_t begin = 0, end = count;
    if (part == DrawnSource::Part::range) begin = std::min(first, count), end = std::min(last, count);
    if (part == DrawnSource::Part::percent)
      begin = count * std::min<uint64_t>(first, 100) / 100, end = count * std::min<uint64_t>(last, 100) / 100;
    if (part == DrawnSource::Part::shard) begin = count * first / last, end = count * (first + 1) / last;
    uint64_t number = 0;
    for (size_t f = 0; f < files.size(); f++) {
      if (files[f].source != s) continue;
      for (size_t r = 0; r <= all[f].size(); r++) {
        // With RAISE the data ends at the first damage in the part.
        if (on_error == OnError::raise && files[f].damaged_at == r && number >= begin &&
            (number < end || (number == end && end == count)))
          ended = true;
        if (r == all[f].size()) break;
        if (number >= begin && number < end && !ended) parts[f].push_back(all[f][r]);
        number++;
      }
    }
  }
  return parts;
}

inline std::vector<std::vector<Sample>> Case::samples() const {
  std::vector<std::vector<Sample>> all(sources.size());
  const auto parts = chosen();
  const DrawnRecord* before = nullptr;  // the last record that was kept
  std::vector<const DrawnRecord*> group;
  const auto end_group = [&](uint32_t source) {
    const auto size = static_cast<int64_t>(group.size());
    for (int64_t first = 0; first < size; first += shift) {
      Sample sample;
      for (int64_t i = 0; i < std::max<int64_t>(1, frames); i++)
        sample.push_back(first + i * stride < size ? group[static_cast<size_t>(first + i * stride)] : nullptr);
      if (!drop_remainder || sample.back()) all[source].push_back(sample);
    }
    group.clear();
  };
  for (size_t f = 0; f < files.size(); f++) {
    if (f > 0 && (!across_files || files[f].source != files[f - 1].source)) end_group(files[f - 1].source);
    for (const DrawnRecord* record : parts[f]) {
      if (!is_kept(*record)) continue;
      if (by_key && before && before->n != record->n) end_group(files[f].source);
      before = record;
      group.push_back(record);
    }
  }
  end_group(files.back().source);
  return all;
}

}  // namespace feedline::test
