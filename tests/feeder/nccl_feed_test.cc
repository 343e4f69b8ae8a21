// Rows that travel from GPU to GPU. Each rank is a thread with a GPU of its own, and must be given what it would be
// given if it read its own rows. The test runs on real GPUs with NCCL, and on fake ones (support/fake_nccl.h).
#include "damage.h"
#include "device_feed.h"
#include "feedline/nccl_communicator.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// Returns the number of ranks that can have a GPU each, at most `ranks`.
int most_ranks(int ranks) { return std::min(ranks, visible_gpus().count); }

Options of_gpu(int rank, Ends communicator, std::unique_ptr<Communicator> control) {
  Options options = of_devices({cuda(rank)});
  options.communicator = std::move(communicator);
  options.gpu_communicator = nccl_communicator(std::move(control), cuda(rank));
  return options;
}

/// Runs `body` for all ranks at the same time, each with the options of its feeder. Returns what each threw (its
/// message), or "".
std::vector<std::string> on_gpu_ranks(int count, const std::function<void(int rank, Options options)>& body) {
  auto ends = communicators_between_threads(count), controls = communicators_between_threads(count);
  return side_by_side(count, [&](int rank) {
    const auto number = static_cast<size_t>(rank);
    body(rank, of_gpu(rank, std::move(ends[number]), std::move(controls[number])));
  });
}

/// Returns the batches of an epoch and "end" after them, as text.
std::vector<std::string> epoch_on(Feeder& feeder, Consumer& consumer) {
  std::vector<std::string> texts;
  while (Batch batch = feeder.next(0, consumer.stream())) texts.push_back(consumer.text(batch));
  texts.emplace_back("end");
  return texts;
}

void expect_same(const std::vector<std::string>& texts, const std::vector<std::string>& wanted, size_t from = 0) {
  if (texts.size() + from > wanted.size() ||
      !std::equal(texts.begin(), texts.end(), wanted.begin() + static_cast<int64_t>(from)))
    throw std::runtime_error("other batches");
}

struct Mode {
  std::string name;
  bool own_rows;  // each rank is given rows of its own, not all rows
};
const Mode replicate{"REPLICATE", false}, scatter{"SCATTER", true};

Pipeline sent_on(const Mode& mode, const Data& data, const std::string& text) {
  return data.pipeline(outputs + text).with("distribute.mode", mode.name);
}

/// Returns what a rank is given in two epochs if it reads for itself.
std::vector<std::string> wanted_of(const Mode& mode, const Pipeline& pipeline, int rank, int ranks) {
  return mode.own_rows ? split(pipeline, rank, ranks, 1)[0] : split(pipeline, 0, 1, 1)[0];
}

}  // namespace

TEST_CASE("rows between GPUs of ranks: one reads and uploads, all are given what is theirs") {
  if (no_gpus()) return;
  const Mode mode = GENERATE(replicate, scatter);
  const Data data({90, 0, 1, 117});
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 60 } seed: 3 ")})
    for (const std::string& policy : {std::string("DROP"), std::string("PARTIAL"), std::string("PAD")}) {
      const Pipeline pipeline = sent_on(mode, data, order + batch_text(24, policy));
      for (const int ranks : {1, 2, 4, 8}) {
        if (ranks > most_ranks(8)) continue;
        INFO(mode.name << " " << order << policy << " " << ranks << " ranks");
        std::vector<Report> reports(static_cast<size_t>(ranks));
        CHECK(on_gpu_ranks(ranks, [&](int rank, Options options) {
                const std::vector<std::string> wanted = wanted_of(mode, pipeline, rank, ranks);
                Feeder feeder(pipeline, std::move(options));
                Consumer consumer(cuda(rank));
                std::vector<std::string> texts = epoch_on(feeder, consumer);
                expect_same(texts, wanted);
                expect_same(epoch_on(feeder, consumer), wanted, texts.size());
                reports[static_cast<size_t>(rank)] = feeder.report();
              }) == nothing_thrown(ranks));
        const uint64_t sent = reports[0].sent_bytes;
        uint64_t received = 0;
        for (size_t rank = 0; rank < reports.size(); rank++) {
          CHECK((reports[rank].read_bytes > 0) == (rank == 0));
          CHECK((reports[rank].uploaded_bytes > 0) == (rank == 0));
          CHECK(reports[rank].sent_bytes == (rank == 0 ? sent : 0));
          CHECK((reports[rank].received_bytes > 0) == (rank > 0));
          if (!mode.own_rows && rank > 0)
            CHECK(reports[rank].received_bytes * static_cast<uint64_t>(ranks - 1) == sent);
          received += reports[rank].received_bytes;
        }
        CHECK(sent == received);
        if (ranks == 1) continue;
        // Each row is uploaded once. Some batches may be ahead of the trainer.
        const auto others = static_cast<uint64_t>(ranks - 1);
        const uint64_t rows = mode.own_rows ? sent * static_cast<uint64_t>(ranks) / others : sent / others;
        CHECK(reports[0].uploaded_bytes >= rows * 9 / 10);  // ranks may have fewer rows of the last batch than others
        CHECK(reports[0].uploaded_bytes < 2 * rows);
      }
    }
}

