// BUFFER: tf.data's shuffle, by draws that can be computed again.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// A buffer of B samples; each step takes one of them at random, and the next of the sequence comes into its place. At
/// the end of a pass it empties. Which place is drawn is a function of the position alone, so what the buffer holds
/// anywhere follows from the draws since each place was last drawn: O(B log B) of them.
///
/// A block is a ticket, from the first of its samples that is wanted until Order::buffer_age() behind its last one:
/// then hardly any is left in the buffer. Those that are left are read again, each by itself.
class BufferStream final : public SampleStream {
 public:
  BufferStream(const Order& order, uint64_t first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Sample {
    uint32_t block = 0, number = 0;  // of Order::blocks(), and of the block
  };
  static constexpr uint64_t none = std::numeric_limits<uint64_t>::max();
  struct Expiring {
    uint32_t block = 0;
    uint64_t at = 0;  // position
  };
  /// A ticket of samples that are read by themselves, in this step.
  struct Picks {
    uint64_t ticket = 0;
    size_t opened = 0;  // where it is in TakeResult::opened
    uint32_t samples = 0, rows = 0;
  };

  void begin_pass(uint64_t pass, uint64_t position);
  void restore(uint64_t position);
  void begin_sequence(uint64_t sample);
  void fill_in_as_at(uint64_t position);
  uint64_t draw(uint64_t position) const noexcept;
  std::optional<Sample> next_of_sequence();
  Sample pop();
  TicketRows row_of(const Sample& sample, TakeResult& to);
  TicketRows pick(const Sample& sample, TakeResult& to);
  void expire(Step& step);

  const Order* order_;
  uint64_t pass_ = 0;  // since the beginning of the feed
  uint64_t key_ = 0;
  uint64_t position_ = 0;  // of the pass
  std::optional<Sequence> sequence_;
  uint64_t next_ = 0;              // of the sequence: number of the next sample
  Run run_;                        // what is left of the sequence's last one
  std::vector<Sample> buffer_;     // as many as are in it
  std::vector<uint64_t> open_;     // by block: its ticket, or none
  std::vector<bool> expired_;      // by block
  std::deque<Expiring> expiring_;  // blocks that have come into the buffer, whole
  std::optional<Picks> picks_;
};

}  // namespace feedline::flow
