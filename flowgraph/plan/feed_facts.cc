#include "flowgraph/plan/feed_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/audit.h"
#include "base/rank_message.h"

namespace feedline::flow {
namespace {

[[noreturn]] void refuse(int rank, const std::string& what) {
  throw Error(Category::bad_pipeline,
              fmt::format("rank {} sent an invalid description of {}; all ranks must run the same version of feedline",
                          rank, what));
}

// Throws Error bad_pipeline unless the feed's position and its state (checkpoint) can be computed from these numbers.
void check_identity(int rank, const FeedFacts& facts, const PipelineSpec& spec) {
  const FeedIdentity& identity = facts.identity;
  const std::optional<Reweighted>& weights = identity.reweighted;
  const uint64_t mixed = spec.mixture ? spec.sources.size() : 0;
  if (identity.global_batch < 1 || identity.steps_per_epoch < (identity.epochs_go_on ? 1 : -1) ||
      identity.mixed_sources != mixed ||
      (weights && (weights->shares.size() != mixed || weights->taken.size() != mixed)))
    refuse(rank, "its feed");
}

// Throws Error bad_pipeline unless the facts have the tensors of the pipeline's batches, and these tensors lie one
// after another in the buffer and have room for the rows. Rows are received into the buffer, and unpacked from it, as
// this layout says.
void check_layout(int rank, const FeedFacts& facts, const PipelineSpec& spec) {
  const int64_t frames = spec.window ? spec.window->size : 1;
  if (facts.frames != frames || facts.rows < frames || facts.rows % frames != 0 ||
      facts.buffer_bytes > most_batch_bytes)
    refuse(rank, "its batches");
  const std::vector<BatchTensor> wanted = tensors_of(spec);
  if (facts.tensors.size() != wanted.size()) refuse(rank, "the tensors of its batches");
  uint64_t end = 0;  // where the tensor before this one ends
  for (size_t t = 0; t < wanted.size(); t++) {
    const BatchTensor &tensor = facts.tensors[t], &like = wanted[t];
    const bool same = tensor.part == like.part && tensor.output == like.output && tensor.dtype == like.dtype &&
                      tensor.shape == like.shape;
    const bool fits = tensor.offset >= end && tensor.offset % tensor_alignment == 0 &&
                      tensor.offset <= facts.buffer_bytes && tensor.capacity <= facts.buffer_bytes - tensor.offset;
    uint64_t bytes = 0;
    const bool dense = tensor.part == BatchTensor::Part::dense || tensor.part == BatchTensor::Part::valid;
    if (!same || !fits ||
        (dense && (__builtin_mul_overflow(static_cast<uint64_t>(facts.rows), like.row_bytes(), &bytes) ||
                   bytes > tensor.capacity)))
      refuse(rank, fmt::format("tensor '{}'", tensor.name));
    end = tensor.offset + tensor.capacity;
  }
}

// Returns the digests of all state_stages as text. PipelineSpec::written_stages has the digests of the stages as the
// pipeline's text has them. If what a stage does depends also on parts of the text outside of the stage, the stage's
// effect is digested as well. This holds for the records that `filter` keeps, and for the places where window.key
// changes: both depend on the features that they read. It also holds for the blocks of compressed files, which depend
// on their indexes. `batch` and `errors` are digested only by their effect: how many samples a step has, and which
// records are left out.
std::string stages_of(const Schedule& plan) {
  std::array<uint32_t, state_stages.size()> digests;
  std::copy(plan.spec.written_stages.begin(), plan.spec.written_stages.end(), digests.begin());
  for (const DataFile& file : plan.data.files) {
    const auto add = [&](size_t stage, const NumberSet* set) {
      if (set) digests[stage] = static_cast<uint32_t>(mix64(digests[stage] ^ set->digest()));
    };
    add(filter_stage, file.samples.kept());
    add(window_stage, file.key_changes.get());
  }
  for (const auto& order : plan.orders)
    for (const Block& block : order->blocks())
      if (order->mode() == ShuffleMode::block && plan.data.files[block.file].compressed())
        digests[shuffle_stage] =
            static_cast<uint32_t>(mix64(uint64_t{digests[shuffle_stage]} << 32 ^ block.first ^ mix64(block.rows)));
  digests[written_stages] = static_cast<uint32_t>(
      mix64(static_cast<uint64_t>(plan.global_batch) << 2 | static_cast<uint64_t>(plan.spec.last_batch_policy)));
  uint64_t left = 0;
  // Only files of which something is left out count, so that a sound file may be added or removed.
  for (const DataFile& file : plan.data.files) {
    if (file.left_out || !file.index.bad.empty()) left = mix64(left ^ hash64(file.name()) ^ uint64_t{file.left_out});
    for (const io::BadRegion& region : file.index.bad) left = mix64(left ^ mix64(region.offset) ^ region.length);
  }
  if (!plan.data.raised.empty()) left = mix64(left ^ mix64(plan.data.samples));  // an error ends the data early
  digests[written_stages + 1] = static_cast<uint32_t>(left);
  std::string text;
  for (const uint32_t stage : digests) text += fmt::format("{:08x}", stage);
  return text;
}

}  // namespace

FeedIdentity identity_of(const Schedule& plan) {
  FeedIdentity feed{.data = fmt::format("{:016x}", plan.data.digest),
                    .pipeline = stages_of(plan),
                    .global_batch = plan.global_batch,
                    .steps_per_epoch = plan.steps_per_epoch,
                    .epochs_go_on = plan.steps.epochs_go_on()};
  if (plan.mixture) {
    feed.mixed_sources = plan.spec.sources.size();
    feed.mixed_since = plan.mixture->since_epoch();
    feed.reweighted = plan.spec.mixture->reweighted;
  }
  return feed;
}

FeedFacts facts_of(const Plan& plan) {
  FeedFacts facts{.identity = identity_of(plan),
                  .samples_per_epoch = plan.samples_per_epoch,
                  .dropped_per_epoch = plan.dropped_per_epoch,
                  .lazy = plan.data.lazy,
                  .text = plan.text(),
                  .rows = plan.replica_batch * plan.frames,
                  .frames = plan.frames,
                  .buffer_bytes = plan.memory.buffer_bytes,
                  .tensors = plan.memory.tensors};
  for (const DataFile& file : plan.data.files) facts.files.push_back(file.id.uri);
  return facts;
}

std::string to_message(const FeedFacts& facts) {
  MessageWriter out;
  const FeedIdentity& identity = facts.identity;
  out.put_text(identity.data);
  out.put_text(identity.pipeline);
  for (const int64_t number : {identity.global_batch, identity.steps_per_epoch, int64_t{identity.epochs_go_on},
                               static_cast<int64_t>(identity.mixed_sources), static_cast<int64_t>(identity.mixed_since),
                               int64_t{identity.reweighted.has_value()}})
    out.put(number);
  if (identity.reweighted) {
    out.put_rows(std::span<const uint32_t>(identity.reweighted->shares));
    out.put(identity.reweighted->since_epoch);
    out.put_rows(std::span<const uint64_t>(identity.reweighted->taken));
  }
  for (const int64_t number : {facts.samples_per_epoch, facts.dropped_per_epoch, facts.rows, facts.frames,
                               static_cast<int64_t>(facts.buffer_bytes)})
    out.put(number);
  out.put_text(facts.text);
  out.put<uint64_t>(facts.files.size());
  for (const std::string& file : facts.files) out.put_text(file);
  out.put<uint64_t>(facts.tensors.size());
  for (const BatchTensor& tensor : facts.tensors) {
    out.put_text(tensor.name);
    out.put(tensor.part);
    out.put(tensor.output);
    out.put(tensor.dtype);
    out.put_rows(std::span<const int64_t>(tensor.shape.begin(), tensor.shape.end()));
    out.put(tensor.offset);
    out.put(tensor.capacity);
  }
  return out.take();
}

FeedFacts facts_in(std::string_view message, int rank, const PipelineSpec& spec) {
  MessageReader in(message, rank);
  FeedFacts facts;
  FeedIdentity& identity = facts.identity;
  identity.data = in.get_text();
  identity.pipeline = in.get_text();
  identity.global_batch = in.get<int64_t>();
  identity.steps_per_epoch = in.get<int64_t>();
  identity.epochs_go_on = in.get<int64_t>() != 0;
  identity.mixed_sources = in.get<uint64_t>();
  identity.mixed_since = in.get<uint64_t>();
  if (in.get<int64_t>() != 0) {
    Reweighted& weights = identity.reweighted.emplace();
    weights.shares = in.get_rows<uint32_t>();
    weights.since_epoch = in.get<uint64_t>();
    weights.taken = in.get_rows<uint64_t>();
  }
  facts.samples_per_epoch = in.get<int64_t>();
  facts.dropped_per_epoch = in.get<int64_t>();
  facts.rows = in.get<int64_t>();
  facts.frames = in.get<int64_t>();
  facts.buffer_bytes = in.get<uint64_t>();
  facts.text = in.get_text();
  for (auto files = in.get<uint64_t>(); files > 0; files--) facts.files.emplace_back(in.get_text());
  for (auto tensors = in.get<uint64_t>(); tensors > 0; tensors--) {
    BatchTensor& tensor = facts.tensors.emplace_back();
    tensor.name = in.get_text();
    tensor.part = in.get_enum(BatchTensor::Part::valid);
    tensor.output = in.get<int>();
    tensor.dtype = in.get_enum(DType::float64);
    const auto axes = in.get_rows<int64_t>();
    if (axes.size() > Shape::max_rank) refuse(rank, fmt::format("tensor '{}'", tensor.name));
    tensor.shape = Shape(axes);
    tensor.offset = in.get<uint64_t>();
    tensor.capacity = in.get<uint64_t>();
  }
  in.end();
  check_identity(rank, facts, spec);
  check_layout(rank, facts, spec);
  return facts;
}

}  // namespace feedline::flow
