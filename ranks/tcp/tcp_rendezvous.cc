#include "ranks/tcp/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <stop_token>
#include <thread>

#include "base/audit.h"
#include "base/format_count.h"
#include "base/log.h"
#include "base/rank_message.h"
#include "feedline/error.h"
#include "ranks/tcp/proof.h"

namespace feedline::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look(50);             // how often a rank looks for rank 0, and whether its start was stopped
constexpr std::chrono::seconds patience(5);  // the time limit of an operation with one process, such as a connect

// The messages, which are sent as raw bytes. Each begins with a magic number that says which message it is, and ends with
// the proof that its sender knows the secret: of the fields before it, and of the random bytes of whom it is for.
struct Challenge {  // has no proof: it asks for one
  uint64_t begins = hash64("feedline ranks 2: challenge");
  Nonce nonce{};
};
struct Hello {
  uint64_t begins = hash64("feedline ranks 2: hello");
  int32_t rank = 0, world_size = 0;
  uint16_t port = 0;
  std::array<char, 6> zero{};
  Nonce nonce{};
  Proof proof{};
};
struct Welcome {
  uint64_t begins = hash64("feedline ranks 2: welcome");
  uint64_t group = 0;
  std::array<char, 512> refused{};  // why rank 0 forms no group, or none with this process; empty: the start continues
  Proof proof{};                    // of what follows as well
};
struct Join {
  uint64_t begins = hash64("feedline ranks 2: join");
  uint64_t group = 0;
  int32_t rank = 0, to = 0;  // who comes, and to whom
  enum Use : uint64_t { data, notes } use = data;
  Nonce nonce{};
  Proof proof{};
};
struct Joined {
  uint64_t begins = hash64("feedline ranks 2: joined");
  Proof proof{};
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Returns the proof that a message has to have. `nonce` is that of the process that it is for.
template <typename T>
Proof proof_in(const T& message, std::string_view secret, const Nonce& nonce, std::span<const std::byte> follows = {}) {
  static_assert(std::has_unique_object_representations_v<T> && offsetof(T, proof) + sizeof(Proof) == sizeof(T));
  return proof_of(secret, {bytes_of(message).first(offsetof(T, proof)), nonce, follows});
}

template <typename T>
T signed_by(T message, std::string_view secret, const Nonce& nonce, std::span<const std::byte> follows = {}) {
  message.proof = proof_in(message, secret, nonce, follows);
  return message;
}

constexpr auto connected = std::byte{1};  // what a rank sends to rank 0 when it has all its connections

constexpr const char* same_token = "give all ranks the same secret (FEEDLINE_MEET_TOKEN)";

// Logs which processes were refused. Strangers may come often, so only the first ones are named.
class Refusals {
 public:
  void note(const Address& from, const std::string& why) {
    constexpr int named = 10;
    if (++count_ > named) return;
    log_warning(fmt::format("refused a process at {}: {}{}", from.text(), why,
                            count_ == named ? "; those that are refused from now on are not named" : ""));
  }
  /// Returns how many were refused, in words; nothing if none was.
  std::string text() const {
    return count_ == 0 ? "" : fmt::format(" ({} refused: see the log)", format_count(count_, "connection"));
  }

 private:
  uint64_t count_ = 0;
};

// Accepts connections at a port, asks each for a proof, and receives the first message, a T, of each. It polls all
// connections together, so a process that connects and sends nothing makes no rank wait.
template <typename T>
class Lobby {
 public:
  Lobby(const std::vector<Socket>& listeners, Refusals& refusals) : listeners_(listeners), refusals_(refusals) {}

  struct Visitor {
    Socket socket;
    Address from;
    Nonce nonce = {};  // what it was sent
    T message = {};
    size_t heard = 0;  // how many bytes of `message` have been received

    bool knows(std::string_view secret) const { return same(message.proof, proof_in(message, secret, nonce)); }
  };

