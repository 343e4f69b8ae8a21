#include "feedline/communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/leak.h"

namespace feedline {
namespace {

// The longest string of a rank that others make room for.
constexpr uint64_t most_bytes = uint64_t{1} << 30;

// The buffers of an exchange's calls. They are leaked if the communicator fails, because it may still use them then.
struct Gathered {
  uint64_t size = 0;
  std::vector<uint64_t> sizes;
  std::string part, all;
};

// Gathers the ranks' strings into to.all, each padded to the length of the longest one.
void gather(Communicator& communicator, std::string_view mine, Gathered& to) {
  const auto ranks = static_cast<size_t>(communicator.size());
  to.size = mine.size();
  to.sizes.resize(ranks);
  communicator.all_gather(std::as_bytes(std::span(&to.size, 1)), std::as_writable_bytes(std::span(to.sizes)),
                          Stream::host);
  const auto longest = std::max_element(to.sizes.begin(), to.sizes.end());
  if (*longest > most_bytes)
    throw Error(Category::bad_pipeline,
                fmt::format("rank {} sends a message of {} bytes, and one has at most {}; all ranks must run the same "
                            "version of feedline",
                            longest - to.sizes.begin(), *longest, most_bytes));
  to.part = mine;
  to.part.resize(*longest);
  to.all.resize(to.part.size() * ranks);
  communicator.all_gather(std::as_bytes(std::span(to.part)), std::as_writable_bytes(std::span(to.all)), Stream::host);
}

}  // namespace

Communicator::~Communicator() = default;

void Communicator::announce(std::span<const AllReduce>) {}

Exchange exchange_over(std::shared_ptr<Communicator> communicator) {
  return [communicator = std::move(communicator)](std::string_view mine) {
    auto gathered = std::make_shared<Gathered>();
    try {
      gather(*communicator, mine, *gathered);
    } catch (...) {
      leak(gathered);
      throw;
    }
    std::vector<std::string> strings;
    for (size_t rank = 0; rank < gathered->sizes.size(); rank++)
      strings.push_back(gathered->all.substr(rank * gathered->part.size(), gathered->sizes[rank]));
    return strings;
  };
}

}  // namespace feedline
