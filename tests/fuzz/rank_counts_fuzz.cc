// What ranks have counted, and tell one another: indexes, the sums of an epoch, and statistics. What another rank sends is
// refused with an Error that names it, or can be used. A rank that sends what it should is understood.
//
// covers: flowgraph/data/index_files.cc flowgraph/feed/rank_audits.cc
// covers: tool/stats/value_cells.cc tool/stats/text_counts.cc
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../io/frames.h"
#include "../support/memory_source.h"
#include "base/rank_message.h"
#include "base/worker_arena.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/data/index_files.h"
#include "flowgraph/feed/rank_audits.h"
#include "io/index/index_check.h"
#include "io/index/index_file.h"
#include "other_rank.h"
#include "tool/stats/text_counts.h"
#include "tool/stats/value_stats.h"

namespace {

using namespace feedline;
using namespace feedline::test;

/// Two files: one of which each of two ranks counts a part, and a small one.
MemorySource::Files files_of_records() {
  std::string big, small;
  for (size_t i = 0; big.size() < (9 << 20) / 4; i++) big += frame(letters(i % 3 == 0 ? 90'000 : i * 31, 'c'));
  for (size_t i = 0; i < 5; i++) small += frame(letters(i * 20, 's'));
  return {{"memory://big", std::move(big)}, {"memory://small", small + letters(40, 'x')}};  // ends with damage
}

flow::PipelineSpec spec_of_files(const std::string& mode) {
  return flow::validate(parse_pipeline("source { files: 'a' record_type: RAW index { stride: '4KiB' mode: " + mode +
                                       " } } "
                                       "batch { global_batch_size: 1 } errors { on_error: SKIP_RECORD }"),
                        [](const flow::FilePatterns&) {
                          return flow::FileList{{"memory://big", "memory://small"}, {}};
                        });
}

/// The indexes of files, which ranks count together.
void share_indexes(Draw& draw) {
  static const MemorySource files(files_of_records());
  static const Mounted mounted(files);
  static const flow::PipelineSpec specs[] = {spec_of_files("BUILD"), spec_of_files("REQUIRE"), spec_of_files("LAZY")};
  static WorkerArena arena(1, {});
  const auto count = [](RankGroup& ranks, const flow::PipelineSpec& spec) {
    flow::DataSet data;
    for (const std::string& uri : spec.sources[0].files)
      data.files.push_back({.id = files.stat(uri), .index = {}, .samples = {}});
    flow::index_files(spec, data, arena, ranks, {});
    return data;
  };
  const auto bytes_of_index = [](const flow::DataFile& file) {
    return io::index_bytes(file.index, {file.id.uri, file.id.size, 0}, flow::count_options(specs[0].sources[0]));
  };
  static const std::vector<std::string> wanted = [&] {
    setenv("XDG_CACHE_HOME", "/dev/null", 1);  // no index is kept
    RankGroup alone;
    std::vector<std::string> indexes;
    for (const flow::DataFile& file : count(alone, specs[0]).files) indexes.push_back(bytes_of_index(file));
    return indexes;
  }();
  static const auto counted = said_by_both([&](int, RankGroup& ranks) { count(ranks, specs[0]); });
  const int me = static_cast<int>(draw.below(2));
  const flow::PipelineSpec& spec = specs[draw.below(8) == 7 ? draw.below(3) : 0];
  std::vector<RankSays> says = counted[me == 0];
  const bool kept = draw.below(4) == 3;  // by the other rank
  if (kept) {
    MessageWriter indexes;
    for (const std::string& index : wanted) indexes.put_text(index);
    says = {{"11"}, {indexes.take()}};
  }
  OtherRank other(draw, 1 - me, says);
  RankGroup group(other.exchange(), me, 2);
  try {
    const flow::DataSet data = count(group, spec);
    require(!other.honest() || data.lazy == (!kept && &spec == &specs[2]), "what is counted later is known");
    for (size_t f = 0; f < 2 && !data.lazy; f++) {
      const flow::DataFile& file = data.files[f];
      require(io::contradiction(file.index, file.id.size, spec.sources[0].record_limit).empty(),
              "an index can be true");
      if (other.honest()) require(bytes_of_index(file) == wanted[f], "ranks together count as one does");
    }
  } catch (const Error& error) {
    const bool none = error.message().starts_with("index.mode is REQUIRE, but this file has no valid index: ");
    require(!other.honest() || (none && !kept && &spec == &specs[1]), error.what());
    if (!none) throw;
  }
}

/// The sums of an epoch: what is accepted is added up as the bytes say.
void add_up(Draw& draw) {
  const auto epoch = [&](uint64_t sum) {
    flow::FinishedEpoch finished;
    finished.sums.delivered = sum;
    finished.sums.end.doubts.assign(draw.below(14), uint64_t{1} << draw.below(64));
    finished.expected.sum = 300 + draw.below(3);
    return finished;
  };
  const flow::FinishedEpoch mine = epoch(100), theirs = epoch(200);
  std::string valid;
  const auto hears = [&](std::string_view sent) { return std::vector<std::string>(2, valid = sent); };
  flow::judge_together(hears, {0, 1}, theirs);
  const std::string sent = changed(draw, valid);
  const std::vector<int> parts = {0, draw.coin()};
  const size_t strings = draw.below(8) == 7 ? draw.below(5) : 2;
  const auto audit = flow::judge_together(
      [&](std::string_view own) {
        std::vector<std::string> all(strings, sent);
        if (!all.empty()) all[0] = own;
        return all;
      },
      parts, mine);
  uint64_t numbers[7];  // epoch, first step, delivered, dropped, bad, lost, how many doubts
  require(strings == 2 && sent.size() >= sizeof numbers, "a message of all ranks that is whole");
  std::memcpy(numbers, sent.data(), sizeof numbers);
  const uint64_t head = sizeof numbers + 9, doubts = numbers[6];  // and whether a sum is expected, and which
  require(doubts < sent.size() / 8 && sent.size() >= head + 8 * doubts + 8, "the doubts are in the message");
  uint64_t text;
  std::memcpy(&text, sent.data() + head + 8 * doubts, sizeof text);
  require(sent.size() == head + 8 * doubts + 8 + text, "the message ends with a text");
  require(audit && audit->delivered == 100 + (parts[1] ? numbers[2] : 0), "parts are added up");
}

void add(int64_t value, int exponent, DType dtype, tool::ValueStats& stats) {
  const double number = std::ldexp(static_cast<double>(value), exponent);
  const auto byte = static_cast<uint8_t>(value);
  if (dtype == DType::int64) stats.add(std::span(&value, 1));
  if (dtype == DType::float64) stats.add(std::span(&number, 1));
  if (dtype == DType::int8) tool::ValueStats::add(std::span(&byte, 1), std::span(&stats, 1));
}

/// More values than have a cell each.
tool::ValueStats many_values(DType dtype) {
  tool::ValueStats stats(dtype);
  for (int64_t i = 0; i < 5000; i++) add(i * i * 999 - 100, static_cast<int>(i % 40), dtype, stats);
  return stats;
}

/// Statistics of the numbers and texts that another rank has counted.
void merge_statistics(Draw& draw) {
  constexpr DType dtypes[] = {DType::int64, DType::float64, DType::int8};
  static const tool::ValueStats many[] = {many_values(dtypes[0]), many_values(dtypes[1]), many_values(dtypes[2])};
  const size_t which = draw.below(std::size(dtypes));
  const DType dtype = dtypes[which];
  tool::ValueStats theirs(dtype), merged(dtype);
  if (draw.below(32) == 31) theirs = many[which];
  for (uint64_t values = draw.below(20); values > 0; values--)
    add(static_cast<int64_t>(draw.near(100)), static_cast<int>(draw.below(40)), dtype, theirs);
  tool::TextCounts texts, merged_texts;
  for (uint64_t count = draw.below(5); count > 0; count--)
    texts.add(letters(draw.near(tool::TextCounts::longest) % 99, 't'));
  MessageWriter out;
  theirs.put(out);
  texts.put(out);
  const std::string sent = out.take(), bytes = changed(draw, sent);
  try {
    MessageReader in(bytes, 1);
    tool::ValueStats heard(dtype);
    tool::TextCounts heard_texts;
    heard.get(in);
    heard_texts.get(in);
    in.end();
    merged.merge(heard);
    merged_texts.merge(heard_texts);
  } catch (const Error&) {
    require(bytes != sent, "statistics are taken");
    throw;
  }
  const std::vector<tool::ValueCells::Cell> cells = merged.cells().cells();
  require(cells.size() <= tool::ValueCells::most && merged_texts.counts().size() <= tool::TextCounts::most,
          "few cells");
  for (size_t i = 0; i < cells.size(); i++) {
    const tool::ValueCells::Cell &cell = cells[i], &before = cells[i > 0 ? i - 1 : 0];
    require(cell.count > 0 && std::isfinite(cell.number), "a cell has numbers");
    require(i == 0 || before.integer < cell.integer || before.number < cell.number, "cells ascend");
    if (!cell.one_value) continue;
    require(dtype == DType::float64 ? cell.number >= merged.moments().least && cell.number <= merged.moments().most
                                    : cell.integer >= merged.least_integer() && cell.integer <= merged.most_integer(),
            "a value lies between the extremes");
  }
  if (bytes != sent) return;
  require(merged.cells().total() == theirs.cells().total() && merged.cells().exact() == theirs.cells().exact() &&
              merged.cells().relative_error() == theirs.cells().relative_error(),
          "all numbers are counted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_one_of({share_indexes, add_up, merge_statistics}, data, size);
}
