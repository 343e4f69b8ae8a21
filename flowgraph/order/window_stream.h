// The stream of shuffle mode NONE for windows (samples of several records): files one after another, or interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/pass_sequence.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each block is read as one ticket, which stays open as long as windows reach into the block. So a record that is a
/// frame of several windows is read and parsed once. The rows of a step are the frames of its windows, `size` row
/// numbers for each window. The missing frames of a short window leave their row numbers unused.
class WindowStream final : public SampleStream {
 public:
  WindowStream(const DataSet& data, const Order& order, Wide first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct OpenBlock {
    uint32_t block = 0;
    uint64_t end = 0;  // the frame after the block's last one
    uint64_t ticket = 0;
    uint64_t first = 0;  // the frame that is row 0 of the ticket
  };
  void add_rows(const Windows::Window& window, uint32_t file, int64_t at, TakeResult& to);
  const OpenBlock& open(uint32_t block, uint64_t from, TakeResult& to);
  /// Finishes the open blocks that end at or before `frame`. If files are interleaved, finishes only blocks of `file`.
  void finish(uint64_t frame, uint32_t file, Step& step);

  const DataSet* data_;
  const Order* order_;
  const Windows* windows_;
  PassSequence sequence_;
  std::vector<OpenBlock> open_;
};

}  // namespace feedline::flow
