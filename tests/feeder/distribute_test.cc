// Rows that travel between ranks: each replica must be given what it would be given if each rank read its own rows.
#include <atomic>
#include <barrier>
#include <filesystem>
#include <future>
#include <thread>

#include "damage.h"
#include "distributed.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("REPLICATE: all replicas are given the whole batches, whatever the number of ranks") {
  const Data data({90, 0, 1, 117});
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 60 } seed: 3 "),
        std::string("filter: 'mod(id, 3) > 0' shuffle { mode: GLOBAL } ")})
    for (const std::string& policy : {std::string("DROP"), std::string("PARTIAL"), std::string("PAD")}) {
      const Pipeline pipeline =
          data.pipeline(outputs + order + batch_text(24, policy)).with("distribute.mode", "REPLICATE");
      const std::vector<std::string> wanted = split(pipeline, 0, 1, 1)[0];
      for (const int ranks : {1, 2, 4, 8})
        for (const int replicas : {1, 2}) {
          INFO(order << policy << " " << ranks << " ranks x " << replicas);
          CHECK(on_communicators(ranks, [&](int, Ends end) {
                  Feeder feeder(pipeline, of_rank(std::move(end), replicas));
                  for (int half = 0; half < 2; half++)
                    for (const auto& texts : epoch_of(feeder)) {
                      const size_t each = wanted.size() / 2;
                      const auto begin = wanted.begin() + static_cast<int64_t>(half * each);
                      if (texts != std::vector<std::string>(begin, begin + static_cast<int64_t>(each)))
                        throw std::runtime_error("other batches");
                    }
                }) == nothing_thrown(ranks));
        }
    }
}

TEST_CASE("REPLICATE needs no communicator among the replicas of a process") {
  const Data data({50});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP")).with("distribute.mode", "REPLICATE");
  Feeder feeder(pipeline, of_rank({}, 3));
  const Texts texts = epoch_of(feeder);
  CHECK(texts[0].size() == 7);
  CHECK(texts[1].size() == 7);
  CHECK(feeder.plan_text().find("packed") != std::string::npos);
  CHECK(feeder.report().sent_bytes == 0);
}

TEST_CASE("a thread that holds all batches of one replica is told so when it asks for another's") {
  const Data data({100});
  for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
    const Pipeline pipeline = data.pipeline(batch_text(4, "DROP")).with("distribute.mode", mode);
    Feeder feeder(pipeline, of_rank({}, 2));
    std::vector<Batch> held;
    try {
      for (int step = 0; step < 20; step++) {
        feeder.next(0);
        held.push_back(feeder.next(1));
      }
      FAIL("as many batches as one likes");
    } catch (const Error& error) {
      CHECK(error.category() == Category::stalled);
      CHECK(error.message().find("holds all") != std::string::npos);
      CHECK(error.message().find("of replica 1") != std::string::npos);
    }
    CHECK(held.size() > 1);
  }
}

TEST_CASE("SCATTER: each replica is given its rows, and only rank 0 needs the files") {
  const Data data({90, 0, 1, 117});
  const TempDir nowhere;
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 60 } seed: 3 ")})
    for (const std::string& policy : {std::string("DROP"), std::string("PARTIAL"), std::string("PAD")})
      for (const int ranks : {1, 2, 4, 8})
        for (const int replicas : {1, 2}) {
          INFO(order << policy << " " << ranks << " ranks x " << replicas);
          const std::string text = outputs + order + batch_text(48, policy) + "distribute { mode: SCATTER } ";
          CHECK(on_communicators(ranks, [&](int rank, Ends end) {
                  const Pipeline pipeline = data.pipeline(text);
                  const Pipeline without = pipeline.with("source.files", nowhere.file("*.tfrecord"));
                  Feeder feeder(rank == 0 ? pipeline : without, of_rank(std::move(end), replicas));
                  Texts texts = epoch_of(feeder);
                  const Texts second = epoch_of(feeder), wanted = split(pipeline, rank, ranks, replicas);
                  for (size_t replica = 0; replica < texts.size(); replica++) {
                    texts[replica].insert(texts[replica].end(), second[replica].begin(), second[replica].end());
                    if (texts[replica] != wanted[replica]) throw std::runtime_error("other batches");
                  }
                  if ((feeder.report().read_bytes > 0) != (rank == 0)) throw std::runtime_error("others read, too");
                }) == nothing_thrown(ranks));
        }
}

