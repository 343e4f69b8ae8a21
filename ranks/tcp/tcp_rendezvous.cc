#include "ranks/tcp/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "base/audit.h"
#include "base/log.h"
#include "base/rank_message.h"
#include "feedline/error.h"

namespace feedline::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds patience(5);  // how long to wait for one process, for example to connect to it

// The messages, which are sent as they lie in memory. Each begins with a number that says which message it is.
struct Hello {
  uint64_t begins = hash64("feedline ranks 1: hello");
  int32_t rank = 0, world_size = 0;
  uint16_t port = 0;
  std::array<char, 6> zero{};
};
struct Welcome {
  uint64_t begins = hash64("feedline ranks 1: welcome");
  uint64_t token = 0;
  std::array<char, 512> refused{};  // why there will be no group; empty: the start goes on
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

// Takes in the processes that connect to a port, and receives the first message T of each. It receives from all of them
// side by side, so a stranger that sends nothing makes no rank wait.
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

  /// Returns the next visitor that has sent a whole T. Returns nothing if one of the sockets `others` has something to
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
  // Receives more of the visitor's message. Returns whether there is still more to come.
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

  static constexpr size_t most = 256;  // visitors; if there are more, the oldest, which has sent nothing, is dropped
  const Socket& listener_;
  std::vector<Visitor> visitors_;  // the oldest first
};

Error too_late(const TcpOptions& options, const std::string& who) {
  return Error(Category::stalled,
               fmt::format("{} within {} s; see that all ranks are started with the same address, port and world size, "
                           "and that no firewall is between them",
                           who, std::chrono::duration<double>(options.start_timeout).count()));
}

Error not_connected(const TcpOptions& options) {
  return Error(Category::stalled,
               fmt::format("all {} ranks came, but have not all connected within {} s", options.world_size,
                           std::chrono::duration<double>(options.timeout).count()));
}

/// Returns "rank 3" or "ranks 1, 3".
std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Returns "have" or "has", as the number of ranks demands.
const char* have(const std::vector<int>& ranks) { return ranks.size() == 1 ? "has" : "have"; }

/// Logs what a rank waits for when it has waited for `limit`, and again each time that it has waited twice as long.
class LongWait {
 public:
  explicit LongWait(milliseconds limit) : next_(limit) {}

  /// Returns until when to wait before the next call of tell_if_long(); not after `end`.
  Deadline until(Deadline end) const { return std::min(end, begin_ + next_); }
  /// Logs message(seconds waited) if it is time to.
  template <typename Message>
  void tell_if_long(Message message) {
    const auto waited = Clock::now() - begin_;
    if (waited < next_) return;
    while (next_ <= waited) next_ *= 2;
    log_warning(message(std::chrono::round<std::chrono::seconds>(waited).count()));
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  milliseconds next_;
};

std::string place_of(const TcpOptions& options) { return fmt::format("{}:{}", options.address, options.port); }

struct Group {
  uint64_t token = 0;
  std::vector<Address> listening;  // by rank; an address of size 0 means the machine of rank 0, at this port
};

// Returns whether a byte has come, or nothing if the other end has closed the connection.
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

  /// Waits for the next rank that joins this one. Returns false where Lobby::next() returns nothing.
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

// Rank 0: takes in all other ranks, and makes sure that all are connected to one another.
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
      listener_ = Socket();  // a rank that has its answer may go on to make another group at this port
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
    LongWait wait(long_wait_);
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
        wait.tell_if_long([&](int64_t seconds) {
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
    came_.push_back(std::move(socket));  // so that refuse_all() tells it, too
    if (twice)
      throw Error(Category::bad_pipeline,
                  fmt::format("two processes came as rank {}; give each process a rank of its own", hello.rank));
    throw Error(
        Category::bad_pipeline,
        fmt::format(
            "rank {} of {} came to {}, where rank 0 waits for {} ranks; start all ranks with the same world size",
            hello.rank, hello.world_size, place_of(options_), options_.world_size));
  }

  // Forgets ranks that have ended while they waited, because they may be started again.
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
                      fmt::format("rank {} ended while the ranks were connecting to one another", rank));
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
  /// Returns the other ranks that have come, or those that have not.
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
        // The rank has ended already, and all others are about to.
      }
  }

  const TcpOptions& options_;
  const milliseconds long_wait_;
  Socket listener_;
  Group group_;
  std::vector<Socket> came_;  // by rank
};

// Connects to rank 0. Tries again until it succeeds, because rank 0, and the entries of its names, may come later.
Socket reach_host(const TcpOptions& options, const std::vector<std::string>& names, Deadline until, LongWait& wait) {
  for (;;) {
    for (const std::string& name : names) try {
        for (const Address& address : resolve(name, options.port)) try {
            return connect_to(address, std::min(until, Clock::now() + patience));
          } catch (const Error&) {
          }
      } catch (const Error&) {
      }
    if (Clock::now() > until) throw too_late(options, fmt::format("rank 0 was not met at {}", place_of(options)));
    wait.tell_if_long([&](int64_t seconds) {
      return fmt::format("rank {} has waited {} s for rank 0 at {}, which is not there", options.rank, seconds,
                         place_of(options));
    });
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// A rank other than 0.
class Guest {
 public:
  /// names: the names or addresses of rank 0's machine. until: when rank 0 will give up and say who has not come. This
  /// rank waits a little longer, because rank 0 may have begun to wait a little later.
  Guest(const TcpOptions& options, const std::vector<std::string>& names, Deadline until, milliseconds long_wait)
      : options_(options),
        wait_(long_wait),
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
      wait_.tell_if_long([&](int64_t seconds) {
        return fmt::format("rank {} has waited {} s for other ranks to come to rank 0 at {}, which names them",
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
      throw Error(Category::io_error,
                  fmt::format("rank 0 at {} has ended, or something else is there ({}); where a launcher "
                              "listens at that port, choose another",
                              place_of(options_), error.message()));
    }
    if (welcome.begins != Welcome{}.begins)
      throw Error(Category::bad_pipeline,
                  fmt::format("what listens at {} is not rank 0 of feedline; choose a port that no other program uses",
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

// Rank 0 tells the others at which port and addresses it listens; the addresses are texts, which each rank resolves for
// itself. Sets the port and address in `options`, and returns the addresses.
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
