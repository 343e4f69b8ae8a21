#include "feedline/exchange.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/rank_message.h"
#include "feedline/communicator.h"
#include "feedline/error.h"
#include "ranks/collective_call.h"
#include "ranks/communicator_conformance.h"
#include "ranks/process/linked_communicator.h"
#include "ranks/process/process_links.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("threads are given every rank's string, round after round") {
  for (const int ranks : {1, 2, 3, 8}) {
    std::vector<std::vector<std::string>> seen(static_cast<size_t>(ranks));
    std::vector<std::vector<std::string>> given(static_cast<size_t>(ranks));
    CHECK(exchanges_between_threads(ranks).size() == static_cast<size_t>(ranks));
    const auto thrown = on_ranks(ranks, [&](int rank, const Exchange& exchange) {
      const auto mine = static_cast<size_t>(rank);
      std::mt19937 random(static_cast<uint32_t>(rank));
      for (int round = 0; round < 200; round++) {
        given[mine].push_back(std::string(random() % 100, static_cast<char>(random())));
        for (std::string& text : exchange(given[mine].back())) seen[mine].push_back(std::move(text));
      }
    });
    CHECK(std::set(thrown.begin(), thrown.end()) == std::set<std::string>{""});
    std::vector<std::string> wanted;
    for (size_t round = 0; round < 200; round++)
      for (const auto& texts : given) wanted.push_back(texts[round]);
    for (const auto& all : seen) CHECK(all == wanted);
  }
}

TEST_CASE("a rank that leaves is not waited for") {
  for (const int rounds : {0, 1, 5}) {
    const auto thrown = on_ranks(3, [&](int rank, const Exchange& exchange) {
      for (int round = 0; rank != 1 || round < rounds; round++) exchange(std::to_string(round));
    });
    for (const size_t rank : {0, 2}) {
      CHECK(thrown[rank].find("rank 1, call ") == 0);
      CHECK(thrown[rank].find("[stalled]") != std::string::npos);
    }
    CHECK(thrown[1].empty());
  }
  auto exchanges = exchanges_between_threads(2);
  exchanges.pop_back();
  for (int again = 0; again < 3; again++) CHECK_THROWS_WITH(exchanges[0]("later"), Catch::StartsWith("rank 1, call "));
}

TEST_CASE("messages between ranks hold what was put into them, and no more is taken out") {
  MessageWriter out;
  out.put<uint64_t>(7);
  out.put_text(std::string("a\0b", 3));
  out.put_rows(std::span<const uint16_t>(std::vector<uint16_t>{1, 2, 3}));
  out.put_text("");
  const std::string message = out.take();
  MessageReader in(message);
  CHECK(in.get<uint64_t>() == 7);
  CHECK(in.get_text() == std::string_view("a\0b", 3));
  CHECK(in.get_rows<uint16_t>() == std::vector<uint16_t>{1, 2, 3});
  CHECK(in.get_text().empty());
  CHECK_THROWS_AS(in.get<char>(), Error);
  for (size_t size = 0; size < message.size(); size++) {
    MessageReader cut(std::string_view(message).substr(0, size));
    const auto read = [&] {
      cut.get<uint64_t>();
      cut.get_text();
      cut.get_rows<uint16_t>();
      cut.get_text();
    };
    CHECK_THROWS_AS(read(), Error);
  }
}

TEST_CASE("a message has no truth value or choice that there is not, and names its rank") {
  enum class Choice : uint8_t { first, second, third };
  MessageWriter out;
  for (const uint8_t byte : std::initializer_list<uint8_t>{1, 2, 3, 2}) out.put(byte);
  const std::string message = out.take();
  MessageReader in(message, 7);
  CHECK(in.get_bool());
  CHECK(in.get_enum(Choice::third) == Choice::third);
  CHECK_THROWS_WITH(in.get_enum(Choice::third), Catch::StartsWith("exchange: the message of rank 7 has a value "));
  CHECK_THROWS_WITH(in.get_bool(), Catch::StartsWith("exchange: the message of rank 7 has a boolean "));
  in.end();
  MessageReader longer(message);
  longer.get<uint16_t>();
  CHECK_THROWS_WITH(longer.end(), Catch::StartsWith("exchange: a message of another rank has bytes after its end"));
}

TEST_CASE("an exchange over a communicator makes room for no string of more than 1 GiB") {
  // Two communicators of threads, of which the second one says what it likes.
  constexpr uint64_t most = uint64_t{1} << 30;
  for (const uint64_t length : {most, most + 1, uint64_t{1} << 63, UINT64_MAX}) {
    std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(2);
    const std::vector<std::string> thrown = side_by_side(2, [&](int rank) {
      const auto mine = std::shared_ptr(std::move(ends[static_cast<size_t>(rank)]));
      if (rank == 0) {
        exchange_over(mine)("text");
      } else {
        std::vector<uint64_t> lengths(2);
        mine->all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)),
                         Stream::host);
      }
    });
    // A string of 1 GiB is waited for, until rank 1 leaves.
    CHECK(thrown[0].starts_with(length == most ? "rank 1, call 1: the rank has destroyed its communicator"
                                               : "rank 1 sends a message of " + std::to_string(length) +
                                                     " bytes, but a message has at most "));
  }
}