TEST_CASE("ranks with the same data_parallel_rank are given the same rows in every mode") {
  const Data data({90, 117});
  const Pipeline pipeline =
      data.pipeline(outputs + "shuffle { block_size: '16KiB' buffer_size: 60 } " + batch_text(24, "PAD"));
  const std::vector<int> parts = {1, 0, 0, 1, 2, 2};  // data_parallel_rank of each rank
  for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")}) {
    INFO(mode);
    CHECK(on_communicators(6, [&](int rank, Ends end) {
            Options options = of_rank(std::move(end), 1);
            options.data_parallel_rank = parts[static_cast<size_t>(rank)];
            options.data_parallel_size = 3;
            Feeder feeder(pipeline.with("distribute.mode", mode), options);
            const std::vector<std::string> texts = epoch_of(feeder)[0];
            const std::vector<std::string> wanted = split(pipeline, options.data_parallel_rank, 3, 1)[0];
            if (!std::equal(texts.begin(), texts.end(), wanted.begin())) throw std::runtime_error("other batches");
          }) == nothing_thrown(6));
  }
}

TEST_CASE("windows travel with their frames") {
  const Data data({40, 37});
  for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
    const Pipeline pipeline = data.pipeline(
        "feature { name: 'x' dtype: FLOAT32 shape: 3 } output { name: 'id' feature: 'id' } "
        "output { name: 'half' dtype: FLOAT16 feature: 'x' } window { size: 4 shift: 2 } " +
        batch_text(8, "PARTIAL"));
    const bool all = mode == "REPLICATE";
    CHECK(on_communicators(2, [&](int rank, Ends end) {
            Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(end), 1));
            const std::vector<std::string> texts = epoch_of(feeder)[0];
            const std::vector<std::string> wanted = all ? split(pipeline, 0, 1, 1)[0] : split(pipeline, rank, 2, 1)[0];
            if (!std::equal(texts.begin(), texts.end(), wanted.begin())) throw std::runtime_error("other batches");
          }) == nothing_thrown(2));
  }
}

TEST_CASE("the bytes that travel are counted: packed ones, for each rank that is given them") {
  const Data data({64});
  const std::string bits =
      "feature { name: 'b' dtype: BYTES length: 5 } output { name: 'b' dtype: FLOAT32 feature: 'b' unpack_bits { "
      "shape: 40 } } ";
  for (const auto& [mode, sent] :
       std::vector<std::pair<std::string, uint64_t>>{{"SPLIT", 0}, {"REPLICATE", 3}, {"SCATTER", 1}}) {
    INFO(mode);
    const Pipeline pipeline = data.pipeline(bits + "batch { global_batch_size: 64 } ").with("distribute.mode", mode);
    std::vector<uint64_t> out(4), in(4);
    CHECK(on_communicators(4, [&](int rank, Ends end) {
            Feeder feeder(pipeline, of_rank(end, 1));
            feeder.next();
            feeder.next();  // the end of the epoch: all rows sent so far have arrived
            const Report report = feeder.report();
            out[static_cast<size_t>(rank)] = report.sent_bytes;
            in[static_cast<size_t>(rank)] = report.received_bytes;
          }) == nothing_thrown(4));
    const uint64_t batch = 64 * (5 + 1);  // bytes of the packed rows and of the mask
    const uint64_t between = 256 - 64;    // bytes from the mask to the rows, which are broadcast with them
    if (mode == "SPLIT") {
      CHECK(out == std::vector<uint64_t>(4));
      CHECK(in == out);
      continue;
    }
    // Batches of the next epochs may already be on their way.
    const uint64_t each = mode == "SCATTER" ? batch / 4 : batch + between;
    CHECK(out[0] >= 3 * each);
    CHECK(out[0] % each == 0);
    CHECK(out[0] <= 3 * each * 5);
    CHECK(in[0] == 0);
    for (size_t rank = 1; rank < 4; rank++) {
      CHECK(in[rank] >= each);
      CHECK(in[rank] % each == 0);
      CHECK(out[rank] == 0);
    }
    CHECK(sent > 0);
  }
}

