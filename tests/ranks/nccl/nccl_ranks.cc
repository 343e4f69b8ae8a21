// A rank of nccl_processes_test, in an environment as torchrun sets it, on the GPU with the rank's number: nccl_ranks
// WHAT.
#include "feedline/nccl_communicator.h"
#include "feedline/tcp_communicator.h"
#include "ranks/process_ranks.h"
#include "ranks/staged_communicator.h"

int main(int argc, char** argv) {
  feedline::TcpOptions options = feedline::tcp_options_of_environment();
  const feedline::DeviceId gpu = feedline::cuda(options.rank);
  feedline::test::act_as_rank(
      options.rank, argc > 1 ? argv[1] : "", "the rank has died",
      [&](auto timeout) {
        options.timeout = timeout;
        return std::make_unique<feedline::test::StagedCommunicator>(
            feedline::nccl_communicator(feedline::tcp_communicator(options), gpu), gpu);
      },
      1);
}
