#include "feedline/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/leak.h"

namespace feedline {
namespace {

constexpr uint64_t most_gathered_bytes = uint64_t{1} << 30;   // the maximum length of a rank's string
constexpr uint64_t gathered_piece_bytes = uint64_t{1} << 20;  // the maximum that one call gathers of each string

// The buffers of an exchange's calls. They are leaked if the communicator fails, because a failed communicator may
// still use them.
struct Gathered {
  uint64_t size = 0;
  std::vector<uint64_t> sizes;
  std::string part, all;
};

// Returns the ranks' strings. Gathers them in pieces, so that memory is allocated for the bytes that have arrived, and
// not for as many as a rank says that it will send. Each piece is padded to the length of the longest one.
std::vector<std::string> gather(Transport& communicator, std::string_view mine, Gathered& to) {
  const auto ranks = static_cast<size_t>(communicator.size());
  to.size = mine.size();
  to.sizes.resize(ranks);
  communicator.all_gather(std::as_bytes(std::span(&to.size, 1)), std::as_writable_bytes(std::span(to.sizes)),
                          Stream::host);
  const auto longest = std::max_element(to.sizes.begin(), to.sizes.end());
  if (*longest > most_gathered_bytes)
    throw Error(Category::bad_pipeline,
                fmt::format("rank {} sends a message of {} bytes, but a message has at most {} bytes; all ranks must "
                            "run the same version of feedline",
                            longest - to.sizes.begin(), *longest, most_gathered_bytes));
  std::vector<std::string> strings(ranks);
  for (uint64_t at = 0; at < *longest; at += gathered_piece_bytes) {
    const uint64_t bytes = std::min(gathered_piece_bytes, *longest - at);
    to.part = mine.substr(std::min<uint64_t>(at, mine.size()), bytes);
    to.part.resize(bytes);
    to.all.resize(bytes * ranks);
    communicator.all_gather(std::as_bytes(std::span(to.part)), std::as_writable_bytes(std::span(to.all)), Stream::host);
    for (size_t rank = 0; rank < ranks; rank++)
      strings[rank].append(to.all, rank * bytes, std::min(bytes, to.sizes[rank] - std::min(at, to.sizes[rank])));
  }
  return strings;
}

}  // namespace

Transport::~Transport() = default;

Communicator::~Communicator() = default;

void Communicator::announce(std::span<const AllReduce>) {}

Exchange exchange_over(std::shared_ptr<Transport> communicator) {
  return [communicator = std::move(communicator)](std::string_view mine) {
    auto gathered = std::make_shared<Gathered>();
    try {
      return gather(*communicator, mine, *gathered);
    } catch (...) {
      leak(gathered);
      throw;
    }
  };
}

std::vector<Exchange> exchanges_between_threads(int ranks) {
  std::vector<Exchange> exchanges;
  for (auto& communicator : communicators_between_threads(ranks))
    exchanges.push_back(exchange_over(std::move(communicator)));
  return exchanges;
}

}  // namespace feedline