TEST_CASE("a feed whose rows travel goes on from a state, set on all ranks together") {
  const Data data({90, 117});
  const Pipeline pipeline =
      data.pipeline(outputs + "shuffle { block_size: '16KiB' buffer_size: 60 } " + batch_text(24, "PAD"));
  for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
    INFO(mode);
    std::vector<std::string> states(3);
    CHECK(on_communicators(3, [&](int rank, Ends end) {
            Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(end), 1));
            const std::vector<std::string> first = epoch_of(feeder)[0];
            for (int step = 0; step < 4; step++) feeder.next();
            const std::string state = feeder.get_state();
            states[static_cast<size_t>(rank)] = state;
            std::vector<std::string> rest = epoch_of(feeder)[0];
            feeder.set_state(state);
            if (epoch_of(feeder)[0] != rest) throw std::runtime_error("other batches after the state");
            feeder.set_epoch(0);
            if (epoch_of(feeder)[0] != first) throw std::runtime_error("another first epoch");
            if (feeder.epoch() != 1 || feeder.steps_per_epoch() != 9) throw std::runtime_error("another epoch");
          }) == nothing_thrown(3));
    CHECK(states[1] == states[0]);
    CHECK(states[2] == states[0]);
    Feeder alone(pipeline, replicas(1));
    alone.set_state(states[0]);
    CHECK(alone.get_state() == states[0]);
  }
}

TEST_CASE("ranks that are set to different places are told on all of them") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  const auto said = on_communicators(3, [&](int rank, Ends end) {
    Feeder feeder(pipeline, of_rank(std::move(end), 1));
    feeder.next();
    feeder.set_epoch(rank == 1 ? 5 : 4);
  });
  for (const std::string& text : said)
    CHECK(text ==
          "rank 1 differs from rank 0: it continues at step 0 of epoch 5, not at step 0 of epoch 4 [bad_pipeline]");
}

TEST_CASE("a rank that asks for a batch while another is set elsewhere ends both, and says why", "[long]") {
  const int sets = GENERATE(0, 1);
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  const auto said = on_communicators(2, [&](int rank, Ends end) {
    Feeder feeder(pipeline, of_rank(std::move(end), 1));
    feeder.next();
    if (rank == sets) feeder.set_epoch(4);
    for (;;) feeder.next();
  });
  for (const std::string& text : said)
    CHECK_THAT(text, Catch::Contains("rank " + std::to_string(sets) +
                                     " calls set_state(), set_epoch() or set_weights(), but this rank calls next()"));
}

TEST_CASE("a state of another feed changes nothing on any rank") {
  const Data data({90}), other({91});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "SCATTER");
  const std::string state = Feeder(other.pipeline(batch_text(6, "DROP"))).get_state();
  CHECK(on_communicators(2, [&](int, Ends end) {
          Feeder feeder(pipeline, of_rank(std::move(end), 1));
          feeder.next();
          try {
            feeder.set_state(state);
          } catch (const Error&) {
            if (feeder.next().step() == 1) return;
          }
          throw std::runtime_error("it was taken");
        }) == nothing_thrown(2));
}

TEST_CASE("a bad record ends all ranks after the same batches") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP"));
  const uint64_t at = offset_of(data.path(0), 50);
  HiddenDamage(data.path(0)).flip(at + 20);
  for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
    INFO(mode);
    std::vector<int> steps(3);
    const auto said = on_communicators(3, [&](int rank, Ends end) {
      Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(end), 1));
      for (;;) {
        feeder.next();
        steps[static_cast<size_t>(rank)]++;
      }
    });
    CHECK(steps == std::vector<int>(3, 8));
    for (const std::string& text : said) CHECK(text.find("bad_data_crc") != std::string::npos);
    CHECK(said[1].find("step 8 of epoch 0: rank 0, call ") != std::string::npos);
  }
}

TEST_CASE("a rank that ends stops the others after what they have, and one that failed says why") {
  const Data data({400});
  for (const std::string& mode : {std::string("REPLICATE"), std::string("SCATTER")}) {
    INFO(mode);
    const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", mode);
    const auto said = on_communicators(3, [&](int rank, Ends end) {
      Feeder feeder(pipeline, of_rank(end, 1));
      for (int step = 0; rank != 1 || step < 10; step++) feeder.next();
    });
    CHECK(said[1].empty());
    for (const size_t rank : {size_t{0}, size_t{2}})
      CHECK(said[rank].find("rank 1 has left the feed, after step ") == 0);
  }
}

