#include "feedline/exchange.h"

#include <random>
#include <set>

#include "base/rank_message.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("threads are given every rank's string, round after round") {
  for (const int ranks : {1, 2, 3, 8}) {
    std::vector<std::vector<std::string>> seen(static_cast<size_t>(ranks));
    std::vector<std::vector<std::string>> given(static_cast<size_t>(ranks));
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
      CHECK(thrown[rank].find("rank 1 has ended or failed") == 0);
      CHECK(thrown[rank].find("[stalled]") != std::string::npos);
    }
    CHECK(thrown[1].empty());
  }
  auto exchanges = exchanges_between_threads(2);
  exchanges.pop_back();
  CHECK_THROWS_AS(exchanges[0]("later"), Error);
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
