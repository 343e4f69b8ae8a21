// Feeds a small data set through a pipeline, on one thread and without a graph. Both are drawn. What comes out is compared
// with what the documents say of the structure that was drawn: which samples come, in which order and how often, each value
// of each tensor, what filler copies, and the error with which a feed ends. A feed that goes on from a step, one with a
// cache of records, and index.mode LAZY must give the same bytes.
//
// covers: flowgraph/batch/arriving_rows.cc flowgraph/batch/assemble.cc flowgraph/batch/epoch_ledger.cc
// covers: flowgraph/chunk/chunk.cc flowgraph/chunk/file_inflater.cc flowgraph/chunk/lazy_reader.cc
// covers: flowgraph/order/apportionment.cc flowgraph/order/block_stream.cc flowgraph/order/buffer_stream.cc
// covers: flowgraph/order/file_stream.cc flowgraph/order/global_stream.cc flowgraph/order/mixed_stream.cc
// covers: flowgraph/order/mixture.cc flowgraph/order/order.cc flowgraph/order/picked_stream.cc flowgraph/order/sequence.cc
// covers: flowgraph/order/steps.cc flowgraph/order/stratified.cc flowgraph/order/ticket.cc
// covers: flowgraph/order/window_stream.cc flowgraph/order/windows.cc flowgraph/plan/epoch_sums.cc
// covers: flowgraph/plan/kept_pieces.cc flowgraph/plan/pass_audit.cc flowgraph/plan/schedule.cc flowgraph/plan/walk.cc
#include <oneapi/tbb/task_arena.h>

#include "feed_case.h"
#include "feed_run.h"
#include "flowgraph/batch/empty_epoch.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/measure_kept.h"
#include "flowgraph/plan/kept_pieces.h"
#include "flowgraph/plan/pass_audit.h"
#include "io/index/count_records.h"
#include "io/index/index_check.h"
#include "support/more_seek_points.h"

namespace feedline::test {
namespace {

/// Returns the data as counting finds it. All records that are drawn and not damaged must be there.
flow::DataSet count(Case& drawn, const flow::PipelineSpec& spec, const MemorySource& source) {
  flow::DataSet data;
  std::vector<io::FileIndex> indexes;
  for (const DrawnFile& file : drawn.files) {
    data.files.push_back(
        {.id = source.stat(file.uri), .source = file.source, .index = {}, .first_record = 0, .samples = {}});
    data.bytes += data.files.back().id.size;
    indexes.push_back(io::count_records(
        source.open(file.uri), {.record_limit = spec.sources[0].record_limit, .stride = spec.sources[0].index.stride}));
  }
  // Closer than counting finds them, so that small files have some.
  for (size_t f = 0; f < indexes.size(); f++)
    if (indexes[f].compression != Compression::none)
      find_more_seek_points(indexes[f], std::as_bytes(std::span(source.bytes_of(drawn.files[f].uri))),
                            indexes[f].stride, 7);
  data = flow::counted_data(spec, std::move(data), std::move(indexes));
  const auto counted = drawn.counted();
  std::vector<int64_t> numbers(drawn.sources.size());
  for (size_t f = 0; f < counted.size(); f++) {
    MUST_HOLD(data.files[f].index.records == counted[f].size());
    for (const DrawnRecord* record : counted[f])
      const_cast<DrawnRecord*>(record)->number = numbers[drawn.files[f].source]++;
  }
  return data;
}

/// Does to the data what apply_filter() does.
void filter(const Case& drawn, flow::DataSet& data) {
  if (!drawn.filters && !drawn.by_key) return;
  const auto counted = drawn.counted(), chosen = drawn.chosen();
  const auto keys = flow::audit_keys(data.files);
  const DrawnRecord* before = nullptr;
  data.samples = 0;
  for (size_t f = 0; f < data.files.size(); f++) {
    const auto put = [](std::vector<uint64_t>& set, size_t number) {
      set.resize(std::max(set.size(), number / 64 + 1));
      set[number / 64] |= uint64_t{1} << number % 64;
    };
    std::vector<uint64_t> kept(1), changes(1);
    uint64_t audit = 0, samples = 0;
    for (const DrawnRecord* record : chosen[f]) {
      if (!drawn.is_kept(*record)) continue;
      put(kept, static_cast<size_t>(std::ranges::find(counted[f], record) - counted[f].begin()));
      if (!before || before->n != record->n) put(changes, samples);
      before = record;
      audit += keys[f] * audit_term(record->offset, crc_of(record->payload));
      samples++;
    }
    flow::DataFile& file = data.files[f];
    if (samples < file.samples.samples()) file.samples = flow::Selection(std::make_shared<const flow::NumberSet>(kept));
    if (drawn.by_key) file.key_changes = std::make_shared<const flow::NumberSet>(changes);
    file.kept_audit = audit;
    data.samples += samples;
  }
}

/// Compares what all ranks were given with what the documents say.
class Check {
 public:
  Check(const Case& drawn, const flow::Plan& plan, const std::vector<Run>& ranks, const RunOptions& options)
      : drawn_(drawn), plan_(plan), ranks_(ranks), options_(options), frames_(std::max<int64_t>(1, drawn.frames)) {
    for (const DrawnRecord& record : drawn.records) records_[{record.file, record.offset}] = &record;
    for (const auto& of_source : drawn.samples()) {
      starts_.push_back(samples_.size());
      samples_.insert(samples_.end(), of_source.begin(), of_source.end());
    }
    starts_.push_back(samples_.size());
    for (size_t s = 0; s < samples_.size(); s++)
      for (size_t frame = 0; frame < samples_[s].size(); frame++)
        if (samples_[s][frame]) places_[{samples_[s][frame], frame}] = s;
    for (const Run& run : ranks) failed_ = failed_ || run.error;
  }