TEST_CASE("with a communicator, ranks that read for themselves hear of one that fails") {
  const Data data({90, 90});
  const Pipeline pipeline = data.pipeline("shuffle { lanes: 2 } epoch { repeat: -1 } " + batch_text(6, "DROP"));
  const auto said = on_communicators(3, [&](int rank, Ends end) {
    Feeder feeder(pipeline, of_rank(end, 1));
    for (int step = 0;; step++) {
      if (rank == 2 && step == 5) {
        end->abort(Error(Category::io_error, "out of luck"));
      }
      feeder.next();
    }
  });
  for (const std::string& text : said) {
    CHECK(text.find("out of luck") != std::string::npos);
    CHECK(text.find("step ") == 0);
  }
}

TEST_CASE("parts that no rank is given, or that do not exist, are refused on all ranks") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP"));
  for (const auto& [of_rank_1, size, what] : std::vector<std::tuple<int, int, std::string>>{
           {0, 2,
            "options.data_parallel_rank: no rank sets it to 1, so one of 2 parts of the samples would be lost; each "
            "number below options.data_parallel_size needs a rank [bad_pipeline]"},
           {0, -2,
            "options.data_parallel_size: the number is -2, and options.data_parallel_rank is 0; set "
            "options.data_parallel_size to the number of parts of a global batch, or leave out both [bad_pipeline]"},
           {2, 2,
            "options.data_parallel_rank: rank 1 has the value 2, but options.data_parallel_size is 2; set the value to "
            "a number "
            "from 0 to 1 [bad_pipeline]"}}) {
    const int part = of_rank_1, parts = size;
    for (const std::string& text : on_communicators(2, [&](int rank, Ends end) {
           Options options = of_rank(std::move(end), 1);
           options.data_parallel_rank = rank == 1 ? part : 0;
           options.data_parallel_size = parts;
           Feeder feeder(pipeline, options);
         }))
      CHECK(text == what);
  }
  Options options;
  options.world_size = 2;
  CHECK_THROWS_WITH(Feeder(pipeline.with("distribute.mode", "SCATTER"), options),
                    "distribute.mode: REPLICATE and SCATTER send rows between the 2 ranks, but options.communicator is "
                    "not set; set options.communicator, for example to a tcp_communicator() [bad_pipeline]");
}

TEST_CASE("a communicator serves one feed after another") {
  const Data data({60});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  CHECK(on_communicators(3, [&](int, Ends end) {
          for (int feed = 0; feed < 20; feed++) {
            Feeder feeder(pipeline, of_rank(end, 1));
            for (int step = 0; step < feed; step++)
              if (!feeder.next()) break;
          }
        }) == std::vector<std::string>(3));
}

TEST_CASE("weights of a mixture change on all ranks, and back with a state") {
  const Data data({90, 90});
  const Pipeline pipeline = parse_pipeline(
      "source { name: 'a' files: 'part-000.tfrecord' weight: 1 } source { name: 'b' files: 'part-001.tfrecord' weight: "
      "1 } "
      "mixture { stop: CYCLE_FOREVER } epoch { steps: 5 } feature { name: 'id' dtype: INT64 } batch { "
      "global_batch_size: 12 }"
      "distribute { mode: SCATTER }",
      data.dir().path());
  CHECK(on_communicators(2, [&](int, Ends end) {
          Feeder feeder(pipeline, of_rank(std::move(end), 1));
          const std::string at_first = feeder.get_state();
          const Texts first = epoch_of(feeder);
          feeder.set_weights({1, 3});
          const std::string reweighted = feeder.get_state();
          const Texts second = epoch_of(feeder);
          feeder.set_state(at_first);
          if (epoch_of(feeder) != first) throw std::runtime_error("another first epoch");
          feeder.set_state(reweighted);
          if (epoch_of(feeder) != second) throw std::runtime_error("another second epoch");
        }) == nothing_thrown(2));
}