  /// Returns the next visitor that has sent a whole T, with any proof. Returns nullopt if one of the sockets `others` has something to
  /// read, or at the time `until`.
  std::optional<Visitor> next(const std::vector<const Socket*>& others, Deadline until) {
    for (;;) {
      std::vector<pollfd> ready;
      for (const Socket& listener : listeners_) ready.push_back({listener.fd(), POLLIN, 0});
      for (const Visitor& visitor : visitors_) ready.push_back({visitor.socket.fd(), POLLIN, 0});
      for (const Socket* other : others) ready.push_back({other->fd(), POLLIN, 0});
      if (!wait_for(ready, until)) return std::nullopt;
      for (size_t v = visitors_.size(); v-- > 0;) {
        if (ready[listeners_.size() + v].revents == 0 || goes_on(visitors_[v])) continue;
        Visitor visitor = std::move(visitors_[v]);
        visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(v));
        if (visitor.heard == sizeof(T)) return visitor;
        if (visitor.heard > 0) refuse_stranger(visitor.from);
      }
      for (size_t listener = 0; listener < listeners_.size(); listener++)
        if (ready[listener].revents != 0)
          if (auto come = accept_from(listeners_[listener], Clock::now()))
            take_in(std::move(come->first), come->second);
      for (size_t other = ready.size() - others.size(); other < ready.size(); other++)
        if (ready[other].revents != 0) return std::nullopt;
      if (Clock::now() >= until) return std::nullopt;  // although strangers keep coming
    }
  }

 private:
  void take_in(Socket socket, const Address& from) {
    if (visitors_.size() == most) visitors_.erase(visitors_.begin());
    const Challenge challenge{.nonce = make_nonce()};
    try {
      send_all(socket, bytes_of(challenge), Clock::now());
    } catch (const Error&) {
      return;  // it has ended already
    }
    visitors_.push_back({.socket = std::move(socket), .from = from, .nonce = challenge.nonce});
  }

  void refuse_stranger(const Address& from) { refusals_.note(from, "it is no rank of this version of feedline"); }

  // Receives more of the visitor's message. Returns whether the message is still incomplete, is no other than a T so far,
  // and the connection is open.
  static bool goes_on(Visitor& visitor) {
    try {
      const std::span<std::byte> message = std::as_writable_bytes(std::span(&visitor.message, 1));
      const auto received = receive_some(visitor.socket, message.subspan(visitor.heard));
      visitor.heard += received.value_or(0);
      const T wanted;
      const size_t known = std::min(visitor.heard, sizeof wanted.begins);
      if (std::memcmp(&visitor.message.begins, &wanted.begins, known) != 0) {
        visitor.heard = std::min(visitor.heard, sizeof(T) - 1);  // it is no T
        return false;
      }
      return received && visitor.heard < sizeof(T);
    } catch (const Error&) {
      return false;
    }
  }

