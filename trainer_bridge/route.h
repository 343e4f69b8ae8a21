// The Route of batches on this rank: the pieces (graph, transfer, upload) through which they pass between the files and
// next(). route_of() decides, once, everything that depends on `distribute.mode`, the devices and the communicators.
//
//                    SPLIT                         REPLICATE and SCATTER
//   host             graph -> next()               graph (if it reads) -> transfer -> next()
//   GPUs             graph -> upload -> next()     graph (if it reads) -> transfer -> upload -> next()
#pragma once

#include <cstddef>
#include <vector>

#include "feedline/device.h"
#include "feedline/feeder.h"
#include "flowgraph/plan/distribution.h"

namespace feedline {

struct Route {
  // The pieces that this rank has, in the order in which batches pass through them.
  bool graph = false;     // this rank reads files
  bool transfer = false;  // packed rows are sent between ranks, or only between the replicas of this rank
  bool upload = false;    // the replicas are GPUs
  /// Rows go from the GPU of the rank that reads to the GPUs of the other ranks, inside next(). The transfer then sends
  /// only shapes and counts to the other ranks. On the rank that reads, the transfer also delivers the rows of all
  /// ranks.
  bool between_gpus = false;

  // A part is the share of a global batch that one rank or replica is given.
  std::vector<DeviceId> graph_devices = {};     // by replica of the plan: the device that its batches are copied to
  std::vector<DeviceId> transfer_devices = {};  // the devices that the transfer delivers to
  std::vector<int> transfer_parts = {};         // the part for each of these devices, or one part for all of them
  bool same_rows = false;         // all GPUs of this rank are given the same rows, which are uploaded once
  size_t parts_for_each_gpu = 1;  // how many parts the buffers of a GPU have room for

  bool watches_ranks = false;    // next() asks the communicator whether another rank has failed
  bool audits_together = false;  // only the sums of all ranks together tell whether an epoch had every sample

  /// Return whether the graph makes packed rows, and whether the transfer delivers packed rows.
  bool graph_packs() const noexcept { return transfer || upload; }
  bool transfer_packs() const noexcept { return upload; }
};

/// Returns the route of the rank that these options and this distribution describe. Both must be complete and valid
/// (trainer_bridge/setup.h).
Route route_of(const Options& options, const flow::Distribution& distribution);

}  // namespace feedline
