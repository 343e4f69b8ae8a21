#include "gpu/device/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <fstream>
#include <vector>

namespace feedline::gpu {

std::optional<int> node_of_pci(std::string address, const std::filesystem::path& devices) {
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file(devices / address / "numa_node");
  int node = -1;
  file >> node;
  return file && node >= 0 ? std::optional(node) : std::nullopt;
}

void prefer_node(std::span<std::byte> memory, int node) noexcept {
  constexpr auto bits = static_cast<size_t>(CHAR_BIT * sizeof(unsigned long));
  std::vector<unsigned long> nodes(static_cast<size_t>(node) / bits + 1);
  nodes.back() = 1ul << (static_cast<size_t>(node) % bits);
  // glibc has no function for mbind, and libnuma would be a library for one call. The kernel reads one bit less than
  // the argument `maxnode` says, so `maxnode` is one more than the number of bits.
  syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, nodes.data(), nodes.size() * bits + 1, 0u);
}

}  // namespace feedline::gpu
