// feedline demo.
#include "pipelines.h"
#include "support/catch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("demo makes its data, feeds it, and says what to do next") {
  const TempDir dir;
  const std::string folder = dir.file("demo");
  const ToolResult result = run_tool({"demo", "--dir", folder, "--megabytes", "2"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  for (const std::string set : {"chess", "photos", "planar", "digits", "penguins"}) {
    CHECK(result.out.find(set) != std::string::npos);
    CHECK(run_tool({"check", folder + "/" + set + ".textproto"}).code == 0);
  }
  CHECK(result.out.find("inspect --pipeline") != std::string::npos);
  CHECK(result.out.find("There is no trainer") != std::string::npos);
  CHECK(result.out.find("ready") == std::string::npos);
  CHECK(run_tool({"verify", folder + "/chess-00000-of-00004.tfrecord"}).code == 0);
  const ToolResult nowhere = run_tool({"demo", "--dir", folder, "--golden", dir.file("nowhere")});
  CHECK(nowhere.code == 1);
  CHECK(nowhere.err.find("with --golden SOURCES/tests/golden") != std::string::npos);

  std::filesystem::create_directory(dir.file("chess"));
  for (const char* part : {"0", "1", "2"}) dir.write(std::string("chess/main-0000") + part + "-of-00003.tfrecord", "");
  const ToolResult empty = run_tool({"demo", "--dir", folder, "--golden", dir.path()});
  CHECK(empty.code == 1);
  CHECK(empty.err.find("chess/main-00000-of-00003.tfrecord: has no records") != std::string::npos);
}
