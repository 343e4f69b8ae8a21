#include "gpu/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "base/audit.h"
#include "feedline/error.h"

namespace feedline::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds patience(5);  // with one process

// What is sent, as it lies in memory.
constexpr uint64_t magic = hash64("feedline ranks, 1");

struct Hello {
  uint64_t begins = magic;
  int32_t rank = 0, world_size = 0;
  uint16_t port = 0;
  std::array<char, 6> zero{};
};
struct Welcome {
  uint64_t begins = magic;
  uint64_t token = 0;
  std::array<char, 512> refused{};  // why, or empty; then the addresses of all ranks follow
};
struct Join {
  uint64_t begins = magic;
  uint64_t token = 0;
  int32_t rank = 0;
  enum Use : uint32_t { data, notes } use = data;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// None: not one of ours.
template <typename T>
std::optional<T> read(const Socket& from, Deadline until) {
  T message;
  try {
    receive_all(from, std::as_writable_bytes(std::span(&message, 1)), std::min(until, Clock::now() + patience));
  } catch (const Error&) {
    return std::nullopt;
  }
  return message.begins == magic ? std::optional(message) : std::nullopt;
}

Error too_late(const TcpOptions& options, const std::string& who) {
  return Error(Category::stalled,
               fmt::format("{} within {} s; see that all ranks are started with the same address, port and world size, "
                           "and that no firewall is between them",
                           who, std::chrono::duration<double>(options.start_timeout).count()));
}

std::string place_of(const TcpOptions& options) { return fmt::format("{}:{}", options.address, options.port); }

struct Group {
  uint64_t token = 0;
  std::vector<Address> listening;  // by rank
};

// Rank 0: takes in all others.
class Host {
 public:
  Host(const TcpOptions& options, Deadline until) : options_(options), until_(until), listener_(listen()) {
    group_.token = std::random_device()() | uint64_t{std::random_device()()} << 32;
    group_.listening.resize(static_cast<size_t>(options.world_size));
  }

  Group take_in() {
    try {
      for (int missing = options_.world_size - 1; missing > 0; missing--) take_one();
    } catch (const Error& error) {
      answer(error.message());
      throw;
    }
    answer("");
    return group_;
  }
  const Socket& listener() const noexcept { return listener_; }

 private:
  // Where that is not an address of this machine's own, as behind a translation of addresses, at all that it has.
  Socket listen() {
    const std::vector<Address> addresses = resolve(options_.address, options_.port);
    for (const Address& address : addresses) try {
        return listen_at(address);
      } catch (const Error&) {
      }
    Address any = any_address(addresses.front().storage.ss_family);
    any.set_port(options_.port);
    return listen_at(any);
  }

  void take_one() {
    for (;;) {
      auto come = accept_from(listener_, until_);
      if (!come)
        throw too_late(options_,
                       fmt::format("ranks {} have not come to {}", fmt::join(missing(), ", "), place_of(options_)));
      const auto hello = read<Hello>(come->first, until_);
      if (!hello) continue;
      came_.push_back(std::move(come->first));
      if (hello->world_size != options_.world_size || hello->rank < 1 || hello->rank >= options_.world_size)
        throw Error(Category::bad_pipeline,
                    fmt::format("rank {} of {} came to {}, where rank 0 waits for {} ranks", hello->rank,
                                hello->world_size, place_of(options_), options_.world_size));
      Address& address = group_.listening[static_cast<size_t>(hello->rank)];
      if (address.size > 0)
        throw Error(Category::bad_pipeline, fmt::format("two processes came as rank {}", hello->rank));
      address = come->second;
      address.set_port(hello->port);
      return;
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; rank++)
      if (group_.listening[static_cast<size_t>(rank)].size == 0) ranks.push_back(rank);
    return ranks;
  }

  void answer(const std::string& refused) {
    Welcome welcome{.token = group_.token};
    refused.copy(welcome.refused.data(), welcome.refused.size() - 1);
    for (const Socket& socket : came_) {
      try {
        send_all(socket, bytes_of(welcome), until_);
        if (refused.empty()) send_all(socket, std::as_bytes(std::span(group_.listening)), until_);
      } catch (const Error&) {
        if (refused.empty()) throw;  // else it has gone, as all will
      }
    }
  }

