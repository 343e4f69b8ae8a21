// Another rank, for fuzz targets: it sends what it should, with some bytes, numbers and lengths changed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../support/ranks.h"
#include "draw.h"
#include "feedline/error.h"
#include "feedline/transport.h"
#include "ranks/rank_group.h"

namespace feedline::test {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Returns `message` with up to three changes. Without bytes to draw from, it is unchanged.
inline std::string changed(Draw& draw, std::string message) {
  for (uint64_t changes = draw.below(4); changes > 0; changes--) {
    const size_t at = draw.below(message.size() + 1), left = message.size() - at;
    const uint64_t how = draw.below(8);
    if (how < 4) {  // a number of 1, 2, 4 or 8 bytes, which may be a count of what follows
      const size_t width = size_t{1} << how;
      if (width > left) continue;
      uint64_t number = 0;
      std::memcpy(&number, message.data() + at, width);
      number = draw.near(draw.coin() ? left : number);
      std::memcpy(message.data() + at, &number, width);
    } else if (how == 4) {
      message.resize(at);
    } else if (how == 5) {
      message.insert(at, draw.bytes(draw.below(40)));
    } else if (how == 6) {
      message.erase(at, draw.near(8));
    } else {
      message.insert(at, message.substr(draw.below(message.size() + 1), draw.below(64)));
    }
  }
  return message;
}

/// Returns text that differs from place to place.
inline std::string letters(size_t size, char seed) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; i++) text[i] = static_cast<char>(seed + i * 7 + i / 253);
  return text;
}

/// What comes before the bytes of each piece of a message (ranks/rank_group.cc).
struct PieceHead {
  enum Says : uint64_t { goes_on, failed, done };
  uint64_t magic, says;
  int32_t rank, size;
  uint64_t rest;
};

struct RankSays {
  std::string message;
  uint64_t says = PieceHead::goes_on;
};

/// Returns what two ranks say while each runs its `body`, in short messages. They are threads, so call it once.
inline std::array<std::vector<RankSays>, 2> said_by_both(const std::function<void(int rank, RankGroup&)>& body) {
  std::array<std::vector<RankSays>, 2> said;
  on_ranks(2, [&](int rank, const Exchange& exchange) {
    const auto record = [&](std::string_view mine) {
      PieceHead head;
      std::memcpy(&head, mine.data(), sizeof head);
      said[static_cast<size_t>(rank)].push_back({std::string(mine.substr(sizeof head)), head.says});
      return exchange(mine);
    };
    RankGroup group(record, rank, 2);
    group.run([&] { body(rank, group); });
  });
  return said;
}

/// The exchange of one of two ranks. The other one, rank `number`, says what is given, and then always nothing more.
class OtherRank {
 public:
  OtherRank(Draw& draw, int number, std::vector<RankSays> says)
      : draw_(draw), number_(number), says_(std::move(says)) {}

  /// Returns whether it has sent what it should.
  bool honest() const noexcept { return honest_; }
  Exchange exchange() {
    return [this](std::string_view mine) { return answer(mine); };
  }

 private:
  static constexpr size_t piece_bytes = 256 << 10;

  std::vector<std::string> answer(std::string_view mine) {
    require(++calls_ < 200, "the ranks end their exchanges");
    require(mine.size() >= sizeof(PieceHead) && mine.size() <= 257 << 10, "a string has at most 257 KiB");
    PieceHead head;
    std::memcpy(&head, mine.data(), sizeof head);
    const bool ends = head.rest == 0;
    if (at_ < says_.size() && !begun_) rest_ = changed_of(says_[at_].message);
    begun_ = true;
    const std::string piece = rest_.substr(0, piece_bytes);
    rest_.erase(0, piece.size());
    if (at_ < says_.size()) head.says = says_[at_].says;
    if (draw_.below(16) == 15) {
      const uint64_t says = draw_.below(4);
      honest_ = honest_ && says == std::exchange(head.says, says);
    }
    head.rank = number_;
    head.rest = rest_.size();
    if (ends && rest_.empty()) {
      begun_ = false;
      at_++;
    }
    std::string theirs(reinterpret_cast<const char*>(&head), sizeof head);
    theirs = draw_.below(4) == 3 ? changed_of(theirs) + piece : theirs + piece;
    std::vector<std::string> all = {std::string(mine), theirs};
    if (number_ == 0) std::swap(all[0], all[1]);
    if (draw_.below(16) == 15) {
      all.resize(draw_.below(4), theirs);
      honest_ = false;
    }
    return all;
  }
  std::string changed_of(const std::string& message) {
    std::string other = changed(draw_, message);
    honest_ = honest_ && other == message;
    return other;
  }

  Draw& draw_;
  const int number_;
  std::vector<RankSays> says_;
  size_t at_ = 0;       // which of them it says
  bool begun_ = false;  // a message goes on
  std::string rest_;    // what is left of it
  bool honest_ = true;
  int calls_ = 0;
};

/// A transport of rank 1 of two. `fill` makes what rank 0 sends in each call.
class DrawnTransport final : public Transport {
 public:
  using Fill = std::function<void(std::span<std::byte> theirs, std::span<const std::byte> mine)>;
  explicit DrawnTransport(Fill fill) : fill_(std::move(fill)) {}

  int rank() const noexcept override { return 1; }
  int size() const noexcept override { return 2; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream) override {
    require(all.size() == 2 * mine.size(), "all_gather has room for both ranks");
    std::ranges::copy(mine, all.last(mine.size()).begin());
    fill_(all.first(mine.size()), mine);
  }
  void broadcast(std::span<std::byte> data, int root, Stream) override {
    if (root == 0) fill_(data, {});
  }
  void send_receive(std::span<const Part>, std::span<const Part> receives, Stream) override {
    for (const Part& part : receives)
      if (part.rank == 0) fill_(part.bytes, {});
  }
  void barrier() override {}
  void abort(const Error&) noexcept override {}
  std::optional<Error> failure() const override { return std::nullopt; }

 private:
  Fill fill_;
};

/// Runs one of some checks of what ranks send. An Error that ends it must be the reason of a rank that fails, or be
/// bad_pipeline and tell of a rank.
inline int run_one_of(std::initializer_list<void (*)(Draw&)> checks, const uint8_t* data, size_t size) {
  Draw draw(data, size);
  try {
    draw.one_of(std::span(checks.begin(), checks.size()))(draw);
  } catch (const Error& error) {
    const bool of_rank = error.message().starts_with("rank 0: ") || error.message().starts_with("rank 1: ");
    require(of_rank || error.category() == Category::bad_pipeline, error.what());
    require(error.message().find("rank") != std::string::npos, error.what());
  }
  return 0;
}

}  // namespace feedline::test
