// Computes how many samples of each source a step of a mixture has: the source's share of the step, within two samples.
#pragma once

#include <cstdint>
#include <vector>

namespace feedline::flow {

/// Apportions the samples of a stretch, which come from several sources, to the steps of the stretch. The steps come
/// one after another. Any step is found in O(sources * log steps) time, without the steps before it.
///
/// The stretch is halved again and again, at the border between two steps, until each piece is one step. Each time the
/// left part is given its share of each source's samples, rounded up or down at random so that both parts are full.
/// If only a part of the first or the last step lies in the stretch, that part is split off first.
///
/// So each step of the stretch has its share of each source's samples, within two. For a proof, let e be the maximum by
/// which the samples that a piece has of a source differ from the piece's share of them. If the piece is split, a part
/// of r times the piece's length differs by less than r e + 1, because the part's share of the piece's samples is
/// rounded. After both ends have been split off, the middle differs by less than 2. A piece of three steps or more is
/// split into parts of at most 2/3 of its length. So if e is at most 3 for the piece, its parts differ by less than 3 *
/// 2/3 + 1 = 3. Two steps are halved. Rounding changes a half by at most 1/2, so a step differs by at most 3/2 + 1/2 =
/// 2. A step that is split off three steps has a third of their length. Rounding changes it by at most 2/3, so it
/// differs by at most 3/3 + 2/3 < 2. If a part of a step is split off at one end of the stretch, that part differs by
/// less than 1. If parts of steps are split off at both ends, the part at the end of the stretch is split off second,
/// and differs by less than 2.
class Apportionment {
 public:
  /// The stretch has the samples from number `begin` on. `amounts` says how many of them come from each source. Steps
  /// begin at the multiples of `step`. `key` chooses how shares are rounded. Begins with the piece in which sample
  /// number `at` lies: a whole step, or the part of a step that lies in the stretch.
  Apportionment(std::vector<uint64_t> amounts, uint64_t begin, uint64_t step, uint64_t key, uint64_t at);

  bool ended() const noexcept { return pieces_.empty(); }
  /// Returns the number of the first sample of the next piece. Precondition: not ended.
  uint64_t begin() const noexcept { return pieces_.back().begin; }
  /// Returns how many samples of each source the next piece has, and goes on to the piece after it. Precondition: not
  /// ended.
  std::vector<uint64_t> next();
  /// Returns how many samples of each source the stretch has before the piece with which the object began.
  const std::vector<uint64_t>& before() const noexcept { return before_; }

 private:
  /// Samples [begin, end), and how many of them are of each source.
  struct Piece {
    uint64_t begin = 0, end = 0;
    std::vector<uint64_t> amounts;
  };
  uint64_t border_in(const Piece& piece) const noexcept;
  Piece split_off(Piece& piece, uint64_t border) const;

  uint64_t step_, key_;
  std::vector<uint64_t> before_;
  std::vector<Piece> pieces_;  // the pieces that are still to come, the next one last
};

}  // namespace feedline::flow
