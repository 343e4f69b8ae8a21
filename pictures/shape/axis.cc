#include "pictures/shape/axis.h"

#include <algorithm>
#include <cmath>

namespace feedline::pictures {
namespace {

// Returns an upper bound for the number of weights of a pixel of the result.
size_t weights_bound(Filter filter, int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  switch (filter) {
    case Filter::nearest:
      return 1;
    case Filter::bilinear:
      return 2;
    case Filter::bilinear_antialiased:
      return static_cast<size_t>(std::min<double>(static_cast<double>(from), std::ceil(2 * std::max(1.0, scale)) + 2));
    case Filter::area:
      return static_cast<size_t>(std::min<double>(static_cast<double>(from), std::ceil(scale) + 2));
  }
  return 0;
}

struct Weights {
  int64_t first;  // the pixel of the source that the first weight is for
  size_t count;
};

// Computes the weights of pixel i of the result.
Weights weigh(Filter filter, int64_t from, int64_t to, int64_t i, float* weights) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  switch (filter) {
    case Filter::nearest:
      weights[0] = 1;
      return {(2 * i + 1) * from / (2 * to), 1};
    case Filter::bilinear: {
      const double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
      const double below = std::floor(at);
      const auto left = std::clamp<int64_t>(static_cast<int64_t>(below), 0, from - 1);
      const auto right = std::clamp<int64_t>(static_cast<int64_t>(below) + 1, 0, from - 1);
      const auto part = static_cast<float>(at - below);
      weights[0] = left == right ? 1 : 1 - part;
      if (left != right) weights[1] = part;
      return {left, left == right ? 1u : 2u};
    }
    case Filter::bilinear_antialiased: {
      const double half = std::max(1.0, scale), centre = (static_cast<double>(i) + 0.5) * scale;
      const auto first = std::max<int64_t>(0, static_cast<int64_t>(centre - half + 0.5));
      const auto last = std::min<int64_t>(from, static_cast<int64_t>(centre + half + 0.5));
      const auto triangle = [&](int64_t x) {
        return std::max(0.0, 1 - std::abs((static_cast<double>(x) - centre + 0.5) / half));
      };
      double sum = 0;
      for (int64_t x = first; x < last; x++) sum += triangle(x);
      for (int64_t x = first; x < last; x++) weights[x - first] = static_cast<float>(triangle(x) / sum);
      return {first, static_cast<size_t>(last - first)};
    }
    case Filter::area: {
      const double begin = static_cast<double>(i) * scale, end = static_cast<double>(i + 1) * scale;
      const auto first = std::clamp<int64_t>(static_cast<int64_t>(begin), 0, from - 1);
      int64_t x = first;
      for (; x < from && (x == first || static_cast<double>(x) < end); x++) {
        const double covered = std::min(end, static_cast<double>(x + 1)) - std::max(begin, static_cast<double>(x));
        weights[x - first] = static_cast<float>(std::max(0.0, covered) / scale);
      }
      return {first, static_cast<size_t>(x - first)};
    }
  }
  return {};
}

}  // namespace

Axis::Axis(Filter filter, int64_t from, int64_t to, int64_t begin, int64_t end, bool is_mirrored)
    : is_copy_(from == to),
      stride_(is_copy_ ? 1 : weights_bound(filter, from, to)),
      first_(from),
      firsts_(static_cast<size_t>(end - begin)),
      counts_(firsts_.size()),
      weights_(firsts_.size() * stride_) {
  for (size_t at = 0; at < firsts_.size(); at++) {
    const int64_t i = is_mirrored ? end - 1 - static_cast<int64_t>(at) : begin + static_cast<int64_t>(at);
    float* const weights = weights_.data() + at * stride_;
    const auto [first, count] = weigh(is_copy_ ? Filter::nearest : filter, from, to, i, weights);
    firsts_[at] = first;
    counts_[at] = count;
    most_taps_ = std::max(most_taps_, count);
    first_ = std::min(first_, first);
    last_ = std::max(last_, first + static_cast<int64_t>(count));
  }
}

}  // namespace feedline::pictures
