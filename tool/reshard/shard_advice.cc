#include "tool/reshard/shard_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mul_div.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

// TensorFlow's guides, among others, recommend shards of 100 to 200 MB. The advice aims at the middle.
constexpr uint64_t least_bytes = 100'000'000, most_bytes = 200'000'000, middle_bytes = 150'000'000;

std::string size_text(uint64_t bytes) { return format_rate(static_cast<double>(bytes)) + "B"; }

}  // namespace

ShardAdvice advise_shards(uint64_t bytes, uint64_t readers) {
  ShardAdvice advice;
  advice.readers = readers;
  const std::string who = format_count(readers, "reader");
  // Only multiples of the number of readers are considered. The number of shards is a factor times `readers`.
  // `first` is the smallest factor for which shards have at most `most_bytes`. `last` is the largest factor for which
  // shards have at least `least_bytes`.
  const uint64_t first = std::max<uint64_t>(div_up(div_up(bytes, most_bytes), readers), 1);
  const uint64_t last = bytes / least_bytes / readers;
  if (last == 0) {
    advice.shards = readers;
    advice.shard_bytes = bytes / readers;
    advice.text =
        readers == 1 ? fmt::format("{}: 1 shard of {}. Less than 100 MB is not worth splitting.", who, size_text(bytes))
                     : fmt::format(
                           "{}: {} of {}, one for each reader, so that every reader has work. With shards of 100 to "
                           "200 MB, some readers would have no shard.",
                           who, format_count(advice.shards, "shard"), size_text(advice.shard_bytes));
    return advice;
  }
  const uint64_t best = std::clamp((bytes / middle_bytes + readers / 2) / readers, first, last);
  advice.shards = best * readers;
  advice.shard_bytes = bytes / advice.shards;
  const uint64_t step = std::max<uint64_t>(1, (last - first) / 4);
  for (uint64_t k = best > 2 * step ? best - 2 * step : 1; k <= best + 2 * step; k += step)
    if (k >= first && k <= last && k != best) advice.as_good.push_back(k * readers);
  std::string others;
  for (const uint64_t n : advice.as_good) others += (others.empty() ? "" : ", ") + format_count(n);
  advice.text =
      fmt::format("{}: {} of {}{}. ", who, format_count(advice.shards, "shard"), size_text(advice.shard_bytes),
                  others.empty() ? "" : fmt::format(" ({} would do as well)", others));
  if (readers > 1)
    advice.text += "This is a multiple of the number of readers, so all get equally many files, and none waits. ";
  advice.text +=
      "Opening a shard of 100 to 200 MB takes little time compared with reading it, and such a shard is quickly copied "
      "or made again.";
  return advice;
}

}  // namespace feedline::tool
