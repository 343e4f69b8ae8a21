#include "ranks/tcp/tcp_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stop_token>
#include <thread>

#include "base/log.h"
#include "base/rank_message.h"
#include "base/utf8.h"
#include "feedline/error.h"
#include "ranks/tcp/lobby.h"
#include "ranks/tcp/meeting_messages.h"
#include "ranks/tcp/meeting_place.h"
#include "ranks/tcp/stoppable.h"

namespace feedline::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds patience(5);  // the time limit of an operation with one process, such as a connect

// After this rank has said who it is, the process that it has reached may end the connection this many times; then this
// rank gives up. A process whose lobby (lobby.h) is full ends the connection once or twice. A process that refuses this
// rank ends it each time.
constexpr int most_ends = 10;

constexpr const char* same_token = "give all ranks the same secret (FEEDLINE_MEET_TOKEN)";

Error too_late(const TcpOptions& options, const std::string& who) {
  return Error(
      Category::stalled,
      fmt::format("{} within {} s; start all ranks with the same address, port, world size and secret, and check "
                  "that no firewall is between them",
                  who, std::chrono::duration<double>(options.start_timeout).count()));
}

// Returns how long the ranks may take to connect to one another, once each knows where the others listen. They connect
// one after another.
milliseconds time_to_connect(const TcpOptions& options) { return options.timeout + options.world_size * look; }

// `ranks`: a text, such as "rank 3 is", that names the ranks which have not said that they are connected to all others.
Error not_connected(const TcpOptions& options, const std::string& ranks) {
  return Error(
      Category::stalled,
      fmt::format("all {} ranks have connected to rank 0, but {} not connected to all other ranks within {} s; see the "
                  "logs of the ranks, and check that no firewall is between them",
                  options.world_size, ranks, std::chrono::duration<double>(time_to_connect(options)).count()));
}

Error no_rank_0(const TcpOptions& options) {
  return Error(
      Category::bad_pipeline,
      fmt::format("the program that listens at {} is not rank 0 of this version of feedline; choose a port that no "
                  "other program uses, and run the same version on all ranks",
                  place_of(options)));
}

/// Returns "rank 3" or "ranks 1, 3". Names at most the first 20 ranks.
std::string named(const std::vector<int>& ranks) {
  constexpr size_t most = 20;
  const auto first = std::span(ranks).first(std::min(ranks.size(), most));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "),
                     ranks.size() <= most ? "" : fmt::format(" and {} more", ranks.size() - most));
}

/// Returns "have" or "has", as the number of ranks demands.
const char* have(const std::vector<int>& ranks) { return ranks.size() == 1 ? "has" : "have"; }

/// Logs what a rank waits for once it has waited for `limit`, 2 * `limit`, 4 * `limit`, ...
class LongWait {
 public:
  explicit LongWait(milliseconds limit) : next_(limit) {}

