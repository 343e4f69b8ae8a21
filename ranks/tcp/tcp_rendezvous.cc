#include "ranks/tcp/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <stop_token>
#include <thread>

#include "base/audit.h"
#include "base/log.h"
#include "base/rank_message.h"
#include "feedline/error.h"

namespace feedline::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look(50);             // how often a rank looks for rank 0, and whether its start was stopped
constexpr std::chrono::seconds patience(5);  // the time limit of an operation with one process, such as a connect

// The messages, which are sent as raw bytes. Each begins with a magic number that says which message it is.
struct Hello {
  uint64_t begins = hash64("feedline ranks 1: hello");
  int32_t rank = 0, world_size = 0;
  uint16_t port = 0;
  std::array<char, 6> zero{};
};
struct Welcome {
  uint64_t begins = hash64("feedline ranks 1: welcome");
  uint64_t token = 0;
  std::array<char, 512> refused{};  // why rank 0 forms no group; empty: the start continues
};
struct Join {
  uint64_t begins = hash64("feedline ranks 1: join");
  uint64_t token = 0;
  int32_t rank = 0;
  enum Use : uint32_t { data, notes } use = data;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

constexpr auto connected = std::byte{1};  // what a rank sends to rank 0 when it has all its connections

// Accepts connections at a port, and receives the first message, a T, of each. It polls all connections together, so a
// process that connects and sends nothing makes no rank wait.
template <typename T>
class Lobby {
 public:
  explicit Lobby(const Socket& listener) : listener_(listener) {}

  struct Visitor {
    Socket socket;
    Address from;
    T message = {};
    size_t heard = 0;  // how many bytes of `message` have been received
  };

  /// Returns the next visitor that has sent a whole T. Returns nullopt if one of the sockets `others` has something to
  /// read, or at the time `until`.
  std::optional<Visitor> next(const std::vector<const Socket*>& others, Deadline until) {
    for (;;) {
      std::vector<pollfd> ready = {{listener_.fd(), POLLIN, 0}};
      for (const Visitor& visitor : visitors_) ready.push_back({visitor.socket.fd(), POLLIN, 0});
      for (const Socket* other : others) ready.push_back({other->fd(), POLLIN, 0});
      if (!wait_for(ready, until)) return std::nullopt;
      for (size_t v = visitors_.size(); v-- > 0;) {
        if (ready[1 + v].revents == 0 || goes_on(visitors_[v])) continue;
        Visitor visitor = std::move(visitors_[v]);
        visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(v));
        if (visitor.heard == sizeof(T) && visitor.message.begins == T{}.begins) return visitor;
      }
      if (ready[0].revents != 0)
        if (auto come = accept_from(listener_, Clock::now())) {
          if (visitors_.size() == most) visitors_.erase(visitors_.begin());
          visitors_.push_back({.socket = std::move(come->first), .from = come->second});
        }
      for (size_t other = ready.size() - others.size(); other < ready.size(); other++)
        if (ready[other].revents != 0) return std::nullopt;
    }
  }

 private:
  // Receives more of the visitor's message. Returns whether the message is still incomplete and the connection open.
  static bool goes_on(Visitor& visitor) {
    try {
      const std::span<std::byte> message = std::as_writable_bytes(std::span(&visitor.message, 1));
      const auto received = receive_some(visitor.socket, message.subspan(visitor.heard));
      visitor.heard += received.value_or(0);
      return received && visitor.heard < sizeof(T);
    } catch (const Error&) {
      return false;
    }
  }

  static constexpr size_t most = 256;  // visitors without a whole message; one more disconnects the oldest of them
  const Socket& listener_;
  std::vector<Visitor> visitors_;  // the oldest first
};

Error too_late(const TcpOptions& options, const std::string& who) {
  return Error(Category::stalled,
               fmt::format("{} within {} s; start all ranks with the same address, port and world size, and check that "
                           "no firewall is between them",
                           who, std::chrono::duration<double>(options.start_timeout).count()));
}

