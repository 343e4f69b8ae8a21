#include "flowgraph/plan/feed_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/audit.h"
#include "base/rank_message.h"

namespace feedline::flow {
namespace {

Error makes_no_sense(const BatchTensor& tensor) {
  return Error(
      Category::bad_pipeline,
      fmt::format(
          "another rank sent an impossible description of tensor '{}'; all ranks must run the same version of feedline",
          tensor.name));
}

// Throws Error bad_pipeline if a tensor does not fit into the buffer. Another rank describes the layout of the buffer
// into which rows are received, so a wrong description must not let them be written outside of the buffer.
void check_tensor(const BatchTensor& tensor, const FeedFacts& facts) {
  uint64_t row = size_of(tensor.dtype);
  bool fits = tensor.offset <= facts.buffer_bytes && tensor.capacity <= facts.buffer_bytes - tensor.offset &&
              tensor.offset % tensor_alignment == 0;
  for (const int64_t axis : tensor.shape)
    fits = fits && axis >= 0 && !__builtin_mul_overflow(row, static_cast<uint64_t>(axis), &row);
  const bool dense = tensor.part == BatchTensor::Part::dense || tensor.part == BatchTensor::Part::valid;
  fits = fits && (!dense || row == 0 || static_cast<uint64_t>(facts.rows) <= tensor.capacity / row);
  if (!fits) throw makes_no_sense(tensor);
}

// Returns the digests of all state_stages as text. PipelineSpec::written_stages has the digests of the stages as the
// pipeline's text has them. What they do is digested as well where other parts of the text decide it, too: which records
// `filter` keeps and where window.key changes depends on the features that they read. `batch` and `errors` are digested
// by their effect alone: how many samples a step has, and which records are left out.
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
  digests[written_stages] = static_cast<uint32_t>(
      mix64(static_cast<uint64_t>(plan.global_batch) << 2 | static_cast<uint64_t>(plan.spec.last_batch_policy)));
  uint64_t left = 0;
  // Only files of which something is left out count, so that a sound one may come or go.
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

FeedFacts facts_in(std::string_view message) {
  MessageReader in(message);
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
    tensor.part = in.get<BatchTensor::Part>();
    tensor.output = in.get<int>();
    tensor.dtype = in.get<DType>();
    const auto axes = in.get_rows<int64_t>();
    if (axes.size() > Shape::max_rank) throw makes_no_sense(tensor);
    tensor.shape = Shape(axes);
    tensor.offset = in.get<uint64_t>();
    tensor.capacity = in.get<uint64_t>();
    check_tensor(tensor, facts);
  }
  return facts;
}

}  // namespace feedline::flow