  void all() {
    size_t steps = SIZE_MAX;
    for (const Run& run : ranks_)
      for (const auto& batches : run.batches) steps = std::min(steps, batches.size());
    for (size_t s = 0; s < steps; s++) step(s);
    if (!failed_) counts();
    for (const Run& run : ranks_)
      if (run.error) error(*run.error, steps);
  }

 private:
  bool has_good_frame(const Sample& sample) const {
    return std::ranges::any_of(
        sample, [&](const DrawnRecord* record) { return record && !drawn_.is_bad(*record) && !record->may_be_lost; });
  }
  static std::string_view row(const Tensor& tensor, size_t row, size_t rows) {
    const size_t bytes = tensor.bytes.size() / rows;
    return std::string_view(tensor.bytes).substr(row * bytes, bytes);
  }
  template <typename T>
  static T number(const Tensor& tensor, size_t row) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + row * sizeof value, sizeof value);
    return value;
  }

  void step(size_t number);
  struct Row {
    const DrawnRecord* record = nullptr;  // null: it is filler
    bool is_padding = false, may_be_padding = false;
  };
  void batch(const Got& got, const std::vector<Row>& rows) const;
  void filler(const Got& got, const std::vector<Row>& rows) const;
  void list(const Got& got, const std::vector<Row>& rows, const Output& output) const;
  bool is_row_of(const Got& got, size_t row, const DrawnRecord* record) const;
  void counts() const;
  void error(const Error& error, size_t steps) const;
  static void expect(const Got& got, const std::string& name, DType dtype, const Shape& shape,
                     const std::string& bytes);

  const Case& drawn_;
  const flow::Plan& plan_;
  const std::vector<Run>& ranks_;
  const RunOptions& options_;
  const int64_t frames_;
  bool failed_ = false;
  std::map<std::pair<uint32_t, uint64_t>, const DrawnRecord*> records_;
  std::vector<Sample> samples_;  // of all sources
  std::vector<size_t> starts_;   // by source, the first of its samples; and how many there are
  std::map<std::pair<const DrawnRecord*, size_t>, size_t> places_;  // of a frame: its sample
  std::vector<std::vector<int64_t>> delivered_;                     // by epoch and sample
  std::vector<int64_t> positions_;                                  // by epoch: the samples in its steps
};

void Check::expect(const Got& got, const std::string& name, DType dtype, const Shape& shape, const std::string& bytes) {
  const Tensor& tensor = got.at(name);
  if (tensor == Tensor{name, dtype, shape, bytes}) return;
  std::fprintf(stderr, "step %ld: tensor '%s' is %s %s, not %s\n", static_cast<long>(got.step), name.c_str(),
               std::string(feedline::name(tensor.dtype)).c_str(), to_string(tensor.shape).c_str(),
               to_string(shape).c_str());
  MUST_HOLD(tensor.bytes == bytes);
  std::abort();
}