Error not_connected(const TcpOptions& options) {
  return Error(Category::stalled,
               fmt::format("all {} ranks came to rank 0, but not all connected to one another within {} s; check that "
                           "no firewall is between them",
                           options.world_size, std::chrono::duration<double>(options.timeout).count()));
}

/// Returns "rank 3" or "ranks 1, 3".
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Returns "have" or "has", as the number of ranks demands.
const char* have(const std::vector<int>& ranks) { return ranks.size() == 1 ? "has" : "have"; }

/// The wait for ranks to start: may be stopped, and logs what the rank waits for once it has waited for `limit`, 2 *
/// `limit`, 4 * `limit`, ...
class LongWait {
 public:
  LongWait(milliseconds limit, std::stop_token stop) : stop_(std::move(stop)), next_(limit) {}

  /// Returns until when to wait before the next call of go_on(); not after `end`.
  Deadline until(Deadline end) const {
    return std::min({end, begin_ + next_, stop_.stop_possible() ? Clock::now() + look : Deadline::max()});
  }
  /// Logs message(seconds waited) if it is time to. Throws Error stalled if the wait was stopped.
  template <typename Message>
  void go_on(Message message) {
    if (stop_.stop_requested()) throw Error(Category::stalled, "the wait for other ranks to start was stopped");
    const auto waited = Clock::now() - begin_;
    if (waited < next_) return;
    while (next_ <= waited) next_ *= 2;
    log_warning(message(std::chrono::round<std::chrono::seconds>(waited).count()));
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  const std::stop_token stop_;
  milliseconds next_;
};

std::string place_of(const TcpOptions& options) { return fmt::format("{}:{}", options.address, options.port); }

struct Group {
  uint64_t token = 0;
  std::vector<Address> listening;  // by rank; size 0: the IP address at which rank 0 was reached, with this port
};

// Receives a byte if one has arrived, and returns whether one had. Returns nullopt if the connection has ended.
std::optional<bool> word_of(const Socket& socket) {
  std::byte word;
  try {
    const auto received = receive_some(socket, {&word, 1});
    return received ? std::optional(*received > 0) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The connections of one rank with all others.
class Connections {
 public:
  Connections(const TcpOptions& options, const Group& group, const Socket& listener)
      : options_(options),
        group_(group),
        until_(Clock::now() + options.timeout),
        lobby_(listener),
        missing_(2 * (options.world_size - 1 - options.rank)),
        peers_(group.listening.size()) {
    for (int rank = 0; rank < options_.rank; rank++) {
      TcpPeer& peer = peers_[static_cast<size_t>(rank)];
      peer.data = join(rank, Join::data);
      peer.notes = join(rank, Join::notes);
    }
  }

  bool complete() const noexcept { return missing_ == 0; }
  bool late() const noexcept { return Clock::now() >= until_; }
  std::vector<TcpPeer> take() { return std::move(peers_); }

  /// Waits for the next connection from a rank with a larger number. Returns false if Lobby::next() returns nullopt.
  bool let_join(const std::vector<const Socket*>& others) {
    auto visitor = lobby_.next(others, until_);
    if (!visitor) return false;
    const Join& join = visitor->message;
    if (join.token != group_.token || join.rank <= options_.rank || join.rank >= options_.world_size) return true;
    TcpPeer& peer = peers_[static_cast<size_t>(join.rank)];
    Socket& place = join.use == Join::data ? peer.data : peer.notes;
    if (!place) missing_--;
    place = std::move(visitor->socket);
    return true;
  }

 private:
  Socket join(int rank, Join::Use use) {
    try {
      const Deadline until = std::min(until_, Clock::now() + patience);
      Socket socket = connect_to(group_.listening[static_cast<size_t>(rank)], until);
      send_all(socket, bytes_of(Join{.token = group_.token, .rank = options_.rank, .use = use}), until);
      return socket;
    } catch (const Error& error) {
      throw Error(error.category(), fmt::format("rank {} cannot be reached: {}", rank, error.message()));
    }
  }

  const TcpOptions& options_;
  const Group& group_;
  const Deadline until_;
  Lobby<Join> lobby_;
  int missing_;
  std::vector<TcpPeer> peers_;
};

// Rank 0: accepts all other ranks, and waits until all of them are connected to one another.
class Host {
 public:
  Host(const TcpOptions& options, milliseconds long_wait)
      : options_(options), long_wait_(long_wait), listener_(listen_everywhere(options.port)) {
    group_.token = std::random_device()() | uint64_t{std::random_device()()} << 32;
    group_.listening.resize(static_cast<size_t>(options.world_size));
    came_.resize(group_.listening.size());
  }

  uint16_t port() const { return address_of(listener_).port(); }
  /// Returns the addresses of rank 0's machine that the other ranks should try.
  std::vector<std::string> names() const {
    return options_.address.empty() ? addresses_of_this_machine() : std::vector{options_.address};
  }

  std::vector<TcpPeer> gather(Deadline until) {
    try {
      take_in_all(until);
      answer_all(std::as_bytes(std::span(group_.listening)));
      std::vector<TcpPeer> peers = connect_all();
      listener_ = Socket();  // before the last answer: a rank that has it may at once form another group at this port
      answer_all({});
      return peers;
    } catch (const Error& error) {
      refuse_all(error.message());
      throw;
    }
  }

 private:
  void take_in_all(Deadline until) {
    Lobby<Hello> lobby(listener_);
    LongWait wait(long_wait_, options_.stop);
    while (!ranks_that(false).empty()) {
      auto visitor = lobby.next(there(), wait.until(until));
      forget_gone();
      const std::vector<int> missing = ranks_that(false);
      if (visitor)
        take_in(visitor->message, std::move(visitor->socket), visitor->from);
      else if (Clock::now() >= until)
        throw too_late(options_,
                       fmt::format("{} {} not come to {}", named(missing), have(missing), place_of(options_)));
      else
        wait.go_on([&](int64_t seconds) {
          const std::vector<int> here = ranks_that(true);
          return fmt::format(
              "rank 0 has waited {} s at {} for {} of {}; {}", seconds, place_of(options_), named(missing),
              options_.world_size,
              here.empty() ? "no other rank has come" : fmt::format("{} {} come", named(here), have(here)));
        });
    }
  }

  void take_in(const Hello& hello, Socket socket, const Address& from) {
    const bool fits = hello.world_size == options_.world_size && hello.rank > 0 && hello.rank < options_.world_size;
    const bool twice = fits && came_[static_cast<size_t>(hello.rank)];
    if (fits && !twice) {
      const Address there = address_of(socket);
      came_[static_cast<size_t>(hello.rank)] = std::move(socket);
      Address& address = group_.listening[static_cast<size_t>(hello.rank)];
      address = from;
      address.set_port(hello.port);
      if (from.is_loopback() || from.is_host_of(there)) address.size = 0;  // the rank is on the machine of rank 0
      return;
    }
    came_.push_back(std::move(socket));  // so that refuse_all() answers this connection, too
    if (twice)
      throw Error(Category::bad_pipeline,
                  fmt::format("two processes came as rank {}; give each process a rank of its own", hello.rank));
    throw Error(
        Category::bad_pipeline,
        fmt::format(
            "rank {} of {} came to {}, where rank 0 waits for {} ranks; start all ranks with the same world size",
            hello.rank, hello.world_size, place_of(options_), options_.world_size));
  }

  // Closes the connections of ranks that have ended while they waited, because they may be started again.
  void forget_gone() {
    for (Socket& socket : came_)
      if (socket && !word_of(socket)) socket = Socket();
  }

  std::vector<TcpPeer> connect_all() {
    Connections connections(options_, group_, listener_);
    std::vector<bool> done(came_.size());
    done[0] = true;
    while (!connections.complete() || std::find(done.begin(), done.end(), false) != done.end()) {
      std::vector<const Socket*> to_come;
      for (size_t rank = 0; rank < came_.size(); rank++)
        if (!done[rank]) to_come.push_back(&came_[rank]);
      if (connections.let_join(to_come)) continue;
      if (connections.late()) throw not_connected(options_);
      for (size_t rank = 0; rank < came_.size(); rank++) {
        if (done[rank]) continue;
        const auto word = word_of(came_[rank]);
        if (!word)
          throw Error(Category::io_error,
                      fmt::format("rank {} ended while the ranks were connecting to one another; see its error", rank));
        done[rank] = *word;
      }
    }
    return connections.take();
  }

  std::vector<const Socket*> there() const {
    std::vector<const Socket*> sockets;
    for (const Socket& socket : came_)
      if (socket) sockets.push_back(&socket);
    return sockets;
  }
  /// Returns the ranks other than 0 that are connected to rank 0, or, if `are_here` is false, those that are not.
  std::vector<int> ranks_that(bool are_here) const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; rank++)
      if (static_cast<bool>(came_[static_cast<size_t>(rank)]) == are_here) ranks.push_back(rank);
    return ranks;
  }

  void answer_all(std::span<const std::byte> follows) {
    const Deadline until = Clock::now() + options_.timeout;
    for (size_t rank = 1; rank < came_.size(); rank++) try {
        send_all(came_[rank], bytes_of(Welcome{.token = group_.token}), until);
        send_all(came_[rank], follows, until);
      } catch (const Error& error) {
        throw Error(error.category(), fmt::format("rank {} cannot be answered: {}", rank, error.message()));
      }
  }
  void refuse_all(const std::string& why) {
    Welcome refusal;
    why.copy(refusal.refused.data(), refusal.refused.size() - 1);
    for (const Socket* socket : there()) try {
        send_all(*socket, bytes_of(refusal), Clock::now() + patience);
      } catch (const Error&) {
        // This rank has ended already, so it needs no refusal.
      }
  }

  const TcpOptions& options_;
  const milliseconds long_wait_;
  Socket listener_;
  Group group_;
  std::vector<Socket> came_;  // by rank
};

// Connects to rank 0, and tries again until `until`: rank 0 may start later, and its name may become known only later.
Socket reach_host(const TcpOptions& options, const std::vector<std::string>& names, Deadline until, LongWait& wait) {
  for (;;) {
    for (const std::string& name : names) try {
        for (const Address& address : resolve(name, options.port)) try {
            return connect_to(address, std::min(until, Clock::now() + patience));
          } catch (const Error&) {
          }
      } catch (const Error&) {
      }
    if (Clock::now() > until)
      throw too_late(options, fmt::format("rank 0 could not be reached at {}", place_of(options)));
    wait.go_on([&](int64_t seconds) {
      return fmt::format("rank {} has waited {} s for rank 0 at {}, which is not there", options.rank, seconds,
                         place_of(options));
    });
    std::this_thread::sleep_for(look);
  }
}

// A rank other than 0.
class Guest {
 public:
  /// names: the names or addresses of rank 0's machine. until: when rank 0 will give up and say who has not come. This
  /// rank waits a little longer, because rank 0 may have begun to wait a little later.
  Guest(const TcpOptions& options, const std::vector<std::string>& names, Deadline until, milliseconds long_wait)
      : options_(options),
        wait_(long_wait, options.stop),
        host_(reach_host(options, names, until, wait_)),
        listener_(listen_everywhere(0)),
        until_(until + patience) {}

