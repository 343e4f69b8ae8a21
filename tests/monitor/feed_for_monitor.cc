// A feed with a monitor that takes steps when it is told, so that what the monitor says is known.
//
//   feed_for_monitor PIPELINE REPLICAS RANK RANKS ADDRESS [TOKEN [PORT]]
//
// ADDRESS is "-" for a feed without a monitor. With a PORT of 127.0.0.1 the ranks meet there.
// Prints the monitor's address. Then reads numbers from standard input, a line each: takes so many steps, and prints
// "epoch E step S", or "error: ..." if the feed has ended. Ends at the end of its input.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "feedline/feeder.h"
#include "feedline/tcp_communicator.h"

namespace {

using namespace feedline;

// Takes steps of all replicas in turn. The end of an epoch is no step.
void take_steps(Feeder& feeder, int steps) {
  for (int taken = 0; taken < steps;) {
    bool is_step = false;
    for (int replica = 0; replica < feeder.replicas(); replica++) is_step = static_cast<bool>(feeder.next(replica));
    taken += is_step;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  options.devices.assign(static_cast<size_t>(std::atoi(argv[2])), host());
  options.rank = std::atoi(argv[3]);
  options.world_size = std::atoi(argv[4]);
  if (argv[5] != std::string("-")) options.monitor = argv[5];
  if (argc > 6) options.monitor_token = argv[6];
  if (argc > 7)
    options.communicator = tcp_communicator({.address = "127.0.0.1",
                                             .port = static_cast<uint16_t>(std::atoi(argv[7])),
                                             .rank = options.rank,
                                             .world_size = options.world_size});
  Feeder feeder(load_pipeline(argv[1]), options);
  std::cout << feeder.monitor_address() << std::endl;
  for (int steps = 0; std::cin >> steps;) try {
      take_steps(feeder, steps);
      const Report report = feeder.report();
      std::cout << "epoch " << report.epoch << " step " << report.step << std::endl;
    } catch (const Error& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
} catch (const feedline::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
