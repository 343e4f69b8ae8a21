// Ranks that meet over TCP, and a process among them that speaks their protocol: as a stranger, which does not know the
// secret; as a rank that knows it; or as rank 0. It says what it should, or at any place something else, or ends there.
// Nothing that a stranger does keeps the ranks from meeting, and it is told nothing that is made with the secret. A rank
// that says something else ends the others with an Error, soon; one that says what it should does not.
//
// covers: ranks/tcp/tcp_rendezvous.cc ranks/tcp/lobby.h ranks/tcp/meeting_messages.h ranks/tcp/tcp_links.cc
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../support/free_port.h"
#include "base/net/sockets.h"
#include "feedline/log.h"
#include "feedline/tcp_communicator.h"
#include "other_rank.h"
#include "ranks/collective_call.h"
#include "ranks/process/linked_communicator.h"
#include "ranks/process/process_links.h"
#include "ranks/tcp/meeting_messages.h"
#include "ranks/tcp/tcp_links.h"
#include "ranks/tcp/tcp_rendezvous.h"

namespace {

using namespace feedline;
using namespace feedline::ranks;
using namespace feedline::test;
using namespace std::chrono_literals;

/// A real rank: meets the others, calls them twice, and leaves.
class Rank {
 public:
  explicit Rank(TcpOptions options, Exchange exchange = {}) {
    options.stop = stop_.get_token();
    thread_ = std::thread([this, options, exchange = std::move(exchange)] {
      try {
        RankGroup group(exchange, options.rank, options.world_size);
        std::unique_ptr<Communicator> communicator;
        group.run([&] {
          std::vector<TcpPeer> peers = meet(options, exchange ? &group : nullptr, 1ms);
          communicator = linked_communicator(tcp_links(options.rank, std::move(peers)), options.timeout);
        });
        const auto rank = static_cast<std::byte>(options.rank);
        std::vector<std::byte> all(static_cast<size_t>(options.world_size));
        communicator->barrier();
        communicator->all_gather({&rank, 1}, all, Stream::host);
        for (size_t r = 0; r < all.size(); r++)
          if (all[r] != static_cast<std::byte>(r)) throw Error(Category::io_error, "a rank was heard wrongly");
      } catch (const Error& error) {
        require(!error.message().empty() && error.category() <= Category::internal_error, "an Error says something");
        error_ = error;
      }
      ended_ = true;
    });
  }
  ~Rank() {
    if (thread_.joinable()) thread_.join();
  }
  bool ended() const noexcept { return ended_; }
  void stop() { stop_.request_stop(); }
  /// Returns why the rank has failed.
  const std::optional<Error>& wait() {
    thread_.join();
    return error_;
  }

 private:
  std::stop_source stop_;
  std::optional<Error> error_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

struct Meeting {
  explicit Meeting(Draw& draw)
      : ranks(2 + static_cast<int>(draw.below(2))),
        secret(draw.coin() ? "of the ranks of this meeting" : ""),
        port(static_cast<uint16_t>(free_port())),
        address(net::resolve("127.0.0.1", port).front()),
        is_hasty(draw.below(8) == 7) {}
  TcpOptions options(int rank) const {
    TcpOptions options{.address = "127.0.0.1", .port = port, .rank = rank, .world_size = ranks, .token = secret};
    if (is_hasty) options.start_timeout = options.timeout = 30ms;
    return options;
  }
  int ranks;
  std::string secret;
  uint16_t port;
  net::Address address;
  bool is_hasty;  // the ranks do not wait for long
};

/// The other process has said what ends its play, or does not wait for an answer.
struct Ends {};

class Other {
 public:
  Other(Draw& draw, const Meeting& meeting)
      : draw_(draw),
        secret_(meeting.secret),
        ranks_(meeting.ranks),
        honest_(!meeting.is_hasty),
        wrong_at_{draw.below(64), draw.below(64)},
        leaves_at_(draw.below(64)) {}

  /// Returns whether all that it has said is what it should have said.
  bool is_honest() const noexcept { return honest_; }
  /// Returns whether it has said what must be refused.
  bool has_lied() const noexcept { return lied_; }
  void lie(bool lied = true) { lied_ = lied; }
  const net::Socket& keep(net::Socket socket) { return sockets_.emplace_back(std::move(socket)); }
  void leave() { sockets_.clear(); }

