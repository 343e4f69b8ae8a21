#include "gpu/device/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "gpu/device/memory.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;

TEST_CASE("the node of a GPU is the one that Linux tells") {
  const test::TempDir dir;
  for (const auto& [device, node] : {std::pair("0000:3b:00.0", "1\n"), std::pair("0000:01:00.0", "-1\n")}) {
    const auto folder = std::filesystem::path(dir.path()) / device;
    std::filesystem::create_directory(folder);
    std::ofstream(folder / "numa_node") << node;
  }
  CHECK(gpu::node_of_pci("0000:3B:00.0", dir.path()) == 1);
  CHECK(gpu::node_of_pci("0000:01:00.0", dir.path()) == std::nullopt);
  CHECK(gpu::node_of_pci("0000:02:00.0", dir.path()) == std::nullopt);
}

TEST_CASE("memory is taken from the preferred node") {
  gpu::Memory memory(10000);
  gpu::prefer_node(memory.bytes(), 0);
  memory.bytes()[5000] = std::byte{1};
  int policy = -1;
  unsigned long nodes[16] = {};
  if (syscall(SYS_get_mempolicy, &policy, nodes, sizeof(nodes) * 8, memory.bytes().data(), MPOL_F_ADDR) != 0 ||
      syscall(SYS_mbind, memory.bytes().data(), memory.bytes().size(), MPOL_DEFAULT, nullptr, 0ul, 0u) != 0) {
    WARN("this system does not let a process choose its memory's node");
    return;
  }
  CHECK(policy == MPOL_PREFERRED);
  CHECK(nodes[0] == 1);
  gpu::prefer_node(memory.bytes(), 200);  // there is no such node: nothing happens
  memory.bytes()[0] = std::byte{1};
}