  std::vector<TcpPeer> join() {
    send_all(
        host_,
        bytes_of(Hello{.rank = options_.rank, .world_size = options_.world_size, .port = address_of(listener_).port()}),
        until_);
    std::vector<pollfd> answer = {{host_.fd(), POLLIN, 0}};
    while (!wait_for(answer, wait_.until(until_)) && Clock::now() < until_)
      wait_.go_on([&](int64_t seconds) {
        return fmt::format(
            "rank {} has waited {} s for other ranks to come to rank 0 at {}; the log of rank 0 names them",
            options_.rank, seconds, place_of(options_));
      });
    Group group;
    group.listening.resize(static_cast<size_t>(options_.world_size));
    group.token = hear_host(std::as_writable_bytes(std::span(group.listening)));
    for (Address& address : group.listening) {
      if (address.size > 0) continue;
      const uint16_t port = address.port();
      address = peer_of(host_);
      if (port != 0) address.set_port(port);  // 0: rank 0 itself
    }
    Connections connections(options_, group, listener_);
    until_ = Clock::now() + options_.timeout + patience;
    while (!connections.complete()) {
      if (connections.let_join({&host_})) continue;
      if (connections.late()) throw not_connected(options_);
      hear_host({});  // at this point rank 0 can only refuse, or end, and both throw
    }
    send_all(host_, {&connected, 1}, until_);
    hear_host({});
    return connections.take();
  }

