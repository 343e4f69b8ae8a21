// BUFFER: the shuffle of tf.data, with random draws that can be computed again from any position.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// A buffer of B places is filled with the first B samples of the unshuffled sequence (sequence.h). Each draw takes the
/// sample out of a random place, and the next sample of the sequence moves into that place. Towards the end of a pass
/// the sequence is used up, and further draws empty the buffer. The draws of a pass are numbered from 0. The number
/// of a draw is its position.
///
/// The place that is drawn is a function only of key and position. So a stream can begin at any position: which sample
/// lies in a place follows from the position at which the place was last drawn. To find these positions for all places,
/// the constructor looks back over about O(B log B) draws.
///
/// The buffer holds only the numbers of samples; their records lie in chunks. A block is read as one ticket, which is
/// opened when the first of its samples that this rank wants is drawn. The ticket is finished Order::buffer_age() draws
/// after its last sample has entered the buffer. By then hardly any of its samples are left in the buffer. A sample
/// that is left is read again, by itself, when it is drawn.
class BufferStream final : public SampleStream {
 public:
  BufferStream(const Order& order, Wide first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Sample {
    uint32_t block = 0, number = 0;  // the index of its block in Order::blocks(), and its number within the block
  };
  static constexpr uint64_t none = std::numeric_limits<uint64_t>::max();
  struct Expiring {
    uint32_t block = 0;
    uint64_t at = 0;  // the position at which the block's ticket is finished
  };
  /// A ticket of this step that holds samples which are read again, each by itself.
  struct Picks {
    uint64_t ticket = 0;
    size_t opened = 0;               // the ticket's index in TakeResult::opened
    uint32_t samples = 0, rows = 0;  // the ticket's samples and rows so far
  };

  void begin_pass(Wide pass, uint64_t position);
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
  Wide pass_ = 0;  // numbered as in Steps::first_pass()
  uint64_t key_ = 0;
  uint64_t position_ = 0;  // the number of draws in this pass so far
  std::optional<Sequence> sequence_;
  uint64_t next_ = 0;              // the number of the sequence's next sample within the pass
  Run run_;                        // what is left of the run that the sequence returned last
  std::vector<Sample> buffer_;     // its size is the number of samples in the buffer; it shrinks at the end of a pass
  std::vector<uint64_t> open_;     // for each block: its ticket, or `none` if it is not open
  std::vector<bool> expired_;      // for each block: whether its ticket is finished; samples drawn later are read again
  std::deque<Expiring> expiring_;  // blocks whose samples have all entered the buffer, the earliest to expire first
  std::optional<Picks> picks_;
};

}  // namespace feedline::flow