TEST_CASE("what arrives is in the memory plan, and the audit is of what was sent on") {
  const Data data({90, 117});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(24, "PARTIAL"))
                                .with("distribute.mode", "REPLICATE")
                                .with("memory.limit", "16MiB");
  Feeder feeder(pipeline, of_rank({}, 2));
  CHECK(feeder.plan_text().find("batches as they arrive") != std::string::npos);
  epoch_of(feeder);
  const Report report = feeder.report();
  REQUIRE(report.last_epoch);
  CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  CHECK(report.differing_epochs == 0);
  const std::optional<EpochAudit> together = feeder.audit_ranks();
  REQUIRE(together);
  CHECK((together->verdict == report.last_epoch->verdict && together->expected == report.last_epoch->expected));
  Feeder alone(pipeline.with("distribute.mode", "SPLIT"), of_rank({}, 2));
  epoch_of(alone);
  CHECK(report.missing_of == 207);
  CHECK(report.missing == alone.report().missing);
}

TEST_CASE("outputs that are the same bytes are lent, so that no program writes one through the other") {
  const Data data({90});
  const Pipeline pipeline =
      data.pipeline(
              "feature { name: 'x' dtype: FLOAT32 shape: 3 } output { name: 'id' feature: 'id' } output { name: 'a' "
              "feature: 'x' } output { name: 'b' feature: 'x' } " +
              batch_text(24, "DROP"))
          .with("distribute.mode", "REPLICATE");
  Feeder feeder(pipeline, of_rank({}, 1));
  const Batch batch = feeder.next();
  CHECK(batch.at("a").data == batch.at("b").data);
  for (const NamedTensor& tensor : batch.tensors()) CHECK(tensor.lent == (tensor.name == "a" || tensor.name == "b"));
}

TEST_CASE("set_epoch() that waits for other ranks is ended by stop()") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  const auto said = on_communicators(2, [&](int rank, Ends end) {
    Feeder feeder(pipeline, of_rank(std::move(end), 1));
    feeder.next();
    if (rank == 1) {
      while (feeder.next()) {
      }
      return;
    }
    std::thread watchdog([&] {
      feeder.report();
      feeder.stop();
    });
    try {
      feeder.set_epoch(3);
    } catch (...) {
      watchdog.join();
      throw;
    }
    watchdog.join();
  });
  CHECK((said[0].find("rank 0 has left the feed") == 0 || said[0] == "the feeder was stopped [stalled]"));
  CHECK((said[1].empty() || said[1].find("rank 0 has left the feed") == 0));
}

namespace {

/// A transport that calls `before` at the beginning of each all-gather, with the number of bytes that a rank gives,
/// and passes every call on to a communicator.
class Watched final : public Transport {
 public:
  Watched(Ends of, std::function<void(size_t)> before) : of_(std::move(of)), before_(std::move(before)) {}

  int rank() const noexcept override { return of_->rank(); }
  int size() const noexcept override { return of_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override {
    before_(mine.size());
    of_->all_gather(mine, all, stream);
  }
  void broadcast(std::span<std::byte> data, int root, Stream stream) override { of_->broadcast(data, root, stream); }
  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream stream) override {
    of_->send_receive(sends, receives, stream);
  }
  void barrier() override { of_->barrier(); }
  void abort(const Error& why) noexcept override { of_->abort(why); }
  std::optional<Error> failure() const override { return of_->failure(); }

 private:
  const Ends of_;
  const std::function<void(size_t)> before_;
};

}  // namespace

