#include "tool/feeding/row_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/audit.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

constexpr const char *source_output = "@verify.source", *record_output = "@verify.record";

/// Returns the pipeline with additional outputs, which say to which record a row belongs. If the pipeline names no
/// outputs, its features become outputs.
Pipeline with_places(const Pipeline& given) {
  auto changed = std::make_shared<config::Pipeline>(given.message());
  const auto add = [&](const std::string& name, const std::string& feature) {
    config::Output& output = *changed->add_output();
    output.set_name(name);
    output.set_feature(feature);
  };
  if (changed->output().empty()) {
    auto features = given.message().feature();
    if (features.empty() && !changed->source().empty()) features = changed->source(0).feature();
    for (const config::Feature& feature : features) add(feature.name(), feature.name());
    if (features.empty()) add("record", "record");  // record_type RAW: the whole record
  }
  add(source_output, "@source");
  add(record_output, "@record");
  return Pipeline(std::move(changed), given.folder());
}

/// Returns the pipeline that feeds each record of each source once, in a batch of its own.
Pipeline one_by_one(const Pipeline& given) {
  auto changed = std::make_shared<config::Pipeline>(given.message());
  for (config::Source& source : *changed->mutable_source()) source.clear_weight();
  changed->clear_mixture();
  changed->clear_interleave();
  changed->clear_shuffle();
  changed->clear_window();
  changed->clear_epoch();
  changed->clear_cache();
  changed->clear_distribute();
  changed->clear_batch();
  changed->mutable_batch()->set_global_batch_size(1);
  return Pipeline(std::move(changed), given.folder());
}

bool makes_random_choices(const Pipeline& pipeline, const std::string& name) {
  for (const config::Output& output : pipeline.message().output())
    if (output.name() == name) return output.has_flip() || output.crop().mode() == config::Crop::RANDOM;
  return false;
}

/// Returns the name of the first output that can be compared.
std::string comparable(const Pipeline& pipeline, const Feeder& feeder) {
  for (const ElementSpec& element : feeder.elements())
    if (element.kind == ElementSpec::Kind::dense && element.dtype != DType::bytes && !element.name.starts_with('@') &&
        !makes_random_choices(pipeline, element.name))
      return element.name;
  throw Error(
      Category::bad_pipeline,
      "none of the outputs can be compared: --verify-rows needs an output that is dense, does not hold strings, and "
      "has neither a random crop nor a flip; add one to the pipeline, such as a numeric feature that is not changed");
}

}  // namespace

RowCheck::RowCheck(const Pipeline& given) : pipeline_(with_places(given)) {
  Options options;
  options.threads = 1;
  Feeder feeder(one_by_one(pipeline_), options);
  output_ = comparable(pipeline_, feeder);
  Progress progress("feeding records one at a time", 0, "record");
  while (const Batch batch = feeder.next()) {
    for_each_row(batch, [&](int64_t source, int64_t record, uint64_t hash) {
      alone_[source].push_back({record, hash});
    });
    // steps_per_epoch() is negative while it is not known.
    progress.set(batch.step() + 1, static_cast<uint64_t>(std::max<int64_t>(feeder.steps_per_epoch(), 0)));
  }
}

void RowCheck::check(const Batch& batch) {
  Result of_batch;
  for_each_row(batch, [&](int64_t source, int64_t record, uint64_t hash) {
    of_batch.rows++;
    const std::optional<uint64_t> alone = hash_of(source, record);
    if (alone == hash) return;
    if (of_batch.differing++ == 0)
      of_batch.first =
          fmt::format("epoch {}, step {}: the row of record {} of source {} {} when records are fed one at a time",
                      batch.epoch(), batch.step(), record, source, alone ? "is not the same as" : "is missing");
  });
  const Lock lock(mutex_);
  result_.rows += of_batch.rows;
  result_.differing += of_batch.differing;
  if (!result_.first) result_.first = std::move(of_batch.first);
}

RowCheck::Result RowCheck::result() const {
  const Lock lock(mutex_);
  return result_;
}

// Returns the hash of the row that a record gave when it was fed alone; nullopt if the record was not fed then.
std::optional<uint64_t> RowCheck::hash_of(int64_t source, int64_t record) const {
  const auto of_source = alone_.find(source);
  if (of_source == alone_.end()) return std::nullopt;
  const auto row = std::ranges::lower_bound(of_source->second, record, {}, &Row::record);
  return row != of_source->second.end() && row->record == record ? std::optional(row->hash) : std::nullopt;
}

// Calls body(source, record, hash) for each row that has a record; with windows, for each such frame of a row.
template <typename Body>
void RowCheck::for_each_row(const Batch& batch, const Body& body) const {
  const auto valid = batch.at("@valid").as<uint8_t>();
  const auto sources = batch.at(source_output).as<int64_t>(), records = batch.at(record_output).as<int64_t>();
  const TensorView tensor = batch.at(output_);
  const size_t bytes = valid.empty() ? 0 : tensor.size_bytes() / valid.size();
  for (size_t row = 0; row < valid.size(); row++)
    if (valid[row])
      body(sources[row], records[row],
           hash64(std::string_view(static_cast<const char*>(tensor.data) + row * bytes, bytes)));
}

}  // namespace feedline::tool
