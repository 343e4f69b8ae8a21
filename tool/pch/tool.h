// The large headers of the tool's commands, precompiled once. A file still includes what it uses itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