TEST_CASE("while other ranks are waited for, a feeder that is set elsewhere tells where it goes, and can be stopped") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  std::atomic<bool> setting{false};
  std::promise<void> waits, goes_on;
  auto may_go_on = goes_on.get_future().share();
  const auto said = on_communicators(2, [&](int rank, Ends end) {
    // An exchange begins with an all-gather of the lengths of its strings. By this size the ranks recognise the
    // exchange of set_epoch().
    std::atomic<bool> came{false};
    const auto at_exchange = [&](size_t bytes) {
      if (bytes != sizeof(uint64_t) || !setting || came.exchange(true)) return;
      rank == 0 ? waits.set_value() : may_go_on.wait();
    };
    Feeder feeder(pipeline, of_rank(std::make_shared<Watched>(std::move(end), at_exchange), 1));
    feeder.next();
    if (rank == 1) {
      while (!setting) std::this_thread::yield();
      feeder.set_epoch(3);
      return;
    }
    const std::shared_future<std::string> looks_on =
        std::async(std::launch::async, [&] {
          waits.get_future().wait();
          std::string seen = std::to_string(feeder.epoch()) + " " + std::to_string(feeder.report().steps) + " " +
                             std::to_string(feeder.get_state() == feeder.get_state(3, 0)) +
                             std::to_string(feeder.steps_per_epoch());
          feeder.stop();
          return seen;
        }).share();
    std::future<void> watchdog = std::async(std::launch::async, [&] {  // lets a failing test end
      looks_on.wait_for(std::chrono::seconds(20));
      goes_on.set_value();
    });
    setting = true;
    std::string thrown = "nothing";
    try {
      feeder.set_epoch(3);
    } catch (const Error& error) {
      thrown = error.what();
    }
    throw std::runtime_error(looks_on.get() + ", " + thrown);
  });
  CHECK(said[0] == "3 0 115, the feeder was stopped [stalled]");
  CHECK(said[1].find("rank 0, call ") == 0);
  CHECK(said[1].find("its feeder was stopped") != std::string::npos);
}

TEST_CASE("whatever a transport throws ends the feeds of all ranks with an Error") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  const auto said = on_communicators(2, [&](int rank, Ends end) {
    std::atomic<bool> feeds{false};
    int calls = 0;
    const auto pull = [&](size_t) {
      if (rank == 1 && feeds && ++calls > 4) throw std::runtime_error("a plug was pulled");
    };
    Feeder feeder(pipeline, of_rank(std::make_shared<Watched>(std::move(end), pull), 1));
    feeds = true;
    for (;;) feeder.next();
  });
  for (const std::string& text : said) {
    CHECK_THAT(text, Catch::Contains("a plug was pulled"));
    CHECK_THAT(text, Catch::EndsWith("[io_error]"));
  }
}

TEST_CASE("set_epoch() that waits for a rank which does not come is ended by stop()") {
  const Data data({90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP")).with("distribute.mode", "REPLICATE");
  std::atomic<bool> held{false};
  std::promise<void> ended;
  const auto has_ended = ended.get_future().share();
  const auto said = on_communicators(2, [&](int rank, Ends end) {
    if (rank == 1) {
      const auto hold = [&](size_t) {
        if (held) has_ended.wait();
      };
      Feeder feeder(pipeline, of_rank(std::make_shared<Watched>(std::move(end), hold), 1));
      has_ended.wait();
      return;
    }
    Feeder feeder(pipeline, of_rank(std::move(end), 1));
    held = true;
    const std::future<void> stops = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // any moment is right
      feeder.stop();
    });
    std::future<std::string> set = std::async(std::launch::async, [&]() -> std::string {
      try {
        feeder.set_epoch(3);
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing";
    });
    const bool in_time = set.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    ended.set_value();
    throw std::runtime_error((in_time ? "" : "late: ") + set.get());
  });
  CHECK(said[0] == "the feeder was stopped [stalled]");
  CHECK(said[1].empty());
}

TEST_CASE("a rank's misuse of its own feeder does not end the feeds of other ranks") {
  const Data data({90, 90});
  const Pipeline pipeline = data.pipeline(batch_text(6, "DROP") + "parallelism { host_prefetch: 2 } ");
  for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")}) {
    INFO(mode);
    std::barrier all_have_ended(2);
    CHECK(on_communicators(2, [&](int, Ends end) {
            Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(end, 1));
            const auto refused = [&](Category category, const std::function<void()>& call) {
              try {
                call();
              } catch (const Error& error) {
                if (error.category() == category) return;
                throw;
              }
              throw std::runtime_error("accepted");
            };
            refused(Category::bad_pipeline, [&] { feeder.next(99); });
            refused(Category::bad_pipeline, [&] { feeder.set_state("nonsense"); });
            std::vector<Batch> held;
            refused(Category::stalled, [&] {
              for (;;) held.push_back(feeder.next());
            });
            held.clear();
            while (feeder.next()) {
            }
            const auto failure = end->failure();
            all_have_ended.arrive_and_wait();  // a rank that left earlier would end feeds whose rows travel
            if (failure) throw *failure;
          }) == nothing_thrown(2));
  }
}
