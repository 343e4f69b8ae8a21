#include "ranks/tcp/tcp_links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/net/sockets.h"

namespace feedline::ranks {
namespace {

// Data is sent without framing, because both ranks know the sizes of the parts. All notes have the same size.
class TcpLinks final : public Links {
 public:
  TcpLinks(int rank, std::vector<TcpPeer> peers) : rank_(rank), event_(net::make_event()) {
    for (TcpPeer& peer : peers) peers_.push_back({.sockets = std::move(peer)});
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(peers_.size()); }

  void begin(std::span<const Part> sends, std::span<const Part> receives) override {
    std::deque<std::span<std::byte>> mine;
    for (const Part& part : sends) (part.rank == rank_ ? mine : peer(part.rank).to_send).push_back(part.bytes);
    auto next = mine.begin();
    for (const Part& part : receives) {
      if (part.rank != rank_)
        peer(part.rank).to_receive.push_back(part.bytes);
      else if (const auto bytes = *next++; !bytes.empty())
        std::memcpy(part.bytes.data(), bytes.data(), bytes.size());
    }
  }

  bool drive() override {
    bool done = true;
    for (Peer& peer : peers_) {
      try {
        // Each loop ends after `at_once` rounds even if there is more to do, because a heartbeat may be due.
        for (int n = 0; n < at_once &&
                        move_some(peer.to_send, [&](auto bytes) { return net::send_some(peer.sockets.data, bytes); });
             n++) {
        }
        for (int n = 0;
             n < at_once && move_some(peer.to_receive, [&](auto bytes) { return receive(peer.sockets.data, bytes); });
             n++) {
        }
      } catch (const Error& error) {
        if (peer.lost)  // it left without a failure, but before it had sent everything
          throw Error(Category::io_error, fmt::format("another rank destroyed its communicator before it had sent all "
                                                      "its data ({}); keep the communicator of each rank until the "
                                                      "feeders of all ranks have ended",
                                                      error.message()));
        lose(peer, error);
      }
      done = done && peer.to_send.empty() && peer.to_receive.empty();
    }
    return done;
  }
  bool keeps_buffers() const noexcept override { return false; }

  void tell(int rank, const Note& note) override {
    Peer& to = peer(rank);
    if (to.deaf) return;
    const auto bytes = std::as_bytes(std::span(&note, 1));
    to.telling.insert(to.telling.end(), bytes.begin(), bytes.end());
    told();
  }
  bool told() override {
    bool all = true;
    for (Peer& peer : peers_) {
      try {
        while (!peer.telling.empty()) {
          const size_t sent = net::send_some(peer.sockets.notes, peer.telling);
          peer.telling.erase(peer.telling.begin(), peer.telling.begin() + static_cast<ptrdiff_t>(sent));
          if (sent == 0) break;
        }
      } catch (const Error& error) {
        peer.deaf = true;
        peer.telling.clear();
      }
      all = all && peer.telling.empty();
    }
    return all;
  }
  // Returns a note that a rank has sent, if there is one, and only otherwise a note about a lost connection: a failed
  // rank sends its reason as a note before its connections end.
  std::optional<Heard> hear() override {
    for (const auto hear_of : {&TcpLinks::said_by, &TcpLinks::loss_of})
      for (int rank = 0; rank < size(); rank++)
        if (rank != rank_ && !peer(rank).lost)
          if (const auto note = hear_of(peer(rank))) return Heard{rank, *note};
    return std::nullopt;
  }

  void wait(std::chrono::milliseconds most, bool under_way) override {
    std::vector<pollfd> ready = {{event_.fd(), POLLIN, 0}};
    const auto add = [&](const net::Socket& socket, bool in, bool out) {
      if (in || out) ready.push_back({socket.fd(), static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0});
    };
    for (const Peer& peer : peers_) {
      if (!peer.lost && peer.sockets.notes) add(peer.sockets.notes, true, !peer.telling.empty());
      if (under_way) add(peer.sockets.data, !peer.to_receive.empty(), !peer.to_send.empty());
    }
    net::wait_for(ready, std::chrono::steady_clock::now() + most);
    uint64_t woken;
    static_cast<void>(read(event_.fd(), &woken, sizeof woken));
  }
  void wake() noexcept override {
    const uint64_t once = 1;
    static_cast<void>(write(event_.fd(), &once, sizeof once));
  }