TEST_CASE("ranks with the same data_parallel_rank have the same rows: from the first of them, or from rank 0") {
  if (no_gpus()) return;
  const Data data({90, 117});
  const std::vector<int> parts = {1, 0, 0, 1, 2, 2};  // data_parallel_rank of each rank
  const int ranks = static_cast<int>(parts.size());
  if (most_ranks(ranks) < ranks) return skip("6 GPUs are wanted");
  const Mode mode = GENERATE(replicate, scatter);
  const Pipeline pipeline =
      sent_on(mode, data, "shuffle { block_size: '16KiB' buffer_size: 60 } " + batch_text(24, "PAD"));
  CHECK(on_gpu_ranks(ranks, [&](int rank, Options options) {
          options.data_parallel_rank = parts[static_cast<size_t>(rank)];
          options.data_parallel_size = 3;
          const std::vector<std::string> wanted = split(pipeline, options.data_parallel_rank, 3, 1)[0];
          Feeder feeder(pipeline, std::move(options));
          Consumer consumer(cuda(rank));
          expect_same(epoch_on(feeder, consumer), wanted);
        }) == nothing_thrown(ranks));
}

TEST_CASE("beside a trainer's own collectives on the same stream, with ranks that are skewed", "[holds]") {
  if (no_gpus()) return;
  const int ranks = most_ranks(4);
  const Mode mode = GENERATE(replicate, scatter);
  const Data data({400});
  const Pipeline pipeline = sent_on(mode, data, batch_text(12, "DROP"));
  auto controls = communicators_between_threads(ranks);
  CHECK(on_gpu_ranks(ranks, [&](int rank, Options options) {
          const std::vector<std::string> wanted = wanted_of(mode, pipeline, rank, ranks);
          const auto trainers = nccl_communicator(std::move(controls[static_cast<size_t>(rank)]), cuda(rank));
          Feeder feeder(pipeline, std::move(options));
          Consumer consumer(cuda(rank));
          const DeviceBuffer gradients(1 << 16);
          consumer.reserve(100, 1 << 14);
          std::vector<std::string> texts(24);
          // Everything is allocated, loaded and connected before a stream is held.
          trainers->all_reduce({gradients.data(), DType::int32, {1 << 14}}, Reduction::sum, consumer.stream());
          Batch first = feeder.next(0, consumer.stream());
          expect_same({consumer.text(first)}, wanted);
          for (size_t step = 0; step < texts.size(); step++) {
            // At each step another rank is late: its stream is held until the rank has given it all work of the step.
            std::promise<void> late;
            const bool is_late = static_cast<int>(step) % ranks == rank;
            if (is_late) consumer.hold(late.get_future());
            Batch batch = feeder.next(0, consumer.stream());
            consumer.read_later(batch, texts[step], true);
            trainers->all_reduce({gradients.data(), DType::int32, {1 << 14}}, Reduction::sum, consumer.stream());
            if (is_late) late.set_value();
            if (step % 4 == 3) consumer.wait();
          }
          consumer.wait();
          expect_same(texts, wanted, 1);
        }) == nothing_thrown(ranks));
}

