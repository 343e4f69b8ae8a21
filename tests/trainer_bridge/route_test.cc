// The way of the batches on a rank, for each mode, kind of devices, number of replicas and role of the rank.
#include "trainer_bridge/route.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "feedline/communicator.h"
#include "support/catch.h"

using namespace feedline;
using flow::DistributeMode;

namespace {

enum class Where { host, gpus, gpus_with_communicator };

struct Rank {
  DistributeMode mode;
  Where where;
  int replicas;
  int rank;
  int ranks = 2;
  int data_parallel_size = 0;  // 0: the default of the mode
  bool communicator = true;
};

Route route_of_rank(const Rank& of) {
  const bool whole = of.mode == DistributeMode::replicate;
  flow::Distribution distribution{.mode = of.mode, .rank = of.rank, .replicas = of.replicas};
  distribution.data_parallel_size = of.data_parallel_size ? of.data_parallel_size : whole ? 1 : of.ranks;
  distribution.data_parallel_ranks.clear();
  for (int rank = 0; rank < of.ranks; rank++)
    distribution.data_parallel_ranks.push_back(rank % distribution.data_parallel_size);
  distribution.check(true);
  Options options;
  options.devices.clear();
  for (int replica = 0; replica < of.replicas; replica++)
    options.devices.push_back(of.where == Where::host ? host(replica) : cuda(replica));
  const std::shared_ptr<Communicator> some = std::move(communicators_between_threads(1)[0]);
  if (of.communicator) options.communicator = some;
  if (of.where == Where::gpus_with_communicator) options.gpu_communicator = some;
  return route_of(options, distribution);
}

std::string text(const std::vector<DeviceId>& devices) {
  std::string text;
  for (const DeviceId device : devices)
    text += fmt::format(" {}{}", device.kind == DeviceId::Kind::host ? "host" : "gpu", device.ordinal);
  return text;
}

// Returns every field of a route as one line: the pieces with what they deliver to, then the rest.
std::string text(const Route& route) {
  std::string text;
  if (route.graph)
    text += fmt::format("{} for{}", route.graph_packs() ? "packs" : "makes", ::text(route.graph_devices));
  if (!route.graph) CHECK(route.graph_devices.empty());
  if (route.transfer) {
    text += route.graph ? " -> sends" : "receives";
    for (const int part : route.transfer_parts) text += fmt::format(" {}", part);
    text += fmt::format(" to{}{}", ::text(route.transfer_devices), route.transfer_packs() ? ", packed" : "");
  } else {
    CHECK(route.transfer_parts.empty());
    CHECK(route.transfer_devices.empty());
  }
  if (route.upload) text += " -> uploads";
  if (route.same_rows) text += " once";
  if (route.between_gpus) text += fmt::format(" {} parts, on to other GPUs", route.parts_for_each_gpu);
  if (!route.between_gpus) CHECK(route.parts_for_each_gpu == 1);
  if (route.watches_ranks) text += "; watches";
  if (route.audits_together) text += "; audits together";
  return text;
}

constexpr auto split = DistributeMode::split, replicate = DistributeMode::replicate, scatter = DistributeMode::scatter;

}  // namespace