// Takes step number `s` of those that were fed, which all replicas of all ranks have a part of.
void Check::step(size_t s) {
  const Got& first = ranks_[0].batches[0][s];
  const uint64_t epoch = first.epoch - options_.start.epoch;
  if (delivered_.size() <= epoch) delivered_.resize(epoch + 1, std::vector<int64_t>(samples_.size()));
  if (positions_.size() <= epoch) positions_.resize(epoch + 1);
  const int64_t of_epoch = plan_.samples_per_epoch, before = first.step * drawn_.batch;
  const bool full = of_epoch < 0 || before + drawn_.batch <= of_epoch;
  const int64_t parts = drawn_.world * drawn_.replicas;
  int64_t samples = full ? drawn_.batch : of_epoch - before;
  int64_t part = 0;
  for (const Run& run : ranks_) {
    // The step of an error may be shorter. Each rank meets its own here.
    const bool cut = run.error && options_.deliver_before_error && s + 1 == run.batches[0].size();
    const bool padded = drawn_.policy == LastBatchPolicy::pad && !cut;
    for (const auto& batches : run.batches) {
      const Got& got = batches[s];
      MUST_HOLD(got.epoch == first.epoch && got.step == first.step);
      int64_t begin = part * drawn_.batch / parts, end = (part + 1) * drawn_.batch / parts;
      if (!full && !padded) {
        begin = part * (samples / parts) + std::min(part, samples % parts);
        end = begin + samples / parts + (part < samples % parts ? 1 : 0);
      }
      part++;
      if (!cut) MUST_HOLD(got.rows == std::max<int64_t>(1, end - begin));
      const Tensor& mask = got.at("@valid");
      std::vector<Row> rows;
      int64_t valid = 0;
      for (int64_t w = 0; w < got.rows; w++) {
        const Sample* sample = nullptr;
        if (drawn_.in_file_order() && !cut) {
          const int64_t at = begin + w;
          const auto place = static_cast<size_t>(
              (drawn_.epoch_steps > 0 ? static_cast<int64_t>(first.epoch) * drawn_.epoch_steps * drawn_.batch : 0) +
              before + at);
          if (at < std::min(end, samples)) sample = &samples_[place % samples_.size()];
        }
        bool any = false;
        for (int64_t frame = 0; frame < frames_; frame++) {
          const auto r = static_cast<size_t>(w * frames_ + frame);
          Row& one = rows.emplace_back();
          if (number<uint8_t>(mask, r) == 0) continue;
          const auto found =
              records_.find({static_cast<uint32_t>(number<int64_t>(got.at("f"), r)), number<uint64_t>(got.at("o"), r)});
          MUST_HOLD(found != records_.end());
          one.record = found->second;
          any = true;
          if (sample) continue;
          const auto of = places_.find({one.record, static_cast<size_t>(frame)});
          MUST_HOLD(of != places_.end());
          if (!drawn_.in_file_order() || cut) sample = &samples_[of->second];
          MUST_HOLD(sample);
        }
        valid += any;
        for (int64_t frame = 0; frame < frames_; frame++) {
          Row& one = rows[static_cast<size_t>(w * frames_ + frame)];
          const DrawnRecord* const wanted = sample ? (*sample)[static_cast<size_t>(frame)] : nullptr;
          if (one.record)
            MUST_HOLD(one.record == wanted && !drawn_.is_bad(*wanted));
          else if (wanted)
            MUST_HOLD(drawn_.is_bad(*wanted) || wanted->may_be_lost);
          one.is_padding = !one.record && !wanted && (sample || drawn_.in_file_order());
          one.may_be_padding = !one.record && !wanted;
        }
        if (sample) delivered_[epoch][static_cast<size_t>(sample - samples_.data())]++;
      }
      MUST_HOLD(valid == got.valid);
      batch(got, rows);
    }
  }
  positions_[epoch] += samples;
}

bool Check::is_row_of(const Got& got, size_t r, const DrawnRecord* record) const {
  const auto rows = static_cast<size_t>(got.rows * frames_);
  return std::ranges::all_of(drawn_.outputs, [&](const Output& output) {
    if (!output.row) return true;
    const std::string_view has = row(got.at(output.name), r, rows);
    if (record) return has == *output.row(*record);
    return has.find_first_not_of('\0') == std::string_view::npos;
  });
}