TEST_CASE("an exchange over a communicator gathers strings of any length") {
  constexpr size_t piece = 1 << 20;
  const auto text = [](size_t rank, size_t size) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; i++) bytes[i] = static_cast<char>(i * 7 + i / piece + rank);
    return bytes;
  };
  const std::vector<std::array<size_t, 3>> all = {
      {0, 0, 0}, {0, 1, piece}, {piece - 1, piece, piece + 1}, {3 * piece, 0, 2 * piece + 5}, {5, 3 * piece, piece}};
  std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(3);
  const std::vector<std::string> thrown = side_by_side(3, [&](int rank) {
    const Exchange exchange = exchange_over(std::shared_ptr(std::move(ends[static_cast<size_t>(rank)])));
    for (const auto& sizes : all) {
      const std::vector<std::string> got = exchange(text(static_cast<size_t>(rank), sizes[static_cast<size_t>(rank)]));
      for (size_t other = 0; other < 3; other++) expect(got.at(other) == text(other, sizes[other]), "its string");
    }
  });
  for (const std::string& one : thrown) CHECK(one == "");
}

namespace {

/// Links of rank 0, over which no other rank says anything. There is no memory to begin an operation.
class SilentLinks final : public ranks::Links {
 public:
  explicit SilentLinks(int size) : size_(size) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return size_; }
  void begin(std::span<const Part>, std::span<const Part>) override { throw std::bad_alloc(); }
  bool drive() override { return true; }
  bool keeps_buffers() const noexcept override { return false; }
  void tell(int, const ranks::Note&) override {}
  bool told() override { return true; }
  std::optional<Heard> hear() override { return std::nullopt; }
  void wait(std::chrono::milliseconds, bool) override { std::this_thread::yield(); }
  void wake() noexcept override {}
  void leave(std::chrono::milliseconds) override {}

 private:
  const int size_;
};

}  // namespace

TEST_CASE("a communicator between processes ends with an Error if its thread finds no memory") {
  const auto alone = ranks::linked_communicator(std::make_shared<SilentLinks>(1), std::chrono::minutes(1));
  CHECK_THROWS_WITH(alone->barrier(), "rank 0, call 0: out of memory [io_error]");
}

TEST_CASE("a rank that says nothing is given up, however short the timeout") {
  const auto waits = ranks::linked_communicator(std::make_shared<SilentLinks>(2), std::chrono::milliseconds(1));
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!waits->failure() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  REQUIRE(waits->failure());
  CHECK_THAT(waits->failure()->message(), Catch::StartsWith("rank 1, call 0: silent for 0.001 s"));
}

TEST_CASE("what another process says of a failure or a call has a name") {
  ranks::Note note(ranks::Note::failed, Error(Category::stalled, "it is late"), 3);
  CHECK(note.error().category() == Category::stalled);
  std::string umlauts;
  for (int i = 0; i < 400; i++) umlauts += "ü";
  CHECK(ranks::Note(ranks::Note::failed, Error(Category::stalled, umlauts), 3).error().message() ==
        umlauts.substr(0, 510));
  CHECK(ranks::Note(ranks::Note::failed, Error(Category::stalled, 'x' + umlauts), 3).error().message() ==
        'x' + umlauts.substr(0, 510));
  const uint8_t category = 200;
  std::memcpy(reinterpret_cast<std::byte*>(&note) + offsetof(ranks::Note, category), &category, 1);
  CHECK(note.error().what() == std::string("it is late [bad_pipeline]"));
  const auto said_of = [](uint8_t dtype) {
    ranks::CollectiveCall call{.kind = ranks::CollectiveCall::Kind::all_reduce, .bytes = 4};
    std::memcpy(reinterpret_cast<std::byte*>(&call) + offsetof(ranks::CollectiveCall, dtype), &dtype, 1);
    return to_string(call);
  };
  constexpr auto last = static_cast<DType>(dtype_count - 1);
  CHECK(said_of(static_cast<uint8_t>(last)) == "all_reduce(sum) of 4 bytes of " + std::string(name(last)));
  for (const int unknown : {dtype_count, dtype_count + 1, 255})
    CHECK(said_of(static_cast<uint8_t>(unknown)).ends_with(" of ?"));
  using Kind = ranks::CollectiveCall::Kind;
  CHECK(to_string(ranks::CollectiveCall{.kind = Kind::announce}) == "announce of 0 calls (hash 0)");
  for (const int unknown : {static_cast<int>(Kind::announce) + 1, 255}) {
    ranks::CollectiveCall call;
    std::memcpy(reinterpret_cast<std::byte*>(&call) + offsetof(ranks::CollectiveCall, kind), &unknown, 1);
    CHECK(to_string(call) == "?");
  }
}
