#include "tool/commands/file_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/byte_size.h"
#include "io/index/index_store.h"
#include "tool/commands/flags.h"

namespace feedline::tool {

void add_compression(CLI::App& command, Compression& compression) {
  add_choice<Compression>(command, "--compression", compression,
                          {{"auto", Compression::automatic},
                           {"none", Compression::none},
                           {"gzip", Compression::gzip},
                           {"zlib", Compression::zlib}},
                          "compression of the files: auto, none, gzip or zlib; auto detects it from the content "
                          "(default: auto)")
      ->option_text("C");
}

CLI::Option* add_files(CLI::App& command, const std::string& name, std::vector<std::string>& files,
                       const std::string& help) {
  const auto choose = [&files](const std::vector<std::string>& given) {
    std::copy_if(given.begin(), given.end(), std::back_inserter(files),
                 [](const std::string& file) { return !io::is_byproduct_name(file); });
    if (files.empty()) files = given;
  };
  return command
      .add_option_function<std::vector<std::string>>(name, choose,
                                                     help + "; indexes and unfinished files among them are left out")
      ->option_text("...");
}

void add_record_limit(CLI::App& command, uint64_t& limit) {
  add_size(command, "--record-limit", limit,
           fmt::format("largest size of a record; a longer record is an error, as with a pipeline's record_limit "
                       "(default: {})",
                       format_byte_size(limit)),
           1, UINT32_MAX);
}

void add_file_args(CLI::App& command, FileArgs& args) {
  add_files(command, "FILE", args.files, "TFRecord files")->required();
  add_compression(command, args.compression);
  add_record_limit(command, args.record_limit);
}

}  // namespace feedline::tool
