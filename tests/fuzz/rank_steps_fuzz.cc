// Steps that a rank receives from another, which reads: votes, shapes and rows, call by call. Whatever is sent ends the feed
// with an Error that names the rank, or is delivered. No file is only about that: transfer.cc sends, too, and lets ranks begin
// anew together.
// covers: nothing
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/feed/transfer.h"
#include "rank_feeds.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;

/// Receives steps from a rank that reads.
void transfer(Draw& draw) {
  const SentFeed& feed = one_of_the_feeds(draw);
  struct Vote {  // as Transfer has it
    uint32_t intent, offer;
    uint64_t epoch;
    int64_t step;
  };
  enum : uint32_t { go_on, begin_anew, leave, batch = 1, end_of_epoch };
  const bool scatter = draw.coin();
  const size_t replicas = 1 + draw.below(2), arrivals = scatter ? replicas : 1;
  const uint64_t steps = draw.below(4);
  const std::vector<BatchTensor>& tensors = feed.facts.tensors;
  SentRows rows;
  std::string head, image;
  uint64_t votes = 0;
  size_t heads = 0, parts = 0;
  const std::byte* buffer = nullptr;
  bool honest = true;
  const auto send = [&](std::string bytes, std::span<std::byte> to) {
    const std::string other = draw.below(4) == 3 ? changed(draw, bytes) : bytes;
    honest = honest && other == bytes;
    std::memcpy(to.data(), other.data(), std::min(to.size(), other.size()));
  };
  const auto fill = [&](std::span<std::byte> to, std::span<const std::byte> mine) {
    if (!mine.empty()) {
      require(mine.size() == sizeof(Vote), "a vote");
      Vote vote{votes > steps ? leave : go_on, votes < steps ? batch : end_of_epoch, 0, static_cast<int64_t>(votes)};
      votes++;
      send({reinterpret_cast<const char*>(&vote), sizeof vote}, to);
      std::memcpy(&vote, to.data(), sizeof vote);
      if (vote.intent == begin_anew || votes > 8) vote.intent = leave;  // a rank that begins anew is waited for
      std::memcpy(to.data(), &vote, sizeof vote);
      rows = rows_of(draw, feed, 1 + draw.below(static_cast<uint64_t>(feed.facts.rows / feed.facts.frames)));
      std::vector<int64_t> numbers = {rows.rows, rows.rows, 0};
      image.assign(feed.facts.buffer_bytes, '\0');
      for (size_t t = 0; t < tensors.size(); t++) {
        numbers.push_back(static_cast<int64_t>(rows.shapes[t].rank()));
        numbers.insert(numbers.end(), rows.shapes[t].begin(), rows.shapes[t].end());
        numbers.resize(3 + (t + 1) * (1 + Shape::max_rank + 2));
        image.replace(tensors[t].offset, rows.bytes[t].size(), rows.bytes[t]);
      }
      head = in_memory(numbers);
      heads = parts = 0;
    } else if (heads < arrivals) {
      heads++;
      send(head, to);
    } else {
      if (parts++ % (scatter ? tensors.size() : SIZE_MAX) == 0) buffer = to.data();  // of the first tensor
      send(image.substr(static_cast<size_t>(to.data() - buffer), to.size()), to);
    }
  };
  Distribution distribution{.mode = scatter ? DistributeMode::scatter : DistributeMode::replicate,
                            .rank = 1,
                            .replicas = static_cast<int>(replicas),
                            .data_parallel_size = scatter ? 2 : 1,
                            .data_parallel_ranks = {0, scatter ? 1 : 0}};
  Transfer received(feed.spec, {.communicator = std::make_shared<DrawnTransport>(fill),
                                .distribution = distribution,
                                .facts = feed.facts,
                                .tables = feed.tables,
                                .devices = std::vector<DeviceId>(replicas, host()),
                                .parts = distribution.parts_of(1),
                                .position = {}});
  received.run();
  uint64_t batches = 0;
  try {
    for (;;)
      for (size_t replica = 0; replica < replicas; replica++) {
        Batch batch_of_step;
        const auto outcome = received.delivery().next(static_cast<int>(replica), std::nullopt, batch_of_step);
        batches += outcome == Delivery::Outcome::batch;
        if (batch_of_step)
          for (const NamedTensor& tensor : batch_of_step.tensors())
            require(tensor.tensor.size_bytes() <= 1 << 20, "a tensor is as large as a batch can be");
      }
  } catch (const Error& error) {
    if (honest)
      require(error.category() == Category::stalled && batches == steps * replicas,
              ("steps are received: " + error.message()).c_str());
    if (error.category() != Category::stalled) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return run_one_of({transfer}, data, size); }
