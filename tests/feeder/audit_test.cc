// The audit of an epoch: the delivered, dropped and bad records must be all records of the data, each once. The audit
// must find every deviation.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

#include "base/syscall_hooks.h"
#include "damage.h"
#include "data.h"
#include "feedline/communicator.h"
#include "flowgraph/batch/epoch_ledger.h"
#include "flowgraph/data/data_set.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;
using Verdict = EpochAudit::Verdict;

namespace {

SyscallHook& hook(const std::string& name) {
  for (SyscallHook* hook : SyscallHook::all())
    if (hook->name() == name) return *hook;
  throw std::logic_error("no hook " + name);
}

const std::vector<std::string> orders = {"", "shuffle { block_size: '16KiB' buffer_size: 300 } seed: 4 ",
                                         "shuffle { mode: GLOBAL } "};
const std::vector<std::string> policies = {"PARTIAL", "PAD", "DROP"};

uint64_t sum(const EpochAudit& audit) { return audit.delivered + audit.dropped + audit.bad; }

/// Feeds one more epoch and returns its audit. Several ranks do so at the same time, so it uses no macro of Catch2.
EpochAudit audit_of_epoch(Feeder& feeder) {
  read_epoch(feeder);
  const Report report = feeder.report();
  if (!report.last_epoch) throw std::logic_error("an epoch has ended without an audit");
  return *report.last_epoch;
}

// Keeps the feed from running ahead, because a fault would otherwise hit an epoch long after the one that is read.
const std::string few_ahead = "parallelism { host_prefetch: 2 } ";

}  // namespace

TEST_CASE("an epoch adds up to its data, whatever the order, the last batch and the replicas") {
  const Data plain({700, 0, 1, 1300});
  const Data packed({700, 1, 300}, Compression::gzip);
  for (const Data* data : {&plain, &packed})
    for (const std::string& order : orders) {
      if (data == &packed && order.find("GLOBAL") != order.npos) continue;
      uint64_t expected = 0;
      for (const std::string& policy : policies)
        for (const int count : {1, 3})
          for (const std::string epoch : {"", "epoch { repeat: 3 } "}) {
            INFO(order << policy << " " << count << " " << epoch);
            Feeder feeder(data->pipeline(order + epoch + batch_of(96, policy)), replicas(count));
            CHECK_FALSE(feeder.report().last_epoch);
            for (uint64_t e = 0; e < 2; e++) {
              const EpochAudit audit = audit_of_epoch(feeder);
              CHECK(audit.epoch == e);
              CHECK(audit.verdict == Verdict::holds);
              CHECK(audit.why.empty());
              CHECK((audit.dropped != 0) == (policy == "DROP"));
              CHECK(audit.bad == 0);
              CHECK(sum(audit) == audit.expected);
              if (expected == 0) expected = audit.expected;
              CHECK(audit.expected == (epoch.empty() ? expected : 3 * expected));
            }
            CHECK(feeder.report().differing_epochs == 0);
          }
    }
}

TEST_CASE("the audit finds a record that is left out or repeated") {
  const Data data({700, 0, 1, 1300});
  for (const char* fault : {"record left out of a batch", "record doubled in a batch"})
    for (const std::string& order : orders)
      for (const std::string& policy : policies)
        for (const int count : {1, 3})
          for (const std::string epoch : {"", "epoch { repeat: 2 } "}) {
            INFO(fault << " " << order << policy << " " << count << " " << epoch);
            for (const int64_t n : {1, 1500}) {
              hook(fault).fail_nth_call(n);
              Feeder feeder(data.pipeline(order + epoch + few_ahead + batch_of(96, policy)), replicas(count));
              const EpochAudit audit = audit_of_epoch(feeder);
              REQUIRE_FALSE(hook(fault).pending());
              CHECK(audit.verdict == Verdict::differs);
              CHECK(sum(audit) != audit.expected);
              CHECK(audit_of_epoch(feeder).epoch == 1);
              CHECK(feeder.report().differing_epochs == 1);
              CHECK(feeder.report().last_epoch->verdict == Verdict::holds);
            }
          }
}

