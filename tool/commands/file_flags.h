// The arguments that name TFRecord files on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tool/common/files.h"

namespace feedline::tool {

/// Adds an option or positional argument that takes names of TFRecord files. A pattern such as `data/*` also matches
/// index files, which are left out (unless nothing else is named).
CLI::Option* add_files(CLI::App& command, const std::string& name, std::vector<std::string>& files,
                       const std::string& help);
/// Adds FILE..., --compression and --record-limit.
void add_file_args(CLI::App& command, FileArgs& args);
/// Adds --compression.
void add_compression(CLI::App& command, Compression& compression);
/// Adds --record-limit: a record with a payload of more bytes is an error.
void add_record_limit(CLI::App& command, uint64_t& limit);

}  // namespace feedline::tool