void Check::batch(const Got& got, const std::vector<Row>& rows) const {
  const auto with_rows = [&](const Shape& shape) {
    return drawn_.frames > 0 ? shape.with_rows(frames_).with_rows(got.rows) : shape.with_rows(got.rows);
  };
  std::string mask;
  for (const Row& one : rows) mask += one.record ? '\1' : '\0';
  for (const Tensor& tensor : got.tensors)
    if (tensor.name == "mask" || tensor.name == "@valid") expect(got, tensor.name, DType::boolean, with_rows({}), mask);
  for (const Output& output : drawn_.outputs) {
    if (!output.row) {
      list(got, rows, output);
      continue;
    }
    const Tensor& tensor = got.at(output.name);
    MUST_HOLD(tensor.dtype == output.dtype && tensor.shape == with_rows(output.shape));
    for (size_t r = 0; r < rows.size(); r++)
      if (rows[r].record) MUST_HOLD(row(tensor, r, rows.size()) == *output.row(*rows[r].record));
  }
  filler(got, rows);
}

// Filler copies the nearest good row of its batch, or, if it is padding, the row before it. If there is none, it is made of
// zeros, or copies a row of the step.
void Check::filler(const Got& got, const std::vector<Row>& rows) const {
  const auto good = [&](size_t r) { return rows[r].record != nullptr; };
  for (size_t r = 0; r < rows.size(); r++) {
    if (good(r)) continue;
    std::optional<size_t> before, after;
    for (size_t other = 0; other < rows.size(); other++) {
      if (!good(other)) continue;
      if (other < r) before = other;
      if (other > r && !after) after = other;
    }
    const bool nearer = before && (!after || r - *before <= *after - r);
    std::vector<const DrawnRecord*> candidates;
    if (before || after) candidates.push_back(rows[nearer ? *before : *after].record);
    // The nearest row may be padding, which is a copy of the one before it.
    if (before && (frames_ > 1 || drawn_.policy == LastBatchPolicy::pad)) candidates.push_back(rows[*before].record);
    const bool is_first = std::all_of(rows.begin(), rows.begin() + static_cast<long>(r + 1),
                                      [](const Row& one) { return one.may_be_padding; });
    if (is_first || (!before && !after)) {
      if (!before && !after) candidates.push_back(nullptr);
      const auto copied =
          records_.find({static_cast<uint32_t>(number<int64_t>(got.at("f"), r)), number<uint64_t>(got.at("o"), r)});
      if (rows[r].may_be_padding && copied != records_.end() && !drawn_.is_bad(*copied->second))
        candidates.push_back(copied->second);
    }
    MUST_HOLD(std::ranges::any_of(candidates, [&](const DrawnRecord* record) { return is_row_of(got, r, record); }));
  }
}

// Compares the tensors of an output whose rows differ in length. Filler has no values, or only padding.
void Check::list(const Got& got, const std::vector<Row>& rows, const Output& output) const {
  const FeatureSpec& feature = drawn_.features[output.feature];
  const bool padded = feature.kind == FeatureKind::fixed_sequence, fixed = feature.kind == FeatureKind::fixed;
  const bool bytes = output.dtype == DType::bytes;
  const auto elements = static_cast<size_t>(feature.shape.elements());
  std::vector<std::vector<Values>> all;
  size_t longest = 0;
  for (const Row& one : rows) {
    all.push_back(one.record ? steps_of(feature, one.record->held[output.feature]) : std::vector<Values>());
    longest = std::max(longest, flat(all.back()).size() / std::max<size_t>(1, elements));
  }
  Values values;
  std::vector<int64_t> row_splits{0}, step_splits{0};
  for (const std::vector<Values>& steps : all) {
    Values own = flat(steps);
    for (const Values& step : steps) step_splits.push_back(step_splits.back() + static_cast<int64_t>(step.size()));
    if (fixed) own.resize(elements);
    if (padded)
      while (own.size() < longest * elements)
        own.push_back(feature.has_default ? defaults_of(feature)[0]
                      : bytes             ? std::string()
                                          : wire::raw(int64_t{0}).substr(0, size_of(feature.dtype)));
    values.insert(values.end(), own.begin(), own.end());
    row_splits.push_back(static_cast<int64_t>(feature.nested() ? step_splits.size() - 1 : values.size()));
  }
  const auto expect_ints = [&](const char* part, const std::vector<int64_t>& ints) {
    std::string raw;
    for (const int64_t each : ints) raw += wire::raw(each);
    expect(got, output.name + part, DType::int64, {std::ssize(ints)}, raw);
  };
  const auto count = static_cast<int64_t>(longest);
  if (bytes) {
    std::vector<int64_t> offsets{0};
    for (const std::string& value : values) offsets.push_back(offsets.back() + static_cast<int64_t>(value.size()));
    expect(got, output.name + ".bytes", DType::uint8, {offsets.back()}, joined(values));
    expect_ints(".offsets", offsets);
  } else if (padded) {
    expect(got, output.name, output.dtype, feature.shape.with_rows(count).with_rows(std::ssize(rows)), joined(values));
  } else {
    expect(got, output.name + ".values", output.dtype, {std::ssize(values)}, joined(values));
  }
  if (feature.nested()) expect_ints(".step_splits", step_splits);
  if (!padded && !fixed) expect_ints(".row_splits", row_splits);
}