  /// Answers are long in coming only if something is wrong, which an honest process waits for.
  net::Deadline soon() const { return std::chrono::steady_clock::now() + (honest_ ? 60s : 20ms); }
  bool wrongly() {
    ++asked_;
    const bool wrong = asked_ == wrong_at_[0] || asked_ == wrong_at_[1];
    honest_ = honest_ && !wrong;
    return wrong;
  }
  /// Returns what it says.
  std::string say(const net::Socket& socket, std::string bytes) {
    if (wrongly()) bytes = changed(draw_, std::move(bytes));
    try {
      net::send_all(socket, std::as_bytes(std::span(bytes)), soon());
    } catch (const Error&) {
      throw Ends();
    }
    if (++said_ == leaves_at_) {
      honest_ = false;
      throw Ends();
    }
    return bytes;
  }
  template <typename T>
  void say(const net::Socket& socket, const T& message, const net::Nonce& nonce,
           std::span<const std::byte> follows = {}) {
    T proven = signed_by(message, secret_, nonce, follows);
    if (wrongly()) {
      proven.proof[draw_.below(sizeof(net::Proof))] ^= std::byte{1};
      lied_ = true;
    }
    std::string bytes(reinterpret_cast<const char*>(&proven), sizeof proven);
    bytes.append(reinterpret_cast<const char*>(follows.data()), follows.size());
    if (!say(socket, bytes).starts_with(bytes)) lied_ = true;
  }
  template <typename T>
  T hear(const net::Socket& socket) {
    T message;
    try {
      net::receive_all(socket, std::as_writable_bytes(std::span(&message, 1)), soon());
    } catch (const Error&) {
      require(!honest_, "an honest rank is answered");
      throw Ends();
    }
    if constexpr (requires { message.begins; }) require(message.begins == T().begins, "ranks say who they are");
    return message;
  }
  template <typename T>
  void must_be_proven(const T& message, const net::Nonce& nonce, std::span<const std::byte> follows = {}) const {
    require(!honest_ || net::same(message.proof, proof_in(message, secret_, nonce, follows)),
            "ranks prove that they know");
  }
  /// Returns whether it has changed the number.
  template <typename T>
  bool change(T& number, uint64_t near) {
    if (!wrongly()) return false;
    const T right = std::exchange(number, static_cast<T>(draw_.near(near)));
    return number != right;
  }
  std::optional<net::Socket> come_to(const net::Address& address) {
    try {
      return net::connect_to(address, soon());
    } catch (const Error&) {
      require(!honest_, "ranks listen");
      throw Ends();
    }
  }

  /// Joins a rank below, for data or notes.
  const net::Socket& join(const net::Address& address, uint64_t group, int from, int to, Join::Use use) {
    const net::Socket& socket = keep(*come_to(address));
    const auto challenge = hear<Challenge>(socket);
    Join join{.group = group, .rank = from, .to = to, .use = use, .nonce = net::make_nonce()};
    if (change(join.group, group)) lie();
    if (change(join.rank, static_cast<uint64_t>(from))) lie();
    if (change(join.to, static_cast<uint64_t>(to))) lie();
    if (change(join.use, use)) lie();
    say(socket, join, challenge.nonce);
    must_be_proven(hear<Joined>(socket), join.nonce);
    return socket;
  }
  /// Lets ranks above join, for data and notes. Returns the connections: data, and then notes, of each rank.
  std::vector<const net::Socket*> let_join(const net::Socket& listener, int self, uint64_t group) {
    std::vector<const net::Socket*> come(2 * static_cast<size_t>(ranks_));
    for (int count = 2 * (ranks_ - 1 - self); count > 0; count--) {
      const net::Socket& socket = keep(accept(listener));
      const Challenge challenge{.nonce = net::make_nonce()};
      say(socket, std::string(reinterpret_cast<const char*>(&challenge), sizeof challenge));
      const auto join = hear<Join>(socket);
      must_be_proven(join, challenge.nonce);
      require(
          join.group == group && join.to == self && join.rank > self && join.rank < ranks_ && join.use <= Join::notes,
          "ranks say what for they come");
      come[2 * static_cast<size_t>(join.rank) + join.use] = &socket;
      say(socket, Joined(), join.nonce);
    }
    return come;
  }
  net::Socket accept(const net::Socket& listener) {
    auto come = net::accept_from(listener, soon());
    require(!honest_ || come, "ranks come");
    if (!come) throw Ends();
    return std::move(come->first);
  }

