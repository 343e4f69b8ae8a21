// The way that batches take on this rank, from the files to next(). Everything that depends on `distribute.mode`, the
// devices and the communicators is decided here, once.
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
  bool transfer = false;  // packed rows travel, between ranks or only between the replicas of this one
  bool upload = false;    // the replicas are GPUs
  /// Rows go from the reader's GPU to those of other ranks, inside next(). The transfer then carries only shapes and
  /// counts; the rows that it delivers are those of a reader, for its own GPU.
  bool between_gpus = false;

  std::vector<DeviceId> graph_devices = {};     // by replica of the plan: the device that its batches are copied to
  std::vector<DeviceId> transfer_devices = {};  // the devices that the transfer delivers to
  std::vector<int> transfer_parts = {};  // the reader's parts that these devices are given; one: all are given the same
  bool same_rows = false;                // all GPUs of this rank are given the same rows, which are uploaded once
  size_t parts_for_each_gpu = 1;         // how many parts the buffers of a GPU have room for

  bool watches_ranks = false;    // next() asks the communicator whether another rank has failed
  bool audits_together = false;  // only the sums of all ranks together say whether an epoch was complete

  /// Return whether the graph makes, and whether the transfer delivers, packed rows, which are unpacked later.
  bool graph_packs() const noexcept { return transfer || upload; }
  bool transfer_packs() const noexcept { return upload; }
};

/// Returns the route of the rank that these options and this distribution describe. Both must be complete and valid
/// (trainer_bridge/setup.h).
Route route_of(const Options& options, const flow::Distribution& distribution);

}  // namespace feedline