// Each sample comes as often as its epoch has passes.
void Check::counts() const {
  for (size_t epoch = 0; epoch < delivered_.size(); epoch++) {
    const bool whole = drawn_.epoch_steps == 0 && positions_[epoch] == plan_.samples_per_epoch;
    for (size_t source = 0; source + 1 < starts_.size(); source++) {
      const auto size = static_cast<int64_t>(starts_[source + 1] - starts_[source]);
      if (size == 0) continue;
      // The samples that the epoch has of the source.
      int64_t taken = size * drawn_.repeat;
      if (drawn_.epoch_steps > 0)
        taken = drawn_.mixed ? drawn_.epoch_steps * drawn_.batch
                             : std::min(drawn_.epoch_steps * drawn_.batch, positions_[epoch]);
      if (drawn_.mixed && drawn_.epoch_steps == 0) taken = static_cast<int64_t>(plan_.mixture->amounts()[source]);
      const int64_t most = taken / size + (drawn_.epoch_steps > 0 ? 2 : taken % size > 0 ? 1 : 0);
      const int64_t least = whole ? taken / size : 0;
      for (size_t s = starts_[source]; s < starts_[source + 1]; s++) {
        MUST_HOLD(delivered_[epoch][s] <= most);
        if (has_good_frame(samples_[s])) MUST_HOLD(delivered_[epoch][s] >= least);
      }
    }
  }
  if (!drawn_.mixed || drawn_.epoch_steps > 0) return;
  bool one_is_used_up = false;
  for (size_t source = 0; source + 1 < starts_.size(); source++) {
    const uint64_t size = (starts_[source + 1] - starts_[source]) * static_cast<uint64_t>(drawn_.repeat),
                   taken = plan_.mixture->amounts()[source];
    one_is_used_up = one_is_used_up || taken == size;
    if (drawn_.stop == MixtureStop::first_exhausted) MUST_HOLD(taken <= size);
    if (drawn_.stop == MixtureStop::all_exhausted) MUST_HOLD(taken == size);
    if (drawn_.stop == MixtureStop::cycle_until_all) MUST_HOLD(taken >= size);
  }
  MUST_HOLD(one_is_used_up);
}

// An error names a bad record, before which all whole steps were delivered.
void Check::error(const Error& error, size_t steps) const {
  MUST_HOLD(!error.message().empty() && error.category() != Category::internal_error);
  const bool is_absent = error.category() == Category::missing_feature && error.place().offset < 0;
  MUST_HOLD(is_absent ? drawn_.absent_is_error : !error.place().file.empty());
  if (is_absent) return;
  if (options_.fails_at != UINT64_MAX || error.category() == Category::bad_compression) return;
  const auto file = std::ranges::find(drawn_.files, error.place().file, &DrawnFile::uri);
  MUST_HOLD(file != drawn_.files.end());
  const auto named =
      records_.find({static_cast<uint32_t>(file - drawn_.files.begin()), static_cast<uint64_t>(error.place().offset)});
  const bool is_end = !plan_.data.raised.empty() && error.what() == std::string_view(plan_.data.raised[0].what());
  MUST_HOLD(is_end || (named != records_.end() && (drawn_.is_bad(*named->second) || named->second->may_be_lost)));
  if (drawn_.on_error != OnError::raise || !drawn_.in_file_order() || drawn_.frames > 0 || drawn_.world > 1) return;
  // All samples before the first bad one were delivered in whole steps, and then, if that is wanted, those that are left.
  const auto bad = std::ranges::find_if(
      samples_, [&](const Sample& sample) { return drawn_.is_bad(*sample[0]) || sample[0]->may_be_lost; });
  if (bad != samples_.end() && (*bad)[0]->may_be_lost) return;
  const auto good = static_cast<size_t>(bad - samples_.begin()), each = static_cast<size_t>(drawn_.batch);
  if (options_.start.epoch > 0 || options_.start.step > 0) return;
  MUST_HOLD(steps == good / each + (options_.deliver_before_error && good % each > 0 ? 1 : 0));
  if (options_.deliver_before_error && good % each > 0) {
    int64_t valid = 0;
    for (const auto& batches : ranks_[0].batches) valid += batches.back().valid;
    MUST_HOLD(valid == static_cast<int64_t>(good % each));
  }
}

