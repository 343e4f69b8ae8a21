// One lane of a mixture.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "flowgraph/order/mixture.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each sample comes from the stream of its source; these begin where they are first drawn from.
class MixedStream final : public SampleStream {
 public:
  /// A source's stream, from a sample of its lane on.
  using Open = std::function<std::unique_ptr<SampleStream>(size_t source, uint64_t sample)>;

  /// From a sample of the lane in an epoch on. frames: rows of a sample.
  MixedStream(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample, int64_t frames, Open open);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Source {
    uint64_t begins_at = 0;  // sample of its lane
    std::unique_ptr<SampleStream> stream;
    // In this step:
    int64_t drawn = 0;
    Rows wanted;         // of those
    Step taken;          // what its stream gives, its rows numbered by what is drawn
    size_t run = 0;      // of taken.rows: the next that was not put into the step
    uint32_t used = 0;   // rows of it that were
    int64_t sample = 0;  // of those drawn: the next
  };
  void draw(int64_t count, Rows wanted);
  void add_sample(Source& source, int64_t at, Step& step) const;

  const int64_t frames_;
  const Open open_;
  LaneDraws draws_;
  std::vector<Source> sources_;
  std::vector<uint32_t> order_;  // the sources of the step's samples
};

}  // namespace feedline::flow
