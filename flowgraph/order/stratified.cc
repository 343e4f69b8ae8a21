#include "flowgraph/order/stratified.h"

#include <algorithm>

#include "base/draws.h"

namespace feedline::flow {

Stratified::Stratified(std::vector<uint64_t> amounts, uint64_t key)
    : amounts_(std::move(amounts)), drawn_(amounts_.size()) {
  for (uint32_t number = 0; number < amounts_.size(); number++) {
    keys_.push_back(key_of({key, number}));
    lengths_.push_back(~Wide{0} / std::max<uint64_t>(1, amounts_[number]));
    if (amounts_[number] > 0) next_draws_.push_back({time(number, 0), number});
  }
  std::make_heap(next_draws_.begin(), next_draws_.end());
}

uint64_t Stratified::begin(uint32_t number, uint64_t part) const noexcept {
  return part * static_cast<uint64_t>(lengths_[number] >> 64) +
         high_product(part, static_cast<uint64_t>(lengths_[number]));
}

uint64_t Stratified::time(uint32_t number, uint64_t part) const noexcept {
  const auto length = static_cast<uint64_t>(lengths_[number] >> 64);
  return begin(number, part) + high_product(Draws(keys_[number] + part).next(), length);
}

uint32_t Stratified::next() {
  std::pop_heap(next_draws_.begin(), next_draws_.end());
  const uint32_t number = next_draws_.back().number;
  if (++drawn_[number] < amounts_[number]) {
    next_draws_.back().time = time(number, drawn_[number]);
    std::push_heap(next_draws_.begin(), next_draws_.end());
  } else {
    next_draws_.pop_back();
  }
  return number;
}

}  // namespace feedline::flow
