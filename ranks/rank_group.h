// The ranks of a training while they start. They tell one another what each needs to know, and why one cannot start.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/exchange.h"

namespace feedline {

/// One rank's end of the group. Every rank makes the same calls in the same order. Not thread-safe.
class RankGroup {
 public:
  /// Makes a group of this rank alone.
  RankGroup() = default;
  /// Makes a group of the ranks that call `exchange`. If it is empty, this rank is a group of its own.
  RankGroup(Exchange exchange, int rank, int world_size);

  /// Returns this rank's number in the group; inside among(), its number among the members.
  size_t rank() const noexcept { return number_of(rank_); }
  /// Returns the number among all ranks of the rank that has the number `member` in the group.
  size_t number_in_all(size_t member) const noexcept {
    return members_.empty() ? member : static_cast<size_t>(members_[member]);
  }
  size_t size() const noexcept { return members_.empty() ? static_cast<size_t>(size_) : members_.size(); }

  /// Returns every rank's bytes, in the order of the ranks. There may be any number of bytes; they are passed on in
  /// pieces. Throws what the exchange throws; Error bad_pipeline if the exchange does not connect these ranks; and the
  /// Error of a rank that has failed.
  std::vector<std::string> all_gather(std::string_view mine);

  /// Runs `body` on some of the ranks. Inside it these are a group of their own, numbered anew from 0, in the order of
  /// `members`. Returns on all ranks when `body` has returned on all members.
  void among(const std::vector<int>& members, const std::function<void(RankGroup&)>& body);

  /// Runs `start`, which may call all_gather(), and returns when it has returned on all ranks. If it throws here,
  /// throws the same. If it throws on another rank, throws the Error of that rank, prefixed with the rank's number.
  void run(const std::function<void()>& start);

 private:
  struct Head;
  struct Pieces;
  Pieces exchange_pieces(Head head, std::string_view bytes);
  void tell(const std::exception_ptr& failure) noexcept;

  size_t number_of(int rank) const noexcept;
  bool is_member(size_t rank) const noexcept;

  Exchange exchange_;
  int rank_ = 0, size_ = 1;
  std::vector<int> members_;  // the members inside among(); empty: all ranks
  bool over_ = false;         // all ranks know that the start has failed, or they cannot be told
};

}  // namespace feedline
