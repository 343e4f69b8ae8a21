#include "tool/reshard/shuffle_key.h"

#include <tbb/blocked_range.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace feedline::tool {

std::vector<uint64_t> keys_at(const ShuffleKeys& keys, uint64_t records, std::span<const uint64_t> ranks) {
  using Range = tbb::blocked_range<uint64_t>;
  const Range all(0, records, 1 << 16);
  // A bin holds the keys with the same first bits: about 256 keys, so that few keys must be looked at one by one.
  const int bits = std::clamp(static_cast<int>(std::bit_width(records / 256)), 1, 22);
  const auto bin_of = [bits](uint64_t key) { return static_cast<size_t>(key >> (64 - bits)); };

  std::vector<std::atomic<uint32_t>> counts(size_t{1} << bits);
  tbb::parallel_for(all, [&](const Range& range) {
    for (uint64_t r = range.begin(); r != range.end(); r++)
      counts[bin_of(keys(r))].fetch_add(1, std::memory_order_relaxed);
  });

  // The bins that hold the keys with the wanted ranks, and the rank of each bin's first key. A key's rank is the number
  // of smaller keys.
  struct Bin {
    size_t number;
    uint64_t first_rank;
    std::vector<uint64_t> keys;
  };
  std::vector<Bin> bins;
  std::vector<size_t> bin_of_rank;
  uint64_t before = 0;
  size_t bin = 0;
  for (const uint64_t rank : ranks) {
    while (before + counts[bin] <= rank) before += counts[bin++];
    if (bins.empty() || bins.back().number != bin) bins.push_back({bin, before, {}});
    bin_of_rank.push_back(bins.size() - 1);
  }

  std::vector<bool> wanted(counts.size());
  for (const Bin& b : bins) wanted[b.number] = true;
  tbb::enumerable_thread_specific<std::vector<uint64_t>> found;
  tbb::parallel_for(all, [&](const Range& range) {
    std::vector<uint64_t>& mine = found.local();
    for (uint64_t r = range.begin(); r != range.end(); r++)
      if (const uint64_t key = keys(r); wanted[bin_of(key)]) mine.push_back(key);
  });
  for (const std::vector<uint64_t>& some : found)
    for (const uint64_t key : some) {
      const auto at = std::lower_bound(bins.begin(), bins.end(), bin_of(key),
                                       [](const Bin& b, size_t number) { return b.number < number; });
      at->keys.push_back(key);
    }

  std::vector<uint64_t> answer;
  for (Bin& b : bins) std::sort(b.keys.begin(), b.keys.end());
  for (size_t i = 0; i < ranks.size(); i++) {
    const Bin& b = bins[bin_of_rank[i]];
    answer.push_back(b.keys[ranks[i] - b.first_rank]);
  }
  return answer;
}

}  // namespace feedline::tool
