#include "trainer_bridge/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/byte_size.h"

namespace feedline {
namespace {

// A feed that costs the trainer less than this share of its time is fast enough.
constexpr double fast_enough = 0.01;
// With a smaller share of busy time, the threads of the feed have often had nothing to do.
constexpr double all_busy = 0.8;
// If more than this share of the bytes is read for nothing, the shuffle is to blame rather than the disk.
constexpr double much = 0.2;

// If a read, or a file, has fewer bytes than this on average, what each read or file costs slows the feed down. Few
// files are opened only once.
constexpr double small_read = 64 << 10;
constexpr uint64_t small_file_bytes = 64 << 10, many_files = 1000;

/// Returns for how many seconds the threads have worked in the stages whose names begin with `name`.
double busy_s(const Report& report, std::string_view name) {
  double seconds = 0;
  for (const StageReport& stage : report.stages)
    if (stage.name.starts_with(name)) seconds += stage.busy_s;
  return seconds;
}

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0); }

std::string read_advice(const Report& report, const VerdictFacts& facts) {
  const std::string rate =
      format_byte_size(static_cast<uint64_t>(static_cast<double>(report.read_bytes) / report.wall_s)) + "/s";
  const double needed = report.read_bytes > 0 && report.needed_bytes > 0
                            ? static_cast<double>(report.needed_bytes) / static_cast<double>(report.read_bytes)
                            : 1;
  if (facts.files >= many_files && facts.file_bytes < small_file_bytes)
    return fmt::format(
        "The files have {} each on average, and opening a file takes as long as feeding 40 KB of it: write fewer and "
        "larger files with `feedline split --shard-size 150MB`.",
        format_byte_size(facts.file_bytes));
  if (facts.global_shuffle && 1 - needed > much)
    return fmt::format(
        "The files are read at {}, but shuffle mode GLOBAL does not need {} of these bytes: try shuffle {{ mode: BLOCK "
        "}}.",
        rate, percent(1 - needed));
  const auto read = std::ranges::find(report.stages, "read", &StageReport::name);
  const bool cache_reads = facts.keeps_records && report.cache_hits > 0;  // a cache of records makes reads smaller
  const double messages = read == report.stages.end() ? 0 : static_cast<double>(read->messages);
  if (const double bytes = static_cast<double>(report.read_bytes) / std::max(messages, 1.0);
      !facts.global_shuffle && !cache_reads && messages > 0 && bytes < small_read)
    return fmt::format(
        "A read gives only {} on average: raise shuffle.block_size, or write larger files with `feedline split "
        "--shard-size 150MB`.",
        format_byte_size(static_cast<uint64_t>(bytes)));
  return fmt::format("The files are read at {}: use a faster disk, or more memory for the page cache.", rate);
}

/// Returns the advice for a stage that works on the feed's own threads. `less` says how to give them less work.
std::string threads_advice(const Report& report, std::string_view less) {
  double seconds = 0;
  for (const char* stage : {"read", "parse", "inflate", "unpack"}) seconds += busy_s(report, stage);
  const double busy = std::min(seconds / (report.wall_s * std::max(report.threads, 1)), 1.0);
  const std::string threads =
      report.threads == 1 ? "The feed's thread was" : fmt::format("The feed's {} threads were", report.threads);
  if (busy < all_busy)
    return fmt::format(
        "{} busy for only {} of the time: raise parallelism.host_prefetch, so that more batches are "
        "made ahead.",
        threads, percent(busy));
  return fmt::format("{} busy for {} of the time: {}.", threads, percent(busy), less);
}

/// Returns what to do if next() waits for `stage`. The text at the end of the function is for the stage `upload`.
std::string advice_for(std::string_view stage, const Report& report, const VerdictFacts& facts) {
  if (stage == "read") return read_advice(report, facts);
  if (stage == "inflate")
    return "Compressed files are inflated in sections of a MiB or more, each by one thread: give the feed more CPUs, "
           "write uncompressed files with `feedline split`, or keep the records with cache { what: RECORDS }.";
  if (stage == "parse") return threads_advice(report, "give the feed more CPUs, or leave out features and formulas");
  if (stage == "unpack")
    return threads_advice(report, facts.can_cache
                                      ? "give the feed more CPUs, or keep decoded pictures in a cache"
                                      : "give the feed more CPUs, or choose smaller dtypes, such as UINT8 or FLOAT16");
  if (stage == "transfer")
    return "Rows come from a different rank: use distribute { mode: SPLIT } if each rank can read the files.";
  return "The copy to the GPU takes long: let the GPU unpack more outputs; `feedline check --devices cuda` says which "
         "outputs the GPU unpacks.";
}

bool is_lazy(const flow::SourceSpec& source) { return source.index.mode == flow::IndexMode::lazy; }

// Returns whether a cache of decoded pictures could keep the output.
bool can_be_kept_decoded(flow::OutputSpec output) {
  if (output.internal || !output.dense() || !output.jobs[0].rows) return false;
  if (auto* const pictures = std::get_if<flow::PictureRows>(&*output.jobs[0].rows))
    pictures->cache = flow::CacheSpec{.what = flow::CacheWhat::decoded, .dir = {}};
  const std::optional<flow::KeptStep> step = output.kept_step();
  return step && step->why_not.empty();
}

}  // namespace

VerdictFacts verdict_facts(const flow::PipelineSpec& spec) {
  return {.global_shuffle = spec.shuffle.mode == flow::ShuffleMode::global,
          .keeps_records = spec.cache && spec.cache->what == flow::CacheWhat::records,
          .can_cache = !spec.cache && std::ranges::none_of(spec.sources, is_lazy) &&
                       std::ranges::any_of(spec.outputs, can_be_kept_decoded)};
}

std::string verdict_of(const Report& report, const VerdictFacts& facts) {
  if (report.wall_s <= 0) {
    if (report.waited_s.empty()) return "next() has not been called yet.";
    return fmt::format("next() has waited {:.1f} s for the first batch, most of this time for [{}].",
                       report.next_wait_s, report.waited_s.front().first);
  }
  // At first, the batches that were ready before the first step hide how fast the feed is.
  if (report.steps < 2 || report.wall_s < 0.01)
    return fmt::format("It is too early to say whether the trainer or the feed is slower: so far {} in {:.0f} ms.",
                       report.steps == 1 ? "1 step" : fmt::format("{} steps", report.steps), 1e3 * report.wall_s);
  const double share = report.next_wait_ratio;
  if (share < fast_enough || report.waited_s.empty())
    return fmt::format(
        "The trainer is the slower one: next() waited {} of the time, so a faster feed would gain nothing.",
        percent(share));
  const auto& [waited_for, seconds] = report.waited_s.front();
  // The thread that parses a chunk also reads it if the page cache has it. So a wait for [parse] may be a wait for
  // reading.
  const bool is_read = waited_for == "parse" && busy_s(report, "read") > busy_s(report, "parse");
  const std::string_view stage = is_read ? std::string_view("read") : waited_for;
  if (stage == "another replica")
    return fmt::format(
        "The replicas are out of step: next() waited {} of the time, most of it for a replica that is "
        "parallelism.host_prefetch steps behind. Call next() for all replicas in turn, give each replica a thread, or "
        "raise parallelism.host_prefetch.",
        percent(share));
  const double most = report.next_wait_s > 0 ? share * seconds / report.next_wait_s : share;
  return fmt::format("The feed is the slower one: next() waited {} of the time, {} for [{}]. {}", percent(share),
                     percent(most), stage, advice_for(stage, report, facts));
}

}  // namespace feedline