  /// Makes the calls that Rank makes, and leaves. `sockets`: data and notes, by rank; null: its own.
  void run(std::vector<const net::Socket*> sockets, int self) {
    const CollectiveCall calls[] = {{}, all_gather_call(1, static_cast<size_t>(ranks_), ranks_)};
    for (const CollectiveCall& call : calls) {
      const std::string rank = &call == calls ? "" : std::string(1, static_cast<char>(self));
      for (const std::string& part : {std::string(reinterpret_cast<const char*>(&call), sizeof call), rank}) {
        for (int to = 0; to < ranks_; to++)
          if (to != self && !part.empty()) say(*sockets[2 * static_cast<size_t>(to)], part);
        if (wrongly()) note(*sockets[2 * static_cast<size_t>((self + 1) % ranks_) + 1]);
      }
      for (int from = 0; from < ranks_; from++) {
        if (from == self) continue;
        const net::Socket& data = *sockets[2 * static_cast<size_t>(from)];
        const auto heard = hear<CollectiveCall>(data);
        require(heard == call, "ranks call alike");
        if (!rank.empty()) require(hear<uint8_t>(data) == from, "ranks hear one another");
      }
    }
    const Note left(Note::left, std::size(calls));
    for (int to = 0; to < ranks_; to++)
      if (to != self)
        say(*sockets[2 * static_cast<size_t>(to) + 1], std::string(reinterpret_cast<const char*>(&left), sizeof left));
    for (int from = 0; from < ranks_; from++)
      if (from != self) {
        const net::Socket& notes = *sockets[2 * static_cast<size_t>(from) + 1];
        try {  // a rank that has heard that this one leaves closes the connection
          for (Note note; note.kind == Note::alive;)
            net::receive_all(notes, std::as_writable_bytes(std::span(&note, 1)), soon());
        } catch (const Error&) {
        }
      }
  }

 private:
  void note(const net::Socket& notes) {
    Note note(Note::alive, 0);
    if (draw_.coin()) {
      note = Note(static_cast<Note::Kind>(draw_.near(Note::lost)), Error(Category::io_error, "a \x1b reason"), 0);
      note.category = static_cast<Category>(draw_.near(static_cast<uint64_t>(Category::internal_error)));
      note.calls = draw_.near(2);
      if (draw_.coin()) note.message.fill('m'), note.file.fill('f'), note.feature.fill('t');
    }
    say(notes, std::string(reinterpret_cast<const char*>(&note), sizeof note));
  }