TEST_CASE("the parts of ranks add up") {
  const Data data({700, 0, 1, 1300, 90});
  for (const std::string& order : orders)
    for (const std::string& policy : policies)
      for (const int world : {2, 3, 4}) {
        INFO(order << policy << " " << world);
        uint64_t all = 0, expected = 0;
        for (int rank = 0; rank < world; rank++) {
          Options options = replicas(2);
          options.rank = rank;
          options.world_size = world;
          Feeder feeder(data.pipeline(order + batch_of(96, policy)), options);
          const EpochAudit audit = audit_of_epoch(feeder);
          CHECK(audit.verdict == Verdict::open);
          CHECK_FALSE(audit.why.empty());
          all += sum(audit);
          expected = audit.expected;
        }
        CHECK(all == expected);
      }
}

TEST_CASE("ranges, shards and windows are held against what the indexes say of them") {
  const Data data({5000, 0, 30, 7000, 12});
  struct Case {
    std::string field, value, more;
  };
  const std::vector<Case> cases = {
      {"source.range", "10%:80%", ""},
      {"source.range", "4999:5001", ""},
      {"source.range", "7:9", ""},
      {"source.range", "100:11000", "filter: 'mod(id, 3) > 0' "},
      {"source.num_shards", "3", ""},
      {"", "", "window { size: 10 shift: 1 } "},
      {"", "", "window { size: 10 shift: 5 stride: 3 } "},
      {"", "", "window { size: 6 shift: 6 drop_remainder: false } "},
      {"", "", "window { size: 8 shift: 2 across_files: true } "},
      {"source.range", "300:9000", "window { size: 4 shift: 1 stride: 7 drop_remainder: false } "},
      {"", "", "filter: 'mod(id, 5) != 2' window { size: 3 shift: 1 } "}};
  for (const Case& c : cases)
    for (const std::string& order : orders) {
      INFO(c.field << " " << c.value << " " << c.more << order);
      const TempDir kept;
      Pipeline pipeline = data.pipeline(order + c.more + few_ahead + batch_of(96, "PARTIAL"))
                              .with("source.index.dir", kept.path())
                              .with("source.index.stride", "128");
      if (!c.field.empty()) pipeline = pipeline.with(c.field, c.value);
      Feeder feeder(pipeline);
      const EpochAudit audit = audit_of_epoch(feeder);
      INFO(audit.why);
      CHECK(audit.verdict == Verdict::holds);
      CHECK(sum(audit) == audit.expected);
      for (const char* fault : {"record left out of a batch", "record doubled in a batch"}) {
        hook(fault).fail_nth_call(1);
        for (int epoch = 0; epoch < 20 && hook(fault).pending(); epoch++) read_epoch(feeder);
        REQUIRE_FALSE(hook(fault).pending());
        for (int epoch = 0; epoch < 20 && feeder.report().differing_epochs == 0; epoch++) read_epoch(feeder);
        CHECK(feeder.report().differing_epochs == 1);
        feeder.set_epoch(50);  // resets the audit
      }
    }
}

TEST_CASE("windows that the indexes cannot judge say why") {
  const Data data({5000}), packed({5000}, Compression::gzip);
  const auto why = [](const Data& from, const std::string& more) {
    Feeder feeder(from.pipeline(more + batch_of(96, "PARTIAL")));
    const EpochAudit audit = audit_of_epoch(feeder);
    CHECK(audit.verdict == Verdict::open);
    CHECK(feeder.report().differing_epochs == 0);
    return audit.why;
  };
  CHECK_THAT(why(data, "window { size: 10 shift: 3 } "), Catch::Contains("windows of 10 frames"));
  CHECK_THAT(why(packed, "window { size: 10 shift: 1 } "), Catch::Contains("of the compressed file"));
  CHECK_THAT(why(data, "epoch { steps: 10 } "), Catch::Contains("no pass that was fed from beginning to end"));
  CHECK_THAT(why(Data({100}), "epoch { steps: 10 } "), Catch::Contains("more than half of the data"));
}