  // Waits until each peer has shut down its side of the notes connection, which the peer does after it has received
  // this rank's last note. If a connection is closed while it holds unread bytes, TCP resets it, and the peer may never
  // receive the last note.
  void leave(std::chrono::milliseconds most) override {
    const auto until = std::chrono::steady_clock::now() + most;
    const auto is_gone = [](const Peer& peer) { return !peer.sockets.notes || peer.lost; };
    while (std::chrono::steady_clock::now() < until) {
      told();
      while (hear()) {
      }
      if (std::ranges::all_of(peers_, is_gone)) return;
      wait(std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()), false);
    }
  }

 private:
  static constexpr int at_once = 64;  // how often one peer may send, and receive, before it is the next peer's turn

  struct Peer {
    TcpPeer sockets;  // empty for this rank itself
    std::deque<std::span<std::byte>> to_send = {}, to_receive = {};
    std::vector<std::byte> telling = {};  // the bytes of notes that have yet to be sent
    Note hearing = {};                    // the note that is being received
    size_t heard = 0;                     // how many bytes of `hearing` have been received
    bool deaf = false;                    // the peer receives no more notes
    bool lost = false;                    // the peer sends no more notes
    std::optional<Error> why = {};        // why a connection to the peer has failed
  };
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  // Lets `move` send or receive bytes of the first span in the queue, and removes these bytes from the queue. Returns
  // whether it made progress, so that the caller tries again.
  template <typename Move>
  static bool move_some(std::deque<std::span<std::byte>>& bytes, Move move) {
    if (bytes.empty()) return false;
    const size_t moved = bytes.front().empty() ? 0 : move(bytes.front());
    const bool whole = moved == bytes.front().size();
    bytes.front() = bytes.front().subspan(moved);
    if (whole) bytes.pop_front();
    return whole || moved > 0;
  }
  // Receives bytes without waiting, and returns their number. Throws Error if the other end has closed the connection.
  static size_t receive(const net::Socket& socket, std::span<std::byte> bytes) {
    const auto received = net::receive_some(socket, bytes);
    if (!received) throw Error(Category::io_error, "recv: the connection was closed");
    return *received;
  }

  // Stores why a connection has failed. hear() reports it later, because the peer may still say in its notes why it
  // ends the connection.
  static void lose(Peer& peer, const Error& why) {
    if (!peer.why) peer.why = why;
  }

  static std::optional<Note> said_by(Peer& peer) {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&peer.hearing, 1));
    try {
      while (peer.heard < bytes.size()) {
        const size_t received = receive(peer.sockets.notes, bytes.subspan(peer.heard));
        if (received == 0) return std::nullopt;
        peer.heard += received;
      }
    } catch (const Error& error) {
      lose(peer, error);
      return std::nullopt;
    }
    peer.heard = 0;
    if (peer.hearing.kind != Note::alive) {  // it is the peer's last note
      net::end_sending(peer.sockets.notes);
      net::watch_machine(peer.sockets.data);  // it sends no more heartbeats, but its last data may be on the way
      peer.deaf = true;
    }
    return peer.hearing;
  }
  static std::optional<Note> loss_of(Peer& peer) {
    if (!peer.why) return std::nullopt;
    peer.lost = true;
    const Error died(Category::io_error,
                     fmt::format("the rank has died, or can no longer be reached ({})", peer.why->message()));
    return Note(Note::lost, died, 0);
  }

  const int rank_;
  const net::Socket event_;
  std::vector<Peer> peers_;
};

}  // namespace

std::shared_ptr<Links> tcp_links(int rank, std::vector<TcpPeer> peers) {
  return std::make_shared<TcpLinks>(rank, std::move(peers));
}

}  // namespace feedline::ranks
