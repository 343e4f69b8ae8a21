// Makes copies for copy_check: on a GPU, or one thread after another on the host.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/reduce/copy_kernel.h"

namespace feedline::test {

using Bytes = std::vector<std::byte>;

/// Returns why there is no device; nullopt: there is one.
std::optional<std::string> no_device();

/// Makes the copies, which are from places in `from` to places in `to`.
void make_copies(std::span<const gpu::CopyPart> parts, const Bytes& from, Bytes& to);

}  // namespace feedline::test
