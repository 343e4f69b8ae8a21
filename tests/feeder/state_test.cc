// States: where a feed is, kept as text, and resumed by any number of ranks and replicas.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "base/syscall_hooks.h"
#include "damage.h"
#include "data.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

const std::string blocks = "shuffle { block_size: '16KiB' buffer_size: 300 } seed: 4 ";

/// Returns the result of next() as text: the samples of a batch (-1: filler), "end", or an error's category.
std::string said(Feeder& feeder, int replica) {
  try {
    const Batch batch = feeder.next(replica);
    if (!batch) return "end";
    std::string text = std::to_string(batch.epoch()) + "/" + std::to_string(batch.step()) + ":";
    const auto ids = batch.at("id").as<int64_t>();
    const auto valid = batch.at("@valid").as<uint8_t>();
    for (size_t i = 0; i < ids.size(); i++) text += " " + std::to_string(valid[i] ? ids[i] : -1);
    return text;
  } catch (const Error& error) {
    return std::string(name(error.category()));
  }
}

/// Returns what next() gives, for each call and replica, up to an error or `calls` calls.
std::vector<std::vector<std::string>> said_of(Feeder& feeder, size_t calls) {
  std::vector<std::vector<std::string>> all;
  for (size_t i = 0; i < calls; i++) {
    all.emplace_back();
    for (int r = 0; r < feeder.replicas(); r++) all.back().push_back(said(feeder, r));
    if (all.back()[0].rfind("bad_", 0) == 0) break;
  }
  return all;
}

std::string state(const std::string& text, const std::string& from, const std::string& to) {
  std::string changed = text;
  const size_t at = changed.find(from);
  REQUIRE(at != std::string::npos);
  return changed.replace(at, from.size(), to);
}

