// feedline verify: reads every byte of the files and checks both checksums of every record.
#include <fmt/format.h>

#include "base/byte_size.h"
#include "tool/commands/commands.h"
#include "tool/commands/file_flags.h"
#include "tool/common/files.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

struct VerifyArgs {
  FileArgs input;
  bool json = false;
};

int verify(const VerifyArgs& args) {
  const auto summaries = verify_files(args.input);
  const size_t damaged = print_damage(summaries);
  if (args.json) {
    Json files = Json::array();
    for (const FileSummary& summary : summaries) files.push_back(to_json(summary));
    print_document({{"files", std::move(files)}});
    return damaged ? 1 : 0;
  }
  uint64_t records = 0, bytes = 0;
  for (const FileSummary& summary : summaries) {
    print_line("{}", describe(summary));
    records += summary.records;
    bytes += summary.payload_bytes;
  }
  fmt::print("{} of {} sound: {}, {}\n", summaries.size() - damaged, format_count(summaries.size(), "file"),
             format_count(records, "good record"), format_byte_size(bytes));
  return damaged ? 1 : 0;
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  const auto [command, args] = add_command(
      app, run, "verify", "verify every byte of TFRecord files; the exit code is 1 if a file is damaged", verify);
  add_file_args(command, args.input);
  command.add_flag("--json", args.json, "print the result as JSON");
}

}  // namespace feedline::tool
