#include "ranks/rank_group.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "feedline/error.h"
#include "io/frames.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("messages of any length reach all ranks, in pieces") {
  std::mt19937 random(1);
  constexpr size_t piece = 256 << 10;
  const std::vector<std::vector<size_t>> rounds = {
      {0, 0, 0}, {1, 0, 700}, {piece, piece + 1, piece - 1}, {0, 5 * piece + 3, 10}, {2 * piece, 0, 4 * piece}};
  std::vector<std::vector<std::string>> given;
  for (const auto& sizes : rounds) {
    given.emplace_back();
    for (const size_t size : sizes) given.back().push_back(random_text(size, random));
  }
  std::vector<std::vector<std::vector<std::string>>> got(3);
  std::vector<size_t> longest(3);
  const auto thrown = on_ranks(3, [&](int rank, const Exchange& exchange) {
    const auto mine = static_cast<size_t>(rank);
    const auto measured = [&](std::string_view bytes) {
      longest[mine] = std::max(longest[mine], bytes.size());
      return exchange(bytes);
    };
    RankGroup group(measured, rank, 3);
    for (const auto& round : given) got[mine].push_back(group.all_gather(round[mine]));
  });
  for (size_t rank = 0; rank < 3; rank++) {
    CHECK(thrown[rank].empty());
    CHECK(got[rank] == given);
    CHECK(longest[rank] <= 257 << 10);
  }
}

TEST_CASE("a rank without an exchange is a group of its own") {
  RankGroup alone({}, 3, 4);
  CHECK(alone.size() == 1);
  CHECK(alone.rank() == 0);
  CHECK(alone.all_gather("mine") == std::vector<std::string>{"mine"});
  CHECK_THROWS_WITH(alone.run([] { throw std::runtime_error("reason"); }), "reason");
}

TEST_CASE("wherever a rank fails, all fail with its reason") {
  struct Odd {};
  for (const int when : {0, 1, 2})
    for (const int kind : {0, 1, 2, 3}) {
      std::vector<int> categories(3, -1);
      const auto thrown = on_ranks(3, [&](int rank, Exchange exchange) {
        RankGroup group(std::move(exchange), rank, 3);
        try {
          group.run([&] {
            for (int round = 0; round < 2; round++) {
              if (rank > 0 && round == when && kind == 3) throw Error(Category::bad_image, std::to_string(rank));
              if (rank == 1 && round == when) {
                if (kind == 0) throw Error(Category::bad_image, "it is blue", {"file", 1, 2, "x"});
                if (kind == 1) throw std::runtime_error(std::string(1 << 20, 'x'));
                if (kind == 2) throw Odd();
              }
              group.all_gather(std::string(600'000 * rank, 'y'));
            }
            if (rank == 1 && when == 2) throw Error(Category::bad_image, "it is blue", {"file", 1, 2, "x"});
          });
        } catch (const Error& error) {
          categories[static_cast<size_t>(rank)] = static_cast<int>(error.category());
          throw;
        } catch (const Odd&) {
          throw std::runtime_error("odd");
        }
      });
      INFO(when << " " << kind);
      const std::string said = thrown[0];
      if (kind == 0 || when == 2) {
        CHECK(said == "file: offset 1: record 2: feature 'x': rank 1: it is blue [bad_image]");
        CHECK(thrown[1] == "file: offset 1: record 2: feature 'x': it is blue [bad_image]");
        CHECK(categories == std::vector<int>(3, static_cast<int>(Category::bad_image)));
      } else if (kind == 1) {
        CHECK(said.find("rank 1: xxx") == 0);
        CHECK(said.ends_with("xxx [io_error]"));
        CHECK(thrown[1] == std::string(1 << 20, 'x'));
      } else if (kind == 2) {
        CHECK(said == "rank 1: the start of this rank threw an exception that is not a std::exception [io_error]");
        CHECK(thrown[1] == "odd");
      } else {
        CHECK(said == "rank 1: 1 [bad_image]");
        CHECK(thrown[1] == "1 [bad_image]");
        CHECK(thrown[2] == "2 [bad_image]");  // a failure of its own
      }
      if (kind != 3 || when == 2) CHECK(thrown[2] == said);
    }
}

TEST_CASE("an exchange that cuts a message short is told") {
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{31}}) {  // of the 32 before each piece
    RankGroup group(
        [bytes](std::string_view mine) {
          return std::vector<std::string>{std::string(mine), std::string(mine.substr(0, bytes))};
        },
        0, 2);
    CHECK_THROWS_WITH(group.all_gather("mine"),
                      Catch::Contains("the string that the function returned for rank 1 is not a message"));
  }
}