std::string refusal(Feeder& feeder, const std::string& text) {
  try {
    feeder.set_state(text);
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    return error.message();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a feed that goes on at any step says what one that never stopped says") {
  const Data plain({300, 0, 1, 420});
  const Data packed({300, 1, 120}, Compression::gzip);
  const Data damaged({300, 420});
  flip(damaged.path(1), offset_of(damaged.path(1), 150) + 12 + 9);
  struct Mode {
    const Data* data;
    std::string text;
  };
  const std::string skip = "errors { on_error: SKIP_RECORD } ", thrice = "epoch { repeat: 3 } ";
  const std::vector<Mode> modes = {
      {&plain, batch_of(48, "PARTIAL")},
      {&plain, batch_of(48, "DROP")},
      {&plain, batch_of(48, "PAD")},
      {&plain, batch_of(48, "PARTIAL") + thrice},
      {&plain, blocks + batch_of(48, "PARTIAL")},
      {&plain, blocks + batch_of(48, "DROP")},
      {&plain, blocks + batch_of(48, "PAD")},
      {&plain, blocks + batch_of(48, "PARTIAL") + thrice},
      {&packed, batch_of(48, "PARTIAL")},
      {&packed, batch_of(48, "DROP") + thrice},
      {&packed, blocks + batch_of(48, "PARTIAL")},
      {&packed, "shuffle { mode: BUFFER buffer_size: 40 } seed: 4 " + batch_of(48, "PARTIAL") + thrice},
      {&damaged, batch_of(48, "PARTIAL")},
      {&damaged, blocks + batch_of(48, "PARTIAL")},
      {&damaged, batch_of(48, "PARTIAL") + skip},
      {&damaged, blocks + batch_of(48, "PARTIAL") + skip},
      {&plain, batch_of(48, "DROP") + "epoch { repeat: -1 }"},
      {&plain, "shuffle { mode: GLOBAL } seed: 4 " + batch_of(48, "PARTIAL") + thrice},
      {&plain, "interleave { cycle_length: 3 block_length: 5 } " + batch_of(48, "PAD")},
      {&plain, batch_of(48, "DROP") + "epoch { steps: 11 }"},
      {&plain, blocks + batch_of(48, "DROP") + "epoch { steps: 11 }"},
  };
  for (const Mode& mode : modes)
    for (const int count : {1, 2, 3}) {
      INFO(mode.text << " " << count);
      const Pipeline pipeline = mode.data->pipeline(mode.text);
      Feeder straight(pipeline, replicas(count));
      const bool endless = straight.steps_per_epoch() < 0;
      const int64_t steps = endless ? 40 : straight.steps_per_epoch();
      const auto calls = static_cast<size_t>(steps) + 4;  // a few calls into the next epoch
      const auto wanted = said_of(straight, calls);
      Feeder again(pipeline, replicas(count));
      for (int64_t step = 0; step <= steps; step++) {
        INFO(step);
        const std::string text = again.get_state(0, step);
        const auto rest = std::vector(wanted.begin() + step, wanted.end());
        const auto near = std::vector(rest.begin(), rest.begin() + std::min<int64_t>(4, std::ssize(rest)));
        again.set_state(text);
        CHECK(again.get_state() == text);
        CHECK(said_of(again, near.size()) == near);
        if (step % 5 != 2) continue;
        Feeder another(pipeline, replicas(count));
        another.set_state(text);
        CHECK(said_of(another, rest.size()) == rest);
      }
    }
}

TEST_CASE("epochs of so many steps are gone on with where the one before them ended") {
  const Data data({300, 420});
  for (const std::string& order : {std::string(), blocks, std::string("shuffle { mode: GLOBAL } ")}) {
    const Pipeline pipeline = data.pipeline(order + batch_of(48, "DROP") + "epoch { steps: 11 }");
    Feeder straight(pipeline), again(pipeline);
    const auto wanted = said_of(straight, 12 * 5);
    for (uint64_t epoch = 0; epoch < 5; epoch++)
      for (const int64_t step : {0, 1, 10, 11}) {
        again.set_state(again.get_state(epoch, step));
        const auto rest = std::vector(wanted.begin() + static_cast<int64_t>(epoch) * 12 + step, wanted.end());
        CHECK(said_of(again, rest.size()) == rest);
      }
    CHECK_THROWS_WITH(again.get_state(std::numeric_limits<uint64_t>::max(), 3), Catch::Contains("is too large: with "));
    CHECK_THROWS_WITH(again.set_epoch(std::numeric_limits<uint64_t>::max()), Catch::Contains("is too large: with "));
  }
}

TEST_CASE("later epochs are gone on with, too, and far into an endless one") {
  const Data data({300, 420});
  for (const std::string& order : {std::string(), blocks}) {
    Feeder feeder(data.pipeline(order + batch_of(48, "PARTIAL")));
    Options options;
    options.epoch = 7;
    Feeder seventh(data.pipeline(order + batch_of(48, "PARTIAL")), options);
    CHECK(seventh.epoch() == 7);
    const auto wanted = said_of(seventh, 15);
    feeder.set_state(feeder.get_state(7, 4));
    CHECK(feeder.epoch() == 7);
    CHECK(said_of(feeder, 11) == std::vector(wanted.begin() + 4, wanted.end()));

    Feeder endless(data.pipeline(order + batch_of(48, "DROP") + "epoch { repeat: -1 }"));
    const int64_t most = std::numeric_limits<int64_t>::max() / 2 / 48 - 1;
    endless.set_state(endless.get_state(most));
    CHECK(endless.next().step() == static_cast<uint64_t>(most));
    CHECK(endless.next().valid_count() == 48);
    CHECK_THROWS_WITH(endless.get_state(most + 2), Catch::Contains("steps"));
  }
}

TEST_CASE("four ranks stop, and one, two or three go on: every sample once, in the same global batches") {
  const Data data({300, 0, 1, 427, 90});
  for (const std::string& order : {std::string(), blocks, std::string("shuffle { mode: GLOBAL } ")})
    for (const char* policy : {"PARTIAL", "PAD"}) {
      const Pipeline pipeline = data.pipeline(order + batch_of(48, policy));
      const auto feeder_of = [&](int rank, int world, int count) {
        Options options = replicas(count);
        options.rank = rank;
        options.world_size = world;
        return std::make_unique<Feeder>(pipeline, options);
      };
      // Returns the samples of each step, of all ranks together, beginning at state `from` or ending at step `to`.
      const auto run = [&](int world, int count, const std::string& from, int64_t to, std::set<std::string>& states) {
        std::map<uint64_t, std::vector<int64_t>> got;
        for (int rank = 0; rank < world; rank++) {
          const auto feeder = feeder_of(rank, world, count);
          if (!from.empty()) feeder->set_state(from);
          for (bool more = true; more;) {
            for (int r = 0; r < count; r++) {
              const Batch batch = feeder->next(r);
              more = batch && static_cast<int64_t>(batch.step()) + 1 != to;
              if (!batch) continue;
              Epoch epoch;
              add_batch(epoch, batch);
              auto& step = got[batch.step()];
              step.insert(step.end(), epoch.ids[0].begin(), epoch.ids[0].end());
            }
          }
          states.insert(feeder->get_state());
        }
        return got;
      };
      std::set<std::string> states;
      const auto whole = run(1, 1, "", -1, states);
      for (const int64_t stop : {1, 9, 17})
        for (const auto& [world, count] : {std::pair{1, 1}, {2, 1}, {3, 1}, {3, 2}, {1, 4}}) {
          INFO(order << policy << " stop " << stop << ", on with " << world << " ranks of " << count);
          states.clear();
          auto got = run(4, 1, "", stop, states);
          REQUIRE(states.size() == 1);  // the state is the same on all ranks
          const std::string text = *states.begin();
          CHECK(text.size() <= 256);
          CHECK(got.size() == static_cast<size_t>(stop));
          for (const auto& [step, ids] : run(world, count, text, -1, states)) {
            CHECK(step >= static_cast<uint64_t>(stop));
            got[step] = ids;
          }
          CHECK(got == whole);
          CHECK(states.size() == 2);
        }
    }
}

TEST_CASE("a state says what all replicas have received, not what is ready") {
  const Data data({200});
  Feeder feeder(data.pipeline(batch_of(20, "DROP")), replicas(2));
  const auto at = [&](uint64_t epoch, int64_t step) { return feeder.get_state(epoch, step); };
  CHECK(feeder.get_state() == at(0, 0));
  feeder.next(0);
  CHECK(feeder.get_state() == at(0, 0));
  feeder.next(1);
  CHECK(feeder.get_state() == at(0, 1));
  for (int step = 1; step < 10; step++)
    for (int r = 0; r < 2; r++) feeder.next(r);
  CHECK(feeder.get_state() == at(0, 10));
  CHECK_FALSE(feeder.next(0));
  CHECK(feeder.get_state() == at(0, 10));
  CHECK(feeder.get_state(10) == at(0, 10));
  CHECK_FALSE(feeder.next(1));
  CHECK(feeder.get_state() == at(1, 0));
  CHECK(feeder.get_state(3) == at(1, 3));
  CHECK(at(1, 3) != at(1, 4));
  for (const int64_t step : {-1, 11}) CHECK_THROWS_AS(feeder.get_state(step), Error);
  feeder.set_state(at(0, 10));
  CHECK(said(feeder, 0) == "end");
}

TEST_CASE("a state is small, whatever is in it") {
  const Data data({200});
  Feeder feeder(data.pipeline("epoch { repeat: -1 } " + batch_of(1, "DROP")));
  constexpr auto last = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const std::string text = feeder.get_state(last, int64_t{1} << 61);
  CHECK(text.size() <= 256);
  feeder.set_state(text);
  CHECK(feeder.epoch() == last);
  CHECK(feeder.next().step() == uint64_t{1} << 61);
  CHECK_THROWS_WITH(feeder.get_state(last + 1, 0),
                    Catch::Contains("epoch 9223372036854775808 is too large; epochs are"));
}

TEST_CASE("a changed pipeline is named, or accepted") {
  const Data data({300, 420});
  const std::string text = blocks + batch_of(48, "DROP");
  Feeder feeder(data.pipeline(text));
  const std::string kept = feeder.get_state(0, 5);
  const auto of = [&](const std::string& other) {
    Feeder changed(data.pipeline(other));
    const std::string message = refusal(changed, kept);
    if (message != "accepted") {
      CHECK(said(changed, 0).rfind("0/0:", 0) == 0);  // a refused state has changed nothing
      changed.set_state(kept, true);
    }
    CHECK(said(changed, 0).rfind("0/5:", 0) == 0);
    const size_t begin = message.find("changed: ");
    return begin == std::string::npos ? message : message.substr(begin + 9, message.find(';', begin) - begin - 9);
  };
  CHECK(of("shuffle { block_size: '16KiB' buffer_size: 299 } seed: 4 " + batch_of(48, "DROP")) == "shuffle");
  CHECK(of("seed: 4 " + batch_of(48, "DROP")) == "shuffle");
  CHECK(of("shuffle { block_size: '16KiB' buffer_size: 300 } seed: 5 " + batch_of(48, "DROP")) == "seed");
  CHECK(of(blocks + batch_of(24, "DROP")) == "batch");
  CHECK(of(blocks + batch_of(48, "PAD")) == "batch");
  CHECK(of(text + "epoch { repeat: 2 }") == "epoch");
  CHECK(of(blocks + batch_of(24, "DROP") + "epoch { repeat: 2 }") == "epoch, batch");
  CHECK(of("shuffle { mode: GLOBAL } seed: 4 " + batch_of(48, "DROP")) == "shuffle");
  CHECK(of("interleave { cycle_length: 2 } seed: 4 " + batch_of(48, "DROP")) == "interleave, shuffle");
  {
    Feeder changed(data.pipeline(text).with("source.range", "0:700"));
    CHECK_THAT(refusal(changed, kept), Catch::Contains("changed: source;"));
  }
  // Changes that leave the order as it is.
  CHECK(of("shuffle { block_size: '16KiB' buffer_size: 300 seed: 4 } epoch { repeat: 1 allow_empty: true } batch { "
           "batch_size_per_replica: 48 }") == "accepted");
  CHECK(of(text + "feature { name: 'x' dtype: FLOAT32 shape: 3 } output { name: 'id' feature: 'id' } output { name: "
                  "'less' feature: 'id' dtype: INT32 } "
                  "output { name: 'twice' expression { formula: 'id * 2' } } parallelism { threads: 1 host_prefetch: 4 "
                  "} memory { limit: '200MiB' } errors { on_error: SKIP_RECORD }")
            .find("is") == std::string::npos);
  // The same files in another folder are the same data. Data with one record changed is not.
  const TempDir other;
  for (size_t f = 0; f < 2; f++)
    std::filesystem::copy(data.path(f), other.file("part-00" + std::to_string(f) + ".tfrecord"));
  const auto elsewhere = [&] {
    return std::make_unique<Feeder>(parse_pipeline(
        "source { files: 'part-*.tfrecord' } feature { name: 'id' dtype: INT64 } " + text, other.path()));
  };
  CHECK(refusal(*elsewhere(), kept) == "accepted");
  flip(other.file("part-001.tfrecord"), offset_of(data.path(1), 9) + 12 + 9);
  {
    Feeder skips(
        parse_pipeline("source { files: 'part-*.tfrecord' } feature { name: 'id' dtype: INT64 } errors { "
                       "on_error: SKIP_RECORD } " +
                           text,
                       other.path()));
    CHECK_THAT(refusal(skips, kept), Catch::Contains("changed: the data (") && Catch::Contains(", errors;"));
  }
  // A changed pipeline is accepted only if the state's step exists in it.
  Feeder fewer(data.pipeline(blocks + batch_of(480, "DROP")));
  CHECK_THROWS_WITH(fewer.set_state(kept, true), Catch::Contains("there is no step 5: the epoch has 1 step"));
}

TEST_CASE("a state names what decides the samples: what a filter and a key read, a mixture, and files that are there") {
  const Data data({300, 420});
  const auto refusal_of = [](const Pipeline& pipeline, const std::string& kept) {
    Feeder feeder(pipeline);
    return refusal(feeder, kept);
  };
  const auto changed = [](const std::string& stages) { return Catch::Contains("changed: " + stages + ";"); };
  // Ten records have 'one', the next ten 'two', so each as `k` keeps other records, and changes at other places.
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 200; id++) {
    const bool one = id / 10 % 2 == 0;
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                    wire::entry(one ? "one" : "two", wire::int64_feature({one ? id / 20 : id / 4}))));
  }
  write_records(dir.file("a.tfrecord"), records);
  const auto keyed = [&](const std::string& feature, const std::string& more) {
    return parse_pipeline(
        "source { files: 'a.tfrecord' } feature { name: 'id' dtype: INT64 } feature { name: 'k' dtype: "
        "INT64 " +
            feature + " } output { name: 'id' feature: 'id' } " + more + batch_of(4, "DROP"),
        dir.path());
  };
  const std::string one = "key: 'one' default_value { int64_value: -1 }", filter = "filter: 'k >= 0' ";
  const std::string kept = Feeder(keyed(one, filter)).get_state(0, 2);
  CHECK(refusal_of(keyed(one, filter), kept) == "accepted");
  CHECK_THAT(refusal_of(keyed("key: 'two' default_value { int64_value: -1 }", filter), kept), changed("filter"));
  CHECK_THAT(refusal_of(keyed("key: 'one' default_value { int64_value: 0 }", filter), kept), changed("filter"));
  const std::string window = "window { size: 2 key: 'k' } ";
  const std::string windowed = Feeder(keyed(one, window)).get_state(0, 2);
  CHECK(refusal_of(keyed(one, window), windowed) == "accepted");
  CHECK_THAT(refusal_of(keyed("key: 'two' default_value { int64_value: -1 }", window), windowed), changed("window"));
  // A feature that neither reads may change, if the same records stay.
  CHECK(refusal_of(
            keyed(one, filter + "feature { name: 'more' dtype: INT64 key: 'two' default_value { int64_value: 3 } } "),
            kept) == "accepted");

  // An empty message that is there differs from none.
  const std::string two =
      "source { files: 'part-000.tfrecord' } source { files: 'part-001.tfrecord' } "
      "feature { name: 'id' dtype: INT64 } " +
      batch_of(20, "DROP");
  const Pipeline apart = parse_pipeline(two, data.dir().path());
  const Pipeline mixed = parse_pipeline(two + "mixture { }", data.dir().path());
  CHECK_THAT(refusal_of(mixed, Feeder(apart).get_state(0, 1)), changed("mixture"));
  CHECK_THAT(refusal_of(apart, Feeder(mixed).get_state(0, 1)), changed("mixture"));

  // A sound file more is other data, and nothing else. A damaged one is left out.
  const Data more({300, 420, 50});
  const std::string skip = "errors { on_error: SKIP_RECORD } ";
  const std::string fewer = Feeder(data.pipeline(skip + batch_of(20, "DROP"))).get_state(0, 2);
  CHECK_THAT(refusal_of(more.pipeline(skip + batch_of(20, "DROP")), fewer),
             changed("the data (names, sizes or content of the files)"));
  flip(more.path(2), offset_of(more.path(2), 9) + 12 + 9);
  for (const std::string& on_error : {skip, std::string("errors { on_error: SKIP_FILE } ")})
    CHECK_THAT(refusal_of(more.pipeline(on_error + batch_of(20, "DROP")), fewer),
               changed("the data (names, sizes or content of the files), errors"));
}

