// The sentence for each combination of counters.
#include "trainer_bridge/verdict.h"

#include "flowgraph/pipeline/spec.h"
#include "support/catch.h"

using namespace feedline;

namespace {

// Ten seconds of one trainer, in which next() waited for so many seconds for `stage`, and for `others` seconds for
// [upload].
Report waited(const std::string& stage, double seconds, double others = 0) {
  Report report;
  report.wall_s = 10;
  report.steps = 100;
  report.threads = 4;
  report.next_wait_s = seconds + others;
  report.next_wait_ratio = report.next_wait_s / 10;
  if (seconds > 0) report.waited_s.emplace_back(stage, seconds);
  if (others > 0) report.waited_s.emplace_back("upload", others);
  return report;
}

// The same, with the bytes that were read and those that were needed.
Report reads(uint64_t read, uint64_t needed) {
  Report report = waited("read", 6.5, 0.6);
  report.read_bytes = read;
  report.needed_bytes = needed;
  return report;
}

// The same, with threads that were busy for so many seconds, all together, in the stages that they have.
Report busy(const std::string& stage, double seconds, int threads = 4) {
  Report report = waited(stage, 5);
  report.threads = threads;
  report.stages = {{.name = "read", .busy_s = seconds / 8},
                   {.name = "parse", .busy_s = seconds * 3 / 8},
                   {.name = "unpack 0", .busy_s = seconds / 4},
                   {.name = "unpack 1", .busy_s = seconds / 4}};
  return report;
}

// The same, with 100,000 reads of so many bytes in the page cache, on the threads that parse.
Report opens(double seconds, uint64_t bytes) {
  Report report = waited("parse", 9.4);
  report.threads = 10;
  report.read_bytes = 100'000 * bytes;
  report.stages = {{.name = "read", .busy_s = seconds, .messages = 100'000}, {.name = "parse", .busy_s = 8}};
  return report;
}

// The same, with a cache that has spared reads.
Report with_hits(Report report) {
  report.cache_hits = 1'000'000;
  return report;
}

}  // namespace

TEST_CASE("the verdict names the slower side, by how much, and what to do") {
  struct Case {
    Report report;
    VerdictFacts facts;
    std::string verdict;
  };
  Report not_begun, first, one_step = waited("parse", 9), short_run = waited("parse", 9);
  first.next_wait_s = 3.2;
  first.waited_s = {{"read", 3.0}, {"parse", 0.2}};
  one_step.steps = 1;
  short_run.wall_s = 0.005;
  const std::vector<Case> cases = {
      {not_begun, {}, "next() has not been called yet."},
      {first, {}, "next() has waited 3.2 s for the first batch, most of this time for [read]."},
      {one_step, {}, "It is too early to say whether the trainer or the feed is slower: so far 1 step in 10000 ms."},
      {short_run, {}, "It is too early to say whether the trainer or the feed is slower: so far 100 steps in 5 ms."},
      {waited("parse", 0),
       {},
       "The trainer is the slower one: next() waited 0.0 % of the time, so a faster feed would gain nothing."},
      {waited("parse", 0.02),
       {},
       "The trainer is the slower one: next() waited 0.2 % of the time, so a faster feed would gain nothing."},
      {reads(5'000'000'000, 2'950'000'000),
       {.global_shuffle = true},
       "The feed is the slower one: next() waited 71 % of the time, 65 % for [read]. The files are read at 476.8 "
       "MiB/s, but shuffle mode GLOBAL does not need 41 % of these bytes: try shuffle { mode: BLOCK }."},
      {reads(5'000'000'000, 2'950'000'000),
       {},
       "The feed is the slower one: next() waited 71 % of the time, 65 % for [read]. The files are read at 476.8 "
       "MiB/s: use a faster disk, or more memory for the page cache."},
      {reads(5'000'000'000, 4'900'000'000),
       {.global_shuffle = true},
       "The feed is the slower one: next() waited 71 % of the time, 65 % for [read]. The files are read at 476.8 "
       "MiB/s: use a faster disk, or more memory for the page cache."},
      {reads(5'000'000'000, 0),
       {.global_shuffle = true},
       "The feed is the slower one: next() waited 71 % of the time, 65 % for [read]. The files are read at 476.8 "
       "MiB/s: use a faster disk, or more memory for the page cache."},
      {waited("inflate", 0.5),
       {},
       "The feed is the slower one: next() waited 5.0 % of the time, 5.0 % for [inflate]. Compressed files are "
       "inflated in sections of a MiB or more, each by one thread: give the feed more CPUs, write uncompressed files "
       "with `feedline split`, or keep the records with cache { what: RECORDS }."},
      {opens(78, 63),
       {},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [read]. A read gives only 63 B on "
       "average: raise shuffle.block_size, or write larger files with `feedline split --shard-size 150MB`."},
      {opens(78, 16 * 63),
       {.files = 100'000, .file_bytes = 63},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [read]. The files have 63 B each on "
       "average, and opening a file takes as long as feeding 40 KB of it: write fewer and larger files with `feedline "
       "split --shard-size 150MB`."},
      {reads(6'300'000, 6'000'000),
       {.global_shuffle = true, .files = 100'000, .file_bytes = 63},
       "The feed is the slower one: next() waited 71 % of the time, 65 % for [read]. The files have 63 B each on "
       "average, and opening a file takes as long as feeding 40 KB of it: write fewer and larger files with `feedline "
       "split --shard-size 150MB`."},
      {opens(78, 1 << 20),
       {.files = 999, .file_bytes = 63},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [read]. The files are read at 9.8 GiB/s: "
       "use a faster disk, or more memory for the page cache."},
      {opens(78, 1 << 20),
       {},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [read]. The files are read at 9.8 GiB/s: "
       "use a faster disk, or more memory for the page cache."},
      {with_hits(opens(78, 63)),
       {.keeps_records = true},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [read]. The files are read at 615.2 "
       "KiB/s: use a faster disk, or more memory for the page cache."},
      {opens(7, 63),
       {},
       "The feed is the slower one: next() waited 94 % of the time, 94 % for [parse]. The feed's 10 threads were busy "
       "for only 15 % of the time: raise parallelism.host_prefetch, so that more batches are made ahead."},
      {busy("parse", 38),
       {},
       "The feed is the slower one: next() waited 50 % of the time, 50 % for [parse]. The feed's 4 threads were busy "
       "for 95 % of the time: give the feed more CPUs, or leave out features and formulas."},
      {busy("parse", 12),
       {},
       "The feed is the slower one: next() waited 50 % of the time, 50 % for [parse]. The feed's 4 threads were busy "
       "for only 30 % of the time: raise parallelism.host_prefetch, so that more batches are made ahead."},
      {busy("unpack", 9.9, 1),
       {},
       "The feed is the slower one: next() waited 50 % of the time, 50 % for [unpack]. The feed's thread was busy for "
       "99 % of the time: give the feed more CPUs, or choose smaller dtypes, such as UINT8 or FLOAT16."},
      {busy("unpack", 40),
       {.can_cache = true},
       "The feed is the slower one: next() waited 50 % of the time, 50 % for [unpack]. The feed's 4 threads were busy "
       "for 100 % of the time: give the feed more CPUs, or keep decoded pictures in a cache."},
      {waited("transfer", 2, 1),
       {},
       "The feed is the slower one: next() waited 30 % of the time, 20 % for [transfer]. Rows come from a different "
       "rank: use distribute { mode: SPLIT } if each rank can read the files."},
      {waited("upload", 2),
       {},
       "The feed is the slower one: next() waited 20 % of the time, 20 % for [upload]. The copy to the GPU takes long: "
       "let the GPU unpack more outputs; `feedline check --devices cuda` says which outputs the GPU unpacks."},
      {waited("another replica", 2),
       {},
       "The replicas are out of step: next() waited 20 % of the time, most of it for a replica that is "
       "parallelism.host_prefetch steps behind. Call next() for all replicas in turn, give each replica a thread, or "
       "raise parallelism.host_prefetch."},
  };
  for (const Case& at : cases) CHECK(verdict_of(at.report, at.facts) == at.verdict);
}

TEST_CASE("a cache is advised only to pipelines that have none, and whose pictures it could keep decoded") {
  const auto can_cache = [](const std::string& more) {
    const Pipeline pipeline =
        parse_pipeline("feature { name: 'f' dtype: BYTES } batch { global_batch_size: 1 } " + more);
    return verdict_facts(flow::validate(pipeline,
                                        [](const flow::FilePatterns& patterns) {
                                          return flow::FileList{patterns.files, {}};
                                        }))
        .can_cache;
  };
  const std::string source = "source { files: 'a' } ", decoded = "output { name: 'p' feature: 'f' decode_image {",
                    crop = "} crop { size: [3, 3] } } ", raw = "output { name: 'p' feature: 'f' decode_raw { shape: ";
  CHECK(can_cache(source + decoded + crop));
  CHECK_FALSE(can_cache(source + decoded + crop + "cache { what: DECODED limit: '1MiB' }"));
  CHECK_FALSE(can_cache("source { files: 'a' index { mode: LAZY } } " + decoded + crop));
  CHECK_FALSE(can_cache(source + decoded + " scale: AUTO } resize { size: [3, 3] } } "));
  CHECK_FALSE(can_cache(source + raw + "[3, 3, 1] layout: HWC } flip {} } "));
  CHECK_FALSE(can_cache(source + raw + "[3, 3, 1] } }"));
}
