// A rank of tcp_feed_test, in an environment as torchrun sets it: tcp_feed WHAT FOLDER. Prints a line that ends in "ok"
// if all went as expected. With EXCHANGE=FOLDER the ranks meet by means of files in that folder. WHAT "make" only
// writes the data.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "feedline/tcp_communicator.h"
#include "process_feed.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

// Returns an exchange for ranks that share a folder.
Exchange exchange_by_files(const std::string& folder, int rank, int ranks) {
  return [=, call = 0](std::string_view mine) mutable {
    const auto file = [&](int of) { return folder + "/" + std::to_string(call) + "-" + std::to_string(of); };
    std::ofstream(file(rank) + ".new", std::ios::binary) << mine;
    fs::rename(file(rank) + ".new", file(rank));
    std::vector<std::string> all;
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (int of = 0; of < ranks; of++) {
      while (!fs::exists(file(of))) {
        if (std::chrono::steady_clock::now() > until) throw std::runtime_error("a rank does not come to the exchange");
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::ifstream in(file(of), std::ios::binary);
      all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    call++;
    return all;
  };
}

std::unique_ptr<Communicator> meet(TcpOptions options) {
  const char* const folder = std::getenv("EXCHANGE");
  return tcp_communicator(options, folder ? exchange_by_files(folder, options.rank, options.world_size) : Exchange());
}

TcpOptions options_of_environment() {
  if (!std::getenv("EXCHANGE")) return tcp_options_of_environment();
  return {.rank = std::atoi(std::getenv("RANK")), .world_size = std::atoi(std::getenv("WORLD_SIZE"))};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", folder = argc > 2 ? argv[2] : "";
  if (what == "make") {
    std::vector<std::string> records;
    for (int64_t id = 0; id < 207; id++) records.push_back(sample(id));
    write_records(folder + "/part-000.tfrecord", records);
    return 0;
  }
  TcpOptions options = options_of_environment();
  try {
    if (what == "kill" || what == "stop" || what == "outlive") options.timeout = silence;
    if (what == "outlive") {
      outlives(meet(options), folder);
    } else if (what == "kill" || what == "stop") {
      loses(meet(options), folder, what, "the rank has died");
    } else {
      feeds(meet(options), folder, what);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, error.what());
    return 1;
  }
  say_ok(options.rank);
}
