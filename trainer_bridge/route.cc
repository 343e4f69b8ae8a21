#include "trainer_bridge/route.h"

#include <numeric>

namespace feedline {
namespace {

// Returns the numbers of all parts that the rank that reads sends.
std::vector<int> all_parts(const flow::Distribution& distribution) {
  std::vector<int> parts(static_cast<size_t>(distribution.planned().replicas));
  std::iota(parts.begin(), parts.end(), 0);
  return parts;
}

void set_transfer(Route& route, const Options& options, const flow::Distribution& distribution) {
  const std::vector<DeviceId>& devices = options.devices;
  // With a gpu_communicator, the rank that reads delivers the parts of all ranks to its own GPU, which sends them to
  // the others. On any other rank no rows arrive through the transfer.
  const bool takes_all = route.between_gpus && route.graph;
  route.transfer_parts = takes_all ? all_parts(distribution) : distribution.parts_of(distribution.rank);
  if (takes_all)
    route.transfer_devices.assign(route.transfer_parts.size(), devices[0]);
  else if (route.between_gpus)
    route.transfer_devices = {host()};
  else
    route.transfer_devices.assign(devices.begin(), route.same_rows ? devices.begin() + 1 : devices.end());
  if (route.between_gpus) route.parts_for_each_gpu = route.transfer_parts.size();
}

}  // namespace

Route route_of(const Options& options, const flow::Distribution& distribution) {
  Route route{.graph = distribution.reads(distribution.rank),
              .transfer = distribution.transfers(),
              .upload = options.devices.front().kind == DeviceId::Kind::cuda,
              .between_gpus = options.gpu_communicator != nullptr};
  route.same_rows = route.upload && distribution.mode == flow::DistributeMode::replicate;
  route.watches_ranks = options.communicator && !route.transfer;
  route.audits_together = route.watches_ranks && distribution.ranks() > 1;
  if (route.transfer) set_transfer(route, options, distribution);
  if (route.graph && route.transfer)
    route.graph_devices.assign(static_cast<size_t>(distribution.planned().replicas), host());
  else if (route.graph)
    route.graph_devices = options.devices;
  return route;
}

}  // namespace feedline
