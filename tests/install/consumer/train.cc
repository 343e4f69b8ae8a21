// A user's program: trains one variable on a single rank.
#include <feedline/data_parallel.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>
#include <vector>

int main() {
  std::vector<float> value = {5}, gradient = {2};
  const auto optimizer = [](size_t, std::span<float> values, std::span<const float> mean) { values[0] -= mean[0]; };
  const std::shared_ptr<feedline::Communicator> rank = std::move(feedline::communicators_between_threads(1)[0]);
  const auto training =
      feedline::replicated(rank, {{"v", value, {gradient.data(), feedline::DType::float32, {1}}}}, optimizer);
  training->ready(0);
  const bool finite = training->step();
  std::printf("finite %d, value %g\n", finite, static_cast<double>(value[0]));
}
