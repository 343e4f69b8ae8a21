// NONE: the samples in the order in which the files hold them, one file after another or interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/pass_sequence.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each block is read as one ticket. The ticket begins with the first row of the block that this rank wants, and holds
/// all rows of the block from there on. Samples are single records here; WindowStream serves windows.
class FileStream final : public SampleStream {
 public:
  FileStream(const Order& order, Wide first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct OpenBlock {
    uint32_t block = 0;
    uint64_t ticket = 0;
    uint64_t first = 0;  // the sample that is row 0 of the ticket, numbered within its file
  };
  OpenBlock& open(uint32_t block, uint64_t sample, TakeResult& to);

  const Order* order_;
  PassSequence sequence_;
  std::vector<OpenBlock> open_;
};

}  // namespace feedline::flow