TEST_CASE("a rank has at most 1 GiB to send") {
  constexpr size_t most = size_t{1} << 30;
  void* const zeros = mmap(nullptr, most + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(zeros != MAP_FAILED);
  const std::string_view text(static_cast<const char*>(zeros), most + 1);
  RankGroup group([](std::string_view) -> std::vector<std::string> { throw std::runtime_error("it was sent"); }, 0, 2);
  CHECK_THROWS_WITH(group.all_gather(text), Catch::Contains("this rank has 1073741825 bytes to send"));
  RankGroup other([](std::string_view) -> std::vector<std::string> { throw std::runtime_error("it was sent"); }, 0, 2);
  CHECK_THROWS_WITH(other.all_gather(text.substr(1)), Catch::Contains("it was sent"));
  munmap(zeros, most + 1);
}

TEST_CASE("pieces that are no part of a message are refused") {
  struct Head {  // as in rank_group.cc
    uint64_t magic, says;
    int32_t rank, size;
    uint64_t rest;
  };
  constexpr size_t piece = 256 << 10;
  enum : uint64_t { goes_on, failed, done };
  // Returns what rank 0 throws if rank 1 answers each of its strings with the next of these heads and bytes.
  const auto said = [](const std::vector<std::pair<Head, std::string>>& answers, const std::vector<int>& members = {}) {
    size_t at = 0;
    const auto exchange = [&](std::string_view mine) {
      Head head;
      std::memcpy(&head, mine.data(), sizeof head);
      auto [theirs, bytes] = answers.at(at++);  // throws if rank 0 goes on for too long
      theirs.magic = head.magic;
      theirs.rank = 1;
      theirs.size = 2;
      return std::vector<std::string>{std::string(mine),
                                      std::string(reinterpret_cast<const char*>(&theirs), sizeof theirs) + bytes};
    };
    RankGroup group(exchange, 0, 2);
    try {
      members.empty() ? static_cast<void>(group.all_gather("mine"))
                      : group.among(members, [](RankGroup& ranks) { ranks.all_gather("mine"); });
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto head = [](uint64_t says, uint64_t rest) {
    Head of_piece;
    of_piece.says = says;
    of_piece.rest = rest;
    return of_piece;
  };
  using Catch::Contains;
  CHECK(said({{head(goes_on, 3), std::string(piece, 'x')}, {head(goes_on, 0), "xyz"}}).empty());
  const auto refused = Catch::Matches(".*rank 1 sent [0-9]+ bytes that cannot be a part of its message.*");
  CHECK_THAT(said({{head(goes_on, 3), ""}}), refused);  // would never end
  CHECK_THAT(said({{head(goes_on, 3), std::string(piece - 1, 'x')}}), refused);
  CHECK_THAT(said({{head(goes_on, 0), std::string(piece + 1, 'x')}}), refused);
  CHECK_THAT(said({{head(goes_on, 3), std::string(piece, 'x')}, {head(goes_on, 0), "more"}}), refused);
  CHECK_THAT(said({{head(done, 0), "x"}}), refused);
  CHECK_THAT(said({{head(3, 0), ""}}), refused);
  constexpr uint64_t most = uint64_t{1} << 30;  // of a message
  const std::string full(piece, 'x');
  CHECK_THAT(said({{head(goes_on, most + 1), full}}), refused);
  CHECK_THAT(said({{head(goes_on, most), full}, {head(goes_on, 0), "less"}}), refused);  // only the second piece
  CHECK_THAT(said({{head(goes_on, most), full}, {head(goes_on, most - piece), full}, {head(goes_on, 0), "less"}}),
             refused);
  const auto elsewhere = Contains("rank 1 has made more or fewer exchanges than the other ranks");
  CHECK_THAT(said({{head(done, 0), ""}}), elsewhere);
  CHECK_THAT(said({{head(goes_on, 0), ""}}, {0}), elsewhere);
  CHECK(said({{head(done, 0), ""}, {head(done, 0), ""}}, {0}).empty());
  // A failure of a category that there is not.
  std::string failure(1 + 8 + 8 + 3 * 8, '\0');
  CHECK(said({{head(failed, 0), failure}}) == "offset 0: record 0: rank 1:  [truncated_length]");
  failure[0] = static_cast<char>(200);
  CHECK_THAT(said({{head(failed, 0), failure}}), Contains("the message of rank 1 has a value that this "));
  CHECK_THAT(said({{head(failed, 0), "\1"}}), Contains("the message of rank 1 ends too early"));
}
