#include "pictures/shape/axis.h"

#include <algorithm>
#include <cmath>

namespace feedline::pictures {
namespace {

// Appends the weights of pixel i, and returns the first pixel of the source that they are for.
int64_t append_taps(Filter filter, int64_t from, int64_t to, int64_t i, std::vector<float>& weights) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  switch (filter) {
    case Filter::nearest:
      weights.push_back(1);
      return (2 * i + 1) * from / (2 * to);
    case Filter::bilinear: {
      const double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
      const double below = std::floor(at);
      const auto left = std::clamp<int64_t>(static_cast<int64_t>(below), 0, from - 1);
      const auto right = std::clamp<int64_t>(static_cast<int64_t>(below) + 1, 0, from - 1);
      const auto part = static_cast<float>(at - below);
      if (left == right) {
        weights.push_back(1);
      } else {
        weights.push_back(1 - part);
        weights.push_back(part);
      }
      return left;
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
      for (int64_t x = first; x < last; x++) weights.push_back(static_cast<float>(triangle(x) / sum));
      return first;
    }
    case Filter::area: {
      const double begin = static_cast<double>(i) * scale, end = static_cast<double>(i + 1) * scale;
      const auto first = std::clamp<int64_t>(static_cast<int64_t>(begin), 0, from - 1);
      for (int64_t x = first; x < from && (x == first || static_cast<double>(x) < end); x++) {
        const double covered =
            std::min(end, static_cast<double>(x + 1)) - std::max(begin, static_cast<double>(x));
        weights.push_back(static_cast<float>(std::max(0.0, covered) / scale));
      }
      return first;
    }
  }
  return 0;
}

}  // namespace

Axis::Axis(Filter filter, int64_t from, int64_t to, int64_t begin, int64_t end)
    : is_copy_(from == to), first_(from), last_(0), begins_{0} {
  for (int64_t i = begin; i < end; i++) {
    if (is_copy_) {
      weights_.push_back(1);
      firsts_.push_back(i);
    } else {
      firsts_.push_back(append_taps(filter, from, to, i, weights_));
    }
    first_ = std::min(first_, firsts_.back());
    last_ = std::max(last_, firsts_.back() + static_cast<int64_t>(weights_.size() - begins_.back()));
    begins_.push_back(weights_.size());
  }
}

}  // namespace feedline::pictures