  /// Returns when the next message is due, or `end` if that is earlier. The caller waits until then, and calls go_on().
  net::Deadline until(net::Deadline end) const { return std::min<net::Deadline>(end, begin_ + next_); }
  /// Logs message(seconds waited) if it is time to log.
  template <typename Message>
  void go_on(Message message) {
    const auto waited = Clock::now() - begin_;
    if (waited < next_) return;
    while (next_ <= waited) next_ *= 2;
    log_warning(message(std::chrono::round<std::chrono::seconds>(waited).count()));
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  milliseconds next_;
};

struct Group {
  uint64_t number = 0;  // random; by this number ranks recognise the connections of their group
  // By rank: where it listens. If an address has size 0, only its port counts: the rank then listens at the IP address
  // at which rank 0 was reached.
  std::vector<net::Address> listening;
};

// Receives a byte if one has arrived, and returns whether a byte had arrived. Returns nullopt if the connection has
// ended.
std::optional<bool> word_of(const net::Socket& socket) {
  std::byte word;
  try {
    const auto received = net::receive_some(socket, {&word, 1});
    return received ? std::optional(*received > 0) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A connection to a process that should be a rank, and the challenge that the process has sent.
struct Reached {
  net::Socket socket;
  Challenge challenge;
  // How many bytes of the challenge have arrived. If some are missing, the time was over, or the bytes that have
  // arrived are not the beginning of a challenge.
  size_t heard = 0;

  bool is_asked() const { return begins_as_rank() && heard == sizeof challenge; }
  bool begins_as_rank() const {
    const Challenge wanted;
    return std::memcmp(&challenge.begins, &wanted.begins, std::min(heard, sizeof wanted.begins)) == 0;
  }
};

// Connects to a rank, and receives its challenge. Returns nullopt if another try is worthwhile: if the rank did not
// accept the connection within `patience`, or if the connection was closed before the whole challenge had arrived. A
// rank closes it if its lobby (lobby.h) is full; the forwarder of a port (such as `ssh -L`) closes it if no rank
// listens behind it. Throws Error if there is no listener, or if the start is interrupted.
std::optional<Reached> reach(const net::Address& address, net::Deadline until, net::Deadline answer,
                             const Interrupts& by) {
  const net::Deadline accepted = std::min(until, Clock::now() + patience);
  Reached reached;
  try {
    reached.socket = net::connect_to(address, accepted);
  } catch (const Error&) {
    throw_if_interrupted(by);
    if (Clock::now() < accepted || Clock::now() >= until) throw;
    return std::nullopt;
  }
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&reached.challenge, 1));
  try {
    std::vector<pollfd> ready = {{reached.socket.fd(), POLLIN, 0}};
    while (reached.heard < bytes.size() && reached.begins_as_rank() && wait_for(ready, answer, by)) {
      const auto received = net::receive_some(reached.socket, bytes.subspan(reached.heard));
      if (!received) throw Error(Category::io_error, "it has ended");
      reached.heard += *received;
    }
    return reached;
  } catch (const Error&) {
    throw_if_interrupted(by);
    std::this_thread::sleep_for(look);
    return std::nullopt;
  }
}

// The connections of one rank with all others.
class Connections {
 public:
  /// host: the connection to rank 0; null on rank 0 itself.
  Connections(const TcpOptions& options, const Group& group, const std::vector<net::Socket>& listeners,
              Refusals& refusals, const net::Socket* host)
      : options_(options),
        group_(group),
        by_{options.stop, host},
        until_(Clock::now() + time_to_connect(options)),
        refusals_(refusals),
        lobby_(listeners, refusals, options.stop),
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
  bool let_join(const std::vector<const net::Socket*>& others) {
    auto visitor = lobby_.next(others, until_);
    if (!visitor) return false;
    const Join& join = visitor->message;
    const bool knows = visitor->knows(options_.token);
    if (!knows || join.group != group_.number || join.to != options_.rank || join.rank <= options_.rank ||
        join.rank >= options_.world_size || join.use > Join::notes) {
      refusals_.note_stranger(
          visitor->from,
          fmt::format("it says that it is rank {}, but {}; if it belongs to this run, start it with the same address, "
                      "port and secret as the other ranks",
                      join.rank,
                      knows                ? "does not fit into this group of ranks"
                      : visitor->knows("") ? "has no secret"
                                           : "has a different secret"));
      return true;
    }
    try {
      net::send_all(visitor->socket, bytes_of(signed_by(Joined(), options_.token, join.nonce)),
                    Clock::now() + patience);
    } catch (const Error&) {
      return true;  // it has ended, and rank 0 will notice that
    }
    TcpPeer& peer = peers_[static_cast<size_t>(join.rank)];
    net::Socket& place = join.use == Join::data ? peer.data : peer.notes;
    if (!place) missing_--;
    place = std::move(visitor->socket);
    return true;
  }

 private:
  net::Socket join(int rank, Join::Use use) {
    try {
      for (int ends = 0;;) {
        auto reached = reach(group_.listening[static_cast<size_t>(rank)], until_, until_, by_);
        if (reached && !reached->begins_as_rank()) throw another_program();
        if (reached && reached->is_asked()) {
          if (is_joined(*reached, rank, use)) return std::move(reached->socket);
          if (!late() && ++ends == most_ends)
            throw Error(Category::io_error, "the rank ends the connection each time; see the log of that rank");
        }
        if (late())
          throw Error(Category::stalled, fmt::format("the rank has not answered within {} s; its process may be "
                                                     "stopped, or a firewall may be between the ranks",
                                                     std::chrono::duration<double>(time_to_connect(options_)).count()));
      }
    } catch (const Error& error) {
      throw Error(error.category(), fmt::format("rank {} cannot be reached: {}", rank, error.message()));
    }
  }

