// A communicator is a transport that can also reduce, as training needs it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "feedline/device.h"
#include "feedline/export.h"
#include "feedline/reduction.h"
#include "feedline/tensor.h"
#include "feedline/transport.h"

namespace feedline {

/// A Transport with reductions. A feed needs only a Transport; training by data_parallel.h needs the reductions, too.
class FEEDLINE_PUBLIC Communicator : public Transport {
 public:
  ~Communicator() override;

  /// Reduces `data` in place, element by element, over the ranks in the order of their numbers. The result has the same
  /// bits on all ranks and in every run. The dtype may be any number except BOOL. FLOAT16 and BFLOAT16 are computed in
  /// float32 and rounded once. Integer sums wrap around. min and max of a NaN and a number may return either of them.
  virtual void all_reduce(TensorView data, Reduction reduction, Stream stream) = 0;

  /// The arguments of an all_reduce(). Only the dtype, the shape and the reduction matter here.
  struct AllReduce {
    TensorView data;
    Reduction reduction;
  };
  /// Says that the next calls will be `calls`, in this order. All ranks must announce the same calls. The ranks of an
  /// nccl_communicator send one another a description of each call before they make it. With announce() they do so once
  /// for all of `calls`. Then these calls do not wait for ranks that have yet to make them. If a rank makes a call
  /// other than the next announced one, or leaves before it has made all of them, the group ends. Communicators of
  /// other kinds do nothing.
  virtual void announce(std::span<const AllReduce> calls);

  /// Reduces `data` as all_reduce() does, but writes only this rank's part of the result, to `mine`. The first axis of
  /// `data` is size() times that of `mine`; rank r gets the r-th part. `data` keeps its content; `mine` must not
  /// overlap it.
  virtual void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream stream) = 0;
};

/// Returns a communicator for each of `ranks` ranks that are threads of one process. Buffers lie in host memory and
/// streams are Stream::host. A rank leaves when its communicator is destroyed; calls that would wait for it then throw
/// Error stalled. One thread at a time may use a communicator; any thread may call abort() and failure().
FEEDLINE_PUBLIC std::vector<std::unique_ptr<Communicator>> communicators_between_threads(int ranks);

}  // namespace feedline
