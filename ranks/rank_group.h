// The ranks of a training while they start: they exchange messages, and if one rank cannot start, all throw its Error.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/exchange.h"

namespace feedline {

/// One rank's handle to the group. Every rank makes the same calls in the same order. Not thread-safe.
class RankGroup {
 public:
  /// Makes a group of only this rank.
  RankGroup() = default;
  /// Makes a group of the ranks that call `exchange`. If `exchange` is empty, makes a group of only this rank.
  RankGroup(Exchange exchange, int rank, int world_size);

  /// Returns this rank's number in the group; inside among(), its number among the members.
  size_t rank() const noexcept { return number_of(rank_); }
  /// Converts a rank's number in the group to its number among all ranks. The two differ only inside among().
  size_t number_in_all(size_t member) const noexcept {
    return members_.empty() ? member : static_cast<size_t>(members_[member]);
  }
  size_t size() const noexcept { return members_.empty() ? static_cast<size_t>(size_) : members_.size(); }

  /// Returns every rank's bytes, in the order of the ranks. `mine` may have any length; it is sent in pieces of 256
  /// KiB. Throws what the exchange throws; Error bad_pipeline if the exchange does not connect these ranks; and the
  /// Error of a rank that has failed.
  std::vector<std::string> all_gather(std::string_view mine);

  /// Runs `body` on the ranks `members` only. Inside `body`, the members are a group of their own, numbered from 0 in
  /// the order of `members`. All ranks must call it; it returns on all ranks when `body` has returned on all members.
  void among(const std::vector<int>& members, const std::function<void(RankGroup&)>& body);

  /// Runs `start`, which may call all_gather(), and returns when `start` has returned on all ranks. If `start` throws
  /// on this rank, throws the same exception. If `start` throws on another rank, throws that rank's Error, with the
  /// rank's number before its message.
  void run(const std::function<void()>& start);

 private:
  struct Head;
  struct Pieces;
  Pieces exchange_pieces(Head head, std::string_view bytes, const Pieces& before);
  void tell(const std::exception_ptr& failure) noexcept;

  size_t number_of(int rank) const noexcept;
  bool is_member(size_t rank) const noexcept;

  Exchange exchange_;
  int rank_ = 0, size_ = 1;
  std::vector<int> members_;  // inside among(): its members; otherwise empty: all ranks are members
  bool over_ = false;         // the last exchange failed: the other ranks know that, or they cannot be told
};

}  // namespace feedline