  // Sends a Join, and waits for the Joined. Returns false if the connection has ended, or the time is over.
  bool is_joined(const Reached& reached, int rank, Join::Use use) const {
    const net::Nonce nonce = net::make_nonce();
    const Join join{.group = group_.number, .rank = options_.rank, .to = rank, .use = use, .nonce = nonce};
    Joined joined;
    try {
      send_all(reached.socket, bytes_of(signed_by(join, options_.token, reached.challenge.nonce)), until_, by_);
      // The other rank answers once it is connected to all ranks with smaller numbers than its own.
      receive_all(reached.socket, std::as_writable_bytes(std::span(&joined, 1)), until_, by_);
    } catch (const Error&) {
      throw_if_interrupted(by_);
      std::this_thread::sleep_for(look);
      return false;
    }
    if (joined.begins != Joined().begins || !net::same(joined.proof, proof_in(joined, options_.token, nonce)))
      throw another_program();
    return true;
  }

  static Error another_program() {
    return Error(Category::bad_pipeline, "a different program answers in place of the rank");
  }

  const TcpOptions& options_;
  const Group& group_;
  const Interrupts by_;
  const net::Deadline until_;
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
    const net::Nonce random = net::make_nonce();
    std::memcpy(&group_.number, random.data(), sizeof group_.number);
    group_.listening.resize(static_cast<size_t>(options.world_size));
    came_.resize(group_.listening.size());
  }

  uint16_t port() const { return net::address_of(listeners_.front()).port(); }
  /// Returns the addresses of rank 0's machine that the other ranks should try.
  std::vector<std::string> names() const {
    return options_.address.empty() ? net::addresses_of_this_machine() : std::vector{options_.address};
  }

  std::vector<TcpPeer> gather(net::Deadline until) {
    try {
      take_in_all(until);
      answer_all(std::as_bytes(std::span(group_.listening)));
      std::vector<TcpPeer> peers = connect_all();
      // Closes the listeners before the last answer, because a rank that has this answer may at once form another group
      // at this port.
      listeners_.clear();
      answer_all({});
      return peers;
    } catch (const Error& error) {
      refuse_all(error.message());
      throw;
    }
  }

 private:
  void take_in_all(net::Deadline until) {
    Lobby<Hello> lobby(listeners_, refusals_, options_.stop);
    LongWait wait(long_wait_);
    for (;;) {
      auto visitor = lobby.next(there(), wait.until(until));
      forget_gone();
      if (visitor) take_in(std::move(*visitor));
      const std::vector<int> missing = ranks_that(false);
      if (missing.empty()) return;
      if (Clock::now() >= until)
        throw too_late(options_, fmt::format("{} {} not connected to {}{}", named(missing), have(missing),
                                             place_of(options_), refusals_.text()));
      wait.go_on([&](int64_t seconds) {
        const std::vector<int> here = ranks_that(true);
        return fmt::format(
            "rank 0 has waited {} s at {} for {} (world size {}); {}{}", seconds, place_of(options_), named(missing),
            options_.world_size,
            here.empty() ? "no other rank has connected" : fmt::format("{} {} connected", named(here), have(here)),
            refusals_.text());
      });
    }
  }

  void take_in(Lobby<Hello>::Visitor visitor) {
    const Hello& hello = visitor.message;
    if (!visitor.knows(options_.token)) {
      // A process that does not know the secret is not sent anything that is made with the secret. Otherwise it could
      // try secrets until one fits.
      refusals_.note_stranger(visitor.from,
                              fmt::format("it says that it is rank {}, but has {}; {}", hello.rank,
                                          visitor.knows("") ? "no secret" : "a different secret", same_token));
      if (!options_.token.empty()) return send_at_once(visitor.socket, refusal_of(same_token));
      return answer(visitor.socket, hello.nonce, same_token);
    }
    if (hello.world_size != options_.world_size || hello.rank <= 0 || hello.rank >= options_.world_size)
      return refuse(visitor,
                    fmt::format("rank {} of {} connected to {}, where rank 0 waits for {} ranks; start all ranks with "
                                "the same world size",
                                hello.rank, hello.world_size, place_of(options_), options_.world_size));
    const auto rank = static_cast<size_t>(hello.rank);
    if (came_[rank].socket)
      return refuse(visitor,
                    fmt::format("two processes connected as rank {}; give each process a different rank", rank));
    const net::Address there = net::address_of(visitor.socket);
    net::Address& address = group_.listening[rank];
    address = visitor.from;
    address.set_port(hello.port);
    if (visitor.from.is_loopback() || visitor.from.is_host_of(there))
      address.size = 0;                  // the rank is on the machine of rank 0
    net::watch_machine(visitor.socket);  // ends the connection if that machine dies, so that the rank may come again
    came_[rank] = {std::move(visitor.socket), hello.nonce};
  }