TEST_CASE("a string that is no state is refused") {
  const Data data({100});
  Feeder feeder(data.pipeline(batch_of(10, "DROP")));
  const std::string good = feeder.get_state(0, 3);
  for (const std::string& text : {std::string(),
                                  std::string("{}"),
                                  std::string("nonsense"),
                                  std::string("[1]"),
                                  std::string("null"),
                                  good.substr(0, good.size() - 1),
                                  good + good,
                                  std::string(100'000, '['),
                                  std::string(5, '\0'),
                                  state(good, "\"step\":3", "\"step\":-3"),
                                  state(good, "\"step\":3", "\"step\":11"),
                                  state(good, "\"step\":3", "\"step\":3.0"),
                                  state(good, "\"step\":3", "\"step\":\"3\""),
                                  state(good, "\"step\":3", "\"step\":18446744073709551616"),
                                  state(good, "\"step\":3,", ""),
                                  state(good, "\"epoch\":0", "\"epoch\":-1"),
                                  state(good, "_state\":1", "_state\":3"),
                                  state(good, "\"data\":\"", "\"data\":\"0"),
                                  state(good, "\"pipeline\":\"", "\"pipeline\":\"0"),
                                  state(good, "\"step\":3", R"("step":3,"since":0,"mixture":"")"),
                                  state(good, "\"data\":", "\"data\":1,\"x\":")}) {
    INFO(text.substr(0, 300));
    CHECK_THAT(refusal(feeder, text), Catch::StartsWith("state: "));
  }
  CHECK_THAT(refusal(feeder, state(good, "_state\":1", "_state\":3")), Catch::Contains("version 3"));
  CHECK(said(feeder, 0).rfind("0/0:", 0) == 0);
  CHECK(refusal(feeder, good) == "accepted");
  CHECK(said(feeder, 0).rfind("0/3:", 0) == 0);
}

TEST_CASE("a feed is set to another place at any time, also while batches are held") {
  const Data data({3000});
  Feeder feeder(data.pipeline(batch_of(20, "DROP")), replicas(2));
  std::vector<Batch> held;
  for (int i = 0; i < 40; i++) {
    const int64_t step = i * 37 % 150;
    feeder.set_state(feeder.get_state(static_cast<uint64_t>(i), step));
    for (int r = 0; r < 2; r++) {
      held.push_back(feeder.next(r));
      CHECK(held.back().epoch() == static_cast<uint64_t>(i));
      CHECK(held.back().at("id").as<int64_t>()[0] == step * 20 + r * 10);
    }
    if (held.size() > 6) held.erase(held.begin(), held.begin() + 4);
    for (const Batch& batch : held)
      CHECK(batch.at("id").as<int64_t>()[9] == static_cast<int64_t>(batch.step()) * 20 + batch.replica() * 10 + 9);
  }
  feeder.stop();
  try {
    feeder.set_state(feeder.get_state());
    FAIL("a stopped feed went on");
  } catch (const Error& error) {
    CHECK(error.category() == Category::stalled);
  }
}

TEST_CASE("after an error a feed can be set to a place before it") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Options options;
  options.deliver_before_error = true;
  Feeder feeder(data.pipeline(batch_of(10, "PARTIAL")), options);
  for (int round = 0; round < 2; round++) {
    for (int step = round; step < 6; step++) CHECK(feeder.next());
    CHECK(said(feeder, 0) == "bad_data_crc");
    CHECK(feeder.get_state() == feeder.get_state(5));  // the rows before the error are no step
    feeder.set_state(feeder.get_state(1));
  }
}

TEST_CASE("a feed that could not be set to another place says so, and can be set again") {
  const Data data({100});
  Feeder feeder(data.pipeline(batch_of(10, "DROP")));
  const std::string text = feeder.get_state(0, 4);
  SyscallHook* start_thread = nullptr;
  for (SyscallHook* hook : SyscallHook::all())
    if (std::string(hook->name()) == "start thread") start_thread = hook;
  REQUIRE(start_thread);
  int failures = 0;  // not every start must fail: another read backend may do without the thread
  for (int64_t n = 1; n < 100; n++) {
    start_thread->fail_nth_call(n);
    try {
      feeder.set_state(text);
    } catch (const Error& error) {
      CHECK(error.category() == Category::io_error);
      CHECK(said(feeder, 0) == "stalled");
      failures++;
    }
    const bool fired = !start_thread->pending();
    start_thread->fail_nth_call(0);
    if (!fired) break;
    feeder.set_state(text);
    CHECK(said(feeder, 0).rfind("0/4:", 0) == 0);
  }
  CHECK(failures > 0);
}

TEST_CASE("set_epoch goes to an epoch's beginning, and disturbs nothing where it is there") {
  const Data data({100});
  const Pipeline pipeline = data.pipeline(blocks + batch_of(10, "DROP"));
  Feeder straight(pipeline), feeder(pipeline);
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    feeder.set_epoch(epoch);
    CHECK(feeder.report().records == epoch * 100);  // the same feed goes on
    CHECK(read_epoch(feeder).front().all() == read_epoch(straight).front().all());
  }
  feeder.set_epoch(1);
  CHECK(feeder.epoch() == 1);
  Options options;
  options.epoch = 1;
  Feeder second(pipeline, options);
  CHECK(said(feeder, 0) == said(second, 0));
  feeder.set_epoch(1);  // also from the middle of the epoch
  CHECK(said(feeder, 0).rfind("1/0:", 0) == 0);
}