 private:
  // Receives the answer of rank 0: a Welcome, and then the bytes `follows`. Returns the token. Throws if rank 0
  // refuses.
  uint64_t hear_host(std::span<std::byte> follows) {
    Welcome welcome;
    try {
      receive_all(host_, std::as_writable_bytes(std::span(&welcome, 1)), until_);
      if (welcome.begins == Welcome{}.begins && welcome.refused[0] == 0) receive_all(host_, follows, until_);
    } catch (const Error& error) {
      if (Clock::now() >= until_)
        throw too_late(options_, fmt::format("rank 0 at {} has not answered", place_of(options_)));
      throw Error(
          Category::io_error,
          fmt::format("rank 0 at {} has ended, or another program, such as a launcher, listens there ({}); see the "
                      "error of rank 0, or choose another port",
                      place_of(options_), error.message()));
    }
    if (welcome.begins != Welcome{}.begins)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "the program that listens at {} is not rank 0 of feedline; choose a port that no other program uses",
              place_of(options_)));
    welcome.refused.back() = 0;
    if (welcome.refused[0] != 0) throw Error(Category::stalled, fmt::format("rank 0: {}", welcome.refused.data()));
    return welcome.token;
  }

  const TcpOptions& options_;
  LongWait wait_;
  const Socket host_, listener_;
  Deadline until_;
};

