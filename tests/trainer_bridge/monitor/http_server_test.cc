// The server of the monitor: what it answers, and what clients cannot do to it.
#include "trainer_bridge/monitor/http_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/base64.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/http_client.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "trainer_bridge/monitor/http_client.h"
#include "trainer_bridge/monitor/http_message.h"
#include "trainer_bridge/monitor/monitor_token.h"

using namespace feedline;
using namespace feedline::test;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

HttpAddress any_port() { return parse_http_address("monitor", "127.0.0.1:0"); }

std::shared_ptr<int> kept_until_then = std::make_shared<int>();

// Answers with what it was asked. "/wrong" throws, "/large" is 64 MiB.
HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/wrong") throw Error(Category::io_error, "it went wrong");
  if (request.path == "/large") return {.body = std::string(64 << 20, 'x')};
  if (request.path == "/later") return {.later = [] { return HttpResponse{.body = "late"}; }};
  if (request.path == "/soon") return {.later = [] { return HttpResponse{.body = "soon"}; }, .wait = 100ms};
  if (request.path == "/site") return {.body = request.other_site ? "other" : "own"};
  if (request.path == "/in_an_hour") return {.later = [kept = kept_until_then] { return HttpResponse{}; }, .wait = 1h};
  if (request.path != "/echo") return {.status = 404, .body = "nothing\n"};
  return {.body = request.path + "|" + request.query + "|" + request.accept};
}

struct Echo : HttpServer {
  explicit Echo(const HttpAddress& address = any_port(), const std::string& token = "",
                HttpLimits limits = {.time = std::chrono::hours(1)})
      : HttpServer(address, token, limits) {
    serve(echo, [] {});
  }
};

// Connects to the Unix domain socket at `path`.
net::Socket connect_to_path(const std::string& path) {
  net::Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  fcntl(socket.fd(), F_SETFL, O_NONBLOCK);
  return socket;
}

