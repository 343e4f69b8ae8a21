// What is known to slow a feed down, told from the figures of its plan.
#include "flowgraph/plan/advice.h"

#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

// A large feed that nothing slows down.
FeedFigures good_feed() {
  return {.shuffle = ShuffleMode::block,
          .samples = 1'000'000,
          .sample_bytes = 1000,
          .files = 10,
          .file_bytes = 1'016'000'000,
          .threads = 8,
          .steps = 10'000,
          .batch_rows = 100,
          .batch_bytes = 200'000,
          .batches = 32,
          .batches_if_unset = 32};
}

}  // namespace

TEST_CASE("each rule warns behind its threshold, with the figures and what to do, and not before it") {
  CHECK(advice(good_feed()).empty());
  CHECK(advice(FeedFigures()).empty());  // nothing is counted yet

  struct Row {
    const char* name;
    std::function<void(FeedFigures&)> change;
    std::string warning;  // empty: there is none
  };
  const std::string global =
      "shuffle.mode: GLOBAL reads 16 KiB for each sample of 1000 B, which is 15.3 GiB in an epoch of 953.7 MiB of "
      "data; use shuffle.mode: BLOCK, or a smaller source.index.stride, such as \"512 B\"";
  const std::string huge =
      "shuffle.mode: GLOBAL reads 16 KiB for each sample of 1000 B, which is 16777216 TiB in an epoch of 1024000 TiB "
      "of data; use shuffle.mode: BLOCK, or a smaller source.index.stride, such as \"512 B\"";
  const std::string inflated_anew =
      "shuffle.mode: GLOBAL inflates 512 KiB for each sample of 1000 B, which is 488.3 GiB in an epoch of 953.7 MiB of "
      "data; use shuffle.mode: BLOCK, or write plain files with `feedline split`";
  const std::string inflated =
      "compressed files that inflate to 64 MiB have hardly any places from which they can be inflated, so only one of "
      "the 8 threads of the feed inflates at a time; write them anew with `feedline split`, or keep the records in a "
      "cache { what: RECORDS }";
  const std::string files =
      "the 1,000 files have 63.9 KiB each, and opening a file takes as long as feeding 40 KB of it; write fewer and "
      "larger files with `feedline split --shard-size 150MB`";
  const std::string batch =
      "a replica's batch of 4 rows has 8 KiB of records and tensors together, and handing over a batch takes as long "
      "as making 16 KiB of them; with 9 rows or more in a batch, each row takes less time";
  const std::string ahead =
      "parallelism.host_prefetch: 2 makes a thread of the feed sleep and wake for every batch or two, if the trainer "
      "is slower than the feed; remove parallelism.host_prefetch, and 32 of these small batches are made at a time";
  const auto global_of = [](uint64_t sample_bytes, uint64_t samples) {
    return [=](FeedFigures& feed) {
      feed.shuffle = ShuffleMode::global;
      feed.read_bytes = 16384;
      feed.sample_bytes = sample_bytes;
      feed.samples = samples;
    };
  };
  const auto compressed = [](uint64_t bytes, int threads, bool kept) {
    return [=](FeedFigures& feed) {
      feed.inflated_bytes = bytes;
      feed.threads = threads;
      feed.keeps_records = kept;
    };
  };
  const auto files_of = [](uint64_t count, uint64_t bytes) {
    return [=](FeedFigures& feed) {
      feed.files = count;
      feed.file_bytes = count * bytes;
    };
  };
  const auto batch_of = [](uint64_t bytes, int64_t steps, bool costly) {
    return [=](FeedFigures& feed) {
      feed.batch_rows = 4;
      feed.batch_bytes = bytes;
      feed.steps = steps;
      feed.costly_rows = costly;
    };
  };
  const auto prefetch_of = [](int host_prefetch, uint64_t batches, uint64_t if_unset) {
    return [=](FeedFigures& feed) {
      feed.host_prefetch = host_prefetch;
      feed.batches = batches;
      feed.batches_if_unset = if_unset;
    };
  };
  const Row rows[] = {
      {"GLOBAL, a sixteenth of what is read is wanted", global_of(1000, 1'000'000), global},
      {"GLOBAL, a quarter", global_of(4097, 1'000'000), ""},
      {"GLOBAL, an epoch of little data", global_of(1000, 4095), ""},
      {"GLOBAL, compressed files",
       [](FeedFigures& feed) {
         feed.shuffle = ShuffleMode::global;
         feed.read_bytes = 512 << 10;
         feed.inflates = true;
       },
       inflated_anew},
      {"GLOBAL, an epoch of more than 2^64 bytes", global_of(1000, uint64_t{1} << 50), huge},
      {"compressed", compressed(64 << 20, 8, false), inflated},
      {"compressed, little", compressed((64 << 20) - 1, 8, false), ""},
      {"compressed, one thread", compressed(64 << 20, 1, false), ""},
      {"compressed, in a cache", compressed(64 << 20, 8, true), ""},
      {"small files", files_of(1000, (64 << 10) - 100), files},
      {"small files, few", files_of(999, 100), ""},
      {"many files", files_of(1000, 64 << 10), ""},
      {"small batches", batch_of(8 << 10, 1000, false), batch},
      {"batches that are just large enough", batch_of(16 << 10, 1000, false), ""},
      {"small batches, few", batch_of(8 << 10, 999, false), ""},
      {"small batches, an epoch without end", batch_of(8 << 10, -1, false), ""},
      {"small batches of pictures", batch_of(8 << 10, 1000, true), ""},
      {"small batches, not counted yet", batch_of(0, 1000, false), ""},
      {"few batches ahead", prefetch_of(2, 3, 32), ahead},
      {"enough batches ahead", prefetch_of(7, 8, 32), ""},
      {"few batches ahead, because they are large", prefetch_of(2, 3, 7), ""},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    FeedFigures feed = good_feed();
    row.change(feed);
    const std::vector<std::string> told = advice(feed);
    CHECK(told == (row.warning.empty() ? std::vector<std::string>() : std::vector{row.warning}));
  }
}
