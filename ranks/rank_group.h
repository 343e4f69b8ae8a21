// Ranks while they start: what one says all are told, and also why it cannot go on.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/exchange.h"

namespace feedline {

/// Not thread-safe. Every rank makes the same calls in the same order.
class RankGroup {
 public:
  /// Without an exchange this rank is a group of its own.
  RankGroup() = default;
  RankGroup(Exchange exchange, int rank, int world_size);

  size_t rank() const noexcept { return number_of(rank_); }
  /// The number among all ranks of one of these.
  size_t number_in_all(size_t member) const noexcept {
    return members_.empty() ? member : static_cast<size_t>(members_[member]);
  }
  size_t size() const noexcept { return members_.empty() ? static_cast<size_t>(size_) : members_.size(); }

  /// Every rank's bytes, in the order of the ranks; any number, passed on in pieces. Throws what the exchange throws;
  /// Error bad_pipeline where it is not one of these ranks; and the Error of a rank that has failed.
  std::vector<std::string> all_gather(std::string_view mine);

  /// Runs `body` on some of the ranks, which are a group of their own in it: numbered anew, in their order. Returns on
  /// all ranks when all of these have come out of it.
  void among(const std::vector<int>& members, const std::function<void(RankGroup&)>& body);

  /// Runs `start`, which may call all_gather(), and returns when it has returned on all ranks. Throws what it threw;
  /// where it threw on another rank, that one's Error, with its number.
  void run(const std::function<void()>& start);

 private:
  struct Head;
  struct Pieces;
  Pieces pass(Head head, std::string_view bytes);
  void tell(const std::exception_ptr& failure) noexcept;

  size_t number_of(int rank) const noexcept;
  bool is_member(size_t rank) const noexcept;

  Exchange exchange_;
  int rank_ = 0, size_ = 1;
  std::vector<int> members_;  // within among(); empty: all ranks
  bool over_ = false;         // all ranks know that they fail, or there is no telling them
};

}  // namespace feedline
