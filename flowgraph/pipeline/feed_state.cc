#include "flowgraph/pipeline/feed_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/audit.h"
#include "base/format_count.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"

namespace feedline::flow {
namespace {

// The maximum size of a state's text in bytes. A longer text is refused before it is parsed, so that the JSON parser
// cannot take much memory. States are far shorter.
constexpr size_t longest = 1 << 20;

constexpr int64_t countable_samples = std::numeric_limits<int64_t>::max() / 2;

[[noreturn]] void refuse_state(const std::string& why) { throw Error(Category::bad_pipeline, "state: " + why); }
[[noreturn]] void refuse_text(const std::string& why) {
  refuse_state(why + "; give the text as get_state() returned it");
}

template <typename Message>
uint32_t digest(const Message& message) {
  return static_cast<uint32_t>(hash64(message.SerializeAsString()));
}

struct Fields {
  FeedState state;
  std::string data, pipeline;
};

constexpr size_t weight_digits = 6;

// Returns how many hexadecimal digits hold the number of samples that were taken of a source. Version 2 of the format
// is used if such a number does not fit into the digits of version 1.
constexpr size_t taken_digits(uint64_t version) { return version == 1 ? 10 : 16; }

uint64_t version_for(const std::optional<Reweighted>& reweighted) {
  const auto fits = [](uint64_t taken) { return taken >> (4 * taken_digits(1)) == 0; };
  return !reweighted || std::ranges::all_of(reweighted->taken, fits) ? 1 : 2;
}

std::string mixture_text(const Reweighted& reweighted, uint64_t version) {
  std::string text = fmt::format(R"(,"since":{},"mixture":")", reweighted.since_epoch);
  for (size_t source = 0; source < reweighted.shares.size(); source++)
    text += fmt::format("{:0{}x}{:0{}x}", reweighted.shares[source], weight_digits, reweighted.taken[source],
                        taken_digits(version));
  return text + '"';
}

Reweighted read_mixture(uint64_t since, std::string_view digits, uint64_t version) {
  Reweighted reweighted{.since_epoch = since};
  const size_t each = weight_digits + taken_digits(version);
  const auto refuse_digits = [&] {
    refuse_text(fmt::format("'mixture' does not have {} hexadecimal digits for each source", each));
  };
  const auto hexadecimal = [&](std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + text.size()) refuse_digits();
    return value;
  };
  do {
    if (digits.size() < each) refuse_digits();
    reweighted.shares.push_back(static_cast<uint32_t>(hexadecimal(digits.substr(0, weight_digits))));
    reweighted.taken.push_back(hexadecimal(digits.substr(weight_digits, each - weight_digits)));
    if (reweighted.shares.back() == 0) refuse_text("'mixture' has a weight of 0");
    digits.remove_prefix(each);
  } while (!digits.empty());
  return reweighted;
}

Fields fields_in(std::string_view text) {
  using nlohmann::json;
  if (text.size() > longest)
    refuse_text(fmt::format("the text has {} bytes, but a state has at most {}", text.size(), longest));
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) refuse_state("this is not a text that get_state() returned: it is not a JSON object");
  const auto number = [&](const char* name, uint64_t most) {
    const auto field = object.find(name);
    if (field == object.end() || !field->is_number_unsigned() || field->get<uint64_t>() > most)
      refuse_text(fmt::format("'{}' is not a whole number from 0 to {}", name, most));
    return field->get<uint64_t>();
  };
  const auto string = [&](const char* name) {
    const auto field = object.find(name);
    if (field == object.end() || !field->is_string()) refuse_text(fmt::format("'{}' is not a string", name));
    return field->get<std::string>();
  };
  constexpr uint64_t any = std::numeric_limits<uint64_t>::max(), any_step = std::numeric_limits<int64_t>::max();
  const uint64_t version = number("feedline_state", any);
  if (version != 1 && version != 2)
    refuse_state(fmt::format(
        "its format has version {}, but this program reads versions 1 and 2; use the version of feedline that wrote it",
        version));
  Fields fields{
      {{number("epoch", any), static_cast<int64_t>(number("step", any_step))}}, string("data"), string("pipeline")};
  if (object.contains("mixture"))
    fields.state.reweighted = read_mixture(number("since", any), string("mixture"), version);
  return fields;
}

// Returns what changed, as in "the data, shuffle, batch"; empty if nothing did.
std::string changes(const Fields& state, const FeedIdentity& feed) {
  std::vector<std::string> changed;
  if (state.data != feed.data) changed.push_back("the data (names, sizes or content of the files)");
  const std::string& now = feed.pipeline;
  if (state.pipeline.size() != now.size()) {
    changed.push_back("the pipeline");
  } else {
    for (size_t s = 0; s < state_stages.size(); s++)
      if (state.pipeline.compare(8 * s, 8, now, 8 * s, 8) != 0) changed.push_back(std::string(state_stages[s]));
  }
  return fmt::format("{}", fmt::join(changed, ", "));
}

}  // namespace