TEST_CASE("each mode, kind of devices, number of replicas and rank has its route") {
  struct Expected {
    Rank rank;
    std::string route;
  };
  const Expected table[] = {
      // Every rank reads.
      {{split, Where::host, 1, 0}, "makes for host0; watches; audits together"},
      {{split, Where::host, 2, 1}, "makes for host0 host1; watches; audits together"},
      {{split, Where::gpus, 1, 0}, "packs for gpu0 -> uploads; watches; audits together"},
      {{split, Where::gpus, 2, 1}, "packs for gpu0 gpu1 -> uploads; watches; audits together"},
      // Rank 0 reads one part, which all replicas of all ranks are given.
      {{replicate, Where::host, 1, 0}, "packs for host0 -> sends 0 to host0"},
      {{replicate, Where::host, 1, 1}, "receives 0 to host0"},
      {{replicate, Where::host, 2, 0}, "packs for host0 -> sends 0 to host0 host1"},
      {{replicate, Where::host, 2, 1}, "receives 0 to host0 host1"},
      {{replicate, Where::gpus, 1, 0}, "packs for host0 -> sends 0 to gpu0, packed -> uploads once"},
      {{replicate, Where::gpus, 1, 1}, "receives 0 to gpu0, packed -> uploads once"},
      {{replicate, Where::gpus, 2, 0}, "packs for host0 -> sends 0 to gpu0, packed -> uploads once"},
      {{replicate, Where::gpus, 2, 1}, "receives 0 to gpu0, packed -> uploads once"},
      {{replicate, Where::gpus_with_communicator, 1, 0},
       "packs for host0 -> sends 0 to gpu0, packed -> uploads once 1 parts, on to other GPUs"},
      {{replicate, Where::gpus_with_communicator, 1, 1},
       "receives 0 to host0, packed -> uploads once 1 parts, on to other GPUs"},
      // Rank 0 reads a part for each replica of each rank.
      {{scatter, Where::host, 1, 0}, "packs for host0 host0 -> sends 0 to host0"},
      {{scatter, Where::host, 1, 1}, "receives 1 to host0"},
      {{scatter, Where::host, 2, 0}, "packs for host0 host0 host0 host0 -> sends 0 1 to host0 host1"},
      {{scatter, Where::host, 2, 1}, "receives 2 3 to host0 host1"},
      {{scatter, Where::gpus, 1, 0}, "packs for host0 host0 -> sends 0 to gpu0, packed -> uploads"},
      {{scatter, Where::gpus, 1, 1}, "receives 1 to gpu0, packed -> uploads"},
      {{scatter, Where::gpus, 2, 0}, "packs for host0 host0 host0 host0 -> sends 0 1 to gpu0 gpu1, packed -> uploads"},
      {{scatter, Where::gpus, 2, 1}, "receives 2 3 to gpu0 gpu1, packed -> uploads"},
      {{scatter, Where::gpus_with_communicator, 1, 0},
       "packs for host0 host0 -> sends 0 1 to gpu0 gpu0, packed -> uploads 2 parts, on to other GPUs"},
      {{scatter, Where::gpus_with_communicator, 1, 1},
       "receives 1 to host0, packed -> uploads 1 parts, on to other GPUs"},
  };
  for (const auto& [rank, route] : table) {
    CAPTURE(rank.mode, rank.where, rank.replicas, rank.rank);
    CHECK(text(route_of_rank(rank)) == route);
  }
}

TEST_CASE("only the ranks that are given the same part share a reader") {
  const auto route = [](int rank) {
    return text(route_of_rank(
        {.mode = replicate, .where = Where::host, .replicas = 1, .rank = rank, .ranks = 4, .data_parallel_size = 2}));
  };
  for (const int reader : {0, 1}) CHECK(route(reader) == "packs for host0 -> sends 0 to host0");
  for (const int other : {2, 3}) CHECK(route(other) == "receives 0 to host0");
}

TEST_CASE("a rank alone audits alone, and watches only a communicator that it has") {
  const auto route = [](DistributeMode mode, bool communicator) {
    return text(route_of_rank(
        {.mode = mode, .where = Where::host, .replicas = 2, .rank = 0, .ranks = 1, .communicator = communicator}));
  };
  CHECK(route(split, false) == "makes for host0 host1");
  CHECK(route(split, true) == "makes for host0 host1; watches");
  CHECK(route(replicate, true) == "packs for host0 -> sends 0 to host0 host1");
  CHECK(route(scatter, true) == "packs for host0 host0 -> sends 0 1 to host0 host1");
}

TEST_CASE("without a communicator no rank hears of another") {
  CHECK(text(route_of_rank({.mode = split, .where = Where::host, .replicas = 1, .rank = 1, .communicator = false})) ==
        "makes for host0");
}
