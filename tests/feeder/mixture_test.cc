// Mixtures: how often each source is drawn, where in the epoch, and on which rank.
#include "flowgraph/order/mixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/order/stratified.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/ticket_queue.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

const std::vector<std::string> orders = {"", "shuffle { block_size: '16KiB' buffer_size: 300 lanes: 8 } seed: 3 ",
                                         "shuffle { block_size: '16KiB' } seed: 6 ",
                                         "shuffle { mode: GLOBAL } seed: 4 ",
                                         "shuffle { mode: BUFFER buffer_size: 150 } seed: 5 "};

/// A mixture whose source s is file s of the data. The samples are numbered across all sources.
struct Mixed {
  Mixed(std::vector<int64_t> source_sizes, std::vector<double> source_weights)
      : data(source_sizes), sizes(std::move(source_sizes)), weights(std::move(source_weights)) {}

  Pipeline pipeline(const std::string& more) const {
    std::string text;
    for (size_t s = 0; s < sizes.size(); s++)
      text += "source { files: '" + data.path(s) + "' weight: " + std::to_string(weights[s]) + " } ";
    return parse_pipeline(text + "feature { name: 'id' dtype: INT64 } " + more);
  }
  size_t source_of(int64_t id) const {
    size_t s = 0;
    while (id >= sizes[s]) id -= sizes[s++];
    return s;
  }
  /// Returns for each source how often each of its samples is in `ids`.
  std::vector<std::map<int64_t, int64_t>> counts(const std::vector<int64_t>& ids) const {
    std::vector<std::map<int64_t, int64_t>> counts(sizes.size());
    for (const int64_t id : ids) counts[source_of(id)][id]++;
    return counts;
  }
  static int64_t total(const std::map<int64_t, int64_t>& counts) {
    int64_t sum = 0;
    for (const auto& [id, count] : counts) sum += count;
    return sum;
  }

  Data data;
  std::vector<int64_t> sizes;
  std::vector<double> weights;
};

std::vector<int64_t> numbers_of_epoch(Feeder& feeder) { return read_epoch(feeder).front().all(); }

/// Returns the global batches of some epochs, put together from all ranks.
std::vector<std::vector<int64_t>> steps_of(const Pipeline& pipeline, int world_size, int epochs) {
  std::vector<std::vector<int64_t>> steps;
  for (int rank = 0; rank < world_size; rank++) {
    Options options;
    options.rank = rank;
    options.world_size = world_size;
    Feeder feeder(pipeline, options);
    size_t at = 0;
    for (int epoch = 0; epoch < epochs; epoch++) {
      const Epoch read = read_epoch(feeder).front();
      for (const auto& ids : read.ids) {
        steps.resize(std::max(steps.size(), ++at));
        steps[at - 1].insert(steps[at - 1].end(), ids.begin(), ids.end());
      }
    }
  }
  return steps;
}

}  // namespace

TEST_CASE("a stratified sequence has each number as often as told, and everywhere its share") {
  for (const auto& amounts : std::vector<std::vector<uint64_t>>{
           {1}, {0, 3}, {5, 5, 5}, {1, 1000}, {300, 20, 1, 0, 179}, {7, 7, 7, 7, 7, 7, 7, 7, 7, 7}}) {
    uint64_t all = 0;
    for (const uint64_t amount : amounts) all += amount;
    std::vector<std::vector<uint64_t>> before = {std::vector<uint64_t>(amounts.size())};
    for (flow::Stratified draws(amounts, 9); !draws.ended();) {
      before.push_back(before.back());
      before.back().at(draws.next())++;
    }
    REQUIRE(before.size() == all + 1);
    REQUIRE(before.back() == amounts);
    // This holds for any stretch, because each number may take up to two samples more or less than its share.
    const auto slack = 2 * static_cast<double>(amounts.size()) + 2;
    for (size_t number = 0; number < amounts.size(); number++)
      for (size_t from = 0; from <= all; from += 7)
        for (size_t to = from; to <= all; to += 5) {
          const double share = static_cast<double>((to - from) * amounts[number]) / static_cast<double>(all);
          REQUIRE(std::abs(static_cast<double>(before[to][number] - before[from][number]) - share) <= slack);
        }
  }
  std::vector<uint64_t> drawn(3);
  flow::Stratified draws({uint64_t{1} << 40, uint64_t{1} << 39, 1}, 1);
  for (int i = 0; i < 300; i++) drawn.at(draws.next())++;
  CHECK(std::abs(static_cast<double>(drawn[0]) - 200) <= 4);
}