TEST_CASE("set_epoch restarts a failed feed, even at the same epoch") {
  const Data data({100});
  SyscallHook* const body = find_hook("body of a stage");
  REQUIRE(body);
  body->fail_nth_call(1);
  Feeder feeder(data.pipeline(batch_of(10, "DROP")));
  CHECK_THROWS_AS(feeder.next(), std::bad_alloc);
  CHECK_THROWS_AS(feeder.next(), std::bad_alloc);
  body->fail_nth_call(0);
  feeder.set_epoch(0);
  CHECK(read_epoch(feeder).front().all() == numbers(100));
}

TEST_CASE("set_epoch begins anew where the feeder could not be set to a place") {
  const Data data({100});
  Feeder feeder(data.pipeline(batch_of(10, "DROP")));
  SyscallHook* const start_thread = find_hook("start thread");
  REQUIRE(start_thread);
  const auto has_failed = [&](int64_t nth) {  // another read backend may do without the thread
    start_thread->fail_nth_call(nth);
    try {
      feeder.set_epoch(nth % 2 ? 3 : 5);
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  int64_t nth = 1;
  while (!has_failed(nth)) REQUIRE(nth++ < 100);
  start_thread->fail_nth_call(0);
  CHECK_THROWS_AS(feeder.epoch(), Error);
  feeder.set_epoch(4);
  CHECK(said(feeder, 0).rfind("4/0:", 0) == 0);
}

TEST_CASE("the audits of two parts of an epoch add up to that of its data") {
  const Data data({300, 420});
  for (const std::string& order : {std::string(), blocks})
    for (const char* policy : {"PARTIAL", "DROP"}) {
      const Pipeline pipeline = data.pipeline(order + batch_of(48, policy));
      for (const int64_t stop : {0, 1, 7, 15}) {
        if (stop == 15 && *policy == 'D') continue;
        Feeder first(pipeline), second(pipeline);
        for (int64_t step = 0; step < stop; step++) REQUIRE(first.next());
        second.set_state(first.get_state());
        read_epoch(second);
        const Report report = second.report();
        REQUIRE(report.last_epoch);
        const EpochAudit& audit = *report.last_epoch;
        CHECK(first.report().audit + audit.delivered + audit.dropped + audit.bad == audit.expected);
        CHECK((audit.verdict == EpochAudit::Verdict::open) == (stop > 0));
        if (stop > 0) CHECK_THAT(audit.why, Catch::Contains("began at step " + std::to_string(stop)));
      }
    }
}