TEST_CASE("epochs of so many steps are judged by the passes that end in them", "[long]") {
  const Data data({700, 0, 1, 1300});
  std::vector<std::string> all_orders = orders;
  all_orders.push_back("shuffle { mode: BUFFER buffer_size: 90 } ");
  all_orders.push_back("window { size: 4 shift: 2 } shuffle { block_size: '16KiB' buffer_size: 90 } ");
  for (const std::string& order : all_orders)
    for (const int64_t steps : {3, 7, 60})
      for (const int count : {1, 3}) {
        INFO(order << steps << " " << count);
        const Pipeline pipeline =
            data.pipeline(order + "epoch { steps: " + std::to_string(steps) + " } " + batch_of(96, "DROP"));
        const auto judged = [](Feeder& feeder, int epochs) {
          int held = 0;
          for (int e = 0; e < epochs; e++) {
            const EpochAudit audit = audit_of_epoch(feeder);
            held += audit.verdict == Verdict::holds;
            CHECK((audit.verdict == Verdict::open) == !audit.why.empty());
          }
          CHECK(feeder.report().differing_epochs == 0);
          return held;
        };
        Feeder feeder(pipeline, replicas(count));
        const int epochs = static_cast<int>(100 / steps) + 2;
        CHECK(judged(feeder, epochs) > 0);
        const std::string state = feeder.get_state();
        for (const char* fault : {"record left out of a batch", "record doubled in a batch"}) {
          hook(fault).fail_nth_call(1);
          feeder.set_state(state);
          for (int e = 0; e < 3 * epochs; e++) read_epoch(feeder);
          REQUIRE_FALSE(hook(fault).pending());
          // The feed does not deliver its first pass from the beginning, so the audit cannot find a fault in that pass.
          hook(fault).fail_nth_call(1);
          for (int e = 0; e < 3 * epochs; e++) read_epoch(feeder);
          REQUIRE_FALSE(hook(fault).pending());
          CHECK(feeder.report().differing_epochs == 1);
        }
        Feeder resumed(pipeline, replicas(count));
        resumed.set_state(state);
        CHECK(judged(resumed, 3 * epochs) > 0);
      }
}

TEST_CASE("rows that fail while a batch is written belong to the pass of their sample") {
  const Data data({90, 110});
  for (const std::string& order : orders)
    for (const std::string classes : {"30", "150"})  // so that rows of the later pass fail, or of the earlier one
      for (const int count : {1, 3}) {
        INFO(order << classes << " " << count);
        Feeder feeder(data.pipeline(order +
                                    "epoch { steps: 3 } errors { on_error: SKIP_RECORD } output { name: 'id' feature: "
                                    "'id' } output { name: 'class' feature: 'id' one_hot { classes: " +
                                    classes + " } } " + batch_of(48, "DROP")),
                      replicas(count));
        int held = 0;
        for (int epoch = 0; epoch < 8; epoch++) held += audit_of_epoch(feeder).verdict == Verdict::holds;
        CHECK(held > 0);
        CHECK(feeder.report().differing_epochs == 0);
        CHECK(feeder.report().filler_rows > 0);
      }
}

TEST_CASE("ranks with a communicator judge the epoch together") {
  const Data data({700, 0, 1, 1300, 90});
  for (const std::string& order : orders)
    for (const bool faulty : {false, true}) {
      INFO(order << faulty);
      if (faulty) hook("record left out of a batch").fail_nth_call(1);
      constexpr int world = 3;
      auto between = communicators_between_threads(world);
      const auto thrown = side_by_side(world, [&](int rank) {
        Options options = replicas(2);
        options.communicator = std::move(between[static_cast<size_t>(rank)]);
        Feeder feeder(data.pipeline(order + batch_of(96, "DROP")), options);
        const auto none = feeder.audit_ranks();
        const EpochAudit own = audit_of_epoch(feeder);
        const auto all = feeder.audit_ranks();
        // Catch2's macros must be used by one thread only.
        if (none) throw std::logic_error("there is an audit before the first epoch has ended");
        if (own.verdict != Verdict::open) throw std::logic_error("a rank judges alone");
        if (!all || all->epoch != 0) throw std::logic_error("there is no audit of the epoch");
        if (all->verdict != (faulty ? Verdict::differs : Verdict::holds)) throw std::logic_error("a wrong verdict");
        if ((sum(*all) == all->expected) == faulty) throw std::logic_error("wrong sums");
        if (rank == 1) read_epoch(feeder);
        const auto apart = feeder.audit_ranks();
        const std::string why = apart ? apart->why : "there is no audit";
        if (why != "the last epoch that rank 0 has completed is epoch 0, but on rank 1 it is epoch 1")
          throw std::logic_error(why);
      });
      for (const std::string& error : thrown) CHECK(error == "");
    }
}