  // Tells a process why it is refused. The other ranks continue to start.
  void refuse(const Lobby<Hello>::Visitor& visitor, const std::string& why) {
    refusals_.note_rank(visitor.from, why);
    answer(visitor.socket, visitor.message.nonce, why);
  }

  // Closes the connections of ranks that have ended while they waited, because these ranks may be started again.
  void forget_gone() {
    for (Came& came : came_)
      if (came.socket && !word_of(came.socket)) came = Came();
  }

  std::vector<TcpPeer> connect_all() {
    Connections connections(options_, group_, listeners_, refusals_, nullptr);
    std::vector<bool> done(came_.size());
    done[0] = true;
    while (!connections.complete() || std::find(done.begin(), done.end(), false) != done.end()) {
      std::vector<const net::Socket*> to_come;
      for (size_t rank = 0; rank < came_.size(); rank++)
        if (!done[rank]) to_come.push_back(&came_[rank].socket);
      if (connections.let_join(to_come) && !connections.late()) continue;
      if (connections.late()) {
        std::vector<int> missing;
        for (int rank = 1; rank < options_.world_size; rank++)
          if (!done[static_cast<size_t>(rank)]) missing.push_back(rank);
        throw not_connected(options_,
                            missing.empty() ? "rank 0 is" : named(missing) + (missing.size() == 1 ? " is" : " are"));
      }
      for (size_t rank = 0; rank < came_.size(); rank++) {
        if (done[rank]) continue;
        const auto word = word_of(came_[rank].socket);
        if (!word)
          throw Error(Category::io_error,
                      fmt::format("rank {} ended while the ranks were connecting to one another; see the error of that "
                                  "rank",
                                  rank));
        done[rank] = *word;
      }
    }
    return connections.take();
  }

  std::vector<const net::Socket*> there() const {
    std::vector<const net::Socket*> sockets;
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
    const net::Deadline until = Clock::now() + options_.timeout;
    for (size_t rank = 1; rank < came_.size(); rank++) try {
        const Welcome welcome{.group = group_.number};
        const auto proven = signed_by(welcome, options_.token, came_[rank].nonce, follows);
        // Sends the Welcome and the bytes that follow it in one piece. Otherwise a refusal that is sent later could
        // come between them, and the rank would take it for the bytes that follow.
        std::vector<std::byte> message(bytes_of(proven).begin(), bytes_of(proven).end());
        message.insert(message.end(), follows.begin(), follows.end());
        send_all(came_[rank].socket, message, until, {options_.stop});
      } catch (const Error& error) {
        throw Error(error.category(),
                    fmt::format("rank 0 cannot send an answer to rank {}: {}", rank, error.message()));
      }
  }
  void refuse_all(const std::string& why) {
    for (const Came& came : came_)
      if (came.socket) answer(came.socket, came.nonce, why);
  }
  void answer(const net::Socket& socket, const net::Nonce& nonce, const std::string& why) {
    send_at_once(socket, signed_by(refusal_of(why), options_.token, nonce));
  }
  static Welcome refusal_of(std::string_view why) {
    Welcome refusal;
    const std::string_view fits = cut_text(why, refusal.refused.size() - 1);
    fits.copy(refusal.refused.data(), fits.size());
    return refusal;
  }
  static void send_at_once(const net::Socket& socket, const Welcome& refusal) {
    try {
      net::send_all(socket, bytes_of(refusal), Clock::now());
    } catch (const Error&) {
      // The process has ended already, or does not read, so it needs no answer.
    }
  }

  const TcpOptions& options_;
  const milliseconds long_wait_;
  struct Came {
    net::Socket socket = {};
    net::Nonce nonce = {};  // the random bytes that the proofs in answers to this rank must cover
  };
  std::vector<net::Socket> listeners_;
  Group group_;
  Refusals refusals_;
  std::vector<Came> came_;  // by rank
};