WrittenStages digests_of(const config::Pipeline& pipeline) {
  uint64_t sources = 0;
  for (config::Source source : pipeline.source()) {
    source.clear_name();
    source.clear_files();  // the digest of the data covers the files and their content
    source.clear_exclude();
    source.clear_compression();
    source.clear_record_type();
    source.clear_index();
    source.clear_feature();
    source.clear_record_limit();
    sources = mix64(sources ^ hash64(source.SerializeAsString()));
  }
  config::Shuffle shuffle = pipeline.shuffle();
  if (shuffle.mode() == config::Shuffle::NONE) {
    const bool draws_alike =
        pipeline.has_mixture() && shuffle.has_reshuffle_each_epoch() && !shuffle.reshuffle_each_epoch();
    shuffle.Clear();
    if (draws_alike) shuffle.set_reshuffle_each_epoch(false);
  }
  // A pipeline without a shuffle must differ from one with a BLOCK shuffle, even if all fields of the shuffle have
  // their defaults.
  const uint32_t shuffled = pipeline.has_shuffle() && pipeline.shuffle().mode() != config::Shuffle::NONE ? 1 : 0;
  // The same holds for a mixture. The number 2 is the version of the order in which mixtures draw samples, and must be
  // raised when that order changes.
  const uint32_t mixed = pipeline.has_mixture() ? 2 : 0;
  shuffle.clear_seed();
  config::Epoch epoch = pipeline.epoch();
  if (epoch.repeat() == 0) epoch.set_repeat(1);
  epoch.clear_allow_empty();
  const uint64_t seed = pipeline.shuffle().has_seed() ? pipeline.shuffle().seed() : pipeline.seed();
  return {static_cast<uint32_t>(sources),
          digest(pipeline.interleave()),
          static_cast<uint32_t>(hash64(pipeline.filter())),
          digest(pipeline.window()),
          digest(pipeline.mixture()) ^ mixed,
          digest(shuffle) ^ shuffled,
          static_cast<uint32_t>(mix64(seed)),
          digest(epoch)};
}

Error in_step(const Position& position, const Error& why) {
  return Error(why.category(), fmt::format("step {} of epoch {}: {}", position.step, position.epoch, why.message()),
               why.place());
}

int64_t countable_steps(int64_t global_batch) noexcept { return countable_samples / global_batch - 1; }

void check_position(const FeedIdentity& feed, const Position& position) {
  // The steps of an epoch without end are limited only by the number of samples that can be counted.
  const int64_t countable = countable_steps(feed.global_batch);
  const int64_t most = feed.steps_per_epoch >= 0 ? feed.steps_per_epoch : countable;
  if (position.step < 0 || position.step > most)
    refuse_state(fmt::format("there is no step {}: the epoch has {}", position.step,
                             format_count(static_cast<uint64_t>(most), "step")));
  if (position.epoch < feed.mixed_since)
    refuse_state(
        fmt::format("epoch {0} is too early: the weights of the mixture were set for epoch {1} and later; "
                    "give epoch {1} or later",
                    position.epoch, feed.mixed_since));
  if (feed.epochs_go_on && position.epoch >= static_cast<uint64_t>(countable / feed.steps_per_epoch))
    refuse_state(
        fmt::format("epoch {0} is too large: with {1} steps in an epoch, at most {2} epochs can be counted; give an "
                    "epoch below {2}",
                    position.epoch, feed.steps_per_epoch, countable / feed.steps_per_epoch));
  constexpr auto last_epoch = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (position.epoch > last_epoch)
    refuse_state(fmt::format("epoch {} is too large; epochs are numbered from 0 to {}", position.epoch, last_epoch));
}

std::string state_text(const FeedIdentity& feed, const Position& position) {
  const uint64_t version = version_for(feed.reweighted);
  return fmt::format(R"({{"feedline_state":{},"epoch":{},"step":{},"data":"{}","pipeline":"{}"{}}})", version,
                     position.epoch, position.step, feed.data, feed.pipeline,
                     feed.reweighted ? mixture_text(*feed.reweighted, version) : "");
}

FeedState read_state(std::string_view text, const FeedIdentity& feed, bool accept_changes) {
  const Fields fields = fields_in(text);
  const auto& [position, reweighted] = fields.state;
  const std::string changed = changes(fields, feed);
  if (!changed.empty() && !accept_changes)
    refuse_state(
        fmt::format("the state belongs to a different feed: step {} of epoch {} has different samples here; changed: "
                    "{}; undo the change, or accept it (accept_changes, --accept-changes) to go on at this step all "
                    "the same",
                    position.step, position.epoch, changed));
  if (reweighted && reweighted->shares.size() != feed.mixed_sources)
    refuse_state(
        fmt::format("the state has weights of {} sources, but the pipeline mixes {} sources; use the pipeline "
                    "that the state was saved with",
                    reweighted->shares.size(), feed.mixed_sources));
  if (reweighted && reweighted->since_epoch > position.epoch)
    refuse_state(
        fmt::format("the weights of the mixture were set for epoch {} and later, but the position is in epoch {}; give "
                    "the text as get_state() returned it",
                    reweighted->since_epoch, position.epoch));
  if (reweighted)
    for (const uint64_t taken : reweighted->taken)
      if (taken > static_cast<uint64_t>(countable_samples))
        refuse_state(
            fmt::format("the text says that {} samples were taken from a source, which is more than can be "
                        "counted; give the text as get_state() returned it",
                        taken));
  return fields.state;
}

}  // namespace feedline::flow