TEST_CASE("batches that were delivered before a rank ends are complete, however late the streams are", "[holds]") {
  if (no_gpus()) return;
  const int ranks = most_ranks(3);
  const Data data({200});
  // The feed ends because of a bad record, or because rank 0 stops.
  const bool stops = GENERATE(false, true);
  const Mode mode = GENERATE(replicate, scatter);
  const Pipeline pipeline = sent_on(mode, data, batch_text(6, "DROP"));
  std::vector<std::vector<std::string>> wanted_by_rank;
  for (int rank = 0; rank < ranks; rank++) wanted_by_rank.push_back(wanted_of(mode, pipeline, rank, ranks));
  if (!stops) flip(data.path(0), offset_of(data.path(0), 15) + 20);
  CHECK(on_gpu_ranks(ranks, [&](int rank, Options options) {
          const std::vector<std::string>& wanted = wanted_by_rank[static_cast<size_t>(rank)];
          Feeder feeder(pipeline, std::move(options));
          Consumer consumer(cuda(rank));
          consumer.reserve(60, 1 << 14);
          std::promise<void> late;
          std::vector<std::string> texts(3);
          Batch batch = feeder.next(0, consumer.stream());
          expect_same({consumer.text(batch)}, wanted);
          if (rank > 0) consumer.hold(late.get_future());
          size_t given = 1;
          try {
            for (; given < texts.size(); given++) {
              if (given == 2 && !stops) break;  // the third batch holds record 15, which is bad
              batch = feeder.next(0, consumer.stream());
              consumer.read_later(batch, texts[given], true);
            }
            if (rank == 0 && stops) feeder.stop();
            feeder.next(0, consumer.stream());
            throw std::runtime_error("a batch");
          } catch (const Error&) {
          }
          late.set_value();
          consumer.wait();
          expect_same({texts.begin() + 1, texts.begin() + static_cast<int64_t>(given)}, wanted, 1);
        }) == nothing_thrown(ranks));
}

TEST_CASE("ranks go on together from a state, and next_into() fills what a graph reads") {
  if (no_gpus()) return;
  const int ranks = most_ranks(2);
  const Mode mode = GENERATE(replicate, scatter);
  const Data data({90});
  const Pipeline pipeline = sent_on(mode, data, "shuffle { buffer_size: 30 } " + batch_text(8, "DROP"));
  CHECK(on_gpu_ranks(ranks, [&](int rank, Options options) {
          const std::vector<std::string> wanted = wanted_of(mode, pipeline, rank, ranks);
          const int64_t rows = mode.own_rows ? 8 / ranks : 8;
          Feeder feeder(pipeline, std::move(options));
          Consumer consumer(cuda(rank));
          for (int times = 0; times < 3; times++) {
            for (size_t step = 0; step < 5; step++) {
              Batch batch = feeder.next(0, consumer.stream());
              expect_same({consumer.text(batch)}, wanted, step);
            }
            feeder.set_state(feeder.get_state(3));
            Batch batch = feeder.next(0, consumer.stream());
            expect_same({consumer.text(batch)}, wanted, 3);
            const DeviceBuffer ids(static_cast<size_t>(rows) * sizeof(int64_t));
            const std::vector<NamedTensor> to = {{"id", {ids.data(), DType::int64, {rows}}}};
            if (!feeder.next_into(0, to, consumer.stream())) throw std::runtime_error("the end");
            if (wanted[4].find(consumer.read(ids.data(), ids.size())) == std::string::npos)
              throw std::runtime_error("other ids");
            feeder.set_epoch(0);
          }
        }) == nothing_thrown(ranks));
}

TEST_CASE("an error of one rank ends all, and none waits forever") {
  if (no_gpus()) return;
  const int ranks = most_ranks(3);
  if (ranks < 2) return skip("2 GPUs are wanted");
  const Mode mode = GENERATE(replicate, scatter);
  const Data data({200});
  const Pipeline pipeline = sent_on(mode, data, batch_text(6, "DROP"));
  const auto to_the_end = [](Feeder& feeder, Consumer& consumer) {
    for (;;) feeder.next(0, consumer.stream());
  };
  SECTION("a rank that leaves") {
    const auto thrown = on_gpu_ranks(ranks, [&](int rank, Options options) {
      Consumer consumer(cuda(rank));
      Feeder feeder(pipeline, std::move(options));
      if (rank != 1) to_the_end(feeder, consumer);
      for (int step = 0; step < 5; step++) feeder.next(0, consumer.stream());
    });
    for (int rank = 0; rank < ranks; rank++) CHECK((thrown[static_cast<size_t>(rank)] == "") == (rank == 1));
  }
  SECTION("a rank that is stopped") {
    const auto thrown = on_gpu_ranks(ranks, [&](int rank, Options options) {
      Consumer consumer(cuda(rank));
      Feeder feeder(pipeline, std::move(options));
      for (int step = 0; step < 5; step++) feeder.next(0, consumer.stream());
      if (rank == 1) feeder.stop();
      to_the_end(feeder, consumer);
    });
    for (const std::string& what : thrown)
      CHECK((what.find("stopped") != std::string::npos || what.find("rank 1 has left") != std::string::npos));
  }
  SECTION("a bad record") {
    flip(data.path(0), offset_of(data.path(0), 150) + 20);
    for (const std::string& what : on_gpu_ranks(ranks, [&](int rank, Options options) {
           Consumer consumer(cuda(rank));
           Feeder feeder(pipeline, std::move(options));
           to_the_end(feeder, consumer);
         }))
      CHECK(what.find("bad_data_crc") != std::string::npos);
  }
  SECTION("a rank that is set to another place a step before the others") {
    for (const std::string& what : on_gpu_ranks(ranks, [&](int rank, Options options) {
           Consumer consumer(cuda(rank));
           Feeder feeder(pipeline, std::move(options));
           for (int step = 0; step < (rank == 1 ? 4 : 5); step++) feeder.next(0, consumer.stream());
           feeder.set_epoch(0);
         }))
      CHECK(what.find("rank 1") != std::string::npos);
  }
}