std::vector<Run> run_all(const Case& drawn, const flow::PipelineSpec& spec,
                         const std::shared_ptr<const flow::DataSet>& data, const MemorySource& source,
                         const RunOptions& options, bool checked) {
  std::vector<Run> runs;
  std::shared_ptr<const flow::CachePlan> cache;
  if (spec.cache) cache = std::make_shared<const flow::CachePlan>(spec, *data, flow::measure_kept(spec, *data));
  std::optional<flow::CacheStore> store;
  if (cache) store.emplace(*cache);
  std::deque<flow::Plan> plans;
  for (int rank = 0; rank < drawn.world; rank++) {
    const flow::Plan& plan = plans.emplace_back(spec, data, flow::Ranks{rank, drawn.world, drawn.replicas}, 1,
                                                flow::Plan::MoreMemory{}, cache);
    flow::refuse_empty_epoch(plan, data->samples);
    RunOptions of_rank = options;
    of_rank.cache = store ? &*store : nullptr;
    runs.push_back(run(plan, source, of_rank));
  }
  if (checked) Check(drawn, plans[0], runs, options).all();
  return runs;
}

// The second runs must have the same batches as the first ones have from batch number `from` on, and end as they did. If
// they count bad records at other times, so that errors.max_failures may end them sooner or later, `end_alike` is false.
void must_equal(const char* way, const std::vector<Run>& first, const std::vector<Run>& second, size_t from = 0,
                bool end_alike = true) {
  const auto fail = [&](const Got& a, const Got& b) {
    std::fprintf(stderr, "%s: epoch %d, step %d: other rows\n", way, static_cast<int>(a.epoch),
                 static_cast<int>(a.step));
    for (size_t t = 0; t < std::min(a.tensors.size(), b.tensors.size()); t++)
      if (a.tensors[t] != b.tensors[t]) std::fprintf(stderr, "tensor '%s' differs\n", a.tensors[t].name.c_str());
    MUST_HOLD(a == b);
  };
  for (size_t rank = 0; rank < first.size(); rank++) {
    const Run &a = first[rank], &b = second[rank];
    for (size_t r = 0; r < a.batches.size(); r++) {
      const size_t left = a.batches[r].size() - std::min(from, a.batches[r].size());
      if (b.batches[r].size() != left && end_alike)
        std::fprintf(stderr, "%s: %zu batches (%s), not %zu (%s)\n", way, b.batches[r].size(),
                     b.error ? b.error->what() : "no error", left, a.error ? a.error->what() : "no error");
      MUST_HOLD(b.batches[r].size() == left || !end_alike);
      size_t equal = std::min(left, b.batches[r].size());
      if (!end_alike && equal > 0) equal--;  // the last step of one may be cut
      for (size_t s = 0; s < equal; s++)
        if (a.batches[r][from + s] != b.batches[r][s]) fail(a.batches[r][from + s], b.batches[r][s]);
    }
    if (!end_alike) continue;
    MUST_HOLD(a.error.has_value() == b.error.has_value());
    if (a.error) MUST_HOLD(std::string_view(a.error->what()) == b.error->what());
  }
}

