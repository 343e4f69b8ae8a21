// What the tests of several commands share: a pipeline, a dump, a signal.
#pragma once

#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "golden/manifest.h"
#include "tool.h"

namespace feedline::test {

inline std::string golden(const std::string& name) { return std::string(FEEDLINE_GOLDEN) + "/" + name; }

/// Returns a pipeline for the golden chess positions, with `batch` as the fields of its batch.
inline std::string chess_pipeline(const std::string& batch) {
  return "source { files: \"" + golden("chess/main-*.tfrecord") + "\" }" + R"text(
feature { name: "d" dtype: BYTES length: 194 }
feature { name: "s" dtype: INT64 }
output  { name: "board" dtype: INT8 feature: "d"
          unpack_bits { shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
                        scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } }
output  { name: "flags" dtype: INT8 feature: "d" unpack_bits { bit_offset: 1536 shape: [10] } }
output  { name: "mate"  dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1546 } internal: true }
output  { name: "score" dtype: FLOAT64 expression {
          formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
          constants { key: "A" value: 0.85 } constants { key: "K" value: 410 } constants { key: "B" value: 30 } } }
output  { name: "raw" feature: "d" }
batch   { )text" +
         batch + " }";
}

/// Runs `feedline dump` for a pipeline text.
struct Dump {
  Dump(const std::string& text, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"dump", dir.write("pipeline.textproto", text), "--out", dir.file("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    result = run_tool(arguments);
  }
  NpyArray array(const std::string& name) const { return load_npy(dir.file("out/" + name + ".npy")); }
  bool has(const std::string& name) const { return std::filesystem::exists(dir.file("out/" + name + ".npy")); }
  nlohmann::json report() const { return nlohmann::json::parse(read_file(dir.file("out/report.json"))); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir.file("out")))
      names.insert(entry.path().filename().string());
    return names;
  }

  TempDir dir;
  ToolResult result;
};

/// Sends the tool a signal once it has threads: it installs its handler before it starts any.
inline ToolResult signalled(Tool& tool, int number) {
  const std::string tasks = "/proc/" + std::to_string(tool.pid()) + "/task";
  while (std::distance(std::filesystem::directory_iterator(tasks), std::filesystem::directory_iterator()) < 3)
    std::this_thread::yield();
  tool.signal(number);
  return tool.wait();
}

}  // namespace feedline::test