// In the last step only rank 0 has a sample. Its bad row also stands in for the rows that rank 1 lacks.
TEST_CASE("a bad record that is filler of a different rank counts once") {
  const Data data({41}, Compression::none,
                  [](int64_t id) { return id == 40 ? wire::entry("raw", wire::int64_feature({1})) : std::string(); });
  for (const std::string policy : {"PARTIAL", "PAD"}) {
    auto between = communicators_between_threads(2);
    const auto said = side_by_side(2, [&](int rank) {
      Options options = replicas(1);
      options.communicator = std::move(between[static_cast<size_t>(rank)]);
      Feeder feeder(
          data.pipeline("feature { name: 'raw' dtype: BYTES } errors { on_error: SKIP_RECORD } " + batch_of(8, policy)),
          options);
      read_epoch(feeder);
      const auto audit = feeder.audit_ranks();
      throw std::runtime_error(!audit                             ? "no audit"
                               : audit->verdict == Verdict::holds ? "holds"
                                                                  : "differs, or is open: " + audit->why);
    });
    CHECK(said == std::vector<std::string>(2, "holds"));
  }
}

TEST_CASE("audit_ranks() that waits for another rank is ended by stop(), on all ranks") {
  const Data data({90});
  auto between = communicators_between_threads(2);
  std::promise<void> ended;
  const auto thrown = side_by_side(2, [&](int rank) {
    Options options = replicas(1);
    options.communicator = std::move(between[static_cast<size_t>(rank)]);
    Feeder feeder(data.pipeline(batch_of(6, "DROP")), options);
    if (rank == 1) {
      ended.get_future().wait();
      feeder.audit_ranks();
      return;
    }
    std::thread stopper([&] { feeder.stop(); });
    std::string what;
    try {
      feeder.audit_ranks();
    } catch (const Error& error) {
      what = error.what();
    }
    stopper.join();
    ended.set_value();
    throw std::runtime_error(what);
  });
  // The stop may come before the call.
  CHECK_THAT(thrown[0], Catch::EndsWith("feeder was stopped [stalled]"));
  CHECK_THAT(thrown[1], Catch::StartsWith("rank 0, call ") && Catch::EndsWith(": its feeder was stopped [stalled]"));
}

TEST_CASE("records that turn bad after they were counted are accounted for", "[long]") {
  const std::string skip = "errors { on_error: SKIP_RECORD } ";
  for (const std::string& order : orders)
    for (const std::string& policy : policies)
      for (const int count : {1, 3}) {
        INFO(order << policy << " " << count);
        const Data data({700, 1300});
        HiddenDamage damage(data.path(1));
        const uint64_t sound = offset_of(data.path(1), 900), crc = offset_of(data.path(1), 901) - 2;
        const auto feeder_of = [&](const std::string& more = "") {
          auto feeder = std::make_unique<Feeder>(data.pipeline(order + skip + more + few_ahead + batch_of(96, policy)),
                                                 replicas(count));
          CHECK(audit_of_epoch(*feeder).verdict == Verdict::holds);
          return feeder;
        };
        // Several threads read epochs ahead. So the damage may be only in a part of the first epochs with it; some
        // epochs later, every epoch has all of it.
        const auto damaged = [](Feeder& feeder) {
          for (int i = 0; i < 1000 && feeder.report().last_epoch->verdict == Verdict::holds &&
                          feeder.report().last_epoch->bad == 0;
               i++)
            audit_of_epoch(feeder);
          for (int i = 0; i < 20; i++) audit_of_epoch(feeder);
          return audit_of_epoch(feeder);
        };
        {
          const auto feeder = feeder_of();
          damage.flip(sound + 12 + 9);  // in the payload
          const EpochAudit audit = damaged(*feeder);
          CHECK(audit.verdict == Verdict::holds);
          CHECK(audit.bad != 0);
          CHECK(sum(audit) == audit.expected);
          for (const char* fault : {"record left out of a batch", "record doubled in a batch"}) {
            hook(fault).fail_nth_call(500);
            const uint64_t before = feeder->report().differing_epochs;
            audit_of_epoch(*feeder);
            CHECK(feeder->report().differing_epochs == before + 1);
          }
          damage.flip(sound + 12 + 9);
        }
        {
          const auto feeder = feeder_of("epoch { repeat: 2 } ");
          damage.flip(crc);  // in the stored CRC
          const EpochAudit audit = damaged(*feeder);
          CHECK(audit.verdict == Verdict::holds);
          CHECK(sum(audit) != audit.expected);
          damage.flip(crc);
        }
        {
          const auto feeder = feeder_of();
          damage.flip(sound + 2);  // in the length: the start of the next record is lost
          const EpochAudit audit = damaged(*feeder);
          CHECK(audit.verdict == Verdict::open);
          CHECK(audit.why.find("lost") != std::string::npos);
          CHECK(feeder->report().differing_epochs == 0);
        }
      }
}