template <typename Make>
std::string error_of(Make make) {
  try {
    make();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("addresses of a monitor") {
  const auto text = [](std::string_view given) { return parse_http_address("monitor", given).text(); };
  CHECK(text("127.0.0.1:9400") == "http://127.0.0.1:9400/");
  CHECK(text("localhost:1") == "http://127.0.0.1:1/");
  CHECK(text("0.0.0.0:65535") == "http://0.0.0.0:65535/");
  CHECK(text("[::1]:9400") == "http://[::1]:9400/");
  CHECK(text("unix:/run/feed.sock") == "unix:/run/feed.sock");
  for (const char* wrong : {"", "9400", ":9400", "127.0.0.1", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:65536",
                            "127.0.0.1:-1", "127.0.0.1:80 ", "example.org:80", "[::1]", "unix:", "http://127.0.0.1:80"})
    CHECK_THAT(error_of([&] { text(wrong); }),
               StartsWith("monitor: '" + std::string(wrong) + "' is not an address; write an IP address and a port"));
  CHECK_THAT(error_of([] { Echo(parse_http_address("monitor", "unix:/" + std::string(200, 'x'))); }),
             Contains("may have at most 107 bytes, but this path has 201"));
}

TEST_CASE("requests, and what is none") {
  const Echo server;
  const HttpAddress at = server.address();
  CHECK(at.ip.port() > 0);
  const std::string found = get(at, "/echo?a=1", "ACCEPT:  text/html \n");
  CHECK_THAT(found, StartsWith("HTTP/1.1 200 OK\r\n") && Contains("\r\nContent-Length: 19\r\n") &&
                        Contains("\r\nConnection: close\r\n") && Contains("\r\nCache-Control: no-store\r\n") &&
                        Contains("default-src 'none'"));
  CHECK(body(found) == "/echo|a=1|text/html");
  const std::string head = ask(at, "HEAD /echo HTTP/1.0\n\n");
  CHECK_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n") && Contains("\r\nContent-Length: 7\r\n"));
  CHECK(body(head).empty());
  CHECK_THAT(get(at, "/other"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  CHECK_THAT(get(at, "/wrong"), StartsWith("HTTP/1.1 500 Internal Server Error\r\n") && Contains("it went wrong"));
  CHECK_THAT(ask(at, "POST /echo HTTP/1.1\nHost: localhost\nContent-Length: 3\n\nabc"),
             StartsWith("HTTP/1.1 405 Method Not Allowed\r\n") && Contains("\r\nAllow: GET, HEAD\r\n"));
  const std::string host = "\nHost: localhost\n\n";
  for (const char* wrong : {"hello", "GET /echo", "GET  HTTP/1.1", "GET /echo HTTP/2", "GET echo HTTP/1.1", " ",
                            "GET /echo HTTP/1.1xyz", "GET /echo HTTP/1.", "GET /echo HTTP/1.10", "GET /echo http/1.1",
                            "GET /ec ho HTTP/1.1", "GET /echo  HTTP/1.1", "G(T /echo HTTP/1.1", "GET /echo HTTP/1.1 "})
    CHECK_THAT(ask(at, wrong + host), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  for (const char* wrong : {"", "Host : localhost\n", "Host: localhost\nHost: localhost\n", "Host localhost\n",
                            ": localhost\n", "Host: localhost\nA: b\n c\n", "Host: localhost\n\tc\n"})
    CHECK_THAT(ask(at, std::string("GET /echo HTTP/1.1\n") + wrong + "\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  CHECK_THAT(ask(at, "GET /echo HTTP/1.0\nHost: localhost\nHost: localhost\n\n"),
             StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  // What some clients send, and a server has to take.
  CHECK(body(ask(at, "\n\nGET /echo?a HTTP/1.1" + host)) == "/echo|a|");
  for (const char* target : {"http://localhost/echo?a", "HTTP://127.0.0.1:80/echo?a"})
    CHECK(body(ask(at, std::string("GET ") + target + " HTTP/1.1" + host)) == "/echo|a|");
  CHECK_THAT(ask(at, "GET http://localhost HTTP/1.1" + host), StartsWith("HTTP/1.1 404 "));  // it is that of /
  CHECK_THAT(ask(at, "GET http://example.org/echo HTTP/1.1" + host), StartsWith("HTTP/1.1 403 "));
  CHECK(body(get(at, "/large")).size() == 64 << 20);

  // A request may come in any pieces.
  const net::Socket slow = connect_to(at);
  for (const char c : std::string_view("GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    send(slow, std::string_view(&c, 1));
  CHECK(body(receive(slow)) == "/echo||");
}

TEST_CASE("what is no request is told at once, without waiting for its end") {
  const Echo server;                                                                     // which would wait for an hour
  for (const std::string_view wrong : {std::string_view("\x16\x03\x01\x02\x00\x01", 6),  // as TLS begins
                                       std::string_view("GET /echo HTTP/1.1\n"), std::string_view("GET /echo\rx"),
                                       std::string_view("\0", 1), std::string_view("GET /\x7f")}) {
    const net::Socket socket = connect_to(server.address());
    send(socket, wrong);
    CHECK_THAT(receive(socket), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  }
}

TEST_CASE("a client that has closed its half gets an answer that comes later") {
  const Echo server;
  const net::Socket socket = connect_to(server.address());
  send(socket, "GET /soon HTTP/1.1\r\nHost: localhost\r\n\r\n");
  net::end_sending(socket);
  const std::string received = receive(socket);
  CHECK_THAT(received, Contains("HTTP/1.1 200 OK\r\n") && EndsWith("soon"));
}

TEST_CASE("a monitor with a token answers those who have it") {
  const Echo server(any_port(), "secret");
  const HttpAddress at = server.address();
  // What curl -u feedline:secret sends.
  CHECK(body(get(at, "/echo", "Authorization: Basic ZmVlZGxpbmU6c2VjcmV0\n")) == "/echo||");
  for (const char* wrong : {"", "Authorization: \n", "Authorization: Basic ZmVlZGxpbmU6c2VjcmVU\n",
                            "Authorization: Basic ZmVlZGxpbmU6c2VjcmV0ZmVlZGxpbmU6c2VjcmV0\n",
                            "Authorization: Basic ZmVlZGxpbmU6c2Vjcm\n", "Authorization: Bearer secret\n"})
    CHECK_THAT(get(at, "/echo", wrong), StartsWith("HTTP/1.1 401 Unauthorized\r\n") &&
                                            Contains("\r\nWWW-Authenticate: Basic realm=\"feedline\""));
  CHECK_THAT(get(at, "/large"), !Contains("xxx"));
  for (const char* right : {"basic ZmVlZGxpbmU6c2VjcmV0", "BASIC   ZmVlZGxpbmU6c2VjcmV0 "})
    CHECK(body(get(at, "/echo", std::string("Authorization: ") + right + "\n")) == "/echo||");
  for (const char* wrong : {"Basic", "Basic ", "ZmVlZGxpbmU6c2VjcmV0", "BasicZmVlZGxpbmU6c2VjcmV0"})
    CHECK_THAT(get(at, "/echo", std::string("Authorization: ") + wrong + "\n"), StartsWith("HTTP/1.1 401 "));
  for (const auto& [token, encoded] : {std::pair("a", "ZmVlZGxpbmU6YQ=="), std::pair("ab", "ZmVlZGxpbmU6YWI="),
                                       std::pair("abc", "ZmVlZGxpbmU6YWJj")}) {
    const Echo other(any_port(), token);
    CHECK_THAT(get(other.address(), "/echo", std::string("Authorization: Basic ") + encoded + "\n"), Contains(" 200 "));
  }
}

TEST_CASE("a client shows that it knows the token, and sends it to nobody") {
  const Echo server(any_port(), "secret"), open(any_port(), "");
  CHECK(http_get(server.address(), "/echo", "secret", in_a_minute()) == "/echo||");
  CHECK(http_get(open.address(), "/echo", "secret", in_a_minute()) == "/echo||");
  CHECK_THROWS_WITH(http_get(server.address(), "/echo", "another", in_a_minute()), StartsWith("401: "));
  CHECK_THROWS_WITH(http_get(server.address(), "/echo", "", in_a_minute()), StartsWith("401: "));

  const std::string nonce = body(get(server.address(), "/nonce")), shown = token_proof("secret", nonce, "/echo");
  const auto status = [&](const std::string& authorization, const char* target = "/echo") {
    return get(server.address(), target, "Authorization: " + authorization + "\n").substr(9, 3);
  };
  CHECK(status(shown) == "200");
  CHECK(status(shown, "/large") == "401");  // it is for one target
  CHECK(status(token_proof("secret", nonce, "/large"), "/large") == "200");
  CHECK(status(token_proof("secret", body(get(Echo(any_port(), "secret").address(), "/nonce")), "/echo")) == "401");
  CHECK(status(token_proof("secret", "123" + nonce.substr(nonce.find('-')), "/echo")) == "401");
  for (size_t size = 0; size < shown.size(); size++) CHECK(status(shown.substr(0, size)) == "401");
  for (size_t at = 9; at < shown.size(); at += 7) {
    std::string other = shown;
    other[at] = other[at] == '0' ? '1' : '0';
    CHECK(status(other) == "401");
  }
}

TEST_CASE("a nonce is taken back for 30 seconds") {
  const MonitorToken token("secret");
  const auto now = MonitorToken::Clock::now();
  const std::string shown = token_proof("secret", token.make_nonce(now), "/");
  CHECK(token.is_shown_by(shown, "/", now));
  CHECK(token.is_shown_by(shown, "/", now + 30s));
  CHECK_FALSE(token.is_shown_by(shown, "/", now + 31s));
  CHECK_FALSE(token.is_shown_by(shown, "/", now - 1s));
  CHECK_FALSE(MonitorToken("secret").is_shown_by(shown, "/", now));  // another monitor's
}

TEST_CASE("a program in the place of a monitor is told no secret, whatever it answers") {
  for (const std::string answer : {"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\na nonce\r\nX: y",
                                   "HTTP/1.1 200 OK\r\n\r\n1-2", "HTTP/1.1 200 OK\r\n\r\n"}) {
    const net::Socket other = net::listen_at(net::resolve("127.0.0.1", 0).front());
    std::string heard;
    std::atomic<bool> done = false;
    std::thread program([&] {
      while (!done)
        if (const auto come = net::accept_from(other, std::chrono::steady_clock::now() + 10ms)) {
          std::array<std::byte, 1> byte;
          while (!heard.ends_with("\r\n\r\n")) {
            net::receive_all(come->first, byte, in_a_minute());
            heard += static_cast<char>(byte[0]);
          }
          heard += "|";
          send(come->first, answer);
        }
    });
    const HttpAddress at{.ip = net::address_of(other), .path = {}};
    try {
      http_get(at, "/report.json", "open-sesame", in_a_minute());
    } catch (const Error&) {
    }
    done = true;
    program.join();
    INFO(heard);
    CHECK(heard.find("GET /nonce ") == 0);
    CHECK(heard.find("sesame") == std::string::npos);
    CHECK(heard.find(base64("feedline:open-sesame")) == std::string::npos);
  }
}

TEST_CASE("a token has room in a request, or is refused at the start") {
  const std::string longest(4096, 'x');
  const Echo server(any_port(), longest);
  CHECK(body(get(server.address(), "/echo", "Authorization: Basic " + base64("feedline:" + longest) + "\n")) ==
        "/echo||");
  CHECK_THAT(error_of([&] { Echo(any_port(), longest + "x"); }),
             Contains("the token of a monitor may have at most 4096 bytes, but this token has 4097"));
}

TEST_CASE("a page of another site cannot read the monitor through a browser") {
  const Echo server;
  const auto site = [&](const char* fetched) { return body(get(server.address(), "/site", fetched)); };
  CHECK(site("Sec-Fetch-Site: cross-site\n") == "other");
  for (const char* own : {"", "Sec-Fetch-Site: same-origin\n", "Sec-Fetch-Site: none\n"}) CHECK(site(own) == "own");
  const auto from = [&](const std::string& host) {
    return ask(server.address(), "GET /echo HTTP/1.1\nHost: " + host + "\n\n");
  };
  for (const char* own : {"localhost", "LOCALHOST:9400", "127.0.0.1", "127.0.0.1:80", "[::1]:9400", "[::1]"})
    CHECK_THAT(from(own), StartsWith("HTTP/1.1 200 OK\r\n"));
  for (const char* other : {"example.org", "127.0.0.1.example.org:9400", "localhost.example.org", ""})
    CHECK_THAT(from(other), StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  CHECK_THAT(ask(server.address(), "GET /echo HTTP/1.0\n\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const Echo with_token(any_port(), "secret");
  CHECK_THAT(
      ask(with_token.address(), "GET /echo HTTP/1.1\nHost: node7:9400\nAuthorization: Basic ZmVlZGxpbmU6c2VjcmV0\n\n"),
      StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("many clients that say nothing keep nobody else out") {
  const Echo server(any_port(), "", {.connections = 4, .time = std::chrono::hours(1)});
  std::deque<net::Socket> silent;
  for (int i = 0; i < 50; i++) {
    silent.push_back(connect_to(server.address()));
    if (i % 10 == 9) CHECK(body(get(server.address(), "/echo")) == "/echo||");
  }
  // Those that are not among the last ones have been ended.
  for (size_t i = 0; i < 40; i++) CHECK(receive(silent[i]).empty());
}

TEST_CASE("a request that has arrived is answered, however many clients come after it") {
  HttpServer server(any_port(), "", {.connections = 4, .time = std::chrono::hours(1)});
  const net::Socket first = connect_to(server.address());
  send(first, "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::deque<net::Socket> silent;
  for (int i = 0; i < 20; i++) silent.push_back(connect_to(server.address()));
  server.serve(echo, [] {});
  CHECK(body(receive(first)) == "/echo||");
}

TEST_CASE("a request or a client that takes no end is ended") {
  const Echo server(any_port(), "", {.time = std::chrono::milliseconds(50)});
  CHECK(receive(connect_to(server.address())).empty());  // says nothing

  // Sends a byte now and then, until the server has closed the connection.
  const auto dribble = [](const net::Socket& socket) {
    for (;;) {
      send(socket, "x");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const net::Socket says_little = connect_to(server.address());
  CHECK_THROWS_AS(dribble(says_little), Error);
  const net::Socket does_not_read = connect_to(server.address());
  send(does_not_read, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK_THROWS_AS(dribble(does_not_read), Error);
}

TEST_CASE("an answer may come later, and what it needs goes with the client") {
  Echo server;
  CHECK(body(get(server.address(), "/later")) == "late");
  {
    const net::Socket waiting = connect_to(server.address());
    send(waiting, "GET /in_an_hour HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (kept_until_then.use_count() == 1) std::this_thread::yield();
    CHECK(body(get(server.address(), "/echo")) == "/echo||");  // others need not wait for it
    CHECK(kept_until_then.use_count() > 1);
  }
  while (kept_until_then.use_count() > 1) std::this_thread::yield();
  const net::Socket waiting = connect_to(server.address());
  send(waiting, "GET /in_an_hour HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (kept_until_then.use_count() == 1) std::this_thread::yield();
}

TEST_CASE("a request is short") {
  const Echo server(any_port(), "", {.request_bytes = 1000, .time = std::chrono::hours(1)});
  const auto with = [&](size_t size) { return get(server.address(), "/echo", "X: " + std::string(size, 'x') + "\n"); };
  CHECK_THAT(with(900), StartsWith("HTTP/1.1 200 OK\r\n"));
  CHECK_THAT(with(1000), StartsWith("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
  // Headers without end: the server stops listening to them.
  const net::Socket endless = connect_to(server.address());
  send(endless, "GET /echo HTTP/1.1\r\n");
  CHECK_THROWS_AS(
      [&] {
        for (;;) send(endless, "Header: value\r\n");
      }(),
      Error);
}

TEST_CASE("a client that is refused may send its request to the end") {
  const Echo server;
  const net::Socket client = connect_to(server.address());
  send(client, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n");
  CHECK_THAT(receive(client), StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  for (int i = 0; i < 100; i++) send(client, "more");  // throws if the server has reset the connection
}

TEST_CASE("what a request says does not depend on the pieces in which it arrives") {
  using State = HttpRequestHead::State;
  constexpr size_t most = 40;
  const std::string line = "GET / HTTP/1.1\r\n", end = "\r\n\r\n";
  const auto head_of = [&](size_t size) { return line + "a: " + std::string(size - line.size() - 3, 'x') + end; };
  for (const auto& [bytes, wanted] :
       std::vector<std::pair<std::string, State>>{{head_of(most), State::complete},
                                                  {head_of(most + 1), State::too_long},
                                                  {"\r\n" + head_of(most - 2), State::complete},
                                                  {"\r\n" + head_of(most - 1), State::too_long},
                                                  {std::string(head_of(most), 0, most + 3), State::unfinished},
                                                  {line + "a: \1" + end, State::no_request},
                                                  {line + "a: b\r" + end, State::no_request},  // a CR alone
                                                  {head_of(most + 9) + "\1", State::too_long}}) {
    for (size_t piece = 1; piece <= bytes.size(); piece++) {
      HttpRequestHead head(most);
      State state = State::unfinished;
      for (size_t at = 0; at < bytes.size() && state == State::unfinished; at += piece)
        state = head.add(std::string_view(bytes).substr(at, piece));
      INFO(bytes << " in pieces of " << piece);
      CHECK(state == wanted);
    }
  }
}

TEST_CASE("an answer that is cut short, or that of another program, is not taken for one") {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
  CHECK(body_of_answer(head + "text") == "text");
  CHECK(body_of_answer("HTTP/1.0 200\r\n\r\ntext") == "text");
  CHECK_THROWS_WITH(body_of_answer(head + "tex"), Contains("has 3 bytes, but its Content-Length is 4"));
  CHECK_THROWS_WITH(body_of_answer(head + "texts"), Contains("has 5 bytes, but its Content-Length is 4"));
  CHECK_THROWS_WITH(body_of_answer("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnot\n"), StartsWith("404: not"));
  for (const char* other :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nno field\r\n\r\n"})
    CHECK_THROWS_WITH(body_of_answer(other), Contains("not a feedline monitor"));
}

TEST_CASE("a server ends at once, whatever its clients do") {
  std::deque<net::Socket> clients;
  {
    const Echo server(any_port(), "", {.time = std::chrono::hours(1)});
    for (const char* begun : {"", "GET /echo HT", "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"}) {
      clients.push_back(connect_to(server.address()));
      send(clients.back(), begun);
    }
    CHECK(body(get(server.address(), "/echo")) == "/echo||");
  }
  for (const net::Socket& client : clients) CHECK(receive(client).size() < 64 << 20);
}

TEST_CASE("two servers cannot have one address, and one may follow the other") {
  auto server = std::make_unique<Echo>();
  const HttpAddress at = server->address();
  CHECK_THAT(error_of([&] { Echo second(at); }), Contains("listening at " + at.ip.text() + ": Address already in use"));
  CHECK(body(get(at, "/echo")) == "/echo||");
  server = nullptr;
  CHECK(body(get(Echo(at).address(), "/echo")) == "/echo||");
}

TEST_CASE("a forked child does not keep the port") {
  auto server = std::make_unique<Echo>();
  const HttpAddress at = server->address();
  int end[2];
  REQUIRE(pipe(end) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(end[1]);
    char byte;
    _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(end[0]);
  CHECK(body(get(at, "/echo")) == "/echo||");
  server = nullptr;
  CHECK_THROWS_AS(connect_to(at), Error);
  CHECK(body(get(Echo(at).address(), "/echo")) == "/echo||");
  close(end[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a Unix domain socket is for one user, and outlives no server") {
  const TempDir dir;
  const std::string path = dir.file("feed.sock");
  const HttpAddress at = parse_http_address("monitor", "unix:" + path);
  {
    const Echo server(at);
    struct stat file;
    REQUIRE(stat(path.c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
    const net::Socket client = connect_to_path(path);
    send(client, "GET /echo HTTP/1.1\r\nHost: any.name\r\n\r\n");
    CHECK(body(receive(client)) == "/echo||");
    CHECK_THAT(error_of([&] { Echo second(at); }), Contains("listening at unix:" + path + ": Address already in use"));
    send(connect_to_path(path), "");  // the first one still has it
  }
  CHECK(access(path.c_str(), F_OK) != 0);

  // What a killed server leaves behind is replaced.
  {
    const net::Socket left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    REQUIRE(bind(left.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  REQUIRE(access(path.c_str(), F_OK) == 0);
  {
    const Echo server(at);
    const net::Socket client = connect_to_path(path);
    send(client, "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK(body(receive(client)) == "/echo||");
  }

  // A file that is no socket is left alone.
  dir.write("feed.sock", "mine");
  CHECK_THAT(error_of([&] { Echo second(at); }), Contains("Address already in use"));
  CHECK(access(path.c_str(), F_OK) == 0);
  CHECK_THAT(error_of([&] { Echo(parse_http_address("monitor", "unix:" + dir.file("no/folder"))); }),
             Contains("No such file or directory"));
}

TEST_CASE("a server removes no file but that of its own socket") {
  const TempDir one, two;
  two.write("feed.sock", "of another program");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(one.path());
  {
    const Echo server(parse_http_address("monitor", "unix:feed.sock"));
    std::filesystem::current_path(two.path());
    CHECK(server.address().text() == "unix:" + one.file("feed.sock"));
  }
  std::filesystem::current_path(before);
  CHECK(access(one.file("feed.sock").c_str(), F_OK) != 0);
  CHECK(access(two.file("feed.sock").c_str(), F_OK) == 0);

  const HttpAddress at = parse_http_address("monitor", "unix:" + one.file("feed.sock"));
  const Echo second = [&] {
    const Echo first(at);
    unlink(one.file("feed.sock").c_str());
    return Echo(at);
  }();  // the first one goes, and the file is the second one's
  send(connect_to_path(one.file("feed.sock")), "");
}

TEST_CASE("a server survives system calls that fail") {
  const LogLines log;
  const Echo server;
  const TempDir dir;
  for (SyscallHook* hook : SyscallHook::all()) {
    INFO(hook->name());
    hook->fail_nth_call(1);
    std::string response;
    // This client's own calls may be the ones that fail.
    for (int tries = 0; tries < 100 && response.empty(); tries++) try {
        response = body(get(server.address(), "/echo"));
      } catch (const Error&) {
      }
    CHECK(response == "/echo||");
    hook->fail_nth_call(0);
  }
  for (const char* name : {"socket", "listen", "eventfd for poll"})
    for (SyscallHook* hook : SyscallHook::all())
      if (hook->name() == std::string_view(name)) {
        INFO(name);
        hook->fail_nth_call(1);
        CHECK_THROWS_AS(Echo(), Error);
        hook->fail_nth_call(1);
        error_of([&] { Echo(parse_http_address("monitor", "unix:" + dir.file("none"))); });
        CHECK_FALSE(std::filesystem::exists(dir.file("none")));
        hook->fail_nth_call(0);
      }
  for (SyscallHook* hook : SyscallHook::all())
    if (hook->name() == std::string_view("listen at a path")) {
      hook->fail_nth_call(1);
      CHECK_THROWS_AS(Echo(parse_http_address("monitor", "unix:" + dir.file("sock"))), Error);
      hook->fail_nth_call(0);
    }
}