// Does what apply_filter() does: feeds the filter's pipeline, and compares its rows with the records.
void check_filter(const Case& drawn, const flow::PipelineSpec& spec, const flow::DataSet& data,
                  const MemorySource& source) {
  if (!spec.filter) return;
  auto whole = std::make_shared<flow::DataSet>(data);
  whole->raised.clear();
  const Run fed = run(flow::Plan(*spec.filter, whole, {}, 1, {}), source, {});
  const auto keys = flow::audit_keys(data.files);
  size_t sample = 0;
  const auto chosen = drawn.chosen();
  for (size_t f = 0; f < chosen.size() && !fed.error; f++)
    for (const DrawnRecord* record : chosen[f]) {
      const Got& got = fed.batches[0].at(sample / 4096);
      const auto number = [&, row = sample++ % 4096](const char* name, auto value) {
        std::memcpy(&value, got.at(name).bytes.data() + row * sizeof value, sizeof value);
        return value;
      };
      const bool refused = drawn.is_refused(*record);
      MUST_HOLD(number("@valid", uint8_t{}) == !refused);
      if (refused) continue;
      MUST_HOLD(number("filter", double{}) == (!drawn.filters || record->n >= 1 ? 1 : 0));
      MUST_HOLD(number("@audit", uint64_t{}) == keys[f] * audit_term(record->offset, crc_of(record->payload)));
      if (drawn.by_key) MUST_HOLD(number("@key", int64_t{}) == record->n);
    }
}

/// Returns the data with an index that says that there are more records than there are, and is accepted all the same.
/// Null: there is no such index.
std::shared_ptr<const flow::DataSet> forged(const flow::PipelineSpec& spec, flow::DataSet data, Draw& draw) {
  flow::DataFile& file = data.files[draw.below(data.files.size())];
  io::FileIndex& index = file.index;
  std::vector<io::IndexEntry> entries(index.entries.begin(), index.entries.end());
  if (entries.size() < 2 || file.left_out) return nullptr;
  // They take no bytes but those of their frames, of the payloads of the records between the last two entries. One record
  // is still as large as the largest.
  const uint64_t spare = index.payload_bytes - index.largest_record;
  const uint64_t more = draw.near(spare / io::frame_bytes / draw.one_of({1, 2, 8}));
  entries.back().record += more;
  index.entries = std::move(entries);
  index.records += more;
  index.payload_bytes -= io::frame_bytes * more;
  index.smallest_record = 0;
  io::FileIndex bare = index;
  bare.seek_points = {};  // there are more than counting finds
  bare.windows = {};
  if (!io::contradiction(bare, file.id.size, spec.sources[0].record_limit).empty()) return nullptr;
  data.raised.clear();
  flow::choose_samples(spec, data);
  return std::make_shared<const flow::DataSet>(std::move(data));
}

// Goes on in the second epoch with other weights. Each source goes on where it was.
void check_other_weights(const Case& drawn, flow::PipelineSpec spec, const std::shared_ptr<const flow::DataSet>& data,
                         const MemorySource& source, RunOptions options, Draw& draw) {
  const flow::Plan plan(spec, data, flow::Ranks{0, drawn.world, drawn.replicas}, 1, {});
  flow::Reweighted weights{.since_epoch = 1, .taken = plan.mixture->taken_before(1)};
  uint64_t taken = 0;
  for (const uint64_t of_source : weights.taken) {
    taken += of_source;
    weights.shares.push_back(static_cast<uint32_t>(1 + draw.below(9)));
  }
  MUST_HOLD(taken == static_cast<uint64_t>(drawn.epoch_steps * drawn.batch));
  spec.mixture->reweighted = std::move(weights);
  options.start = {.epoch = 1, .step = 0};
  run_all(drawn, spec, data, source, options, true);
}

// A cache's file that has so many entries as are kept now has the same ones.
void check_kept_pieces(const flow::DataSet& data, Draw& draw) {
  const uint64_t limit = 4096 << draw.below(8), room = std::min(limit, draw.near(limit)), row = draw.below(100);
  flow::KeptPieces by_room(data), by_entries(data);
  by_room.keep(limit, room, row);
  by_entries.keep_entries(limit, by_room.layout().entries, row);
  MUST_HOLD(by_room.layout().data_bytes + by_room.layout().entries * row <= room);
  MUST_HOLD(by_entries.layout().entries == by_room.layout().entries &&
            by_entries.layout().data_bytes == by_room.layout().data_bytes);
  MUST_HOLD(by_entries.samples() == by_room.samples());
  for (uint32_t file = 0; file < data.files.size(); file++)
    for (uint64_t piece = 0; piece < data.files[file].index.entries.size(); piece++)
      MUST_HOLD(by_entries.entry_of(file, piece) == by_room.entry_of(file, piece));
}

