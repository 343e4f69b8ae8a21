#include "flowgraph/order/apportionment.h"

#include <numeric>
#include <utility>

#include "base/draws.h"
#include "base/mul_div.h"

namespace feedline::flow {

Apportionment::Apportionment(std::vector<uint64_t> amounts, uint64_t begin, uint64_t step, uint64_t key, uint64_t at)
    : step_(step), key_(key), before_(amounts.size()) {
  const uint64_t end = begin + std::accumulate(amounts.begin(), amounts.end(), uint64_t{0});
  Piece piece{begin, end, std::move(amounts)};
  for (uint64_t border; (border = border_in(piece)) != piece.end;) {
    Piece left = split_off(piece, border);
    if (at < border) {
      pieces_.push_back(std::exchange(piece, std::move(left)));
    } else {
      for (size_t source = 0; source < before_.size(); source++) before_[source] += left.amounts[source];
    }
  }
  if (piece.begin < piece.end) pieces_.push_back(std::move(piece));
}

// Returns the border at which the piece is split, or the piece's end if the piece lies within one step.
uint64_t Apportionment::border_in(const Piece& piece) const noexcept {
  const uint64_t first = (piece.begin / step_ + 1) * step_;
  if (first >= piece.end) return piece.end;
  if (piece.begin % step_ != 0) return first;
  if (piece.end % step_ != 0) return piece.end / step_ * step_;
  return piece.begin + (piece.end - piece.begin) / step_ / 2 * step_;
}

// Returns the samples of the piece before `border`, and leaves the other samples in `piece`. The sources' shares are
// laid end to end. A random number is added to all borders between the shares, and then these borders are rounded down.
// So each source's share is rounded up or down, and the shares still add up to `wanted`.
Apportionment::Piece Apportionment::split_off(Piece& piece, uint64_t border) const {
  const uint64_t length = piece.end - piece.begin, wanted = border - piece.begin;
  const uint64_t random = high_product(Draws(key_of({key_, piece.begin, piece.end})).next(), length);
  Piece left{piece.begin, border, std::vector<uint64_t>(piece.amounts.size())};
  uint64_t sum = 0, given = 0;
  for (size_t source = 0; source < left.amounts.size(); source++) {
    sum += piece.amounts[source];
    const auto up_to = static_cast<uint64_t>((Wide{sum} * wanted + random) / length);
    left.amounts[source] = up_to - std::exchange(given, up_to);
    piece.amounts[source] -= left.amounts[source];
  }
  piece.begin = border;
  return left;
}

std::vector<uint64_t> Apportionment::next() {
  for (uint64_t border; (border = border_in(pieces_.back())) != pieces_.back().end;) {
    Piece left = split_off(pieces_.back(), border);
    pieces_.push_back(std::move(left));
  }
  std::vector<uint64_t> amounts = std::move(pieces_.back().amounts);
  pieces_.pop_back();
  return amounts;
}

}  // namespace feedline::flow