TEST_CASE("how many samples an epoch draws of each source, by the four ways to stop") {
  const Mixed mixed({900, 40, 300}, {0.5, 0.2, 0.3});
  for (const std::string& order : orders) {
    INFO(order);
    const auto drawn = [&](const std::string& stop, const std::string& more = "") {
      Feeder feeder(mixed.pipeline("mixture { stop: " + stop + " } " + order + more + batch_of(24, "PARTIAL")));
      const auto ids = numbers_of_epoch(feeder);
      CHECK(std::ssize(ids) == feeder.samples_per_epoch());
      return mixed.counts(ids);
    };
    // FIRST_DATASET_EXHAUSTED: 40 / 0.2 is the smallest quotient, so an epoch has 200 samples.
    const auto first = drawn("FIRST_DATASET_EXHAUSTED");
    CHECK(Feeder(mixed.pipeline("mixture {} " + order + batch_of(24, "DROP")))
              .plan_text()
              .find("mixture  source[1]: weight 0.2, 40 samples in each epoch\n") != std::string::npos);
    CHECK(std::abs(Mixed::total(first[0]) - 100) <= 1);
    CHECK(Mixed::total(first[1]) == 40);
    CHECK(std::abs(Mixed::total(first[2]) - 60) <= 1);
    const auto twice = drawn("FIRST_DATASET_EXHAUSTED", "epoch { repeat: 2 } ");
    CHECK(Mixed::total(twice[1]) == 80);
    // CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED: 900 / 0.5 is the largest quotient, so an epoch has 1800 samples.
    const auto until = drawn("CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED");
    CHECK(Mixed::total(until[0]) == 900);
    CHECK(std::abs(Mixed::total(until[1]) - 360) <= 1);
    CHECK(std::abs(Mixed::total(until[2]) - 540) <= 1);
    const auto once = drawn("ALL_DATASETS_EXHAUSTED");
    for (size_t s = 0; s < 3; s++) {
      CHECK(Mixed::total(once[s]) == mixed.sizes[s]);
      CHECK(std::ssize(until[s]) == mixed.sizes[s]);
      for (const auto& counts : {first[s], once[s]})
        for (const auto& [id, count] : counts) CHECK(count == 1);
      for (const auto& [id, count] : until[s]) {  // whole passes and a part of one
        const int64_t passes = Mixed::total(until[s]) / mixed.sizes[s];
        CHECK((count == passes || count == passes + 1));
      }
    }
  }
}

