// The tool, in a process in which the files of the folder FEEDLINE_MEMORY also have names "memory://...".
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/memory_source.h"
#include "tool/commands/run_tool.h"

int main(int argc, char** argv) {
  const std::filesystem::path folder = std::getenv("FEEDLINE_MEMORY");
  feedline::test::MemorySource::Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files["memory://" + entry.path().lexically_relative(folder).string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  const feedline::test::MemorySource source(std::move(files));
  const feedline::test::Mounted mounted(source);
  return feedline::tool::run_tool(argc, argv);
}