  const TcpOptions& options_;
  const Deadline until_;
  const Socket listener_;
  Group group_;
  std::vector<Socket> came_;
};

// Rank 0 may come later than this one, and so may its name.
Socket reach_host(const TcpOptions& options, Deadline until) {
  for (;;) {
    try {
      for (const Address& address : resolve(options.address, options.port)) try {
          return connect_to(address, std::min(until, Clock::now() + patience));
        } catch (const Error&) {
        }
    } catch (const Error&) {
    }
    if (Clock::now() > until) throw too_late(options, fmt::format("rank 0 was not met at {}", place_of(options)));
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// The others: the group, and where rank 0 is.
Group come_to_host(const TcpOptions& options, const Socket& host, uint16_t port, Deadline until) {
  send_all(host, bytes_of(Hello{.rank = options.rank, .world_size = options.world_size, .port = port}), until);
  until += patience;  // rank 0 says who has not come when its own time is over
  Welcome welcome;
  Group group;
  group.listening.resize(static_cast<size_t>(options.world_size));
  try {
    receive_all(host, std::as_writable_bytes(std::span(&welcome, 1)), until);
    if (welcome.begins != magic)
      throw Error(Category::bad_pipeline, fmt::format("at {} is something else than rank 0", place_of(options)));
    welcome.refused.back() = 0;
    if (welcome.refused[0]) throw Error(Category::stalled, fmt::format("rank 0: {}", welcome.refused.data()));
    receive_all(host, std::as_writable_bytes(std::span(group.listening)), until);
  } catch (const Error& error) {
    if (error.category() != Category::io_error) throw;
    throw Error(Category::io_error,
                fmt::format("rank 0 at {} has ended, or something else is there ({}); where a launcher "
                            "listens at that port, choose another",
                            place_of(options), error.message()));
  }
  group.token = welcome.token;
  return group;
}

class Connections {
 public:
  Connections(const TcpOptions& options, const Group& group)
      : options_(options), group_(group), until_(Clock::now() + options.timeout), peers_(group.listening.size()) {}

  std::vector<TcpPeer> make(const Socket& listener) {
    for (int rank = 0; rank < options_.rank; rank++) {
      TcpPeer& peer = peers_[static_cast<size_t>(rank)];
      peer.data = join(rank, Join::data);
      peer.notes = join(rank, Join::notes);
    }
    for (int missing = 2 * (options_.world_size - 1 - options_.rank); missing > 0; missing--) let_join(listener);
    return std::move(peers_);
  }

 private:
  Socket join(int rank, Join::Use use) {
    Socket socket = connect_to(group_.listening[static_cast<size_t>(rank)], until_);
    send_all(socket, bytes_of(Join{.token = group_.token, .rank = options_.rank, .use = use}), until_);
    return socket;
  }

  void let_join(const Socket& listener) {
    for (;;) {
      auto come = accept_from(listener, until_);
      if (!come)
        throw Error(Category::stalled,
                    fmt::format("of {} ranks that had come not all have connected within {} s", options_.world_size,
                                std::chrono::duration<double>(options_.timeout).count()));
      const auto join = read<Join>(come->first, until_);
      if (!join || join->token != group_.token || join->rank <= options_.rank || join->rank >= options_.world_size)
        continue;
      TcpPeer& peer = peers_[static_cast<size_t>(join->rank)];
      (join->use == Join::data ? peer.data : peer.notes) = std::move(come->first);
      return;
    }
  }

  const TcpOptions& options_;
  const Group& group_;
  const Deadline until_;
  std::vector<TcpPeer> peers_;
};

}  // namespace

std::vector<TcpPeer> meet(const TcpOptions& options) {
  const Deadline until = Clock::now() + options.start_timeout;
  if (options.rank == 0) {
    Host host(options, until);
    const Group group = host.take_in();
    return Connections(options, group).make(host.listener());
  }
  const Socket host = reach_host(options, until);
  const Socket listener = listen_at(any_address(address_of(host).storage.ss_family));
  Group group = come_to_host(options, host, address_of(listener).port(), until);
  group.listening[0] = peer_of(host);
  return Connections(options, group).make(listener);
}

}  // namespace feedline::gpu