// Sends the port and the addresses at which rank 0 listens to all ranks. `host` is null on the other ranks. Returns the
// addresses, as names that each rank resolves for itself. Sets the port in `options`, and the address for messages.
std::vector<std::string> tell_places(RankGroup& ranks, TcpOptions& options, const Host* host) {
  MessageWriter mine;
  if (host) {
    mine.put(host->port());
    for (const std::string& name : host->names()) mine.put_text(name);
  }
  const std::string told = ranks.all_gather(mine.take())[0];
  MessageReader theirs(told);
  options.port = theirs.get<uint16_t>();
  std::vector<std::string> names;
  while (!theirs.at_end()) names.emplace_back(theirs.get_text());
  options.address = fmt::format("{}", fmt::join(names, " or "));  // only for messages
  return names;
}

}  // namespace

std::vector<TcpPeer> meet(TcpOptions options, RankGroup* ranks, milliseconds long_wait) {
  std::optional<Host> host;
  if (options.rank == 0) host.emplace(options, long_wait);
  std::vector<std::string> names = {options.address};
  if (ranks) names = tell_places(*ranks, options, host ? &*host : nullptr);
  const Deadline until = Clock::now() + std::min<milliseconds>(options.start_timeout, std::chrono::hours(24 * 365));
  return host ? host->gather(until) : Guest(options, names, until, long_wait).join();
}

}  // namespace feedline::gpu
