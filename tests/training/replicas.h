// What the tests of data parallelism share: a small model, its gradients, and the values that it must reach.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "feedline/data_parallel.h"
#include "gpu/reduce/reduction.h"
#include "unpack/dispatch.h"

namespace feedline::test {

using Ends = std::shared_ptr<Communicator>;
using Values = std::vector<std::vector<float>>;

inline const std::vector<size_t> sizes = {1, 1000, 37, 5, 300};  // numbers of values of the model's variables

enum class Mode { replicated, parameter_server, two_machines };
inline constexpr Mode modes[] = {Mode::replicated, Mode::parameter_server, Mode::two_machines};

/// Returns the bytes of a rank's gradient of one variable in a step.
inline std::vector<std::byte> gradient(int rank, int step, size_t variable, DType dtype) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step * 10) + static_cast<unsigned>(variable));
  std::vector<std::byte> bytes(sizes[variable] * size_of(dtype));
  unpack::with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::t;
    for (size_t i = 0; i < sizes[variable]; i++) {
      const T stored = unpack::cast<T>(std::normal_distribution<float>()(random));
      std::memcpy(bytes.data() + i * sizeof(T), &stored, sizeof(T));
    }
  });
  return bytes;
}

inline void descend(std::span<float> value, std::span<const float> by) {
  for (size_t i = 0; i < value.size(); i++) value[i] -= 0.1F * by[i];
}

inline Values first_values(int rank) {
  Values values;
  for (const size_t size : sizes) values.emplace_back(size, 1.5F + static_cast<float>(rank));
  return values;
}

/// Returns the values that one rank would have if it computed on all rows. The gradients are summed within each machine
/// first, then over the machines.
inline Values wanted(int ranks, int steps, DType dtype, float loss_scale,
                     const std::vector<std::vector<int>>& machines) {
  Values values = first_values(0);
  for (int step = 0; step < steps; step++)
    for (size_t v = 0; v < sizes.size(); v++) {
      const auto sum = [&](const std::vector<std::vector<std::byte>>& parts) {
        std::vector<const std::byte*> from;
        for (const auto& part : parts) from.push_back(part.data());
        std::vector<std::byte> to(parts[0].size());
        gpu::reduce(from, dtype, Reduction::sum, sizes[v], to.data());
        return to;
      };
      std::vector<std::vector<std::byte>> of_machines;
      for (const auto& machine : machines) {
        std::vector<std::vector<std::byte>> parts;
        for (const int rank : machine) parts.push_back(gradient(rank, step, v, dtype));
        of_machines.push_back(sum(parts));
      }
      const std::vector<std::byte> all = sum(of_machines);
      std::vector<float> mean(sizes[v]);
      unpack::with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::t;
        for (size_t i = 0; i < mean.size(); i++) {
          T stored;
          std::memcpy(&stored, all.data() + i * sizeof(T), sizeof(T));
          mean[i] = unpack::cast<float>(stored) / (loss_scale * static_cast<float>(ranks));
        }
      });
      descend(values[v], mean);
    }
  return values;
}

inline std::vector<std::vector<int>> machines_of(Mode mode, int ranks) {
  std::vector<std::vector<int>> machines(mode == Mode::two_machines ? 2 : 1);
  for (int rank = 0; rank < ranks; rank++)
    machines[static_cast<size_t>(rank) * machines.size() / static_cast<size_t>(ranks)].push_back(rank);
  return machines;
}

/// Makes a rank's end of a communicator. A rank that drops it unused has left the others.
using Invitation = std::function<Ends()>;
/// Returns the invitation of the rank at `place` in a common communicator. Call it once for each place.
using Invite = std::function<Invitation(int place)>;

/// The communicators of all ranks of a training.
class Communicators {
 public:
  /// `meet` connects the ranks `members`; `all_own` is true if each of them may own variables.
  Communicators(Mode mode, int ranks, const std::function<Invite(const std::vector<int>& members, bool all_own)>& meet)
      : mode_(mode), machines_(machines_of(mode, ranks)) {
    std::vector<int> leaders;
    for (const auto& machine : machines_) {
      inside_.push_back(meet(machine, mode != Mode::two_machines));
      leaders.push_back(machine[0]);
    }
    if (mode == Mode::two_machines) leaders_ = meet(leaders, true);
  }
  /// A rank's part. A rank must take it before anything else: if it then ends without a training, it has left the
  /// others.
  struct Part {
    std::unique_ptr<DataParallel> training(std::vector<Variable> variables, Apply apply,
                                           DataParallelOptions options = {}) const;
    Mode mode;
    Invitation inside, among_leaders;
  };
  Part part(int rank) {
    const auto in_machine = static_cast<int>(machines_[0].size());
    const int machine = rank / in_machine, place = rank % in_machine;
    return {mode_, inside_[static_cast<size_t>(machine)](place), leaders_ && place == 0 ? leaders_(machine) : nullptr};
  }
  std::unique_ptr<DataParallel> training(int rank, std::vector<Variable> variables, Apply apply) {
    return part(rank).training(std::move(variables), std::move(apply));
  }

 private:
  const Mode mode_;
  const std::vector<std::vector<int>> machines_;
  std::vector<Invite> inside_;
  Invite leaders_;
};

inline std::unique_ptr<DataParallel> Communicators::Part::training(std::vector<Variable> variables, Apply apply,
                                                                   DataParallelOptions options) const {
  options.bucket_bytes = 1500;
  Ends mine = inside();
  if (mode == Mode::replicated) return replicated(mine, std::move(variables), std::move(apply), options);
  if (mode == Mode::parameter_server) return parameter_server(mine, std::move(variables), std::move(apply), options);
  return distributed_replicated(mine, among_leaders ? among_leaders() : nullptr, std::move(variables), std::move(apply),
                                options);
}

inline Invite between_threads(size_t ranks) {
  std::vector<Ends> ends;
  for (auto& end : communicators_between_threads(static_cast<int>(ranks))) ends.push_back(std::move(end));
  return [ends](int place) mutable {
    return [end = std::move(ends[static_cast<size_t>(place)])]() mutable { return std::move(end); };
  };
}

/// A rank's model: its values, and its gradients as bytes.
struct Model {
  explicit Model(int rank, DType dtype) : values(first_values(rank)) {
    for (size_t v = 0; v < sizes.size(); v++) gradients.push_back(gradient(rank, 0, v, dtype));
    for (size_t v = 0; v < sizes.size(); v++)
      variables.push_back(
          {"v" + std::to_string(v), values[v], {gradients[v].data(), dtype, {static_cast<int64_t>(sizes[v])}}});
  }
  Values values;
  std::vector<std::vector<std::byte>> gradients;
  std::vector<Variable> variables;
};

}  // namespace feedline::test
