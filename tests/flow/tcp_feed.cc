// A rank of tcp_feed_test, in an environment as torchrun makes it: tcp_feed WHAT FOLDER. Says "ok" where all was as it
// should be. "make", by itself: makes data there.
#include "feedline/tcp_communicator.h"
#include "process_feed.h"

using namespace feedline;
using namespace feedline::test;

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", folder = argc > 2 ? argv[2] : "";
  if (what == "make") {
    std::vector<std::string> records;
    for (int64_t id = 0; id < 207; id++) records.push_back(sample(id));
    write_records(folder + "/part-000.tfrecord", records);
    return 0;
  }
  TcpOptions options = tcp_options_of_environment();
  try {
    if (what == "kill" || what == "stop") {
      options.timeout = silence;
      loses(tcp_communicator(options), folder, what, "it has died");
    } else {
      feeds(tcp_communicator(options), folder, what);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, error.what());
    return 1;
  }
  say_ok(options.rank);
}
