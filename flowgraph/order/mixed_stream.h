// A mixture: samples that are drawn from several sources by weight (mixture.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "flowgraph/order/mixture.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// The samples of a mixture. Each source has one stream for each of its lanes, and its samples are dealt to these lanes
/// in turn. The rows of a step are ordered by lane. A rank has a run of rows, so it reads few lanes besides its own.
/// The stream of a lane is opened when this rank wants a sample of the lane for the first time.
class MixedStream final : public SampleStream {
 public:
  /// Opens a source's stream of a lane, at sample `sample` of the lane.
  using OpenStream = std::function<std::unique_ptr<SampleStream>(size_t source, uint32_t lane, uint64_t sample)>;

  /// Begins at sample `sample` of epoch `epoch`, which must be the first sample of a step. `frames` is the number of
  /// rows of a complete sample. Keeps a reference to `mixture`.
  MixedStream(const Mixture& mixture, uint64_t epoch, uint64_t sample, int64_t frames, OpenStream open);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  /// A lane of a source.
  struct SourceLane {
    uint64_t begins_at = 0;                // the sample of the lane at which its stream is opened
    std::unique_ptr<SampleStream> stream;  // null until this rank wants a sample of the lane
    // The members below describe the step that take() is taking.
    int64_t drawn = 0;   // how many of the step's samples come from this lane
    Rows wanted;         // the drawn samples that this rank wants, counted from the lane's first sample in the step
    Step taken;          // what the stream gave; its rows are numbered among the drawn samples of this lane
    size_t run = 0;      // the first run of taken.rows of which not all rows have been put into the step
    uint32_t used = 0;   // the rows of that run that have been put into the step
    int64_t sample = 0;  // the sample that is put into the step next: its number among the drawn samples
  };
  void draw(int64_t count, Rows wanted);
  void add_sample(SourceLane& lane, int64_t at, Step& step) const;

  const Mixture& mixture_;
  const uint32_t lanes_;
  const int64_t frames_;
  const OpenStream open_;
  MixtureDraws draws_;
  std::vector<uint64_t> taken_;          // for each source: how many of its samples come before the next one
  std::vector<SourceLane> sources_;      // the lanes of the first source, then those of the next
  std::vector<uint32_t> drawn_, order_;  // for each sample of a step, its lane's index in sources_: as drawn; by row
  std::vector<uint32_t> rows_before_;    // for each lane: how many of the step's samples lie in the lanes before it
};

}  // namespace feedline::flow