// Connects to rank 0, and tries again until `until`: rank 0 may start later, and its name may become known only later.
// Throws Error if only programs that are not rank 0 answer.
Reached reach_host(const TcpOptions& options, const std::vector<std::string>& names, net::Deadline until,
                   LongWait& wait) {
  std::string why;  // why rank 0 could not be reached
  for (;;) {
    std::optional<Error> other_program;
    for (const std::string& name : names) try {
        for (const net::Address& address : net::resolve(name, options.port)) {
          if (stays_on_this_machine(options) && !address.is_loopback()) throw needs_token(options);
          try {
            // Rank 0 sends its challenge at once. A different program may wait for this one to send something.
            const net::Deadline answer = std::min<net::Deadline>(until + patience, Clock::now() + options.timeout);
            auto reached = reach(address, until, answer, {options.stop});
            if (!reached)
              why = " (the program that listens there does not accept connections, or closes them at once)";
            else if (!reached->begins_as_rank())
              other_program = no_rank_0(options);
            else if (!reached->is_asked())
              other_program = Error(Category::stalled,
                                    fmt::format("the program that listens at {} has not answered; it may be a program "
                                                "other than rank 0, such as a launcher (choose a different port), or "
                                                "the process of rank 0 may be stopped",
                                                place_of(options)));
            else
              return std::move(*reached);
          } catch (const Error& error) {
            throw_if_interrupted({options.stop});
            why = fmt::format(" ({})", error.message());
          }
        }
      } catch (const Error& error) {
        throw_if_interrupted({options.stop});
        if (error.category() == Category::bad_pipeline) throw;
        why = fmt::format(" ({})", error.message());
      }
    if (other_program) throw *other_program;
    if (Clock::now() > until)
      throw too_late(options, fmt::format("rank 0 could not be reached at {}{}", place_of(options), why));
    wait.go_on([&](int64_t seconds) {
      return fmt::format("rank {} has waited {} s for rank 0 at {}{}", options.rank, seconds, place_of(options), why);
    });
    throw_if_interrupted({options.stop});
    std::this_thread::sleep_for(look);
  }
}

// A rank other than 0.
class Guest {
 public:
  /// names: the names or addresses of rank 0's machine. until: when rank 0 will give up and say who has not come. This
  /// rank waits a little longer, because rank 0 may have begun to wait a little later.
  Guest(const TcpOptions& options, const std::vector<std::string>& names, net::Deadline until, milliseconds long_wait)
      : options_(options),
        wait_(long_wait),
        reached_(reach_host(options, names, until, wait_)),
        host_(reached_.socket),
        place_(net::peer_of(host_)),
        listeners_(listen_beside(host_, options, names)),
        until_(until + patience) {}

  std::vector<TcpPeer> join() {
    const Hello hello{.rank = options_.rank,
                      .world_size = options_.world_size,
                      .port = net::address_of(listeners_.front()).port(),
                      .nonce = nonce_};
    Group group;
    group.listening.resize(static_cast<size_t>(options_.world_size));
    for (int ends = 0; !is_answered(hello);) {
      if (++ends == most_ends)
        throw Error(Category::io_error,
                    fmt::format("the program that listens at {} closes the connection after this rank has said who it "
                                "is; it may be rank 0 of a different group of ranks; see the log of that rank, or "
                                "choose a different port",
                                place_of(options_)));
      std::this_thread::sleep_for(ends * look);
      come_again();
    }
    group.number = hear_welcome(std::as_writable_bytes(std::span(group.listening)));
    for (net::Address& address : group.listening) {
      if (address.size > 0 && !address.is_one())
        throw Error(Category::bad_pipeline,
                    fmt::format("rank 0 at {} sent an address of a rank that is not an IP address; run the same "
                                "version of feedline on all ranks",
                                place_of(options_)));
      if (address.size > 0) continue;
      const uint16_t port = address.port();
      address = place_;
      if (port != 0) address.set_port(port);  // port 0 stands for rank 0 itself
    }
    until_ = Clock::now() + time_to_connect(options_) + patience;
    std::vector<TcpPeer> peers = connect_all(group);
    send_all(host_, {&connected, 1}, until_, {options_.stop});
    wait_for_host("all ranks to connect to one another");
    hear_welcome({});
    return peers;
  }

 private:
  std::vector<TcpPeer> connect_all(const Group& group) {
    Refusals refusals;
    try {
      Connections connections(options_, group, listeners_, refusals, &host_);
      while (!connections.complete())
        if (!connections.let_join({&host_}) || connections.late())
          throw not_connected(options_, "this rank is");  // the handler below prefers the reason of rank 0
      return connections.take();
    } catch (const Error&) {
      // If there is something to receive from rank 0, it has refused this rank or has ended. Then throws the reason of
      // rank 0, which knows more than this rank.
      pollfd word = {host_.fd(), POLLIN, 0};
      if (net::wait_for({&word, 1}, Clock::now())) hear_welcome({});
      throw;
    }
  }

