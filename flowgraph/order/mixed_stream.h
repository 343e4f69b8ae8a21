// A mixture: samples that are drawn from several sources by weight (mixture.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "flowgraph/order/mixture.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// One lane of a mixture. Each of its samples comes from a stream of the sample's source. The stream of a source is
/// opened when the first sample is drawn from the source.
class MixedStream final : public SampleStream {
 public:
  /// Opens a source's stream of this lane, at sample `sample` of the source's lane.
  using OpenStream = std::function<std::unique_ptr<SampleStream>(size_t source, uint64_t sample)>;

  /// Begins at sample `sample` of the lane in epoch `epoch`. frames: the number of rows of a complete sample.
  MixedStream(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample, int64_t frames, OpenStream open);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Source {
    uint64_t begins_at = 0;                // the sample of the source's lane at which its stream is opened
    std::unique_ptr<SampleStream> stream;  // null: no sample has been drawn from the source yet
    // The members below describe the step that take() is taking.
    int64_t drawn = 0;   // how many of the step's samples come from this source
    Rows wanted;         // the drawn samples that this rank wants, counted from the source's first one in the step
    Step taken;          // what the stream gave; its rows are numbered among the drawn samples of this source
    size_t run = 0;      // the first run of taken.rows that has not been put into the step, or not all of it
    uint32_t used = 0;   // the rows of that run that have been put into the step
    int64_t sample = 0;  // the number, among the drawn samples, of the next one to be put into the step
  };
  void draw(int64_t count, Rows wanted);
  void add_sample(Source& source, int64_t at, Step& step) const;

  const int64_t frames_;
  const OpenStream open_;
  LaneDraws draws_;
  std::vector<Source> sources_;
  std::vector<uint32_t> order_;  // the source of each of the step's samples
};

}  // namespace feedline::flow
