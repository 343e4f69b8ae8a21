#include "flowgraph/plan/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "feedline/error.h"

namespace feedline::flow {

void Distribution::check(bool all_known) const {
  const auto refuse = [](const std::string& why) {
    throw Error(Category::bad_pipeline, "options.data_parallel_rank: " + why);
  };
  for (int r = 0; r < ranks(); r++)
    if (const int part = data_parallel_ranks[static_cast<size_t>(r)]; part < 0 || part >= data_parallel_size)
      refuse(fmt::format(
          "rank {} has the value {}, but options.data_parallel_size is {}; set the value to a number from 0 to {}", r,
          part, data_parallel_size, data_parallel_size - 1));
  if (!all_known) return;
  for (int part = 0; part < data_parallel_size; part++)
    if (std::ranges::find(data_parallel_ranks, part) == data_parallel_ranks.end())
      refuse(
          fmt::format("no rank sets it to {}, so one of {} parts of the samples would be lost; each number below "
                      "options.data_parallel_size needs a rank",
                      part, data_parallel_size));
}

int Distribution::reader_of(int of_rank) const noexcept {
  if (mode == DistributeMode::split) return of_rank;
  if (mode == DistributeMode::scatter) return 0;
  const int part = data_parallel_ranks[static_cast<size_t>(of_rank)];
  return static_cast<int>(std::ranges::find(data_parallel_ranks, part) - data_parallel_ranks.begin());
}

std::vector<int> Distribution::readers() const {
  std::vector<int> readers;
  for (int r = 0; r < ranks(); r++)
    if (reads(r)) readers.push_back(r);
  return readers;
}

Ranks Distribution::planned() const noexcept {
  const int part = data_parallel_ranks[static_cast<size_t>(rank)];
  switch (mode) {
    case DistributeMode::split:
      return {.rank = part, .world_size = data_parallel_size, .replicas = replicas};
    case DistributeMode::replicate:
      return {.rank = part, .world_size = data_parallel_size, .replicas = 1};
    case DistributeMode::scatter:
      break;
  }
  return {.rank = 0, .world_size = 1, .replicas = data_parallel_size * replicas};
}

std::vector<int> Distribution::parts_of(int of_rank) const {
  if (mode != DistributeMode::scatter) return {0};
  std::vector<int> parts(static_cast<size_t>(replicas));
  std::iota(parts.begin(), parts.end(), data_parallel_ranks[static_cast<size_t>(of_rank)] * replicas);
  return parts;
}

}  // namespace feedline::flow
