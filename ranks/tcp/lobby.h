// The lobby of a rank: processes that connect to the rank wait there until they have said who they are.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format_count.h"
#include "base/log.h"
#include "base/net/sockets.h"
#include "feedline/error.h"
#include "ranks/tcp/meeting_messages.h"
#include "ranks/tcp/stoppable.h"

namespace feedline::ranks {

/// Logs which processes were refused. They may be many, so only 20 are named: the first 10 that have shown that they
/// know the secret, and the first 10 that have not.
class Refusals {
 public:
  void note_rank(const net::Address& from, const std::string& why) { note(ranks_, from, why); }
  void note_stranger(const net::Address& from, const std::string& why) { note(strangers_, from, why); }
  /// Returns a text that says how many connections were refused. It is empty if none was.
  std::string text() const {
    const uint64_t count = ranks_ + strangers_;
    return count == 0 ? "" : fmt::format(" ({} refused; see the log)", format_count(count, "connection"));
  }

 private:
  static void note(uint64_t& count, const net::Address& from, const std::string& why) {
    constexpr int named = 10;
    if (++count > named) return;
    log_warning(fmt::format("refused a process at {}: {}{}", from.text(), why,
                            count == named ? "; processes that are refused from now on are not named" : ""));
  }
  uint64_t ranks_ = 0, strangers_ = 0;
};

/// Accepts connections, and sends a Challenge on each, which asks for a proof that the process knows the ranks' secret.
/// Then receives the first message, a T, from each. Polls all connections together, so a process that connects and
/// sends nothing does not make any rank wait.
template <typename T>
class Lobby {
 public:
  /// At most 256 visitors that have not said who they are have a place in the lobby. At most 128 of them come from one
  /// host (with IPv6, from one network). A new visitor that finds no place takes the place of the oldest visitor (of
  /// its host, if that has 128 places), but only if the oldest visitor has had the place for `to_speak`. Otherwise the
  /// new visitor is disconnected before it is sent a Challenge. If it is a rank, it tries again. `listeners` and
  /// `refusals` must outlive the object.
  Lobby(const std::vector<net::Socket>& listeners, Refusals& refusals, std::stop_token stop,
        std::chrono::milliseconds to_speak = std::chrono::seconds(1))
      : listeners_(listeners), refusals_(refusals), stop_(std::move(stop)), to_speak_(to_speak) {}

  struct Visitor {
    net::Socket socket;
    net::Address from;
    net::Address::Network network;
    net::Deadline since;    // when it connected
    net::Nonce nonce = {};  // the random bytes that it was sent in the Challenge
    T message = {};
    size_t heard = 0;  // how many bytes of `message` have been received

    bool knows(std::string_view secret) const { return net::same(message.proof, proof_in(message, secret, nonce)); }
  };

  /// Returns the next visitor that has sent a whole T. Does not check the proof in the T. Returns nullopt if one of the
  /// sockets `others` has something to read, or at the time `until`. Throws Error stalled if stop was requested while
  /// the ranks were starting.
  std::optional<Visitor> next(const std::vector<const net::Socket*>& others, net::Deadline until) {
    for (;;) {
      std::vector<pollfd> ready;
      const bool closed = Clock::now() < opens_;
      for (const net::Socket& listener : listeners_) ready.push_back({closed ? -1 : listener.fd(), POLLIN, 0});
      for (const Visitor& visitor : visitors_) ready.push_back({visitor.socket.fd(), POLLIN, 0});
      for (const net::Socket* other : others) ready.push_back({other->fd(), POLLIN, 0});
      const net::Deadline next = closed ? std::min(until, opens_) : until;
      if (!wait_for(ready, next, {stop_}) && next == until) return std::nullopt;
      // Looks at `others` first, because processes that are no ranks may connect without end.
      for (size_t other = ready.size() - others.size(); other < ready.size(); other++)
        if (ready[other].revents != 0) return std::nullopt;
      for (size_t v = visitors_.size(); v-- > 0;) {
        if (ready[listeners_.size() + v].revents == 0 || goes_on(visitors_[v])) continue;
        Visitor visitor = std::move(visitors_[v]);
        visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(v));
        if (visitor.heard == sizeof(T)) return visitor;
        if (visitor.heard > 0) refuse_stranger(visitor.from);
      }
      for (size_t listener = 0; listener < listeners_.size(); listener++)
        if (ready[listener].revents != 0) let_in(listeners_[listener]);
      if (Clock::now() >= until) return std::nullopt;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void let_in(const net::Socket& listener) {
    for (int n = 0; n < at_once; n++) try {
        auto come = net::accept_from(listener, Clock::now());
        if (!come) return;
        take_in(std::move(come->first), come->second);
      } catch (const Error&) {  // for example, the process has no file descriptor left
        if (visitors_.empty()) throw;
        if (!make_room(visitors_.begin())) opens_ = visitors_.front().since + to_speak_;
        return;
      }
  }

  // Disconnects the visitor if it has been connected for `to_speak_`. Returns whether the visitor was disconnected.
  bool make_room(typename std::vector<Visitor>::iterator visitor) {
    if (Clock::now() < visitor->since + to_speak_) return false;
    visitors_.erase(visitor);
    return true;
  }

  void take_in(net::Socket socket, const net::Address& from) {
    const auto is_of_host = [network = from.network()](const Visitor& visitor) { return visitor.network == network; };
    if (std::ranges::count_if(visitors_, is_of_host) >= most / 2) {
      if (!make_room(std::ranges::find_if(visitors_, is_of_host))) return;
    } else if (std::ssize(visitors_) == most) {
      if (!make_room(visitors_.begin())) return;
    }
    const Challenge challenge{.nonce = net::make_nonce()};
    try {
      net::send_all(socket, bytes_of(challenge), Clock::now());
    } catch (const Error&) {
      return;  // the visitor has ended the connection already
    }
    visitors_.push_back({.socket = std::move(socket),
                         .from = from,
                         .network = from.network(),
                         .since = Clock::now(),
                         .nonce = challenge.nonce});
  }

  void refuse_stranger(const net::Address& from) {
    refusals_.note_stranger(from, "it is not a rank of this version of feedline");
  }

  // Receives more of the visitor's message. Returns whether there is more to receive: the message is incomplete, may be
  // a T so far, and the connection is open.
  static bool goes_on(Visitor& visitor) {
    try {
      const std::span<std::byte> message = std::as_writable_bytes(std::span(&visitor.message, 1));
      const auto received = net::receive_some(visitor.socket, message.subspan(visitor.heard));
      visitor.heard += received.value_or(0);
      const T wanted;
      const size_t known = std::min(visitor.heard, sizeof wanted.begins);
      if (std::memcmp(&visitor.message.begins, &wanted.begins, known) != 0) {
        visitor.heard = std::min(visitor.heard, sizeof(T) - 1);  // the message is not a T
        return false;
      }
      return received && visitor.heard < sizeof(T);
    } catch (const Error&) {
      return false;
    }
  }

  static constexpr ptrdiff_t most = 256;
  static constexpr int at_once = 64;  // how many connections a listener accepts at most between two polls
  const std::vector<net::Socket>& listeners_;
  Refusals& refusals_;
  const std::stop_token stop_;
  const std::chrono::milliseconds to_speak_;
  std::vector<Visitor> visitors_;  // the oldest first
  net::Deadline opens_ = {};       // no connection is accepted before this time
};

}  // namespace feedline::ranks
