// Kills `feedline index` at random moments. Each index must be whole or absent, and the next run must end the same.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <random>

#include "feedline/records.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

// Returns the indexes of the folder. Checks that all other files are data or unfinished indexes.
std::map<std::string, std::string> indexes(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(io::index_suffix))
      found[name] = read_file(entry.path());
    else
      CHECK((io::is_index_name(name) || name.rfind("data", 0) == 0));
  }
  return found;
}

void kill_often(int wanted) {
  const TempDir dir;
  std::mt19937 random(9);
  std::vector<std::string> arguments = {"index"};
  for (int i = 0; i < 20; i++) {
    const std::string path = dir.file("data-" + std::to_string(i));
    RecordWriter writer(path);
    for (int r = 0; r < 3000; r++) writer.write(std::as_bytes(std::span("some payload of a record")));
    writer.close();
    arguments.push_back(path);
  }
  arguments.insert(arguments.end(), {"--stride", "64"});  // makes indexes that take a while to write
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(run_tool(arguments).code == 0);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  const auto reference = indexes(dir.path());
  REQUIRE(reference.size() == 20);

  int kills = 0, cut = 0;
  while (kills < wanted) {
    for (const auto& entry : fs::directory_iterator(dir.path()))
      if (io::is_index_name(entry.path().string())) fs::remove(entry.path());
    Tool tool(arguments);
    usleep(static_cast<useconds_t>(random() % static_cast<uint64_t>(took.count())));
    tool.signal(SIGKILL);
    kills += tool.wait().code == 128 + SIGKILL;
    const auto left = indexes(dir.path());
    cut += !left.empty() && left.size() < reference.size();
    for (const auto& [name, content] : left) REQUIRE(content == reference.at(name));
    REQUIRE(run_tool(arguments).code == 0);
    REQUIRE(indexes(dir.path()) == reference);
  }
  std::printf("index: killed %d times, %d of them between two files\n", kills, cut);
}

}  // namespace

TEST_CASE("index killed at any moment") { kill_often(40); }
TEST_CASE("index killed thousands of times", "[.stress]") { kill_often(3000); }