TEST_CASE("memory.device_limit counts what a reader keeps on its GPU for others") {
  if (no_gpus()) return;
  const Data data({2100});
  for (const int ranks : {1, 2, 4}) {
    if (ranks > most_ranks(4)) continue;
    const int rows = 448 * ranks;  // 8 bytes and one of the valid mask each: 4 KiB for each rank, in three buffers
    const Pipeline pipeline =
        data.pipeline("output { name: 'id' feature: 'id' } batch { global_batch_size: " + std::to_string(rows) +
                      " } distribute { mode: SCATTER } ");
    const auto start = [&](const std::string& limit) {
      return on_gpu_ranks(ranks, [&](int rank, Options options) {
        Feeder feeder(pipeline.with("memory.device_limit", rank == 0 ? limit : "12KiB"), std::move(options));
        Consumer consumer(cuda(rank));
        feeder.next(0, consumer.stream());
      });
    };
    const std::string need = std::to_string(12 * ranks) + " KiB";
    CHECK(start(need) == nothing_thrown(ranks));
    for (const std::string& what : start("2KiB"))
      CHECK(what.find("memory.device_limit: 3 batches on GPU 0 need " + need + ", but the limit is 2 KiB") !=
            std::string::npos);
  }
}

TEST_CASE("impossible options are refused") {
  if (no_gpus()) return;
  const Data data({40});
  const Pipeline pipeline = sent_on(replicate, data, batch_text(8, "DROP"));
  const auto refused = [&](const Pipeline& of, const std::function<void(Options&)>& change) {
    return on_gpu_ranks(1, [&](int, Options options) {
      change(options);
      Feeder feeder(of, std::move(options));
      feeder.next(0);
    })[0];
  };
  const std::string wants = "options.gpu_communicator: distribute.mode must be REPLICATE or SCATTER";
  CHECK(refused(pipeline, [](Options&) {}).find("call next(replica, stream)") != std::string::npos);
  CHECK(on_gpu_ranks(1, [&](int, Options options) {
          Feeder feeder(pipeline, std::move(options));
          Consumer consumer;
          for (const Stream stream : {Stream::host, Stream::cuda_per_thread})
            CHECK_THROWS_AS(feeder.next(0, stream), Error);
          Batch batch = feeder.next(0, consumer.stream());  // the first batch: the refused calls took none
          expect_same({consumer.text(batch)}, split(pipeline, 0, 1, 1)[0]);
        })[0] == "");
  CHECK(refused(pipeline, [](Options& o) {
          o.gpu_communicator = std::move(communicators_between_threads(1)[0]);
        }).find("the communicator is for memory of the host, but the replica is on GPU 0") != std::string::npos);
  CHECK(refused(pipeline.with("distribute.mode", "SPLIT"), [](Options&) {}).find(wants) != std::string::npos);
  CHECK(refused(pipeline, [](Options& o) { o.devices = {host()}; }).find(wants) != std::string::npos);
  CHECK(refused(pipeline, [](Options& o) { o.devices.push_back(cuda(0)); }).find(wants) != std::string::npos);
  if (most_ranks(2) < 2) return;
  for (const std::string& what : on_gpu_ranks(2, [&](int rank, Options options) {
         if (rank == 1) options.gpu_communicator.reset();
         Feeder feeder(pipeline, std::move(options));
       }))
    CHECK(what.find("rank 0 has a gpu_communicator, but rank 1 does not") != std::string::npos);
}