void feed(Draw& draw) {
  RunOptions options{.epochs = 1 + draw.below(2), .deliver_before_error = draw.coin()};
  options.gap = draw.coin() ? 32 : 0;
  const uint64_t other_way = draw.below(4), fails_at = draw.below(32);
  const std::string_view of_other = draw.bytes(16);
  Draw other(reinterpret_cast<const uint8_t*>(of_other.data()), of_other.size());
  Case drawn(draw);
  pipeline_text = drawn.text();
  MemorySource::Files files;
  for (const DrawnFile& file : drawn.files) files[file.uri] = file.stored();
  MemorySource source(std::move(files));
  const Mounted mounted(source);
  const flow::PipelineSpec spec = flow::validate(parse_pipeline(pipeline_text), [](const flow::FilePatterns& patterns) {
    return flow::FileList{patterns.files, {}};
  });
  auto data = std::make_shared<flow::DataSet>(count(drawn, spec, source));
  check_filter(drawn, spec, *data, source);
  filter(drawn, *data);
  flow::sum_passes(spec, *data);
  drawn.hide_damage(source);
  options.may_differ = drawn.hides_damage_in_streams();
  const std::vector<Run> runs = run_all(drawn, spec, data, source, options, true);
  flow::PipelineSpec plain = spec;
  plain.cache.reset();
  if (drawn.cached) must_equal("without a cache", runs, run_all(drawn, plain, data, source, options, false));
  if (drawn.cached && other_way == 0) check_kept_pieces(*data, other);
  if (drawn.lazy) {
    auto uncounted = std::make_shared<flow::DataSet>();
    uncounted->lazy = true;
    bool has_grown = false;
    for (const flow::DataFile& file : data->files) {
      uncounted->files.push_back({.id = file.id, .source = file.source, .index = {}, .first_record = 0, .samples = {}});
      uint64_t& longest = uncounted->files.back().index.largest_record;
      longest = file.compressed() ? spec.sources[0].record_limit : file.id.size;
      if (other_way == 1) longest = std::min(longest, other.near(file.index.largest_record));
      has_grown = has_grown || longest < file.index.largest_record;
    }
    const std::vector<Run> lazy = run_all(drawn, plain, uncounted, source, options, false);
    must_equal("LAZY", runs, lazy, 0, !drawn.max_failures && !has_grown);
    // What is too long ends the data with an error, unless they were not read to their end.
    MUST_HOLD(!has_grown || lazy[0].error || lazy[0].batches[0].size() == options.most_steps);
  }
  const auto& batches = runs[0].batches[0];
  if (other_way == 2 && !batches.empty() && !drawn.max_failures && !drawn.absent_is_error) {
    const size_t first = other.below(batches.size());
    const Got& at = batches[first];
    RunOptions later = options;
    later.start = {at.epoch, at.step};
    later.epochs = options.epochs - at.epoch;
    later.most_steps -= first;
    must_equal("resumed", runs, run_all(drawn, spec, data, source, later, false), first);
  }
  if (other_way == 2 && drawn.mixed && drawn.stop == MixtureStop::cycle_forever)
    check_other_weights(drawn, plain, data, source, options, other);
  if (other_way == 3) {
    options.forged = true;
    if (const auto changed = forged(plain, *data, other)) run_all(drawn, plain, changed, source, options, false);
    options.forged = false;
  }
  if (fails_at < 8) {
    options.fails_at = fails_at;
    run_all(drawn, plain, data, source, options, true);
  }
}

}  // namespace
}  // namespace feedline::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tbb::task_arena one_thread(1);
  feedline::test::Draw draw(data, size);
  try {
    one_thread.execute([&] { feedline::test::feed(draw); });
  } catch (const feedline::Error& error) {
    // The pipeline cannot be, or too much of the data is bad.
    const bool is_refusal = !error.message().empty() && error.category() != feedline::Category::internal_error;
    if (!is_refusal) std::fprintf(stderr, "%s\n", error.what());
    MUST_HOLD(is_refusal);
  }
  return 0;
}
