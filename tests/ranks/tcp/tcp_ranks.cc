// A rank of tcp_communicator_test, in an environment as torchrun sets it: tcp_ranks WHAT.
#include "feedline/tcp_communicator.h"
#include "ranks/process_ranks.h"

int main(int argc, char** argv) {
  feedline::TcpOptions options = feedline::tcp_options_of_environment();
  feedline::test::act_as_rank(options.rank, argc > 1 ? argv[1] : "", "the rank has died", [&](auto timeout) {
    options.timeout = timeout;
    return feedline::tcp_communicator(options);
  });
}
