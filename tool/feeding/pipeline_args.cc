#include "tool/feeding/pipeline_args.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "base/parse.h"
#include "feedline/tcp_communicator.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/common/text_file.h"
#include "tool/common/usage_error.h"

namespace feedline::tool {
namespace {

/// Returns the options for connecting to the other ranks. Throws UsageError if --meet does not have the form
/// ADDRESS:PORT.
TcpOptions meeting(const PipelineArgs& args) {
  TcpOptions options{.rank = args.rank, .world_size = args.world_size, .open = args.meet_open};
  const auto [host, port] = split_host_and_port(args.meet);
  options.address = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), options.port);
  const bool is_number = !port.empty() && end == port.data() + port.size() && error != std::errc::invalid_argument;
  if (options.address.empty() || !is_number)
    throw UsageError(
        fmt::format("--meet: '{}' does not have the form ADDRESS:PORT, for example node0:29501", args.meet));
  if (error != std::errc() || options.port == 0)
    throw UsageError(fmt::format("--meet: the port of '{}' is not from 1 to 65535", args.meet));
  return options;
}

}  // namespace

Pipeline load(const PipelineArgs& args) {
  if (args.rank >= args.world_size)
    throw UsageError(fmt::format("--rank {} must be less than --world-size {}; ranks are 0 to {}", args.rank,
                                 args.world_size, args.world_size - 1));
  if (!args.meet.empty()) meeting(args);  // only to throw UsageError before files are read
  Pipeline pipeline = load_pipeline(args.texts.front());
  for (size_t i = 1; i < args.texts.size(); i++) pipeline = pipeline.overlaid(read_text(args.texts[i]), args.texts[i]);
  for (const std::string& assignment : args.set) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--set: '{}' does not have the form PATH=VALUE", assignment));
    try {
      pipeline = pipeline.with(assignment.substr(0, equals), assignment.substr(equals + 1));
    } catch (const Error& error) {
      throw UsageError(fmt::format("--set {}: {}", assignment, error.message()));
    }
  }
  return pipeline;
}

Options feeder_options(const PipelineArgs& args) {
  Options options;
  options.rank = args.rank;
  options.world_size = args.world_size;
  try {
    options.devices = parse_devices(args.devices.empty() ? fmt::format("host:{}", args.replicas) : args.devices);
  } catch (const Error& error) {
    if (error.category() != Category::bad_pipeline) throw;
    throw UsageError(fmt::format("--{}", error.message()));
  }
  options.on_progress = [progress = std::make_shared<Progress>("counting", 0)](uint64_t done, uint64_t total) {
    Interrupt::check();
    done < total ? progress->set(done, total) : progress->done();
  };
  if (!args.meet.empty()) options.communicator = tcp_communicator(meeting(args));
  return options;
}

void compare_flags(const Options& options, const std::vector<std::string>& flags) {
  if (!options.communicator) return;
  const Exchange exchange = exchange_over(options.communicator);
  for (const std::string& mine : flags) {
    const std::vector<std::string> all = exchange(mine);
    for (size_t rank = 1; rank < all.size(); rank++)
      if (all[rank] != all[0])
        throw Error(Category::bad_pipeline,
                    fmt::format("rank {} has {}, but rank 0 has {}; start all ranks with the same command, options and "
                                "state",
                                rank, all[rank], all[0]));
  }
}

void print_warnings(const Feeder& feeder) {
  for (const std::string& warning : feeder.warnings()) print_error("warning: {}", warning);
}

}  // namespace feedline::tool
