// feedline convert: converts data of other forms into TFRecord shards.
#include "tool/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "base/byte_size.h"
#include "tool/commands/commands.h"
#include "tool/common/flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/shard_names.h"
#include "tool/common/terminal.h"

namespace feedline::cli {
namespace {

constexpr size_t told_left_out = 20;

struct Args {
  std::vector<std::string> inputs, features, types;
  std::string out, shard_size = "100MB";
  bool json = false;
};

/// Splits NAME=VALUE. Throws UsageError for anything else.
std::pair<std::string, std::string> parted(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    throw UsageError(fmt::format("{} {}: write NAME=VALUE", flag, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// Returns the features that --feature NAME=VALUE and the inputs give, each with its path. Throws UsageError if a name
/// appears twice.
std::vector<std::pair<std::string, std::string>> features_of(const Args& args) {
  std::vector<std::pair<std::string, std::string>> features;
  for (const std::string& file : args.inputs) features.emplace_back(std::filesystem::path(file).stem().string(), file);
  for (const std::string& text : args.features) features.push_back(parted("--feature", text));
  std::set<std::string> names;
  for (const auto& [name, value] : features)
    if (!names.insert(name).second) throw UsageError(fmt::format("two features are called {}", name));
  return features;
}

void print_for_people(const Args& args, const Converted& result) {
  for (size_t i = 0; i < result.left_out.size(); i++) {
    if (i == told_left_out) {
      fmt::print(stderr, "feedline: left out: {} more; --json lists all\n",
                 format_count(result.left_out.size() - told_left_out));
      break;
    }
    fmt::print(stderr, "feedline: left out: {}\n", result.left_out[i]);
  }
  for (const Converted::Set& set : result.sets)
    fmt::print("{}, {}, in {}/{}\n", format_count(set.records, "record"), format_byte_size(set.payload_bytes), args.out,
               shard_pattern(set.name, set.shards.size()));
  fmt::print("\n{0}/pipeline.textproto, for feedline check {0}/pipeline.textproto:\n\n{1}", args.out, result.pipeline);
}

Json to_json(const Args& args, const Converted& result) {
  Json sets = Json::array();
  for (const Converted::Set& set : result.sets)
    sets.push_back(
        {{"name", set.name}, {"records", set.records}, {"payload_bytes", set.payload_bytes}, {"shards", set.shards}});
  return {{"out", args.out}, {"sets", std::move(sets)}, {"left_out", result.left_out}, {"pipeline", result.pipeline}};
}

/// Returns the function that runs a converter: it parses the options that all converters have, and prints the result.
template <typename Convert>
Run converting(const std::shared_ptr<Args>& args, Convert convert) {
  return [args, convert] {
    ConvertTarget target{.folder = args->out};
    try {
      target.shard_bytes = parse_byte_size(args->shard_size);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--shard-size: {}", error.message()));
    }
    if (target.shard_bytes == 0) throw UsageError("--shard-size: 0 bytes hold nothing");
    const Interrupt interrupt;
    const Converted result = convert(*args, target);
    if (args->json)
      print_document(to_json(*args, result));
    else
      print_for_people(*args, result);
    return 0;
  };
}

template <typename Convert>
CLI::App* add_converter(CLI::App& convert, Run& run, const std::shared_ptr<Args>& args, const std::string& name,
                        const std::string& help, Convert function) {
  CLI::App* command = convert.add_subcommand(name, help);
  command
      ->add_option("--out", args->out,
                   "folder to write to; made where it is missing; files of the same names are replaced")
      ->required()
      ->option_text("DIR");
  command->add_option("--shard-size", args->shard_size, "about this much in each file (default: 100MB)")
      ->option_text("SIZE");
  command->add_flag("--json", args->json, "print the result as JSON");
  command->callback([args, &run, function] { run = converting(args, function); });
  return command;
}

Kind kind_of(const std::string& flag, const std::string& word) {
  for (const auto& [name, kind] :
       {std::pair{"int64", Kind::int64_list}, {"float32", Kind::float_list}, {"bytes", Kind::bytes_list}})
    if (word == name) return kind;
  throw UsageError(fmt::format("{}: '{}' is not a type; write int64, float32 or bytes", flag, word));
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  CLI::App* convert = app.add_subcommand(
      "convert", "make TFRecord shards and a pipeline for them from CIFAR-10, pictures, .npy or CSV");
  convert->require_subcommand(1);
  convert->footer(
      "Shards and pipeline.textproto lie in --out; `feedline split` shuffles, and makes more or fewer of them.");
  const auto args = std::make_shared<Args>();

  CLI::App* cifar10 = add_converter(
      *convert, run, args, "cifar10",
      "CIFAR-10's archive, \"python version\" or \"binary version\": train, validation, eval",
      [](const Args& a, const ConvertTarget& target) { return convert_cifar10(a.inputs.front(), target); });
  cifar10->add_option("TAR", args->inputs, "cifar-10-python.tar.gz or cifar-10-binary.tar.gz")
      ->required()
      ->expected(1)
      ->option_text(" ");

  CLI::App* images = add_converter(*convert, run, args, "images", "JPEG and PNG files as they are, by folders",
                                   [](const Args& a, const ConvertTarget& target) {
                                     if (a.inputs.empty() == a.features.empty())
                                       throw UsageError("name one DIR, or folders by --feature NAME=DIR");
                                     return a.features.empty() ? convert_image_classes(a.inputs.front(), target)
                                                               : convert_image_sets(features_of(a), target);
                                   });
  images->add_option("DIR", args->inputs, "a folder that holds one for each class: `image`, `label`, and labels.txt")
      ->expected(1)
      ->option_text(" ");
  images
      ->add_option("--feature", args->features,
                   "instead: pictures of the same relative path in several folders are one record; several times")
      ->option_text("NAME=DIR")
      ->take_all()
      ->allow_extra_args(false);

  CLI::App* npy = add_converter(*convert, run, args, "npy", "NumPy arrays: rows become records",
                                [](const Args& a, const ConvertTarget& target) {
                                  const auto features = features_of(a);
                                  if (features.empty()) throw UsageError("name a FILE, or --feature NAME=FILE");
                                  return convert_npy(features, target);
                                });
  npy->add_option("FILE", args->inputs, ".npy files, each a feature that is called as the file")->option_text("...");
  npy->add_option("--feature", args->features, "a feature of another name than its file; several times")
      ->option_text("NAME=FILE")
      ->take_all()
      ->allow_extra_args(false);
  npy->footer(
      "int64 and float32 stay, float64 is rounded to float32; bool, int8 to int32, uint8 to uint32 and float16 are "
      "stored\n"
      "as their bytes, and the pipeline says how to read them.");

  CLI::App* csv = add_converter(*convert, run, args, "csv", "a table whose first row names the features",
                                [](const Args& a, const ConvertTarget& target) {
                                  std::map<std::string, Kind> types;
                                  for (const std::string& text : a.types) {
                                    const auto [name, word] = parted("--type", text);
                                    types[name] = kind_of("--type " + text, word);
                                  }
                                  return convert_csv(a.inputs.front(), types, target);
                                });
  csv->add_option("FILE", args->inputs, "by RFC 4180: commas, cells in double quotes where need be")
      ->required()
      ->expected(1)
      ->option_text(" ");
  csv->add_option("--type", args->types,
                  "of a column: int64, float32 or bytes (default: as all its cells allow); several times")
      ->option_text("NAME=TYPE")
      ->take_all()
      ->allow_extra_args(false);
  csv->footer(
      "A column of whole numbers is int64, one of numbers float32, any other bytes. Numbers that begin with 0, as 007, "
      "and\n"
      "whole ones beyond int64 are text. An empty cell is a missing feature; \"\" is an empty text.");
}

}  // namespace feedline::cli
