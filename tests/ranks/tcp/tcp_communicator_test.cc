// Ranks that are connected by TCP: as threads, each with its own connections, and as processes.
#include "feedline/tcp_communicator.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>

#include "base/audit.h"
#include "base/net/sockets.h"
#include "ranks/collective_call.h"
#include "ranks/communicator_conformance.h"
#include "ranks/process/linked_communicator.h"
#include "ranks/tcp/lobby.h"
#include "ranks/tcp/meeting_messages.h"
#include "ranks/tcp/tcp_links.h"
#include "ranks/tcp/tcp_rendezvous.h"
#include "support/catch.h"
#include "support/launch.h"
#include "support/log_lines.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/skip.h"
#include "support/tcp.h"

using namespace feedline;
using namespace feedline::test;
using namespace std::chrono_literals;

namespace {

// Runs `body` on each rank. Returns what each rank threw.
std::vector<std::string> on_tcp_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  const int port = free_port();
  return side_by_side(ranks, [&](int rank) { body(tcp_communicator(tcp_options(rank, ranks, port))); });
}

void all_well(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  for (const std::string& thrown : on_tcp_ranks(ranks, body)) CHECK(thrown == "");
}

net::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(10); }

net::Socket come_to(int port) {
  const net::Deadline until = soon();
  for (;;) try {
      return net::connect_to(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front(), until);
    } catch (const Error&) {
      if (std::chrono::steady_clock::now() > until) throw;
    }
}

// A rank that has come to rank 0, and does no more.
struct IdleRank {
  net::Socket listener, host;
};

IdleRank come_as(int rank, int ranks, int port) {
  IdleRank idle{.listener = net::listen_at(net::resolve("127.0.0.1", 0).front()), .host = come_to(port)};
  ranks::Challenge challenge;
  net::receive_all(idle.host, std::as_writable_bytes(std::span(&challenge, 1)), soon());
  const ranks::Hello hello{.rank = rank, .world_size = ranks, .port = net::address_of(idle.listener).port()};
  net::send_all(idle.host, ranks::bytes_of(ranks::signed_by(hello, "", challenge.nonce)), soon());
  return idle;
}

}  // namespace

TEST_CASE("tcp: a communicator does what all do") {
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  all_well(ranks, [](std::unique_ptr<Communicator> c) { conformance(*c); });
}

TEST_CASE("tcp: what is wrong on one rank ends all of them, and says where") {
  all_well(4, [](std::unique_ptr<Communicator> c) { calls_differently(*c); });
  all_well(4, [](std::unique_ptr<Communicator> c) { sends_what_nobody_wants(*c); });
  all_well(4, [](std::unique_ptr<Communicator> c) { aborts(*c); });
  all_well(4, [](std::unique_ptr<Communicator> c) { leaves(std::move(c)); });
}

TEST_CASE("tcp: a rank that leaves in peace takes nothing from a call that it has finished") {
  for (int round = 0; round < 50; round++) all_well(3, [](std::unique_ptr<Communicator> c) { broadcasts(*c); });
}

TEST_CASE("tcp: much at once, both ways") {
  all_well(3, [](std::unique_ptr<Communicator> c) {
    for (const size_t bytes : {3'000'000, 20'000'000}) {
      const std::vector<std::byte> mine = pattern(c->rank(), bytes);
      std::vector<std::byte> all(bytes * 3);
      c->all_gather(mine, all, Stream::host);
      for (int rank = 0; rank < 3; rank++)
        expect(
            std::ranges::equal(std::span(all).subspan(static_cast<size_t>(rank) * bytes, bytes), pattern(rank, bytes)),
            "what came");
    }
  });
}

TEST_CASE("tcp: missing ranks are named, and no rank waits forever") {
  const int port = free_port();
  const auto thrown = side_by_side(2, [&](int rank) {
    TcpOptions options = tcp_options(rank == 0 ? 0 : 2, 4, port);
    options.start_timeout = std::chrono::seconds(3);
    tcp_communicator(options);
  });
  for (const std::string& text : thrown)
    CHECK_THAT(text, Catch::Contains("ranks 1, 3 have not connected to 127.0.0.1:"));

  TcpOptions alone = tcp_options(1, 2, port);
  alone.start_timeout = std::chrono::milliseconds(200);
  CHECK_THROWS_WITH(tcp_communicator(alone), Catch::Contains("rank 0 could not be reached at 127.0.0.1:"));
}

