// feedline split: writes the records of TFRecord files into shards.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/byte_size.h"
#include "base/machine.h"
#include "feedline/records.h"
#include "tool/commands/commands.h"
#include "tool/commands/file_flags.h"
#include "tool/commands/flags.h"
#include "tool/common/files.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/reshard/shard_advice.h"
#include "tool/reshard/split_run.h"

namespace feedline::tool {
namespace {

struct SplitArgs {
  std::vector<std::string> inputs;
  std::string out;
  SplitOptions options;
  uint64_t memory = std::min<uint64_t>(1 << 30, usable_memory() / 4);  // bytes
  uint64_t readers = 1;
  bool advise = false, json = false;
};

/// Returns the name for a file's shards: the name of the file up to "-00000-of-00016" or ".tfrecord".
std::string name_of(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  name = name.substr(0, name.find(".tfrecord"));
  if (const size_t of = name.rfind("-of-"); of != std::string::npos) {
    const size_t number = name.find_last_not_of("0123456789", of - 1);
    if (of > 0 && number != std::string::npos && number + 1 < of && name[number] == '-') name.resize(number);
  }
  return name;
}

Json advice_json(const ShardAdvice& advice) {
  return {{"readers", advice.readers},
          {"shards", advice.shards},
          {"shard_bytes", advice.shard_bytes},
          {"as_good", advice.as_good},
          {"text", advice.text}};
}

int advise(const SplitArgs& args) {
  uint64_t bytes = 0;
  bool compressed = false;
  for (const std::string& input : args.inputs) {
    bytes += identify(input).size;
    compressed |= RecordReader(input).compression() != Compression::none;
  }
  ShardAdvice advice = advise_shards(bytes, args.readers);
  if (compressed)
    advice.text +=
        " These are sizes of compressed files, as some inputs are: write the shards with --compression gzip, too.";
  if (args.json) {
    print_document({{"bytes", bytes}, {"advice", advice_json(advice)}});
  } else {
    fmt::print("{}\n", advice.text);
  }
  return 0;
}

int split(const SplitArgs& args) {
  if (args.advise) return advise(args);
  SplitOptions options = args.options;
  if (args.out.empty()) throw UsageError("--out is missing: name the folder for the shards (not needed with --advise)");
  if (!options.shards && !options.shard_bytes)
    throw UsageError("the number of shards is missing: give --shards N or --shard-size SIZE");
  if (options.name.empty()) options.name = name_of(args.inputs.front());
  if (options.name.empty() || options.name[0] == '.' || options.name.find('/') != std::string::npos)
    throw UsageError(
        fmt::format("--name: '{}' cannot be the name of shards; choose a name that is not empty, does not begin with "
                    "'.', and has no '/'",
                    options.name));

  const Interrupt interrupt;
  const SplitResult result = run_split(options, args.inputs, args.out, args.memory);
  const ShardAdvice advice = advise_shards(result.framed_bytes, args.readers);
  if (args.json) {
    print_document({{"records", result.records},
                    {"bytes", result.framed_bytes},
                    {"out", args.out},
                    {"shards", result.files},
                    {"kept", result.kept},
                    {"errors", result.bad},
                    {"advice", advice_json(advice)}});
    return 0;
  }
  print_line("{}, {}, in {}: {}/{}", format_count(result.records, "record"), format_byte_size(result.framed_bytes),
             format_count(result.shards, "shard"), args.out, shard_pattern(options.name, result.shards, options.gzip));
  if (result.kept) fmt::print("{} already complete\n", format_count(result.kept, "shard"));
  if (!result.bad.empty()) fmt::print("{} left out\n", format_count(result.bad.size(), "bad place"));
  fmt::print("{}\n", advice.text);
  return 0;
}

}  // namespace

void add_split(CLI::App& app, Run& run) {
  const auto [command, args] = add_command(
      app, run, "split", "write the records of TFRecord files to more or fewer shards, in order or shuffled", split);
  command.footer(
      "The numbers of records in two shards differ by at most 1, so programs that divide data by files make equally\n"
      "many steps. Without --shuffle, shard i of n gets the records [i N/n, (i+1) N/n) of all N, so the shards, read\n"
      "in order, have the records in the order of the inputs. A shard appears only when it is complete. To continue a\n"
      "split that was stopped, start the same command again. Shards have names such as NAME-00000-of-00016.tfrecord,\n"
      "or .tfrecord.gz if they are compressed.");
  add_files(command, "IN", args.inputs, "TFRecord files, plain, gzip or zlib; their order matters")->required();
  add_option(command, "--out DIR", args.out, "folder to write to; it is created if it does not exist");
  CLI::Option* shards =
      add_number(command, "--shards N", args.options.shards, whole_number(1, most_shards), "number of shards");
  add_size(command, "--shard-size", args.options.shard_bytes,
           "approximate size of a shard, such as 150MB; this sets the number of shards")
      ->excludes(shards);
  add_option(command, "--name NAME", args.options.name,
             "the part of the shard names before -00000-of-00016 (default: from the name of the first input)");
  add_choice<bool>(command, "--compression", args.options.gzip, {{"none", false}, {"gzip", true}},
                   "compression of the shards: none or gzip (default: none)")
      ->option_text("C");
  command.add_flag("--skip-bad", args.options.skip_bad,
                   "leave out bad records and list them (default: fail before anything is written)");
  add_record_limit(command, args.options.record_limit);
  CLI::Option* shuffle = command.add_flag(
      "--shuffle", args.options.shuffle,
      "write the records in a uniformly random order; needs as much additional disk space as the data takes (default: "
      "in order)");
  add_number(command, "--seed S", args.options.seed, whole_number(0),
             "seed of the random order; the same inputs and seed give the same order (default: 0)")
      ->needs(shuffle);
  add_size(command, "--memory", args.memory,
           "largest amount of memory that --shuffle uses (default: 1GiB, or a quarter of the memory that this process "
           "may use if that is less)");
  add_number(command, "--readers R", args.readers, whole_number(1, 1'000'000),
             "for the advice: how many files all ranks together read at the same time (default: 1)");
  command.add_flag("--advise", args.advise,
                   "write nothing; print how many shards of the inputs' compression suit the number of --readers");
  command.add_flag("--json", args.json, "print the result as JSON");
}

}  // namespace feedline::tool
