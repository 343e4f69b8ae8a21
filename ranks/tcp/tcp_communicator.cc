#include "feedline/tcp_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "ranks/process/linked_communicator.h"
#include "ranks/tcp/tcp_links.h"
#include "ranks/tcp/tcp_rendezvous.h"

namespace feedline {
namespace {

constexpr int most_ranks = 1 << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value)
    throw Error(Category::bad_pipeline,
                fmt::format("{} is not set; start the ranks with torchrun, or set MASTER_ADDR, MASTER_PORT, RANK and "
                            "WORLD_SIZE",
                            name));
  return value;
}

int number(const char* name, int from, int to) {
  const std::string text = variable(name);
  const auto value = parse_number<int>(text);
  if (!value || *value < from || *value > to)
    throw Error(Category::bad_pipeline,
                fmt::format("{} is \"{}\"; set it to a number from {} to {}", name, text, from, to));
  return *value;
}

void check(const TcpOptions& options) {
  if (options.rank < 0 || options.rank >= options.world_size)
    throw Error(Category::bad_pipeline,
                fmt::format("tcp_communicator: there is no rank {} in a world of {} ranks; ranks are numbered from 0 "
                            "to world_size - 1",
                            options.rank, options.world_size));
  if (options.world_size > most_ranks)
    throw Error(Category::bad_pipeline, fmt::format("tcp_communicator: the world size is {}, but TCP can connect at "
                                                    "most {} ranks",
                                                    options.world_size, most_ranks));
  if (options.timeout <= std::chrono::milliseconds(0))
    throw Error(Category::bad_pipeline,
                fmt::format("tcp_communicator: the timeout is {} ms; it must be more than 0", options.timeout.count()));
  constexpr size_t least = 16;
  if (!options.token.empty() && options.token.size() < least)
    throw Error(
        Category::bad_pipeline,
        fmt::format("the secret of the ranks (FEEDLINE_MEET_TOKEN) has only {} bytes, so it can be guessed; make a "
                    "secret of {} bytes or more with `openssl rand -hex 16`",
                    options.token.size(), least));
}

}  // namespace

TcpOptions tcp_options_of_environment() {
  TcpOptions options;
  options.world_size = number("WORLD_SIZE", 1, most_ranks);
  options.rank = number("RANK", 0, options.world_size - 1);
  options.address = variable("MASTER_ADDR");
  const char* const here = std::getenv("LOCAL_WORLD_SIZE");
  if (here && here == std::to_string(options.world_size)) options.address = "localhost";
  options.port = static_cast<uint16_t>(number("MASTER_PORT", 1, 65534) + 1);
  return options;
}

std::unique_ptr<Communicator> tcp_communicator(const TcpOptions& given, const Exchange& exchange) {
  std::unique_ptr<Communicator> made;
  TcpOptions options = given;
  const char* const token = std::getenv("FEEDLINE_MEET_TOKEN");
  if (exchange)
    options.token.clear();  // rank 0 makes a secret
  else if (token && options.token.empty())
    options.token = token;
  // Holds the program's exchange by reference, because a copy might have its own state, such as a count of its calls.
  RankGroup ranks(exchange ? Exchange(std::cref(exchange)) : Exchange(), options.rank, options.world_size);
  ranks.run([&] {
    check(options);
    options.timeout = std::min<std::chrono::milliseconds>(options.timeout, std::chrono::hours(24 * 365));
    if (options.world_size > 1 && !exchange && (options.address.empty() || options.port == 0))
      throw Error(Category::bad_pipeline,
                  "tcp_communicator: the address or the port is missing; set both to those at which rank 0 listens");
    std::vector<ranks::TcpPeer> peers(1);
    if (options.world_size > 1) peers = ranks::meet(options, exchange ? &ranks : nullptr);
    made = ranks::linked_communicator(ranks::tcp_links(options.rank, std::move(peers)), options.timeout);
  });
  return made;
}

}  // namespace feedline
