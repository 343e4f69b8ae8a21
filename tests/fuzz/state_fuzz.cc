// The text of a state must be refused, or name a place that the feed has, as a slow, simple reading of it says. The
// state that is written for this place must be read back as the same place. In the text, $ stands for the digest of the
// feed's data and % for those of its pipeline, which an engine cannot know.
// covers: flowgraph/pipeline/feed_state.cc
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/plan.h"
#include "require.h"

using namespace feedline;
using namespace feedline::flow;
using test::require;

namespace {

constexpr uint64_t most_samples = uint64_t{INT64_MAX} / 2;  // that can be counted

PipelineSpec make_spec(std::string_view more) {
  const std::string text =
      "source { files: 'a' record_type: RAW } source { files: 'b' record_type: RAW } "
      "batch { global_batch_size: 7 last_batch_policy: PAD } ";
  return validate(parse_pipeline(text + std::string(more)), [](const FilePatterns& patterns) {
    return FileList{patterns.files, {}};
  });
}

DataSet make_data() {
  DataSet data;
  for (uint32_t source = 0; source < 2; source++) {
    DataFile& file = data.files.emplace_back();
    file.source = source;
    file.index.records = 100;
    file.samples = {0, 100};
    file.index.largest_record = 200;
    file.index.payload_bytes = 20'000;
    file.index.end = 21'600;
    file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {21'600, 100}};
  }
  data.samples = 200;
  return data;
}

struct Feed {
  explicit Feed(std::string_view more) : spec(make_spec(more)), identity(planned(spec)) {}
  static FeedIdentity planned(const PipelineSpec& spec) {
    static const auto counted = std::make_shared<const DataSet>(make_data());
    return identity_of(Plan(spec, counted, {}, 1));
  }
  FeedIdentity identity_with(const std::optional<Reweighted>& reweighted) const {
    if (!spec.mixture || !reweighted) return identity;
    PipelineSpec changed = spec;
    changed.mixture->reweighted = reweighted;
    return planned(changed);
  }
  PipelineSpec spec;
  FeedIdentity identity;
};

/// Reads the text of a state as the comment of flowgraph/pipeline/feed_state.h has it. Returns nothing if it is none.
std::optional<FeedState> slow_state(const nlohmann::json& state) {
  const auto number = [&](const char* name) -> std::optional<uint64_t> {
    if (!state.contains(name) || !state[name].is_number_unsigned()) return std::nullopt;
    return state[name].get<uint64_t>();
  };
  const auto is_text = [&](const char* name) { return state.contains(name) && state[name].is_string(); };
  if (!state.is_object() || !is_text("data") || !is_text("pipeline")) return std::nullopt;
  const auto version = number("feedline_state"), epoch = number("epoch"), step = number("step"),
             since = number("since");
  if (version != 1 && version != 2) return std::nullopt;
  if (!epoch || !step || *step > INT64_MAX) return std::nullopt;
  FeedState read{.position = {*epoch, static_cast<int64_t>(*step)}};
  if (!state.contains("mixture")) return read;
  if (!since || !is_text("mixture")) return std::nullopt;
  const std::string digits = state["mixture"];
  const size_t each = version == 1 ? 16 : 22;
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (digits.empty() || digits.size() % each != 0 || !std::ranges::all_of(digits, is_digit)) return std::nullopt;
  read.reweighted.emplace().since_epoch = *since;
  for (size_t at = 0; at < digits.size(); at += each) {
    read.reweighted->shares.push_back(static_cast<uint32_t>(std::stoul(digits.substr(at, 6), nullptr, 16)));
    read.reweighted->taken.push_back(std::stoull(digits.substr(at + 6, each - 6), nullptr, 16));
    if (read.reweighted->shares.back() == 0) return std::nullopt;
  }
  return read;
}

/// Returns whether the weights of a state can be those of a feed at its position.
bool are_possible(const FeedState& state, const FeedIdentity& feed) {
  const auto countable = [](uint64_t taken) { return taken <= most_samples; };
  const auto& weights = state.reweighted;
  return !weights || (weights->shares.size() == feed.mixed_sources && weights->since_epoch <= state.position.epoch &&
                      std::ranges::all_of(weights->taken, countable));
}

/// Returns whether the feed has this position.
bool has(const FeedIdentity& feed, const Position& position) {
  const uint64_t steps = most_samples / static_cast<uint64_t>(feed.global_batch) - 1;
  const uint64_t most = feed.steps_per_epoch < 0 ? steps : static_cast<uint64_t>(feed.steps_per_epoch);
  if (position.step < 0 || static_cast<uint64_t>(position.step) > most) return false;
  if (position.epoch < feed.mixed_since || position.epoch > INT64_MAX) return false;
  return !feed.epochs_go_on || position.epoch < steps / static_cast<uint64_t>(feed.steps_per_epoch);
}

/// Returns whether `call` returns. If not, it must have thrown bad_pipeline, with a reason.
template <typename Call>
bool returns(const Position& position, Call call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    require(error.category() == Category::bad_pipeline && error.message().starts_with("state: "), "another error");
    const Error placed = in_step(position, error);
    require(placed.category() == error.category() &&
                placed.message() == "step " + std::to_string(position.step) + " of epoch " +
                                        std::to_string(position.epoch) + ": " + error.message(),
            "the error of a step does not begin with it");
    return false;
  }
}

void check(const Feed& feed, const std::string& text, bool accept_changes) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto wanted = slow_state(json);
  const bool is_its_own = wanted && json["data"] == feed.identity.data && json["pipeline"] == feed.identity.pipeline;
  std::optional<FeedState> read;
  const bool is_read = returns({}, [&] { read = read_state(text, feed.identity, accept_changes); });
  require(is_read == (text.size() <= 1 << 20 && wanted && (is_its_own || accept_changes) &&
                      are_possible(*wanted, feed.identity)),
          "a text was refused that is a state, or read that is none");
  if (!is_read) return;
  const Position position = read->position;
  const auto& reweighted = read->reweighted;
  require(position == wanted->position && reweighted == wanted->reweighted, "a state was read as another");
  const FeedIdentity other = feed.identity_with(reweighted);
  require(returns(position, [&] { check_position(other, position); }) == has(other, position),
          "a position that exists was refused, or one that does not was not");
  const Position before{other.mixed_since - 1, 0};
  require(returns(before, [&] { check_position(other, before); }) == has(other, before), "a place before the weights");
  const std::string again = state_text(other, position);
  require(again.size() <= 256 + 22 * 2, "a state is long");
  const auto [same_position, same_weights] = read_state(again, other, false);
  require(same_position == position && same_weights == other.reweighted, "a state is not read as it was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Feed feeds[] = {
      Feed("mixture { stop: CYCLE_FOREVER } epoch { steps: 40 }"), Feed("epoch { repeat: -1 }"),
      Feed("mixture { stop: FIRST_DATASET_EXHAUSTED } shuffle { mode: NONE reshuffle_each_epoch: false }"),
      Feed("shuffle { mode: NONE }")};
  for (const Feed& feed : feeds) {
    std::string text;
    for (size_t i = 0; i < size; i++) {
      const char c = static_cast<char>(data[i]);
      text += c == '$' ? feed.identity.data : c == '%' ? feed.identity.pipeline : std::string(1, c);
    }
    for (const bool accept_changes : {false, true}) check(feed, text, accept_changes);
  }
  return 0;
}