  static constexpr size_t most = 256;  // visitors without a whole message; one more disconnects the oldest of them
  const std::vector<Socket>& listeners_;
  Refusals& refusals_;
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

Error needs_token(const TcpOptions& options) {
  return Error(
      Category::bad_pipeline,
      fmt::format(
          "the ranks are to meet at {}, which other machines can reach, and have no secret by which to recognise "
          "one another; set FEEDLINE_MEET_TOKEN to the same random text for all ranks (openssl rand -hex 16), "
          "or, in a network that you trust, let any process join (--meet-open, TcpOptions::open)",
          place_of(options)));
}

bool stays_on_this_machine(const TcpOptions& options) { return options.token.empty() && !options.open; }

std::vector<Socket> listen_everywhere_at(uint16_t port) {
  std::vector<Socket> listeners;
  listeners.push_back(listen_everywhere(port));
  return listeners;
}

// Listens at addresses of this machine, all at one port. Port 0: at one that is free at all of them.
std::vector<Socket> listen_at_all(const std::vector<Address>& addresses) {
  for (int tries = 10;; tries--) try {
      std::vector<Socket> listeners;
      for (Address address : addresses) {
        if (!listeners.empty()) address.set_port(address_of(listeners.front()).port());
        listeners.push_back(listen_at(address));
      }
      return listeners;
    } catch (const Error&) {
      if (tries == 0 || addresses.front().port() != 0) throw;
    }
}

std::vector<Address> addresses_of(const std::string& name, uint16_t port) {
  try {
    return resolve(name, port);
  } catch (const Error&) {  // other machines may know it, or later
    return {};
  }
}

// Adds those addresses that this machine has and that are not there yet.
void add_own(const std::vector<Address>& found, std::vector<Address>& addresses) {
  for (const Address& address : found)
    if (is_of_this_machine(address) && std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(address);
}

// Listens where the options say.
std::vector<Socket> listen_for(const TcpOptions& options) {
  const std::vector<Address> found =
      options.address.empty() ? std::vector<Address>() : addresses_of(options.address, options.port);
  std::vector<Address> addresses;
  if (stays_on_this_machine(options)) {
    if (found.empty() || !std::ranges::all_of(found, &Address::is_loopback)) throw needs_token(options);
    add_own(found, addresses);
    if (addresses.empty()) addresses = found;  // listening says why it cannot be
  } else if (is_ip_address(options.address) || is_loopback_name(options.address)) {
    add_own(found, addresses);
  }  // Any other name may mean other addresses to other machines.
  return addresses.empty() ? listen_everywhere_at(options.port) : listen_at_all(addresses);
}

// Listens where other ranks reach this rank, which has reached rank 0 by the connection: where rank 0 has seen it come
// from; or, if it is on the machine of rank 0, where the others have reached rank 0.
std::vector<Socket> listen_beside(const Socket& host, const TcpOptions& options,
                                  const std::vector<std::string>& names) {
  std::vector<Address> addresses;
  if (const Address here = address_of(host); !here.is_loopback() && !here.is_host_of(peer_of(host))) {
    addresses = {here};
  } else if (stays_on_this_machine(options) || std::ranges::all_of(names, is_loopback_name)) {
    add_own({peer_of(host)}, addresses);
    for (Address& address : addresses) address.set_port(0);
    for (const char* const name : {"127.0.0.1", "::1", "localhost"}) add_own(addresses_of(name, 0), addresses);
  }
  for (Address& address : addresses) address.set_port(0);
  return addresses.empty() ? listen_everywhere_at(0) : listen_at_all(addresses);
}

struct Group {
  uint64_t number = 0;             // random: by it ranks recognise the connections of their group
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
  Connections(const TcpOptions& options, const Group& group, const std::vector<Socket>& listeners, Refusals& refusals)
      : options_(options),
        group_(group),
        until_(Clock::now() + options.timeout),
        refusals_(refusals),
        lobby_(listeners, refusals),
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
    if (!visitor->knows(options_.token) || join.group != group_.number || join.to != options_.rank ||
        join.rank <= options_.rank || join.rank >= options_.world_size || join.use > Join::notes) {
      refusals_.note(visitor->from, "it is none of the ranks that have met");
      return true;
    }
    try {
      send_all(visitor->socket, bytes_of(signed_by(Joined(), options_.token, join.nonce)), Clock::now() + patience);
    } catch (const Error&) {
      return true;  // it has ended, of which rank 0 will hear
    }
    TcpPeer& peer = peers_[static_cast<size_t>(join.rank)];
    Socket& place = join.use == Join::data ? peer.data : peer.notes;
    if (!place) missing_--;
    place = std::move(visitor->socket);
    return true;
  }

 private:
  Socket join(int rank, Join::Use use) {
    try {
      Socket socket =
          connect_to(group_.listening[static_cast<size_t>(rank)], std::min(until_, Clock::now() + patience));
      // The other rank answers once it is connected to those below it.
      const auto hear = [&]<typename T>(T& message) {
        receive_all(socket, std::as_writable_bytes(std::span(&message, 1)), until_);
        if (message.begins != T().begins) throw another_program();
      };
      Challenge challenge;
      hear(challenge);
      const Nonce nonce = make_nonce();
      const Join join{.group = group_.number, .rank = options_.rank, .to = rank, .use = use, .nonce = nonce};
      send_all(socket, bytes_of(signed_by(join, options_.token, challenge.nonce)), until_);
      Joined joined;
      hear(joined);
      if (!same(joined.proof, proof_in(joined, options_.token, nonce))) throw another_program();
      return socket;
    } catch (const Error& error) {
      throw Error(error.category(), fmt::format("rank {} cannot be reached: {}", rank, error.message()));
    }
  }

  static Error another_program() { return Error(Category::bad_pipeline, "another program answers in its place"); }

  const TcpOptions& options_;
  const Group& group_;
  const Deadline until_;
  Refusals& refusals_;
  Lobby<Join> lobby_;
  int missing_;
  std::vector<TcpPeer> peers_;
};

// Rank 0: accepts all other ranks, and waits until all of them are connected to one another.
class Host {
 public:
  Host(const TcpOptions& options, milliseconds long_wait)
      : options_(options), long_wait_(long_wait), listeners_(listen_for(options)) {
    const Nonce random = make_nonce();
    std::memcpy(&group_.number, random.data(), sizeof group_.number);
    group_.listening.resize(static_cast<size_t>(options.world_size));
    came_.resize(group_.listening.size());
  }