  Draw& draw_;
  const std::string secret_;
  const int ranks_;
  bool honest_, lied_ = false;
  const uint64_t wrong_at_[2], leaves_at_;  // the number of a question or a message; 0: none
  uint64_t asked_ = 0, said_ = 0;
  std::deque<net::Socket> sockets_;
};

void must_end_well(Rank& rank) {
  if (const auto& error = rank.wait()) require(false, error->what());
}

/// Ends what has been said. `done`: to the last word.
void end(std::deque<Rank>& ranks, Other& other, bool done, const Meeting& meeting) {
  if (meeting.is_hasty) std::this_thread::sleep_for(100ms);  // the ranks' time has run out, as a rule
  other.leave();
  if (!done)
    for (Rank& rank : ranks) rank.stop();
  for (Rank& rank : ranks)
    if (done && other.is_honest())
      must_end_well(rank);
    else
      require(rank.wait() || !other.has_lied(), "ranks believe a lie");
}

/// Strangers come to rank 0 before and between the others.
void strangers(Draw& draw) {
  Meeting meeting(draw);
  meeting.secret = "of the ranks of this meeting";
  meeting.is_hasty = false;
  std::deque<Rank> ranks;
  std::deque<net::Socket> open;
  net::Nonce before{};  // what another connection was to prove
  std::vector<Exchange> exchanges(static_cast<size_t>(meeting.ranks));
  const bool exchange = draw.coin();  // then rank 0 makes the secret, and listens to nobody before all ranks are there
  if (exchange) exchanges = exchanges_between_threads(meeting.ranks);
  for (int rank = 0; rank < meeting.ranks; rank++) {
    ranks.emplace_back(meeting.options(rank), exchanges[static_cast<size_t>(rank)]);
    const bool last = rank == meeting.ranks - 1;  // afterwards, rank 0 does not listen for long
    for (uint64_t visits = exchange && !last ? 0 : draw.below(3); visits > 0; visits--) try {
        net::Socket socket;
        const auto until = std::chrono::steady_clock::now() + 60s;
        while (!socket) try {
            socket = net::connect_to(meeting.address, until);
          } catch (const Error&) {
            if (last) throw;
            require(std::chrono::steady_clock::now() < until, "rank 0 listens");
          }
        Challenge challenge;
        net::receive_all(socket, std::as_writable_bytes(std::span(&challenge, 1)), until);
        Hello hello{.rank = static_cast<int32_t>(draw.near(static_cast<uint64_t>(rank))),
                    .world_size = static_cast<int32_t>(draw.near(static_cast<uint64_t>(meeting.ranks))),
                    .port = meeting.port,
                    .nonce = challenge.nonce};
        const std::string_view secrets[] = {"", "of other ranks", meeting.secret};
        const auto which = draw.below(3);
        hello = signed_by(hello, secrets[which], which == 2 ? before : challenge.nonce);
        before = challenge.nonce;
        std::string said(reinterpret_cast<const char*>(&hello), sizeof hello);
        if (draw.coin()) said = changed(draw, std::move(said));
        net::send_all(socket, std::as_bytes(std::span(said)), until);
        if (draw.coin()) {
          open.push_back(std::move(socket));
          continue;
        }
        net::end_sending(socket);
        Welcome answer;
        net::receive_all(socket, std::as_writable_bytes(std::span(&answer, 1)), until);
        require(answer.begins == Welcome().begins && answer.refused[0] != 0, "a stranger is refused");
        require(net::same(answer.proof, net::Proof()), "a stranger is told nothing that is made with the secret");
        std::byte more;
        net::receive_all(socket, {&more, 1}, until);
        require(false, "a stranger is told no more");
      } catch (const Error&) {
        // The connection has ended.
      }
  }
  for (Rank& rank : ranks) must_end_well(rank);
}

/// One of the ranks but rank 0, after others that have not come in its place.
void guest(Draw& draw) {
  const Meeting meeting(draw);
  const int self = 1 + static_cast<int>(draw.below(static_cast<uint64_t>(meeting.ranks - 1)));
  std::deque<Rank> ranks;
  std::optional<int> late;  // a rank that comes after this one
  if (meeting.ranks == 3 && draw.coin()) late = 3 - self;
  for (int rank = 0; rank < meeting.ranks; rank++)
    if (rank != self && rank != late) ranks.emplace_back(meeting.options(rank));
  Other other(draw, meeting);
  bool done = false;
  try {
    const net::Socket& listener = other.keep(net::listen_at(net::resolve("127.0.0.1", 0).front()));
    std::optional<net::Socket> come;
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (!come) try {
        come = net::connect_to(meeting.address, until);
      } catch (const Error&) {
        if (ranks[0].ended()) throw Ends();
        require(std::chrono::steady_clock::now() < until, "rank 0 listens");
      }
    const net::Socket* host = &other.keep(std::move(*come));
    const auto challenge = other.hear<Challenge>(*host);
    Hello hello{.rank = self,
                .world_size = meeting.ranks,
                .port = net::address_of(listener).port(),
                .nonce = net::make_nonce()};
    if (other.change(hello.rank, static_cast<uint64_t>(self))) other.lie();
    if (other.change(hello.world_size, static_cast<uint64_t>(meeting.ranks))) other.lie();
    other.change(hello.port, hello.port);
    other.say(*host, hello, challenge.nonce);
    if (late) {  // rank 0 is still waiting: of two that come as one rank it refuses the second
      const net::Socket& twin = other.keep(*other.come_to(meeting.address));
      const bool first_has_lied = other.has_lied();
      other.lie(false);
      Hello same_rank = hello;
      const auto asked = other.hear<Challenge>(twin);
      same_rank.nonce = net::make_nonce();
      other.say(twin, same_rank, asked.nonce);
      std::array<pollfd, 2> both = {pollfd{host->fd(), POLLIN, 0}, pollfd{twin.fd(), POLLIN, 0}};
      if (!net::wait_for(both, other.soon())) require(!other.is_honest(), "one of two is refused");
      const bool stays = both[0].revents == 0;
      const auto refusal = other.hear<Welcome>(stays ? twin : *host);
      require(!other.is_honest() || refusal.refused[0] != 0, "one of two is refused");
      other.must_be_proven(refusal, stays ? same_rank.nonce : hello.nonce);
      if (stays)
        other.lie(first_has_lied);
      else
        host = &twin, hello.nonce = same_rank.nonce;
      ranks.emplace_back(meeting.options(*late));
    }
    const auto welcome = other.hear<Welcome>(*host);
    if (welcome.refused[0] != 0) {
      require(!other.is_honest(), "an honest rank is welcome");
      throw Ends();
    }
    std::vector<net::Address> listening;
    for (int rank = 0; rank < meeting.ranks; rank++) listening.push_back(other.hear<net::Address>(*host));
    other.must_be_proven(welcome, hello.nonce, std::as_bytes(std::span(listening)));
    std::vector<const net::Socket*> sockets(2 * static_cast<size_t>(meeting.ranks));
    for (int below = 0; below < self; below++) {
      net::Address at = meeting.address;
      if (below > 0) at.set_port(listening[static_cast<size_t>(below)].port());
      for (const Join::Use use : {Join::data, Join::notes})
        sockets[2 * static_cast<size_t>(below) + use] = &other.join(at, welcome.group, self, below, use);
    }
    const auto above = other.let_join(listener, self, welcome.group);
    for (size_t s = 2 * static_cast<size_t>(self + 1); s < above.size(); s++) sockets[s] = above[s];
    other.say(*host, std::string(1, static_cast<char>(connected)));
    const auto go_on = other.hear<Welcome>(*host);
    require(!other.is_honest() || go_on.refused[0] == 0, "the ranks are connected");
    other.must_be_proven(go_on, hello.nonce);
    other.run(sockets, self);
    done = true;
  } catch (const Ends&) {
  }
  end(ranks, other, done, meeting);
}

/// Rank 0.
void host(Draw& draw) {
  const Meeting meeting(draw);
  Other other(draw, meeting);
  const net::Socket& listener = other.keep(net::listen_at(meeting.address));
  std::deque<Rank> ranks;
  for (int rank = 1; rank < meeting.ranks; rank++) ranks.emplace_back(meeting.options(rank));
  bool done = false;
  try {
    const auto number = [](int rank) { return static_cast<size_t>(rank); };
    std::vector<net::Address> listening(number(meeting.ranks));
    std::vector<net::Nonce> nonces(number(meeting.ranks));
    std::vector<const net::Socket*> guests(number(meeting.ranks));
    for (int count = 1; count < meeting.ranks; count++) {
      const net::Socket& socket = other.keep(other.accept(listener));
      if (meeting.is_hasty) throw Ends();
      const Challenge challenge{.nonce = net::make_nonce()};
      other.say(socket, std::string(reinterpret_cast<const char*>(&challenge), sizeof challenge));
      const auto hello = other.hear<Hello>(socket);
      other.must_be_proven(hello, challenge.nonce);
      require(hello.world_size == meeting.ranks && hello.rank > 0 && hello.rank < meeting.ranks,
              "ranks say who they are");
      guests[number(hello.rank)] = &socket;
      nonces[number(hello.rank)] = hello.nonce;
      net::Address& at = listening[number(hello.rank)];
      at = meeting.address;
      at.set_port(hello.port);
      if (draw.coin()) at.size = 0;  // on the machine of rank 0
      other.change(at.size, draw.coin() ? sizeof(sockaddr_in) : sizeof(sockaddr_storage));
      other.change(at.storage.ss_family, AF_INET6);
      const bool is_one = (at.storage.ss_family == AF_INET && at.size == sizeof(sockaddr_in)) ||
                          (at.storage.ss_family == AF_INET6 && at.size == sizeof(sockaddr_in6));
      if (at.size > 0 && !is_one) other.lie();
    }
    uint64_t group = draw.any<uint64_t>();
    const auto tell_all = [&](std::span<const std::byte> follows) {
      for (int rank = 1; rank < meeting.ranks; rank++) {
        Welcome welcome{.group = group};
        if (other.wrongly()) draw.coin() ? welcome.refused.fill('x') : void(welcome.refused[0] = 'y');
        other.say(*guests[number(rank)], welcome, nonces[number(rank)], follows);
      }
    };
    tell_all(std::as_bytes(std::span(listening)));
    const auto sockets = other.let_join(listener, 0, group);
    for (int rank = 1; rank < meeting.ranks; rank++)
      require(other.hear<std::byte>(*guests[number(rank)]) == connected, "a rank says that it is connected");
    tell_all({});
    other.run(sockets, 0);
    done = true;
  } catch (const Ends&) {
  }
  end(ranks, other, done, meeting);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const LogSink quiet = set_log_sink([](LogLevel, std::string_view) {});
  return run_one_of({strangers, guest, host}, data, size);
}
