// The arguments that name TFRecord files on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tool/common/files.h"

namespace feedline::cli {

/// Adds an option or positional argument that takes names of TFRecord files. A pattern such as `data/*` also matches
/// index files, which are left out (unless nothing else is named).
CLI::Option* add_files(CLI::App& command, const std::string& name, std::vector<std::string>& files,
                       const std::string& help);
/// Adds FILE... and --compression.
void add_file_args(CLI::App& command, FileArgs& args);
/// Adds --compression.
void add_compression(CLI::App& command, Compression& compression);

}  // namespace feedline::cli