  uint16_t port() const { return address_of(listeners_.front()).port(); }
  /// Returns the addresses of rank 0's machine that the other ranks should try.
  std::vector<std::string> names() const {
    return options_.address.empty() ? addresses_of_this_machine() : std::vector{options_.address};
  }

  std::vector<TcpPeer> gather(Deadline until) {
    try {
      take_in_all(until);
      answer_all(std::as_bytes(std::span(group_.listening)));
      std::vector<TcpPeer> peers = connect_all();
      listeners_.clear();  // before the last answer: a rank that has it may at once form another group at this port
      answer_all({});
      return peers;
    } catch (const Error& error) {
      refuse_all(error.message());
      throw;
    }
  }

 private:
  void take_in_all(Deadline until) {
    Lobby<Hello> lobby(listeners_, refusals_);
    LongWait wait(long_wait_, options_.stop);
    while (!ranks_that(false).empty()) {
      auto visitor = lobby.next(there(), wait.until(until));
      forget_gone();
      const std::vector<int> missing = ranks_that(false);
      if (visitor)
        take_in(std::move(*visitor));
      else if (Clock::now() >= until)
        throw too_late(options_, fmt::format("{} {} not come to {}{}", named(missing), have(missing),
                                             place_of(options_), refusals_.text()));
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

  void take_in(Lobby<Hello>::Visitor visitor) {
    const Hello& hello = visitor.message;
    if (!visitor.knows(options_.token)) {
      // Nothing that is made with the secret is sent to who does not know it: it could try secrets until one fits.
      refusals_.note(visitor.from,
                     fmt::format("it says that it is rank {}, and has another secret; {}", hello.rank, same_token));
      return send_at_once(visitor.socket, refusal_of(same_token));
    }
    if (hello.world_size != options_.world_size || hello.rank <= 0 || hello.rank >= options_.world_size)
      return refuse(visitor,
                    fmt::format("rank {} of {} came to {}, where rank 0 waits for {} ranks; start all ranks with "
                                "the same world size",
                                hello.rank, hello.world_size, place_of(options_), options_.world_size));
    const auto rank = static_cast<size_t>(hello.rank);
    if (came_[rank].socket)
      return refuse(visitor, fmt::format("two processes came as rank {}; give each process a rank of its own", rank));
    const Address there = address_of(visitor.socket);
    Address& address = group_.listening[rank];
    address = visitor.from;
    address.set_port(hello.port);
    if (visitor.from.is_loopback() || visitor.from.is_host_of(there))
      address.size = 0;  // the rank is on the machine of rank 0
    came_[rank] = {std::move(visitor.socket), hello.nonce};
  }

  // A process that differs is told why. It does not keep the others from meeting.
  void refuse(const Lobby<Hello>::Visitor& visitor, const std::string& why) {
    refusals_.note(visitor.from, why);
    answer(visitor.socket, visitor.message.nonce, why);
  }

  // Closes the connections of ranks that have ended while they waited, because they may be started again.
  void forget_gone() {
    for (Came& came : came_)
      if (came.socket && !word_of(came.socket)) came = Came();
  }

  std::vector<TcpPeer> connect_all() {
    Connections connections(options_, group_, listeners_, refusals_);
    std::vector<bool> done(came_.size());
    done[0] = true;
    while (!connections.complete() || std::find(done.begin(), done.end(), false) != done.end()) {
      std::vector<const Socket*> to_come;
      for (size_t rank = 0; rank < came_.size(); rank++)
        if (!done[rank]) to_come.push_back(&came_[rank].socket);
      if (connections.let_join(to_come)) continue;
      if (connections.late()) throw not_connected(options_);
      for (size_t rank = 0; rank < came_.size(); rank++) {
        if (done[rank]) continue;
        const auto word = word_of(came_[rank].socket);
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
    for (const Came& came : came_)
      if (came.socket) sockets.push_back(&came.socket);
    return sockets;
  }
  /// Returns the ranks other than 0 that are connected to rank 0, or, if `are_here` is false, those that are not.
  std::vector<int> ranks_that(bool are_here) const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; rank++)
      if (static_cast<bool>(came_[static_cast<size_t>(rank)].socket) == are_here) ranks.push_back(rank);
    return ranks;
  }

  void answer_all(std::span<const std::byte> follows) {
    const Deadline until = Clock::now() + options_.timeout;
    for (size_t rank = 1; rank < came_.size(); rank++) try {
        const Welcome welcome{.group = group_.number};
        const auto proven = signed_by(welcome, options_.token, came_[rank].nonce, follows);
        // At once, so that nobody takes a refusal for what follows.
        std::vector<std::byte> message(bytes_of(proven).begin(), bytes_of(proven).end());
        message.insert(message.end(), follows.begin(), follows.end());
        send_all(came_[rank].socket, message, until);
      } catch (const Error& error) {
        throw Error(error.category(), fmt::format("rank {} cannot be answered: {}", rank, error.message()));
      }
  }
  void refuse_all(const std::string& why) {
    for (const Came& came : came_)
      if (came.socket) answer(came.socket, came.nonce, why);
  }
  void answer(const Socket& socket, const Nonce& nonce, const std::string& why) {
    send_at_once(socket, signed_by(refusal_of(why), options_.token, nonce));
  }
  static Welcome refusal_of(std::string_view why) {
    Welcome refusal;
    why.copy(refusal.refused.data(), refusal.refused.size() - 1);
    return refusal;
  }
  static void send_at_once(const Socket& socket, const Welcome& refusal) {
    try {
      send_all(socket, bytes_of(refusal), Clock::now());
    } catch (const Error&) {
      // It has ended already, or does not read, so it needs no answer.
    }
  }

  const TcpOptions& options_;
  const milliseconds long_wait_;
  struct Came {
    Socket socket = {};
    Nonce nonce = {};  // what its answers must prove to know
  };
  std::vector<Socket> listeners_;
  Group group_;
  Refusals refusals_;
  std::vector<Came> came_;  // by rank
};

// Connects to rank 0, and tries again until `until`: rank 0 may start later, and its name may become known only later.
Socket reach_host(const TcpOptions& options, const std::vector<std::string>& names, Deadline until, LongWait& wait) {
  for (;;) {
    for (const std::string& name : names) try {
        for (const Address& address : resolve(name, options.port)) {
          if (stays_on_this_machine(options) && !address.is_loopback()) throw needs_token(options);
          try {
            return connect_to(address, std::min(until, Clock::now() + patience));
          } catch (const Error&) {
          }
        }
      } catch (const Error& error) {
        if (error.category() == Category::bad_pipeline) throw;
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
        listeners_(listen_beside(host_, options, names)),
        until_(until + patience) {}

  std::vector<TcpPeer> join() {
    // Rank 0 asks at once. Another program may wait for this one to speak.
    const Deadline until = std::min<Deadline>(until_, Clock::now() + options_.timeout);
    if (!wait_for_host(until, "an answer of rank 0"))
      throw Error(Category::stalled,
                  fmt::format("what listens at {} has not answered; it may be another program, such as a "
                              "launcher: choose another port",
                              place_of(options_)));
    Challenge challenge;
    hear_host(challenge);
    const Hello hello{.rank = options_.rank,
                      .world_size = options_.world_size,
                      .port = address_of(listeners_.front()).port(),
                      .nonce = nonce_};
    send_all(host_, bytes_of(signed_by(hello, options_.token, challenge.nonce)), until_);
    wait_for_host(until_, "other ranks to come to rank 0");
    Group group;
    group.listening.resize(static_cast<size_t>(options_.world_size));
    group.number = hear_welcome(std::as_writable_bytes(std::span(group.listening)));
    for (Address& address : group.listening) {
      if (address.size > 0) continue;
      const uint16_t port = address.port();
      address = peer_of(host_);
      if (port != 0) address.set_port(port);  // 0: rank 0 itself
    }
    Refusals refusals;
    Connections connections(options_, group, listeners_, refusals);
    until_ = Clock::now() + options_.timeout + patience;
    while (!connections.complete()) {
      if (connections.let_join({&host_})) continue;
      if (connections.late()) throw not_connected(options_);
      hear_welcome({});  // at this point rank 0 can only refuse, or end, and both throw
    }
    send_all(host_, {&connected, 1}, until_);
    hear_welcome({});
    return connections.take();
  }

 private:
  // Returns whether there is something to receive before `until`.
  bool wait_for_host(Deadline until, std::string_view what) {
    std::vector<pollfd> answer = {{host_.fd(), POLLIN, 0}};
    while (!wait_for(answer, wait_.until(until))) {
      if (Clock::now() >= until) return false;
      wait_.go_on([&](int64_t seconds) {
        return fmt::format("rank {} has waited {} s for {} at {}; the log of rank 0 says more", options_.rank, seconds,
                           what, place_of(options_));
      });
    }
    return true;
  }

  // Receives a message of rank 0, and then the bytes `follows` unless it refuses.
  template <typename T>
  void hear_host(T& message, std::span<std::byte> follows = {}) {
    try {
      receive_all(host_, std::as_writable_bytes(std::span(&message, 1)), until_);
      if constexpr (std::is_same_v<T, Welcome>)
        if (message.begins == T().begins && message.refused[0] == 0) receive_all(host_, follows, until_);
    } catch (const Error& error) {
      if (Clock::now() >= until_)
        throw too_late(options_, fmt::format("rank 0 at {} has not answered", place_of(options_)));
      throw Error(
          Category::io_error,
          fmt::format("rank 0 at {} has ended, or another program, such as a launcher, listens there ({}); see the "
                      "error of rank 0, or choose another port",
                      place_of(options_), error.message()));
    }
    if (message.begins != T().begins)
      throw Error(Category::bad_pipeline,
                  fmt::format("the program that listens at {} is not rank 0 of this version of feedline; choose a port "
                              "that no other program uses",
                              place_of(options_)));
  }

  // Returns the group's number. Throws if rank 0 refuses.
  uint64_t hear_welcome(std::span<std::byte> follows) {
    Welcome welcome;
    hear_host(welcome, follows);
    const bool refuses = welcome.refused[0] != 0;
    if (!same(welcome.proof, proof_in(welcome, options_.token, nonce_, refuses ? std::span<std::byte>() : follows)))
      throw Error(Category::bad_pipeline, fmt::format("what listens at {} has another secret than this rank; {}",
                                                      place_of(options_), same_token));
    welcome.refused.back() = 0;
    if (refuses) throw Error(Category::stalled, fmt::format("rank 0: {}", welcome.refused.data()));
    return welcome.group;
  }

  const TcpOptions& options_;
  LongWait wait_;
  const Socket host_;
  const std::vector<Socket> listeners_;
  const Nonce nonce_ = make_nonce();
  Deadline until_;
};

// Sends the secret, the port and the addresses at which rank 0 listens to all ranks. `host` is null on the other ranks.
// Returns the addresses, as names that each rank resolves for itself. Sets the secret and the port in `options`, and the
// address for messages.
std::vector<std::string> tell_places(RankGroup& ranks, TcpOptions& options, const Host* host) {
  MessageWriter mine;
  if (host) {
    mine.put_text(options.token);
    mine.put(host->port());
    for (const std::string& name : host->names()) mine.put_text(name);
  }
  const std::string told = ranks.all_gather(mine.take())[0];
  MessageReader theirs(told, 0);
  options.token = theirs.get_text();
  options.port = theirs.get<uint16_t>();
  std::vector<std::string> names;
  while (!theirs.at_end()) names.emplace_back(theirs.get_text());
  options.address = fmt::format("{}", fmt::join(names, " or "));  // only for messages
  return names;
}

}  // namespace

std::vector<TcpPeer> meet(TcpOptions options, RankGroup* ranks, milliseconds long_wait) {
  std::optional<Host> host;
  if (ranks && options.rank == 0) options.token = make_secret();
  if (options.rank == 0) host.emplace(options, long_wait);
  std::vector<std::string> names = {options.address};
  if (ranks) names = tell_places(*ranks, options, host ? &*host : nullptr);
  const Deadline until = Clock::now() + std::min<milliseconds>(options.start_timeout, std::chrono::hours(24 * 365));
  return host ? host->gather(until) : Guest(options, names, until, long_wait).join();
}

}  // namespace feedline::gpu
