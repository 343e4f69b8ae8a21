// Places memory near a GPU, on a machine with several NUMA nodes (most often, sockets).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace feedline::gpu {

/// Returns the NUMA node to which a PCI device is connected; nullopt if Linux does not report it, as on a machine with
/// one node. `address` has the form in which CUDA writes it: "0000:3B:00.0". `devices` is the folder that describes the
/// PCI devices.
std::optional<int> node_of_pci(std::string address, const std::filesystem::path& devices = "/sys/bus/pci/devices");

/// Asks the system to allocate the pages of a block on a NUMA node, if that node has free ones. Call this function
/// before the block is touched. Does nothing if the system does not allow it. `memory` begins at a page.
void prefer_node(std::span<std::byte> memory, int node) noexcept;

}  // namespace feedline::gpu