TEST_CASE("records that were never what the pipeline wants are accounted for, also among those that DROP leaves out") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 100; id++) records.push_back(sample(id));
  for (const size_t bad : {0, 42, 43, 95, 99}) records[bad] = "\xff";
  write_records(dir.file("a"), records);
  for (const std::string& policy : policies)
    for (const int world : {1, 2, 3}) {
      INFO(policy << world);
      uint64_t all = 0;
      EpochAudit audit;
      for (int rank = 0; rank < world; rank++) {
        Options options;
        options.rank = rank;
        options.world_size = world;
        Feeder feeder(parse_pipeline("source { files: 'a' } feature { name: 'id' dtype: INT64 } errors { on_error: "
                                     "SKIP_RECORD } epoch { repeat: 2 } " +
                                         batch_of(54, policy),
                                     dir.path()),
                      options);
        audit = audit_of_epoch(feeder);
        if (world == 1) CHECK(audit.verdict == Verdict::holds);
        all += sum(audit);
      }
      CHECK(all == audit.expected);
    }
}

TEST_CASE("ranges that cannot be compared say why") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder raises(data.pipeline(batch_of(10, "PARTIAL")));
  for (int step = 0; step < 5; step++) CHECK(raises.next());
  CHECK_THROWS(raises.next());
  CHECK_FALSE(raises.report().last_epoch);

  const auto end_of = [](int64_t first_step, uint64_t dropped = 0, uint64_t bad = 0, uint64_t lost = 0,
                         std::vector<uint64_t> doubts = {}) {
    return flow::EpochEnd{.epoch = 0,
                          .first_step = first_step,
                          .dropped = dropped,
                          .bad = bad,
                          .lost = lost,
                          .doubts = std::move(doubts)};
  };
  const auto ledger_of = [](const flow::EpochEnd& end, std::optional<uint64_t> expected, uint64_t delivered) {
    flow::EpochLedger ledger(1, {.sum = expected}, true);
    ledger.delivered(0, {.good = delivered});
    ledger.ended(0, end);
    return *ledger.last();
  };
  CHECK(ledger_of(end_of(0), 7, 7).verdict == Verdict::holds);
  CHECK(ledger_of(end_of(0), 7, 8).verdict == Verdict::differs);
  CHECK(ledger_of(end_of(0, 2, 1), 7, 4).verdict == Verdict::holds);
  CHECK(ledger_of(end_of(0), std::nullopt, 7).verdict == Verdict::open);
  CHECK(ledger_of(end_of(3), 7, 7).why == "the feed began at step 3");
  CHECK(ledger_of(end_of(0, 0, 0, 1), 7, 7).verdict == Verdict::open);
  CHECK(ledger_of(end_of(0, 0, 0, 0, {5, 100, 20}), 32, 7).verdict == Verdict::holds);
  CHECK(ledger_of(end_of(0, 0, 0, 0, {5, 100, 20}), 33, 7).verdict == Verdict::differs);
  CHECK(ledger_of(end_of(0, 0, 0, 0, std::vector<uint64_t>(11, 1)), 7, 7).verdict == Verdict::holds);
  CHECK(ledger_of(end_of(0, 0, 0, 0, std::vector<uint64_t>(11, 1)), 8, 7).verdict == Verdict::open);
}

TEST_CASE("epochs are told apart, though one replica is ahead") {
  flow::EpochLedger ledger(2, {.sum = 10}, true);
  const auto end_of = [](uint64_t epoch) {
    flow::EpochEnd end;
    end.epoch = epoch;
    return end;
  };
  ledger.delivered(0, {.good = 4});
  ledger.ended(0, end_of(3));
  ledger.delivered(0, {.good = 5});
  ledger.ended(0, end_of(4));
  ledger.delivered(0, {.good = 1});
  CHECK_FALSE(ledger.last());
  ledger.delivered(1, {.good = 6});
  ledger.ended(1, end_of(3));
  CHECK(ledger.last()->epoch == 3);
  CHECK(ledger.last()->delivered == 10);
  ledger.delivered(1, {.good = 6});
  ledger.ended(1, end_of(4));
  CHECK(ledger.last()->epoch == 4);
  CHECK(ledger.last()->verdict == Verdict::differs);
  CHECK(ledger.differing() == 1);
}