TEST_CASE("each step has each source's share within two, whatever the weights, sizes, stop and global batch") {
  const auto check = [](flow::MixtureStop stop, const std::vector<double>& weights, const std::vector<uint64_t>& sizes,
                        uint64_t global_batch, uint64_t epoch_steps, uint64_t seed) {
    const flow::MixtureSpec spec{.stop = stop, .shares = flow::shares_of(weights)};
    const flow::ShuffleSpec shuffle{.seed = seed};
    const uint64_t epoch_samples = epoch_steps * global_batch;
    const flow::Mixture mixture(spec, sizes, shuffle, 1, global_batch, epoch_samples);
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
      flow::MixtureDraws draws(mixture, epoch, 0);
      std::vector<uint64_t> all(sizes.size());
      for (uint64_t step = 0; step < mixture.samples() / global_batch; step++) {
        std::vector<double> taken(sizes.size());
        for (uint64_t i = 0; i < global_batch; i++) taken[draws.next()]++;
        for (size_t s = 0; s < sizes.size(); s++) {
          const double share = epoch_steps > 0
                                   ? weights[s] / sum
                                   : static_cast<double>(mixture.amounts()[s]) / static_cast<double>(mixture.samples());
          all[s] += static_cast<uint64_t>(taken[s]);
          // The weights are kept to 2^-24.
          REQUIRE(std::abs(taken[s] - share * static_cast<double>(global_batch)) <= 2.001);
          REQUIRE(taken[s] <= static_cast<double>(mixture.most_of(s, global_batch)));
        }
      }
      if (epoch_steps > 0) continue;
      for (uint64_t i = mixture.samples() / global_batch * global_batch; i < mixture.samples(); i++)
        all[draws.next()]++;
      REQUIRE(all == mixture.amounts());
    }
  };
  std::vector<double> many(40);
  std::vector<uint64_t> sizes_of_many(40);
  for (size_t s = 0; s < many.size(); s++) {
    many[s] = static_cast<double>(1 + s % 7) * (s % 11 == 0 ? 30 : 1);
    sizes_of_many[s] = 100 + 37 * s;
  }
  uint64_t seed = 0;
  for (const auto& [weights, sizes] : std::vector<std::pair<std::vector<double>, std::vector<uint64_t>>>{
           {{1, 1}, {4848, 152}},
           {{0.7, 0.3}, {3000, 3000}},
           {{2, 1}, {700, 9000}},
           {{1000, 1}, {20'000, 30}},
           {{5, 1, 1}, {4000, 37, 800}},
           {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {500, 510, 520, 530, 5000, 550, 1, 570, 580, 590}},
           {many, sizes_of_many}})
    for (const uint64_t global_batch : {1, 2, 7, 8, 32, 100, 512}) {
      INFO(weights.size() << " sources, batch " << global_batch);
      check(flow::MixtureStop::first_exhausted, weights, sizes, global_batch, 0, seed++);
      check(flow::MixtureStop::cycle_until_all, weights, sizes, global_batch, 0, seed++);
      check(flow::MixtureStop::cycle_forever, weights, sizes, global_batch, 150, seed++);
      check(flow::MixtureStop::cycle_forever, weights, sizes, global_batch, 1, seed++);
    }
}

TEST_CASE("each step has each source's share within two, in each order and on any number of ranks") {
  const Mixed mixed({2424, 76, 300}, {1, 1, 0.5});
  for (const std::string& order : orders)
    for (const int64_t global_batch : {8, 32, 64, 200})
      for (const int world : {1, 4}) {
        INFO(order << "batch " << global_batch << ", ranks " << world);
        const Pipeline pipeline = mixed.pipeline("mixture { stop: CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED } " + order +
                                                 batch_of(global_batch, "DROP"));
        for (const auto& step : steps_of(pipeline, world, 1)) {
          const auto counts = mixed.counts(step);
          for (size_t s = 0; s < 3; s++)
            CHECK(std::abs(static_cast<double>(Mixed::total(counts[s])) -
                           mixed.weights[s] / 2.5 * static_cast<double>(global_batch)) <= 2.001);
        }
      }
}

TEST_CASE("an epoch is mixed by the weights until a source is exhausted, and then by those of the others") {
  const Mixed mixed({2000, 100, 1300}, {6, 1, 3});
  for (const std::string& order : orders) {
    INFO(order);
    Feeder feeder(mixed.pipeline("mixture { stop: ALL_DATASETS_EXHAUSTED } " + order + batch_of(80, "PARTIAL")));
    const auto batches = read_epoch(feeder).front().ids;
    // Source 1 is exhausted after 1000 samples, source 0 after 3100 (100 and 2000 at their weights).
    const auto share = [](double from, double to, size_t s) {
      const auto within = [&](double begin, double end) {
        return std::max(0.0, std::min(to, end) - std::max(from, begin));
      };
      const std::vector<double> of_three = {0.6, 0.1, 0.3}, of_two = {6 / 9.0, 0, 3 / 9.0};
      return within(0, 1000) * of_three[s] + within(1000, 3100) * of_two[s] + within(3100, 3400) * (s == 2 ? 1 : 0);
    };
    for (int64_t b = 0; b < std::ssize(batches); b++) {
      const auto counts = mixed.counts(batches[static_cast<size_t>(b)]);
      const double from = static_cast<double>(b) * 80, to = std::min(3400.0, from + 80);
      const bool exhausts = (from < 1000 && to > 1000) || (from < 3100 && to > 3100);
      for (size_t s = 0; s < 3; s++)
        CHECK(std::abs(static_cast<double>(Mixed::total(counts[s])) - share(from, to, s)) <= (exhausts ? 3.1 : 2.1));
    }
  }
}

TEST_CASE("without a shuffle each source keeps its order, and epochs are mixed anew") {
  const Mixed mixed({500, 300}, {5, 3});
  Feeder feeder(mixed.pipeline("mixture {} " + batch_of(40, "DROP")));
  std::set<std::vector<int64_t>> seen;
  for (int epoch = 0; epoch < 3; epoch++) {
    const auto ids = numbers_of_epoch(feeder);
    CHECK(seen.insert(ids).second);
    std::vector<int64_t> next = {0, 500};
    for (const int64_t id : ids) CHECK(id == next[mixed.source_of(id)]++);
  }
}

TEST_CASE("without reshuffle_each_epoch all epochs of a mixture are the same") {
  const Mixed mixed({500, 300}, {5, 3});
  for (const char* shuffle : {"mode: NONE ", "block_size: '16KiB' ", "mode: BUFFER buffer_size: 30 ", "mode: GLOBAL "})
    for (const char* stop :
         {"FIRST_DATASET_EXHAUSTED", "ALL_DATASETS_EXHAUSTED", "CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED"}) {
      INFO(shuffle << stop);
      Feeder feeder(mixed.pipeline("mixture { stop: " + std::string(stop) + " } shuffle { " + shuffle +
                                   "reshuffle_each_epoch: false } " + batch_of(48, "DROP")));
      const auto ids = numbers_of_epoch(feeder);
      CHECK(numbers_of_epoch(feeder) == ids);
      feeder.set_epoch(uint64_t{1} << 40);
      CHECK(numbers_of_epoch(feeder) == ids);
    }
}

TEST_CASE("a mixture is the same for all numbers of ranks") {
  const Mixed with_end({700, 33, 0, 480}, {4, 1, 1, 2}), without_end({700, 33, 480}, {4, 1, 2});
  for (const std::string& order : orders)
    for (const char* policy : {"DROP", "PARTIAL", "PAD"})
      for (const char* stop : {"ALL_DATASETS_EXHAUSTED", "CYCLE_FOREVER"}) {
        const bool forever = std::string(stop) == "CYCLE_FOREVER";
        const Mixed& data = forever ? without_end : with_end;
        INFO(order << policy << stop);
        const Pipeline pipeline = data.pipeline("mixture { stop: " + std::string(stop) + " } " + order +
                                                batch_of(24, policy) + (forever ? "epoch { steps: 9 }" : ""));
        const auto wanted = steps_of(pipeline, 1, 3);
        CHECK(!wanted.empty());
        for (const int world : {2, 3, 4, 8}) CHECK(steps_of(pipeline, world, 3) == wanted);
      }
}

TEST_CASE("a mixture without end goes on through its epochs") {
  const Mixed mixed({90, 7, 50}, {6, 1, 1.5});
  for (const std::string& order : orders) {
    INFO(order);
    Feeder feeder(mixed.pipeline("mixture { stop: CYCLE_FOREVER } epoch { steps: 5 } " + order + batch_of(8, "DROP")));
    std::vector<int64_t> all;
    for (int epoch = 0; epoch < 40; epoch++) {
      const auto ids = numbers_of_epoch(feeder);
      CHECK(ids.size() == 40);
      all.insert(all.end(), ids.begin(), ids.end());
      const auto counts = mixed.counts(all);
      const std::vector<double> weights = {6 / 8.5, 1 / 8.5, 1.5 / 8.5};
      for (size_t s = 0; s < 3; s++) {
        CHECK(std::abs(static_cast<double>(Mixed::total(counts[s])) - weights[s] * static_cast<double>(all.size())) <=
              4);
        // The samples are whole passes and a part of one. If each lane goes through the passes by itself, the parts of
        // two passes may overlap.
        const auto passes = static_cast<int64_t>(Mixed::total(counts[s]) / mixed.sizes[s]);
        const int64_t apart = order.find("lanes") == std::string::npos ? 0 : 1;
        for (const auto& [id, count] : counts[s]) CHECK((count >= passes - apart && count <= passes + 1 + apart));
      }
    }
  }
}

TEST_CASE("a mixture goes on at any step as one that never stopped") {
  const Mixed mixed({260, 31, 77}, {5, 1, 2});
  for (const std::string& order : orders)
    for (const char* stop : {"mixture { stop: ALL_DATASETS_EXHAUSTED } ", "mixture {} epoch { repeat: 2 } ",
                             "mixture { stop: CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED } ",
                             "mixture { stop: CYCLE_FOREVER } epoch { steps: 13 } "}) {
      INFO(order << stop);
      const Pipeline pipeline = mixed.pipeline(stop + order + batch_of(16, "PARTIAL"));
      Feeder straight(pipeline), again(pipeline);
      numbers_of_epoch(straight);
      const auto second = read_epoch(straight).front().ids, third = read_epoch(straight).front().ids;
      for (int64_t step = 0; step <= std::ssize(second); step++) {
        again.set_state(again.get_state(1, step));
        CHECK(read_epoch(again).front().ids == std::vector(second.begin() + step, second.end()));
        if (step % 5 == 0) CHECK(read_epoch(again).front().ids == third);
      }
    }
}

TEST_CASE("weights change between epochs, on any number of ranks, and are kept in the state") {
  const Mixed mixed({400, 100}, {1, 1});
  for (const std::string& order : orders)
    for (const bool forever : {false, true}) {
      INFO(order << forever);
      const Pipeline pipeline =
          mixed.pipeline(std::string(forever ? "mixture { stop: CYCLE_FOREVER } epoch { steps: 10 } "
                                             : "mixture { stop: FIRST_DATASET_EXHAUSTED } ") +
                         order + batch_of(8, "DROP"));
      // Epochs 0 and 1 have the pipeline's weights, epochs 2 and 3 other weights, and epoch 4 other weights again.
      const auto feed = [&](Feeder& feeder, int from, int to) {
        std::vector<std::vector<int64_t>> epochs;
        for (int epoch = from; epoch < to; epoch++) {
          if (epoch == 2) feeder.set_weights({9, 1});
          if (epoch == 4) feeder.set_weights({1, 3});
          epochs.push_back(numbers_of_epoch(feeder));
        }
        return epochs;
      };
      Feeder straight(pipeline);
      const auto epochs = feed(straight, 0, 5);
      const auto share = [&](int epoch) {
        const auto counts = mixed.counts(epochs[static_cast<size_t>(epoch)]);
        return static_cast<double>(Mixed::total(counts[0])) /
               static_cast<double>(epochs[static_cast<size_t>(epoch)].size());
      };
      CHECK(std::abs(share(1) - 0.5) < 0.1);
      CHECK(std::abs(share(2) - 0.9) < 0.1);
      CHECK(std::abs(share(3) - 0.9) < 0.1);
      CHECK(std::abs(share(4) - 0.25) < 0.1);
      if (forever) {  // no sample is drawn a second time before all have been drawn
        std::vector<int64_t> all;
        for (const auto& epoch : epochs) all.insert(all.end(), epoch.begin(), epoch.end());
        const auto counts = mixed.counts(all);
        for (const auto& [id, count] : counts[0]) CHECK(count <= 2);
      }

      Feeder stopped(pipeline);
      feed(stopped, 0, 3);
      for (int step = 0; step < 4; step++) REQUIRE(stopped.next());
      const std::string state = stopped.get_state();
      CHECK(state.size() <= 256 + 16 * 2);
      Feeder another(pipeline);
      another.set_state(state);
      CHECK(another.get_state() == state);
      const auto rest = numbers_of_epoch(another);
      const auto& whole = epochs[3];
      CHECK(std::equal(rest.begin(), rest.end(), whole.end() - std::ssize(rest), whole.end()));
      CHECK(rest.size() + 4 * 8 == whole.size());
      CHECK(feed(another, 4, 5).front() == epochs[4]);
      // A state from before the change restores the pipeline's weights.
      another.set_state(Feeder(pipeline).get_state(1, 0));
      CHECK(numbers_of_epoch(another) == epochs[1]);
    }
}

TEST_CASE("weights that change far into a training are kept in its state, too") {
  const Mixed mixed({400, 100}, {1, 1});
  for (const std::string& order : orders) {
    INFO(order);
    const Pipeline pipeline =
        mixed.pipeline("mixture { stop: CYCLE_FOREVER } epoch { steps: 10 } " + order + batch_of(8, "DROP"));
    Feeder straight(pipeline), another(pipeline);
    straight.set_epoch(uint64_t{1} << 46);
    straight.set_weights({9, 1});
    for (int step = 0; step < 4; step++) REQUIRE(straight.next());
    const std::string state = straight.get_state();
    CHECK(state.find("{\"feedline_state\":2,") == 0);
    CHECK(state.size() <= 256 + 22 * 2);
    another.set_state(state);
    CHECK(another.get_state() == state);
    for (int epoch = 0; epoch < 2; epoch++) CHECK(numbers_of_epoch(another) == numbers_of_epoch(straight));

    // A count that no feed can have reached, because it would overflow.
    std::string wrong = state;
    wrong.replace(wrong.find("\"mixture\":\"") + 11 + 6, 16, "ffffffffffffffff");
    CHECK_THROWS_AS(another.set_state(wrong), Error);
    CHECK(numbers_of_epoch(another) == numbers_of_epoch(straight));
  }
}

TEST_CASE("what set_weights refuses") {
  const Mixed mixed({60, 40}, {1, 1});
  const auto refusal = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
    return "accepted";
  };
  Feeder feeder(mixed.pipeline("mixture {} " + batch_of(8, "DROP")), replicas(2));
  CHECK(refusal([&] { feeder.set_weights({1}); }) ==
        "set_weights: 1 weights were given, but the mixture has 2 sources; give one weight for each source");
  CHECK(refusal([&] {
          feeder.set_weights({1, 0});
        }) == "source[1].weight: 0 is not a positive number; to draw nothing from this source, remove the source");
  CHECK_THAT(refusal([&] {
               feeder.set_weights({1, 1e-12});
             }),
             Catch::StartsWith("source[1].weight: 1e-12 is too small: it is less than"));
  CHECK_THAT(refusal([&] {
               feeder.set_weights({1, 1e39});
             }),
             Catch::StartsWith("source[1].weight: 1e+39 is too large"));
  REQUIRE(feeder.next(0));
  CHECK(refusal([&] {
          feeder.set_weights({2, 1});
        }) ==
        "set_weights: epoch 0 has begun; call set_weights() only after every replica has received the end of an "
        "epoch");
  Feeder plain(mixed.data.pipeline(batch_of(8, "DROP")));
  CHECK(refusal([&] {
          plain.set_weights({2, 1});
        }) == "set_weights: the pipeline has no mixture, so it has no weights to change");
  const Mixed empty({60, 0}, {1, 1});
  CHECK(refusal([&] {
          Feeder(empty.pipeline("mixture { stop: CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED } " + batch_of(8, "DROP")));
        }) ==
        "source[1]: it has no samples, so the mixture cannot draw from it; remove this source, or change its 'range' "
        "or the filter so that samples remain");
}