TEST_CASE("tcp: ranks that are long in coming are named in the log, by those that wait") {
  const LogLines log;
  const int port = free_port();
  const std::string place = "127.0.0.1:" + std::to_string(port);
  const auto thrown = side_by_side(4, [&](int rank) {
    if (rank == 0) expect(log.wait_for("s for rank 0 at " + place + " (connecting to " + place), "rank 2 waits");
    if (rank == 1)
      expect(log.wait_for("s at " + place + " for ranks 1, 3 (world size 4); rank 2 has connected"), "rank 0 waits");
    if (rank == 3) {
      expect(log.wait_for("s at " + place + " for rank 3 (world size 4); ranks 1, 2 have connected"),
             "rank 0 waits on");
      expect(log.wait_for(" s for other ranks to connect to rank 0 at " + place), "rank 2 waits on");
    }
    ranks::meet(tcp_options(rank, 4, port), nullptr, std::chrono::milliseconds(1));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: a rank that leaves has finished no more calls than there were") {
  const uint64_t finished = GENERATE(0, 1, 2, UINT64_MAX);
  INFO(finished);
  std::vector<ranks::TcpPeer> peers(2);
  const auto connect = [](net::Socket& mine) {
    std::array<int, 2> ends;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    mine = net::Socket(ends[0]);
    return net::Socket(ends[1]);
  };
  const net::Socket data = connect(peers[1].data), notes = connect(peers[1].notes);
  const auto rank_0 = ranks::linked_communicator(ranks::tcp_links(0, std::move(peers)), std::chrono::seconds(30));
  const ranks::CollectiveCall barrier;
  const ranks::Note left(ranks::Note::left, finished);
  if (finished == 1) net::send_all(data, std::as_bytes(std::span(&barrier, 1)), soon());
  net::send_all(notes, std::as_bytes(std::span(&left, 1)), soon());
  if (finished == 1) rank_0->barrier();
  CHECK_THROWS_WITH(rank_0->barrier(), Catch::Contains(finished < 2 ? "has destroyed its communicator" : "calls"));
}

TEST_CASE("tcp: the system can watch the machine at the other end") {
  const net::Socket listener = net::listen_at(net::resolve("127.0.0.1", 0).front());
  const net::Socket there = net::connect_to(net::address_of(listener), soon());
  const auto is_watched = [&] {
    int on = -1;
    socklen_t size = sizeof on;
    CHECK(getsockopt(there.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, &size) == 0);
    return on;
  };
  CHECK(is_watched() == 0);
  net::watch_machine(there);
  CHECK(is_watched() == 1);
}

TEST_CASE("tcp: a wait for ranks can be stopped") {
  const LogLines log;
  const int port = free_port();
  std::stop_source stop;
  const auto thrown = side_by_side(3, [&](int rank) {
    if (rank == 2) {
      expect(log.wait_for("for rank 2 (world size 3); rank 1 has connected"), "the others wait");
      stop.request_stop();
      return;
    }
    TcpOptions options = tcp_options(rank, 3, port);
    options.stop = stop.get_token();
    ranks::meet(options, nullptr, std::chrono::milliseconds(1));
  });
  for (const int rank : {0, 1})
    CHECK_THAT(thrown[static_cast<size_t>(rank)], Catch::Contains("the wait for other ranks to start was stopped"));

  TcpOptions alone = tcp_options(1, 2, port);  // rank 0 is not there
  alone.stop = stop.get_token();
  CHECK_THROWS_WITH(tcp_communicator(alone), Catch::Contains("was stopped"));
}

TEST_CASE("tcp: a stop is heard while ranks connect to one another") {
  const int stopped = GENERATE(0, 2);
  const int port = free_port();
  std::stop_source stop;
  const auto thrown = side_by_side(3, [&](int rank) {
    TcpOptions options = tcp_options(rank, 3, port);
    if (rank == stopped) options.stop = stop.get_token();
    if (rank != 1) return static_cast<void>(ranks::meet(options, nullptr));
    // Rank 1 comes to rank 0, and lets rank 2 wait.
    const IdleRank idle = come_as(1, 3, port);
    const auto come = net::accept_from(idle.listener, soon());
    expect(come.has_value(), "rank 2 comes");
    stop.request_stop();
    std::array<std::byte, 1> one;
    const auto until_it_ends = [&] {
      for (;;) net::receive_all(stopped == 0 ? idle.host : come->first, one, soon());
    };
    expect(error_of(until_it_ends).message().find("reset") != std::string::npos, "the stopped rank ends");
  });
  CHECK(thrown[1] == "");
  CHECK_THAT(thrown[static_cast<size_t>(stopped)], Catch::Contains("the wait for other ranks to start was stopped"));
  CHECK(thrown[static_cast<size_t>(2 - stopped)] != "");
}

TEST_CASE("tcp: a rank that ends while ranks connect ends them at once") {
  const int port = free_port();
  const auto thrown = side_by_side(3, [&](int rank) {
    if (rank == 1) {
      const IdleRank idle = come_as(1, 3, port);
      expect(net::accept_from(idle.listener, soon()).has_value(), "rank 2 comes");  // and must try again
      {
        const auto come = net::accept_from(idle.listener, soon());
        net::send_all(come->first, ranks::bytes_of(ranks::Challenge()), soon());
        ranks::Join join;
        net::receive_all(come->first, std::as_writable_bytes(std::span(&join, 1)), soon());
        expect(join.rank == 2 && join.to == 1, "rank 2 says who it is");
      }
      expect(net::accept_from(idle.listener, soon()).has_value(), "rank 2 comes again");
      net::end_sending(idle.host);
      std::array<std::byte, 1> one;
      const auto until_it_ends = [&] {
        for (;;) net::receive_all(idle.host, one, soon());
      };
      error_of(until_it_ends);
    } else {
      TcpOptions options = tcp_options(rank, 3, port);
      options.timeout = std::chrono::hours(1);
      tcp_communicator(options);
    }
  });
  CHECK(thrown[1] == "");
  for (const size_t rank : {0, 2})
    CHECK_THAT(thrown[rank], Catch::Contains("rank 1 ended while the ranks were connecting to one another"));
}

TEST_CASE("tcp: ranks try again where a connection ends before they were asked") {
  const int port = free_port();
  const auto thrown = side_by_side(2, [&](int rank) {
    if (rank == 0) {
      // A forwarded port that has nothing behind it yet.
      const net::Socket forwards = net::listen_at(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front());
      for (int times = 0; times < 3; times++) expect(net::accept_from(forwards, soon()).has_value(), "rank 1 comes");
    }
    gathers(*tcp_communicator(tcp_options(rank, 2, port)));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: processes that differ are refused by name, and the others meet") {
  const LogLines log;
  const int port = free_port();
  const std::string secret = "of all the ranks of this test";
  const auto thrown = side_by_side(3, [&](int rank) {
    TcpOptions options = tcp_options(rank, 3, port);
    options.token = secret;
    if (rank == 2) {
      const auto why = [&](const std::function<void(TcpOptions&)>& change) {
        TcpOptions other = options;
        change(other);
        return error_of([&] { ranks::meet(other, nullptr); }).message();
      };
      expect(log.wait_for("rank 1 has connected"), "rank 1 is there first");
      expect(why([](TcpOptions& of) {
               of.world_size = 4;
             }).starts_with("rank 0: rank 2 of 4 connected to 127.0.0.1:" + std::to_string(port)),
             "another world size");
      expect(why([](TcpOptions& of) { of.rank = 1; }).starts_with("rank 0: two processes connected as rank 1"),
             "twice");
      for (const std::string token : {"of another group's ranks", ""})
        expect(why([&](TcpOptions& of) { of.token = token; })
                   .starts_with("the program that listens at 127.0.0.1:" + std::to_string(port) +
                                (token.empty() ? " has a secret, but this rank has none" : " has a different secret")),
               "another secret");
      expect(log.wait_for("it says that it is rank 2, but has a different secret"), "rank 0 says why");
      expect(log.wait_for("it says that it is rank 2, but has no secret"), "rank 0 says why");
      expect(log.wait_for("rank 1 has connected (4 connections refused; see the log)"),
             "and while it waits, that it did");
    }
    ranks::meet(options, nullptr, std::chrono::milliseconds(1));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: without a secret ranks meet only on their own machine") {
  const char* const wanted = "set FEEDLINE_MEET_TOKEN to the same random text for all ranks";
  const auto port = static_cast<uint16_t>(free_port());
  for (const char* const address : {"192.0.2.1", "0.0.0.0", "::"})  // the first is of nobody (RFC 5737)
    for (const int rank : {0, 1}) {
      INFO(address << " " << rank);
      CHECK_THROWS_WITH(tcp_communicator({.address = address, .port = port, .rank = rank, .world_size = 2}),
                        Catch::Contains(wanted));
    }
  CHECK_THROWS_WITH(
      tcp_communicator({.address = "127.0.0.1", .port = port, .rank = 0, .world_size = 2, .token = "too short"}),
      Catch::Contains("has only 9 bytes, so it can be guessed"));
}

TEST_CASE("tcp: rank 0 listens at the address that it is given, and nowhere else") {
  const int port = free_port();
  const auto thrown = side_by_side(2, [&](int rank) {
    if (rank == 1) {
      come_to(port);  // it listens
      const auto other = net::resolve("127.0.0.2", static_cast<uint16_t>(port)).front();
      expect(error_of([&] { net::connect_to(other, soon()); }).message().find("refused") != std::string::npos,
             "it listens elsewhere");
    }
    conformance(*tcp_communicator(tcp_options(rank, 2, port)));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: a program that answers in place of rank 0 must know the secret") {
  const int port = free_port();
  const net::Socket other = net::listen_at(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front());
  const auto thrown = side_by_side(2, [&](int rank) {
    TcpOptions options = tcp_options(1, 2, port);
    options.token = "of all the ranks of this test";
    if (rank == 1) return static_cast<void>(tcp_communicator(options));
    const auto come = net::accept_from(other, soon());
    struct {
      uint64_t begins = hash64("feedline ranks 2: challenge");
      std::array<std::byte, 16> nonce{};
    } challenge;
    net::send_all(come->first, std::as_bytes(std::span(&challenge, 1)), soon());
    std::array<std::byte, 72> hello;
    net::receive_all(come->first, hello, soon());
    const std::string_view said(reinterpret_cast<const char*>(hello.data()), hello.size());
    expect(said.find("of all the ranks") == std::string_view::npos, "the secret is sent");
    std::array<std::byte, 8 + 8 + 512 + 32 + 2 * sizeof(net::Address)> welcome{};
    const uint64_t begins = hash64("feedline ranks 2: welcome");
    std::memcpy(welcome.data(), &begins, sizeof begins);
    net::send_all(come->first, welcome, soon());
  });
  CHECK(thrown[0] == "");
  CHECK_THAT(thrown[1], Catch::Contains("has a different secret than this rank"));
}

TEST_CASE("tcp: a rank comes again that lost its place before it was heard, and not to a rank 0 that has ended") {
  const int port = free_port();
  const auto thrown = side_by_side(2, [&](int rank) {
    if (rank == 1) return static_cast<void>(tcp_communicator(tcp_options(1, 2, port)));
    const net::Socket listener = net::listen_at(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front());
    for (int times = 0; times < 2; times++) {
      const auto come = net::accept_from(listener, soon());
      net::send_all(come->first, ranks::bytes_of(ranks::Challenge()), soon());
      ranks::Hello hello;
      net::receive_all(come->first, std::as_writable_bytes(std::span(&hello, 1)), soon());
      expect(hello.rank == 1, "rank 1 says who it is");
    }
  });
  CHECK(thrown[0] == "");
  CHECK_THAT(thrown[1], Catch::Contains("rank 0 at 127.0.0.1:" + std::to_string(port) +
                                        " has ended, or has met with a different group of ranks (connecting to"));
}

TEST_CASE("tcp: a rank that nobody wants does not come for ever") {
  const int port = free_port();
  std::stop_source over;
  const net::Socket listener = net::listen_at(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front());
  int asked = 0;
  std::jthread other([&] {
    while (!over.stop_requested())
      if (const auto come = net::accept_from(listener, std::chrono::steady_clock::now() + 10ms)) {
        net::send_all(come->first, ranks::bytes_of(ranks::Challenge()), soon());
        ranks::Hello hello;
        net::receive_all(come->first, std::as_writable_bytes(std::span(&hello, 1)), soon());
        asked++;
      }
  });
  CHECK_THROWS_WITH(tcp_communicator(tcp_options(1, 2, port)),
                    Catch::Contains("closes the connection after this rank has said who it is"));
  over.request_stop();
  other.join();
  CHECK(asked == 10);
}

TEST_CASE("tcp: connections that are no rank's change nothing") {
  const int port = free_port();
  std::latch came(1), met(2);
  const auto thrown = side_by_side(3, [&](int rank) {
    if (rank < 2) {
      if (rank == 1) came.wait();
      const auto c = tcp_communicator(tcp_options(rank, 2, port));
      met.count_down();
      return conformance(*c);
    }
    std::vector<net::Socket> silent;
    for (int i = 0; i < 300; i++) silent.push_back(come_to(port));
    net::end_sending(come_to(port));
    const net::Socket talks = come_to(port);
    net::send_all(talks, std::as_bytes(std::span("GET / HTTP/1.1\r\nHost: example\r\n\r\n")), soon());
    came.count_down();
    met.wait();
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

namespace {

// Returns a connection to `address` that comes from another loopback address.
net::Socket come_from(const char* host, const net::Address& address) {
  net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::Address from = net::resolve(host, 0).front();
  REQUIRE(bind(socket.fd(), reinterpret_cast<const sockaddr*>(&from.storage), from.size) == 0);
  REQUIRE(connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0);
  REQUIRE(fcntl(socket.fd(), F_SETFL, O_NONBLOCK) == 0);
  return socket;
}

}  // namespace

TEST_CASE("tcp: a process has time to say who it is, however many come after it") {
  const auto to_speak = GENERATE(0h, 24h);
  INFO(to_speak.count());
  std::vector<net::Socket> listeners;
  listeners.push_back(net::listen_at(net::resolve("127.0.0.1", 0).front()));
  const net::Address place = net::address_of(listeners[0]);
  ranks::Refusals refusals;
  ranks::Lobby<ranks::Hello> lobby(listeners, refusals, {}, to_speak);
  std::deque<net::Socket> visitors;
  // Returns whether the visitor is asked who it is.
  const auto come = [&](const char* from) {
    visitors.push_back(come_from(from, place));
    CHECK_FALSE(lobby.next({}, std::chrono::steady_clock::now()));  // takes in who has come, or turns it away
    return net::has_more(visitors.back());
  };
  const auto ended = [](const net::Socket& visitor) {
    ranks::Challenge challenge;
    CHECK(net::receive_some(visitor, std::as_writable_bytes(std::span(&challenge, 1))) == sizeof challenge);
    return !net::has_more(visitor);
  };
  const bool waits = to_speak > 0h;  // nobody has had the time to speak
  for (int n = 0; n < 128; n++) CHECK(come("127.0.0.1"));
  CHECK(come("127.0.0.1") == !waits);  // one more of a host that has half of the places
  CHECK(ended(visitors[0]) == !waits);
  for (int n = 0; n < 128; n++) CHECK(come("127.0.0.2"));
  CHECK(come("127.0.0.3") == !waits);  // no place is free
  CHECK(ended(visitors[1]) == !waits);

  ranks::Challenge challenge;
  net::receive_all(visitors[127], std::as_writable_bytes(std::span(&challenge, 1)), soon());
  net::send_all(visitors[127], ranks::bytes_of(ranks::signed_by(ranks::Hello{.rank = 7}, "", challenge.nonce)), soon());
  const auto visitor = lobby.next({}, soon());
  REQUIRE(visitor);
  CHECK(visitor->message.rank == 7);
  CHECK(visitor->knows(""));
  CHECK(come("127.0.0.3"));  // takes the place that has become free
}

TEST_CASE("tcp: who has not said who it is makes room when the system has no descriptor left") {
  const auto to_speak = GENERATE(0ms, 300ms);
  std::vector<net::Socket> listeners;
  listeners.push_back(net::listen_at(net::resolve("127.0.0.1", 0).front()));
  ranks::Refusals refusals;
  ranks::Lobby<ranks::Hello> lobby(listeners, refusals, {}, to_speak);
  const net::Socket silent = net::connect_to(net::address_of(listeners[0]), soon());
  CHECK_FALSE(lobby.next({}, std::chrono::steady_clock::now()));
  const net::Socket rank = net::connect_to(net::address_of(listeners[0]), soon());
  SyscallHook* const hook = find_hook("accept");
  REQUIRE(hook);
  hook->fail_nth_call(1);
  const auto failed = std::chrono::steady_clock::now();
  CHECK_FALSE(lobby.next({}, failed));  // refused
  CHECK_FALSE(hook->pending());
  ranks::Challenge challenge;
  std::jthread asked([&] {
    net::receive_all(rank, std::as_writable_bytes(std::span(&challenge, 1)), soon());
    net::send_all(rank, ranks::bytes_of(ranks::signed_by(ranks::Hello{.rank = 7}, "", challenge.nonce)), soon());
  });
  CHECK(lobby.next({}, soon()));  // once there is room
  asked.join();
  if (to_speak > 0ms) return;
  const net::Socket next = net::connect_to(net::address_of(listeners[0]), soon());
  hook->fail_nth_call(1);
  CHECK_THROWS_WITH(lobby.next({}, soon()), Catch::Contains("accept: "));  // nobody can make room
}

TEST_CASE("tcp: ranks may know rank 0 by different names") {
  const int port = free_port();
  const auto thrown = side_by_side(4, [&](int rank) {
    TcpOptions options = tcp_options(rank, 4, port);
    options.address = std::array{"localhost", "127.0.0.1", "localhost", "127.0.0.1"}[static_cast<size_t>(rank)];
    conformance(*tcp_communicator(options));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: ranks meet at any loopback address, and where anybody may come") {
  // Debian gives the name of a machine the address 127.0.1.1, from which nothing comes. 0.0.0.0 is all addresses.
  std::array<char, 256> name{};
  REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
  for (const std::string address : {"127.0.1.1", "localhost", "0.0.0.0", static_cast<const char*>(name.data())}) {
    INFO(address);
    try {
      net::resolve(address, 0);
    } catch (const Error&) {
      continue;  // nobody knows this machine by its name
    }
    for (const bool open : {false, true}) {
      const int port = free_port();
      const auto thrown = side_by_side(4, [&](int rank) {
        TcpOptions options = tcp_options(rank, 4, port);
        options.address = address;
        options.open = open;
        if (!open) options.token = "of all the ranks of this test";
        gathers(*tcp_communicator(options));
      });
      for (const std::string& text : thrown) CHECK(text == "");
    }
  }
  const int port = free_port();
  for (const std::string& text : side_by_side(4, [&](int rank) {
         TcpOptions options = tcp_options(rank, 4, port);
         options.address = "127.0.1.1";
         gathers(*tcp_communicator(options));
       }))
    CHECK(text == "");
}

TEST_CASE("tcp: a program that waits for others to speak is not waited for") {
  const int port = free_port();
  const net::Socket other = net::listen_at(net::resolve("127.0.0.1", static_cast<uint16_t>(port)).front());
  TcpOptions options = tcp_options(1, 2, port);
  options.timeout = std::chrono::milliseconds(50);
  CHECK_THROWS_WITH(tcp_communicator(options),
                    Catch::Contains("has not answered; it may be a program other than rank 0"));
}

TEST_CASE("tcp: ranks may make one communicator after another at one port") {
  const int port = free_port();
  for (const std::string& thrown : side_by_side(4, [&](int rank) {
         std::deque<std::unique_ptr<Communicator>> all;
         for (int made = 0; made < 100; made++) {
           all.push_back(tcp_communicator(tcp_options(rank, 4, port)));
           if (all.size() > 3) all.pop_front();
         }
         for (const auto& one : all) gathers(*one);
       }))
    CHECK(thrown == "");
}

TEST_CASE("tcp: ranks that have an exchange need no port") {
  const std::string address = GENERATE("", "localhost");
  const auto exchanges = exchanges_between_threads(4);
  const auto thrown = side_by_side(4, [&](int rank) {
    TcpOptions options{.rank = rank, .world_size = 4, .start_timeout = std::chrono::seconds(60)};
    if (rank == 0) options.address = address;
    conformance(*tcp_communicator(options, exchanges[static_cast<size_t>(rank)]));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: what keeps one rank from coming is told to those that wait in the exchange") {
  const auto thrown_by = [](const std::function<void(TcpOptions&)>& change) {
    const auto exchanges = exchanges_between_threads(3);
    return side_by_side(3, [&](int rank) {
      TcpOptions options{.rank = rank, .world_size = 3};
      change(options);
      tcp_communicator(options, exchanges[static_cast<size_t>(rank)]);
    });
  };
  const auto check_all = [](const std::vector<std::string>& thrown, int failed, const std::string& why) {
    const std::string number = "rank " + std::to_string(failed) + ": ";
    for (size_t rank = 0; rank < thrown.size(); rank++) {
      CHECK_THAT(thrown[rank], Catch::Contains(why));
      CHECK((thrown[rank].find(number) == 0) == (static_cast<int>(rank) != failed));
    }
  };
  const auto port = static_cast<uint16_t>(free_port());
  const net::Socket other = net::listen_everywhere(port);
  check_all(thrown_by([&](TcpOptions& options) { options.port = port; }), 0, "listening at ");
  check_all(thrown_by([&](TcpOptions& options) {
              if (options.rank == 2) options.timeout = std::chrono::seconds(0);
            }),
            2, "the timeout is 0 ms; it must be more than 0");
  SyscallHook* hook = find_hook("getifaddrs");
  REQUIRE(hook);
  hook->fail_nth_call(1);
  check_all(thrown_by([](TcpOptions&) {}), 0, "getifaddrs");
  CHECK_FALSE(hook->pending());
  // All ranks have met at this point, so a failure after it is a failure of all ranks, too.
  hook = find_hook("eventfd for poll");
  REQUIRE(hook);
  hook->fail_nth_call(1);
  for (const std::string& thrown : thrown_by([](TcpOptions&) {})) CHECK_THAT(thrown, Catch::Contains("eventfd"));
  CHECK_FALSE(hook->pending());
}

TEST_CASE("tcp: an exchange that counts its calls serves one meeting after another") {
  const auto exchanges = exchanges_between_threads(2);
  for (const std::string& thrown : side_by_side(2, [&](int rank) {
         int calls = 0;
         const Exchange counted = [&exchange = exchanges[static_cast<size_t>(rank)], own = 0,
                                   &calls](std::string_view mine) mutable {
           calls++;
           if (++own != calls) throw std::logic_error("a copy was called");
           return exchange(mine);
         };
         for (int times = 0; times < 2; times++) gathers(*tcp_communicator({.rank = rank, .world_size = 2}, counted));
       }))
    CHECK(thrown == "");
}

TEST_CASE("tcp: a rank that ends while it waits for others may come again") {
  const int port = free_port();
  std::latch again(1);
  const auto thrown = side_by_side(3, [&](int rank) {
    if (rank == 1) {
      TcpOptions hasty = tcp_options(1, 3, port);
      hasty.start_timeout = std::chrono::milliseconds(0);  // rank 0 still has 5 s to say who is missing
      const std::string unreached = "could not be reached";
      std::string text = unreached;
      while (text.find(unreached) != std::string::npos) text = error_of([&] { tcp_communicator(hasty); }).message();
      expect(text.find("has not answered within") != std::string::npos, text);
      again.count_down();
    }
    if (rank == 2) again.wait();
    conformance(*tcp_communicator(tcp_options(rank, 3, port)));
  });
  for (const std::string& text : thrown) CHECK(text == "");
}

TEST_CASE("tcp: another program at the port is reported") {
  const int port = free_port();
  const net::Socket other = net::listen_everywhere(static_cast<uint16_t>(port));
  const auto thrown = side_by_side(2, [&](int rank) {
    if (rank == 0) {
      const auto come = net::accept_from(other, soon());
      net::send_all(come->first, std::as_bytes(std::span("220 mail", 8)), soon());  // less than a challenge
      std::array<std::byte, 1> none;
      error_of([&] { net::receive_all(come->first, none, soon()); });  // until the rank has gone
    } else {
      tcp_communicator(tcp_options(1, 2, port));
    }
  });
  CHECK_THAT(thrown[1], Catch::Contains("is not rank 0"));
  CHECK_THROWS_WITH(tcp_communicator(tcp_options(0, 2, port)), Catch::Contains("listening at"));
}

TEST_CASE("tcp: a port that another program has for IPv6 only is not free") {
  const net::Socket other(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  if (!other || setsockopt(other.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0 ||
      bind(other.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return skip("this machine has no IPv6");
  REQUIRE(listen(other.fd(), 1) == 0);
  CHECK_THROWS_WITH(net::listen_everywhere(net::address_of(other).port()),
                    Catch::Contains("another program uses this port"));
}

TEST_CASE("tcp: rank and address are read from the launcher's environment") {
  const auto set = [](const char* rank, const char* size, const char* address, const char* port) {
    const auto one = [](const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); };
    one("RANK", rank), one("WORLD_SIZE", size), one("MASTER_ADDR", address), one("MASTER_PORT", port);
  };
  set("3", "8", "node0", "29500");
  const TcpOptions options = tcp_options_of_environment();
  CHECK(options.rank == 3);
  CHECK(options.world_size == 8);
  CHECK(options.address == "node0");
  CHECK(options.port == 29501);
  setenv("LOCAL_WORLD_SIZE", "8", 1);  // all ranks are on this machine, whatever name the launcher gives it
  CHECK(tcp_options_of_environment().address == "localhost");
  setenv("LOCAL_WORLD_SIZE", "4", 1);
  CHECK(tcp_options_of_environment().address == "node0");
  unsetenv("LOCAL_WORLD_SIZE");
  set("8", "8", "node0", "29500");
  CHECK_THROWS_WITH(tcp_options_of_environment(), Catch::Contains("RANK is \"8\"; set it to a number from 0 to 7"));
  set("1", "8", "node0", "x");
  CHECK_THROWS_WITH(tcp_options_of_environment(), Catch::Contains("MASTER_PORT is \"x\""));
  set("1", "8", nullptr, "29500");
  CHECK_THROWS_WITH(tcp_options_of_environment(), Catch::Contains("MASTER_ADDR is not set"));
  set(nullptr, nullptr, nullptr, nullptr);
}

TEST_CASE("tcp: options are refused beyond their bounds, and not at them") {
  CHECK(tcp_communicator({})->size() == 1);  // who is alone needs no address
  const auto refused = [](const TcpOptions& options, const char* why) {
    CHECK_THROWS_WITH(tcp_communicator(options), Catch::Contains(why));
  };
  const char* const good = "the address or the port is missing";  // which is found last
  refused({.rank = 1, .world_size = 2}, good);
  refused({.rank = 2, .world_size = 2}, "there is no rank 2 in a world of 2 ranks");
  refused({.rank = 3, .world_size = 2}, "there is no rank 3 in a world of 2 ranks");
  refused({.rank = -1, .world_size = 2}, "there is no rank -1 in a world of 2 ranks");
  refused({.rank = 0, .world_size = 0}, "there is no rank 0 in a world of 0 ranks");
  refused({.world_size = 1 << 20}, good);
  refused({.world_size = (1 << 20) + 1}, "the world size is 1048577, but TCP can connect at most 1048576 ranks");
  refused({.world_size = 2, .token = std::string(16, 'x')}, good);
  refused({.world_size = 2, .token = std::string(15, 'x')}, "has only 15 bytes, so it can be guessed");
  CHECK(tcp_communicator({.token = "unused"}, exchanges_between_threads(1)[0])->size() == 1);
  refused({.timeout = std::chrono::milliseconds(0)}, "the timeout is 0 ms; it must be more than 0");
  SyscallHook* const hook = find_hook("start thread");
  REQUIRE(hook);
  hook->fail_nth_call(1);
  CHECK_THROWS_AS(tcp_communicator({}), Error);
  hook->fail_nth_call(0);
}

TEST_CASE("tcp: any failing call ends all ranks and leaks nothing") {
  const size_t descriptors = open_descriptors(), before = threads();
  for (const std::string name : {"socket", "listen", "accept", "connect", "send", "recv", "poll", "eventfd for poll"})
    for (const int nth : {1, 2, 3, 8, 34}) {
      SyscallHook* const hook = find_hook(name);
      REQUIRE(hook);
      hook->fail_nth_call(nth);
      const int port = free_port();
      const auto thrown = side_by_side(3, [&](int rank) {
        TcpOptions options = tcp_options(rank, 3, port);
        options.start_timeout = std::chrono::seconds(2);  // the others wait this long for a rank 0 that cannot begin
        const auto c = tcp_communicator(options);
        gathers(*c);
        c->barrier();
      });
      INFO(name << " " << nth);
      const bool failed = !hook->pending();
      hook->fail_nth_call(0);
      // Some calls are repeated after a failure, and some failures have no effect because no rank needs the call any
      // more.
      for (const std::string& text : thrown) {
        INFO(text);
        CHECK((text.empty() || (failed && (text.find("[io_error]") != std::string::npos ||
                                           text.find("[stalled]") != std::string::npos))));
      }
      CHECK(open_descriptors() == descriptors);
    }
  CHECK(threads_settle_at(before));
}

TEST_CASE("tcp: bytes may come one by one") {
  SyscallHook* const hook = find_hook("send or recv short");
  REQUIRE(hook);
  all_well(3, [&](std::unique_ptr<Communicator> c) {
    for (int call = 0; call < 300; call++) {
      hook->fail_nth_call(1 + call % 7);
      sends(*c);
    }
  });
  hook->fail_nth_call(0);
}

TEST_CASE("tcp: processes do what all do, and a rank that pauses is no failure") {
  for (const std::string what : {"conformance", "pause"}) {
    const Launched launched = torchrun(4, TCP_RANKS " " + what);
    INFO(what << "\n" << launched.text);
    CHECK(launched.ok == 4);
  }
}

TEST_CASE("tcp: a process that is stopped, killed or wrong ends the others") {
  for (const std::string what : {"stop", "kill", "differently", "parts", "abort", "leave"}) {
    const Launched launched = torchrun(4, TCP_RANKS " " + what);
    INFO(what << "\n" << launched.text);
    CHECK(launched.ok == (what == "kill" ? 3 : 4));
  }
}
