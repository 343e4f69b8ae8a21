// Compares the speed of each CRC32C path in io/records/crc32c.h with that of ISA-L's crc32_iscsi, which must give the
// same CRCs.
//
// Payloads of four sizes lie side by side in 256 KiB (in the second-level cache) or in 256 MiB (in memory). The program
// computes the CRC of each. All paths take turns; it prints medians of 15 rounds in GB/s.
#include <fmt/format.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/records/crc32c.h"
#include "measure.h"

namespace feedline::bench {
namespace {

using Crc = uint32_t (*)(std::span<const std::byte>);

template <io::Crc32cPath path>
uint32_t own(std::span<const std::byte> bytes) {
  return io::crc32c_extend(path, 0, bytes);
}

uint32_t isal(std::span<const std::byte> bytes) {
  auto* const data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0u);
}

struct Path {
  const char* name;
  Crc crc;
};

std::vector<Path> paths() {
  using enum io::Crc32cPath;
  std::vector<Path> all = {{"ISA-L", isal}};
  if (io::supported(hardware)) all.push_back({"hardware", own<hardware>});
  if (io::supported(three_way)) all.push_back({"three_way", own<three_way>});
  if (io::supported(folding)) all.push_back({"folding", own<folding>});
  return all;
}

uint32_t sum_of_crcs(Crc crc, std::span<const std::byte> memory, size_t size) {
  uint32_t sum = 0;
  for (size_t at = 0; at + size <= memory.size(); at += size) sum += crc(memory.subspan(at, size));
  return sum;
}

int run() {
  constexpr size_t in_cache = 256 << 10, in_memory = 256 << 20, bytes_a_round = 64 << 20;
  constexpr int rounds = 15;
  std::vector<std::byte> memory(in_memory);
  std::mt19937_64 random(1);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());

  const std::vector<Path> all = paths();
  fmt::print("{:<28}", "GB/s");
  for (const Path& path : all) fmt::print(" {:>10}", path.name);
  fmt::print("\n");
  for (const auto& [place, bytes] : {std::pair("in the cache", in_cache), std::pair("in memory", in_memory)})
    for (const size_t size : {229, 3089, 196'653, 2'830'020}) {
      const std::span part(memory.data(), std::max(bytes, size));
      const uint32_t expected = sum_of_crcs(isal, part, size);
      std::vector<std::vector<double>> rates(all.size());
      for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < all.size(); i++) {
          uint32_t sum = 0;
          size_t done = 0;
          const double s = seconds([&] {
            for (; done < bytes_a_round; done += part.size()) sum = sum_of_crcs(all[i].crc, part, size);
          });
          if (sum != expected) throw std::runtime_error(fmt::format("{} differs from ISA-L", all[i].name));
          rates[i].push_back(static_cast<double>(done) / s / 1e9);
        }
      fmt::print("{:<28}", fmt::format("{} bytes, {}", size, place));
      for (const std::vector<double>& of : rates) fmt::print(" {:>10.1f}", median(of));
      fmt::print("\n");
    }
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main() { return feedline::bench::guarded("crc_bench", feedline::bench::run); }