  // Says who this rank is, and waits for an answer. Returns false if the connection has ended instead: either the lobby
  // of rank 0 (lobby.h) had no room for this rank any more, or rank 0 has ended.
  bool is_answered(const Hello& hello) {
    try {
      send_all(host_, bytes_of(signed_by(hello, options_.token, reached_.challenge.nonce)), until_, {options_.stop});
      wait_for_host("other ranks to connect to rank 0");
      return net::has_more(host_);
    } catch (const Error&) {
      throw_if_interrupted({options_.stop});
      return false;
    }
  }
  void come_again() try {
    std::optional<Reached> again;
    while (!again || !again->is_asked()) {
      if (again || Clock::now() >= until_) throw Error(Category::io_error, "it no longer answers");
      again = reach(place_, until_, std::min<net::Deadline>(until_, Clock::now() + options_.timeout), {options_.stop});
    }
    reached_ = std::move(*again);
  } catch (const Error& error) {
    throw_if_interrupted({options_.stop});
    throw has_ended(error);
  }
  Error has_ended(const Error& why) const {
    return Error(Category::io_error, fmt::format("rank 0 at {} has ended, or has met with a different group of ranks "
                                                 "({}); see the log of rank 0",
                                                 place_of(options_), why.message()));
  }

  // Waits until there is something to receive.
  void wait_for_host(std::string_view what) {
    std::vector<pollfd> answer = {{host_.fd(), POLLIN, 0}};
    while (!wait_for(answer, wait_.until(until_), {options_.stop}) && Clock::now() < until_)
      wait_.go_on([&](int64_t seconds) {
        return fmt::format("rank {} has waited {} s for {} at {}; the log of rank 0 says more", options_.rank, seconds,
                           what, place_of(options_));
      });
  }

  // Receives a message of rank 0, of which the first bytes have arrived. Then receives the bytes `follows`, unless the
  // message is a refusal.
  void hear_host(Welcome& message, std::span<std::byte> follows) {
    const net::Deadline until = std::min<net::Deadline>(until_, Clock::now() + options_.timeout);
    try {
      receive_all(host_, std::as_writable_bytes(std::span(&message, 1)), until, {options_.stop});
      if (message.begins == Welcome().begins && message.refused[0] == 0)
        receive_all(host_, follows, until, {options_.stop});
    } catch (const Error& error) {
      throw_if_interrupted({options_.stop});
      if (Clock::now() >= until)
        throw too_late(options_, fmt::format("rank 0 at {} has not answered", place_of(options_)));
      throw has_ended(error);
    }
    if (message.begins != Welcome().begins) throw no_rank_0(options_);
  }

  // Receives a Welcome, and then the bytes `follows`. Returns the group's number. Throws Error if rank 0 refuses.
  uint64_t hear_welcome(std::span<std::byte> follows) {
    Welcome welcome;
    hear_host(welcome, follows);
    const bool refuses = welcome.refused[0] != 0;
    const auto knows = [&](std::string_view secret) {
      return net::same(welcome.proof, proof_in(welcome, secret, nonce_, refuses ? std::span<std::byte>() : follows));
    };
    if (!knows(options_.token))
      throw Error(Category::bad_pipeline, fmt::format("the program that listens at {} has {}; {}", place_of(options_),
                                                      options_.token.empty() ? "a secret, but this rank has none"
                                                      : knows("")            ? "no secret, but this rank has a secret"
                                                                             : "a different secret than this rank",
                                                      same_token));
    welcome.refused.back() = 0;
    if (refuses) throw Error(Category::stalled, fmt::format("rank 0: {}", welcome.refused.data()));
    return welcome.group;
  }

  const TcpOptions& options_;
  LongWait wait_;
  Reached reached_;
  const net::Socket& host_;
  const net::Address place_;  // the address of rank 0
  const std::vector<net::Socket> listeners_;
  const net::Nonce nonce_ = net::make_nonce();
  net::Deadline until_;
};

// Tells all ranks the secret, and the port and the addresses at which rank 0 listens. `host`: null on all ranks but 0.
// Returns the addresses, as names that each rank resolves for itself. Sets in `options` the secret, the port, and the
// address, which from then on is only used in messages.
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
  if (ranks && options.rank == 0) options.token = net::make_secret();
  if (options.rank == 0) host.emplace(options, long_wait);
  std::vector<std::string> names = {options.address};
  if (ranks) names = tell_places(*ranks, options, host ? &*host : nullptr);
  const net::Deadline until =
      Clock::now() + std::min<milliseconds>(options.start_timeout, std::chrono::hours(24 * 365));
  return host ? host->gather(until) : Guest(options, names, until, long_wait).join();
}

}  // namespace feedline::ranks
