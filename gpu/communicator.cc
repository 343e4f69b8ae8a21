#include "feedline/communicator.h"

#include <algorithm>
#include <array>

namespace feedline {

Communicator::~Communicator() = default;

Exchange exchange_over(std::shared_ptr<Communicator> communicator) {
  return [communicator = std::move(communicator)](std::string_view mine) {
    const auto ranks = static_cast<size_t>(communicator->size());
    const std::array size{uint64_t{mine.size()}};
    std::vector<uint64_t> sizes(ranks);
    communicator->all_gather(std::as_bytes(std::span(size)), std::as_writable_bytes(std::span(sizes)), Stream::host);
    // Parts of one size: that of the longest.
    const size_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::string part(mine);
    part.resize(longest);
    std::string all(longest * ranks, '\0');
    communicator->all_gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(all)), Stream::host);
    std::vector<std::string> strings;
    for (size_t rank = 0; rank < ranks; rank++) strings.push_back(all.substr(rank * longest, sizes[rank]));
    return strings;
  };
}

}  // namespace feedline