TEST_CASE("a mixture of windows") {
  const Mixed mixed({200, 90}, {2, 1});
  Feeder feeder(
      mixed.pipeline("window { size: 4 shift: 2 } mixture { stop: ALL_DATASETS_EXHAUSTED } "
                     "shuffle { mode: GLOBAL } " +
                     batch_of(10, "PARTIAL")));
  std::set<int64_t> firsts;
  for (int64_t seen = 0; seen < feeder.samples_per_epoch();) {
    const Batch batch = feeder.next();
    REQUIRE(batch);
    const auto ids = batch.at("id").as<int64_t>();
    for (size_t i = 0; i < ids.size(); i += 4, seen++) {
      CHECK(firsts.insert(ids[i]).second);
      for (size_t frame = 1; frame < 4; frame++) CHECK(ids[i + frame] == ids[i] + static_cast<int64_t>(frame));
    }
  }
  CHECK(firsts.size() == (200 - 4) / 2 + 1 + (90 - 4) / 2 + 1);
}

TEST_CASE("the plan has slots for what a mixture holds open") {
  const Mixed mixed({9000, 700, 5, 2600}, {4, 1, 0.3, 2});
  for (const std::string& order : orders)
    for (const char* stop : {"mixture { stop: ALL_DATASETS_EXHAUSTED } ", "mixture {} epoch { repeat: 30 } ",
                             "mixture { stop: CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED } ",
                             "mixture { stop: CYCLE_FOREVER } epoch { steps: 60 } "})
      for (const int world : {1, 4}) {
        INFO(order << stop << world);
        flow::PipelineSpec spec = flow::validate(mixed.pipeline(stop + order + batch_of(64, "PARTIAL")));
        const auto data = std::make_shared<const flow::DataSet>(flow::count_data(spec, 1, {}));
        const flow::Ranks ranks{.rank = world - 1, .world_size = world, .replicas = 1};
        // Finds the smallest limit into which a plan fits.
        uint64_t fits = spec.memory_limit, fails = 0;
        while (fits - fails > 4096) {
          spec.memory_limit = fails + (fits - fails) / 2;
          try {
            flow::Plan(spec, data, ranks, 1);
            fits = spec.memory_limit;
          } catch (const Error&) {
            fails = spec.memory_limit;
          }
        }
        spec.memory_limit = fits;
        const flow::Plan plan(spec, data, ranks, 1);
        flow::Walk walk(plan, {}, false);
        std::vector<flow::Ticket> tickets;
        uint64_t finished = 0;
        flow::Step step;
        for (int64_t i = 0; i < 300; i++) {
          walk.next(step, &tickets);
          REQUIRE(tickets.size() - finished < plan.memory.slots);
          finished += step.finished.size();
        }
      }
}

