// feedline convert: converts data of other forms into TFRecord shards.
#include "tool/convert/convert.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/absolute_path.h"
#include "base/byte_size.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

constexpr size_t told_left_out = 20;  // without --json: how many left-out files are named at most
constexpr int64_t most_decoded_pixels = (int64_t{255} << 20) / 3;  // 3 bytes each; a record has at most 256 MiB

struct ConvertArgs {
  std::vector<std::string> inputs, features, types;
  std::vector<int64_t> decode_to;  // height and width; empty: files are stored as they are
  std::optional<char> delimiter;
  ConvertTarget target;
  bool json = false;
};

/// Splits NAME=VALUE. If the text has a different form, throws UsageError, which names `flag`.
std::pair<std::string, std::string> parted(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    throw UsageError(fmt::format("{}: '{}' does not have the form NAME=VALUE", flag, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// Returns a feature, as its name and path, for each input and for each --feature NAME=VALUE. The feature of an input
/// has the name of the file, without its extension. Throws UsageError if two features have the same name.
std::vector<std::pair<std::string, std::string>> features_of(const ConvertArgs& args) {
  std::vector<std::pair<std::string, std::string>> features;
  for (const std::string& file : args.inputs) features.emplace_back(std::filesystem::path(file).stem().string(), file);
  for (const std::string& text : args.features) features.push_back(parted("--feature", text));
  std::set<std::string> names;
  for (const auto& [name, value] : features)
    if (!names.insert(name).second)
      throw UsageError(fmt::format("two features have the name '{}'; rename one with --feature NAME=PATH", name));
  return features;
}

/// Returns the size of --decode. Throws UsageError if a record cannot hold its pixels.
std::optional<pictures::Size> decode_to(const ConvertArgs& args) {
  if (args.decode_to.empty()) return std::nullopt;
  const int64_t height = args.decode_to[0], width = args.decode_to[1];
  if (height * width > most_decoded_pixels)
    throw UsageError(fmt::format("--decode {} {}: a record holds at most {} pixels; use a smaller size", height, width,
                                 format_count(most_decoded_pixels)));
  return pictures::Size{height, width};
}

void print_converted(const ConvertArgs& args, const Converted& result) {
  for (size_t i = 0; i < result.left_out.size(); i++) {
    if (i == told_left_out) {
      print_error("left out: {} more; --json lists all", format_count(result.left_out.size() - told_left_out));
      break;
    }
    print_error("left out: {}", result.left_out[i]);
  }
  for (const Converted::Set& set : result.sets)
    print_line("{}, {}, in {}/{}", format_count(set.records, "record"), format_byte_size(set.payload_bytes),
               args.target.folder, set.pattern());
  fmt::print("\nCheck the pipeline with `feedline check {}`:\n\n{}",
             shell_word(args.target.folder + "/pipeline.textproto"), result.pipeline);
}

Json converted_json(const ConvertArgs& args, const Converted& result) {
  Json sets = Json::array();
  for (const Converted::Set& set : result.sets)
    sets.push_back(
        {{"name", set.name}, {"records", set.records}, {"payload_bytes", set.payload_bytes}, {"shards", set.shards}});
  return {{"out", args.target.folder},
          {"sets", std::move(sets)},
          {"left_out", result.left_out},
          {"pipeline", result.pipeline}};
}

using Convert = Converted (*)(const ConvertArgs& args);

/// Runs a converter and prints the result.
int run_converter(const ConvertArgs& args, Convert convert) {
  const Interrupt interrupt;
  const Converted result = convert(args);
  if (args.json)
    print_document(converted_json(args, result));
  else
    print_converted(args, result);
  return 0;
}

/// Adds the subcommand of a converter, with the flags that all converters have.
CLI::App* add_converter(CLI::App& app, Run& run, const std::shared_ptr<ConvertArgs>& args, const std::string& name,
                        const std::string& help, Convert convert) {
  CLI::App* command = app.add_subcommand(name, help);
  add_option(*command, "--out DIR", args->target.folder,
             "folder to write to; it is created if it does not exist; existing files with the same names are replaced "
             "together, after all new files are complete")
      ->required();
  add_size(*command, "--shard-size", args->target.shard_bytes, "approximate size of each shard (default: 100MB)");
  command->add_flag("--json", args->json, "print the result as JSON");
  command->callback([args, &run, convert] { run = [args, convert] { return run_converter(*args, convert); }; });
  return command;
}

/// Returns the kind of values for the type that --type NAME=TYPE gives: `word` is int64, float32 or bytes. Throws
/// UsageError, which names `flag`, for any other word.
Kind kind_of(const std::string& flag, const std::string& word) {
  for (const auto& [name, kind] :
       {std::pair{"int64", Kind::int64_list}, {"float32", Kind::float_list}, {"bytes", Kind::bytes_list}})
    if (word == name) return kind;
  throw UsageError(fmt::format("{}: '{}' is not a type; write int64, float32 or bytes", flag, word));
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  CLI::App* convert = app.add_subcommand(
      "convert", "make TFRecord shards and a pipeline for them from CIFAR-10, pictures, .npy, CSV or WebDataset");
  convert->require_subcommand(1);
  convert->footer(
      "The shards and pipeline.textproto are written to --out. `feedline split` makes more, fewer or shuffled shards.");
  const auto args = std::make_shared<ConvertArgs>();

  CLI::App* cifar10 =
      add_converter(*convert, run, args, "cifar10",
                    "the archive of CIFAR-10 in its \"binary version\"; writes the sets train, validation and eval",
                    [](const ConvertArgs& a) { return convert_cifar10(a.inputs.front(), a.target); });
  cifar10->add_option("TAR", args->inputs, "cifar-10-binary.tar.gz")->required()->expected(1)->option_text(" ");

  CLI::App* images =
      add_converter(*convert, run, args, "images", "JPEG and PNG files, with one folder for each class or feature",
                    [](const ConvertArgs& a) {
                      if (a.inputs.empty() == a.features.empty())
                        throw UsageError("give either one DIR, or one or more --feature NAME=DIR, but not both");
                      return a.features.empty() ? convert_image_classes(a.inputs.front(), decode_to(a), a.target)
                                                : convert_image_sets(features_of(a), decode_to(a), a.target);
                    });
  images
      ->add_option("DIR", args->inputs,
                   "a folder that holds one folder for each class; records have `image` and `label`; labels.txt names "
                   "the labels")
      ->expected(1)
      ->option_text(" ");
  add_option(*images, "--feature NAME=DIR", args->features,
             "instead of DIR: the pictures in this folder become the feature NAME, and pictures with the same "
             "relative path in all folders become one record; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  add_option(
      *images, "--decode HEIGHT WIDTH", args->decode_to,
      "store decoded pixels instead of files, as uint8 [HEIGHT, WIDTH, 3]; pictures are turned as their EXIF data "
      "says, and resized with antialiasing (default: files are stored as they are)")
      ->expected(2)
      ->check(whole_number(1, 65535));

  CLI::App* npy =
      add_converter(*convert, run, args, "npy", "NumPy arrays; each row becomes a record", [](const ConvertArgs& a) {
        const auto features = features_of(a);
        if (features.empty()) throw UsageError("no input is given; name a FILE, or use --feature NAME=FILE");
        return convert_npy(features, a.target);
      });
  add_option(*npy, "FILE ...", args->inputs, ".npy files; each becomes a feature with the name of its file");
  add_option(*npy, "--feature NAME=FILE", args->features, "the array in FILE becomes the feature NAME; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  npy->footer(
      "int64 and float32 are kept, and float64 is rounded to float32. bool, int8 to int32, uint8 to uint32 and\n"
      "float16 are stored as their bytes, and the pipeline says how to read them.");

  CLI::App* csv =
      add_converter(*convert, run, args, "csv", "a table whose first row names the features", [](const ConvertArgs& a) {
        std::map<std::string, Kind> types;
        for (const std::string& text : a.types) {
          const auto [name, word] = parted("--type", text);
          types[name] = kind_of("--type " + text, word);
        }
        return convert_csv(a.inputs.front(), types, a.delimiter, a.target);
      });
  csv->add_option("FILE", args->inputs,
                  "a table in the format of RFC 4180: commas (or --delimiter) between cells; cells may be in double "
                  "quotes")
      ->required()
      ->expected(1)
      ->option_text(" ");
  add_option(*csv, "--type NAME=TYPE", args->types,
             "type of the column NAME: int64, float32 or bytes (default: the first of these that can hold all "
             "cells of the column); may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  add_choice<std::optional<char>>(*csv, "--delimiter", args->delimiter,
                                  {{"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}},
                                  "character between the cells: comma, semicolon or tab (default: comma)")
      ->option_text("D");
  csv->footer(
      "A column of whole numbers is int64, a column of other numbers is float32, and any other column is bytes. "
      "Numbers\n"
      "that begin with 0, such as 007, and whole numbers beyond int64 are text. An empty cell is a missing feature;\n"
      "\"\" is an empty text.");

  CLI::App* webdataset = add_converter(*convert, run, args, "webdataset",
                                       "shards of WebDataset; each extension of a sample's files becomes a feature",
                                       [](const ConvertArgs& a) { return convert_webdataset(a.inputs, a.target); });
  add_option(*webdataset, "TAR ...", args->inputs, "tar archives, compressed by gzip or not")->required();
  webdataset->footer(
      "Files are stored as they are. cls, cls2, class, count, index, inx and id are int64 if all of their files are\n"
      "numbers. `__key__` is the path of a sample without the extension. If some samples lack an extension, their\n"
      "records lack the feature of this extension.");
}

}  // namespace feedline::tool
