#include "trainer_bridge/setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/machine.h"
#include "base/rank_message.h"
#include "feedline/communicator.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/data/compare_ranks.h"
#include "gpu/device/device_name.h"
#include "gpu/device/device_ring.h"

namespace feedline {
namespace {

flow::FileList patterns_only(const flow::FilePatterns& patterns) { return {patterns.files, {}}; }

void check_options(const Options& options, bool transfers) {
  if (options.devices.empty())
    throw Error(Category::bad_pipeline,
                "options.devices: the list is empty; name at least one device, and one for each replica");
  for (const DeviceId device : options.devices)
    if (device.kind != options.devices.front().kind)
      throw Error(Category::bad_pipeline,
                  "options.devices: the list names both the host and GPUs; make one feeder for the replicas on the "
                  "host, and a second feeder for the replicas on GPUs");
  gpu::check_devices(options.devices);
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
    throw Error(
        Category::bad_pipeline,
        fmt::format(
            "options.rank: the rank is {}, and options.world_size is {}; world_size must be at least 1, and ranks are "
            "numbered from 0 to world_size - 1",
            options.rank, options.world_size));
  if (options.threads < 0)
    throw Error(Category::bad_pipeline, fmt::format("options.threads: the number is {}; give the number of threads, or "
                                                    "0 to choose it by the CPUs that this process may use",
                                                    options.threads));
  if (options.data_parallel_size < 0 || (options.data_parallel_rank >= 0 && options.data_parallel_size == 0))
    throw Error(Category::bad_pipeline,
                fmt::format("options.data_parallel_size: the number is {}, and options.data_parallel_rank is {}; set "
                            "options.data_parallel_size to the number of parts of a global batch, or leave out both",
                            options.data_parallel_size, options.data_parallel_rank));
  if (const auto& between = options.gpu_communicator) {
    const bool on_gpus = options.devices.front().kind == DeviceId::Kind::cuda;
    if (!options.communicator || !on_gpus || !transfers || options.devices.size() != 1)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "options.gpu_communicator: distribute.mode must be REPLICATE or SCATTER, each rank must have one "
              "replica, on a GPU, and options.communicator must be set; here distribute.mode {} SPLIT, the number of "
              "replicas of this rank is {}, on {}, and options.communicator is {}; change this, or leave out "
              "options.gpu_communicator",
              transfers ? "is not" : "is", options.devices.size(), on_gpus ? "GPUs" : "the host",
              options.communicator ? "set" : "not set"));
    if (between->device() != options.devices[0])
      throw Error(Category::bad_pipeline, fmt::format("options.gpu_communicator: the communicator is for memory of {}, "
                                                      "but the replica is on {}; make the communicator for the "
                                                      "replica's GPU",
                                                      device_name(between->device()), device_name(options.devices[0])));
    if (between->rank() != options.rank || between->size() != options.world_size)
      throw Error(Category::bad_pipeline,
                  fmt::format("options.gpu_communicator: this process is rank {} of {} in options.gpu_communicator, "
                              "but rank {} of {} in options.communicator; number the ranks in the same way in both",
                              between->rank(), between->size(), options.rank, options.world_size));
  }
  if (transfers && !options.communicator)
    throw Error(Category::bad_pipeline,
                fmt::format("distribute.mode: REPLICATE and SCATTER send rows between the {} ranks, but "
                            "options.communicator is not set; set options.communicator, for example to a "
                            "tcp_communicator()",
                            options.world_size));
}

// Compares the pipelines of all ranks. Fills `distribution`, which then has the part of a global batch that each rank
// is given. Also fills `monitor_places`.
void agree(Setup& setup, const Pipeline& pipeline, RankGroup& ranks, const std::string& own_places) {
  const Options& options = setup.options;
  flow::Distribution& distribution = setup.distribution;
  const bool whole = distribution.mode == flow::DistributeMode::replicate;
  const bool given = options.data_parallel_size > 0;
  distribution.rank = options.rank;
  distribution.replicas = static_cast<int>(options.devices.size());
  distribution.data_parallel_size = given ? options.data_parallel_size : whole ? 1 : options.world_size;
  const int part = given ? options.data_parallel_rank : whole ? 0 : options.rank;
  flow::compare_pipelines(ranks, pipeline.message(), distribution.replicas, distribution.data_parallel_size,
                          options.epoch);
  distribution.data_parallel_ranks.assign(static_cast<size_t>(options.world_size), 0);
  if (ranks.size() == 1) {  // without an exchange, the parts of the other ranks are unknown
    distribution.data_parallel_ranks[static_cast<size_t>(options.rank)] = part;
    return distribution.check(options.world_size == 1);
  }
  MessageWriter mine;
  mine.put(part);
  mine.put(options.gpu_communicator != nullptr);
  mine.put_text(own_places);
  const std::vector<std::string> all = ranks.all_gather(mine.take());
  std::vector<bool> has;
  for (size_t rank = 0; rank < all.size(); rank++) {
    MessageReader theirs(all[rank], static_cast<int>(rank));
    distribution.data_parallel_ranks[rank] = theirs.get<int>();
    has.push_back(theirs.get_bool());
    setup.monitor_places.emplace_back(theirs.get_text());
    theirs.end();
    if (has[rank] != has[0])
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "options.gpu_communicator: rank {} has a gpu_communicator, but rank {} does not; give every rank a "
              "gpu_communicator, or none of the ranks",
              has[0] ? 0 : rank, has[0] ? rank : 0));
  }
  distribution.check(true);
}

}  // namespace

flow::PipelineSpec Setup::carried(bool packed) const { return packed ? flow::pack(spec).spec : spec; }

int Setup::threads() const {
  int threads = options.threads > 0 ? options.threads : spec.threads;
  if (threads == 0) threads = static_cast<int>(cpus_of_this_rank());
  if (!spec.cpu_set.empty()) threads = std::min(threads, static_cast<int>(spec.cpu_set.size()));
  return std::min(threads, static_cast<int>(usable_cpus()));
}

Setup begin_setup(const Pipeline& pipeline, Options options) {
  Setup setup{.options = std::move(options), .distribution = {}, .route = {}, .spec = {}, .monitor_places = {}};
  Options& given = setup.options;
  setup.distribution.mode = static_cast<flow::DistributeMode>(pipeline.message().distribute().mode());
  if (!given.communicator && given.world_size <= 1 && setup.distribution.transfers())
    given.communicator = std::move(communicators_between_threads(1)[0]);
  if (given.communicator) {
    given.rank = given.communicator->rank();
    given.world_size = given.communicator->size();
    given.exchange = exchange_over(given.communicator);
  }
  return setup;
}

void settle(Setup& setup, const Pipeline& pipeline, RankGroup& ranks, const std::string& own_places) {
  const bool transfers = setup.distribution.transfers();
  // If rows are sent between ranks, only the ranks that read need the files, so the other ranks do not list them.
  setup.spec = flow::validate(pipeline, transfers ? patterns_only : flow::list_files);
  check_options(setup.options, transfers);
  agree(setup, pipeline, ranks, own_places);
  setup.route = route_of(setup.options, setup.distribution);
  if (setup.route.graph && transfers) setup.spec = flow::validate(pipeline);
}

}  // namespace feedline