TEST_CASE("compressed sources of a mixture are each inflated once") {
  const Data a({30000}, Compression::gzip), b({20000}, Compression::gzip);
  Options options;
  options.threads = 1;
  Feeder feeder(parse_pipeline("source { files: '" + a.path(0) + "' weight: 3 } source { files: '" + b.path(0) +
                                   "' weight: 2 } feature { name: 'id' dtype: INT64 } "
                                   "mixture { stop: ALL_DATASETS_EXHAUSTED } " +
                                   batch_of(100, "PARTIAL"),
                               a.dir().path()),
                options);
  std::vector<int64_t> ids = read_epoch(feeder).front().all();
  std::vector<int64_t> wanted = numbers(30000);
  const std::vector<int64_t> of_b = numbers(20000);
  wanted.insert(wanted.end(), of_b.begin(), of_b.end());
  std::sort(ids.begin(), ids.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(ids == wanted);
  const Report report = feeder.report();
  CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  // A feed reads only a few epochs ahead, whatever the machine does. If each of their blocks needed inflating from the
  // front of its file, the files would be read three times as often.
  for (int epoch = 0; epoch < 19; epoch++) read_epoch(feeder);
  const uint64_t files = std::filesystem::file_size(a.path(0)) + std::filesystem::file_size(b.path(0));
  CHECK(feeder.report().read_bytes <= 40 * files);
}
