#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "feedline/communicator.h"
#include "gpu/reduce/reduction.h"
#include "ranks/collective_call.h"
#include "ranks/group_failure.h"
#include "ranks/slices.h"

namespace feedline {
namespace {

using ranks::CollectiveCall;
using Part = Transport::Part;

// The buffers that a rank lets the other ranks read during a call.
struct Buffers {
  const std::byte* in = nullptr;
  std::span<const Part> sends = {}, receives = {};
};

// The state that all ranks share: a barrier, and pointers to each rank's buffers. Between two barriers the ranks read
// each other's buffers without a lock.
class Group {
 public:
  explicit Group(size_t ranks) : calls_(ranks), buffers_(ranks) {}

  size_t size() const noexcept { return buffers_.size(); }
  const Buffers& of(size_t rank) const noexcept { return buffers_[rank]; }

  /// Waits for all ranks to make the same call. Then runs the phases one after another: a phase begins when all ranks
  /// have finished the phase before it. Returns when all ranks have finished the last phase. Phases must not throw.
  template <typename... Phase>
  void run(size_t rank, const CollectiveCall& call, const Buffers& buffers, Phase... phases) {
    meet(rank, call, buffers);
    ((phases(), settle()), ...);
  }

  void abort(size_t rank, const Error& why) {
    const Lock lock(mutex_);
    failure_.set(ranks::failure_of_rank(static_cast<int>(rank), number_, why));
    changed_.notify_all();
  }

  // Marks a rank as gone. This is a failure only if other ranks wait for that rank, now or in a later call.
  void leave(size_t rank) {
    const Lock lock(mutex_);
    if (!left_) left_ = rank;
    if (arrived_ > 0) fail_if_left();
  }

  std::optional<Error> failure() const { return failure_.get(); }

 private:
  // Waits until all ranks make the same call. Throws the Error that ends the group if they do not.
  void meet(size_t rank, const CollectiveCall& call, const Buffers& buffers) {
    Lock lock(mutex_);
    fail_if_left();
    if (failure_) throw *failure_;
    calls_[rank] = call;
    buffers_[rank] = buffers;
    if (arrived_ + 1 == size()) {
      auto error = ranks::disagreement(calls_, number_);
      if (!error && call.kind == CollectiveCall::Kind::send_receive) error = unmatched();
      if (error) {
        failure_.set(*error);
        changed_.notify_all();
        throw *failure_;
      }
      number_++;
    }
    const uint64_t round = arrive();
    changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return round_ != round || failure_; });
    if (round_ == round) throw *failure_;
  }

  void fail_if_left() FEEDLINE_REQUIRES(mutex_) {
    if (failure_ || !left_) return;
    failure_.set(ranks::failure_of_rank(static_cast<int>(*left_), number_, ranks::has_left()));
    changed_.notify_all();
  }

  // Waits for all ranks to finish a phase. Every rank that has returned from meet() calls this, because phases do not
  // throw.
  void settle() {
    Lock lock(mutex_);
    const uint64_t round = arrive();
    changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return round_ != round; });
  }

  // Counts this rank's arrival at the barrier. The last rank that arrives opens the barrier. Returns the barrier's
  // number.
  uint64_t arrive() FEEDLINE_REQUIRES(mutex_) {
    const uint64_t round = round_;
    if (++arrived_ == size()) {
      arrived_ = 0;
      round_++;
      changed_.notify_all();
    }
    return round;
  }

  // Returns an Error if a part is sent but not received, or the other way round.
  std::optional<Error> unmatched() const FEEDLINE_REQUIRES(mutex_) {
    for (size_t from = 0; from < size(); from++)
      for (size_t to = 0; to < size(); to++)
        if (digest(buffers_[from].sends, to) != digest(buffers_[to].receives, from))
          return ranks::unmatched_parts(static_cast<int>(from), static_cast<int>(to), number_);
    return std::nullopt;
  }
  static ranks::PartsDigest digest(std::span<const Part> parts, size_t rank) {
    ranks::PartsDigest digest;
    for (const Part& part : parts)
      if (static_cast<size_t>(part.rank) == rank) digest.add(part.bytes.size());
    return digest;
  }

  Mutex mutex_;
  Condition changed_;
  std::vector<CollectiveCall> calls_ FEEDLINE_GUARDED_BY(mutex_);
  std::vector<Buffers> buffers_;  // written with the mutex held, and read without it between two barriers
  size_t arrived_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  // How many barriers all ranks have passed, and how many calls they have begun.
  uint64_t round_ FEEDLINE_GUARDED_BY(mutex_) = 0, number_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  ranks::GroupFailure failure_;                             // set with the mutex held
  std::optional<size_t> left_ FEEDLINE_GUARDED_BY(mutex_);  // the first rank that has left
};

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<Group> group, size_t rank)
      : group_(std::move(group)), rank_(rank), in_(group_->size()), taken_(group_->size()) {}
  ~HostCommunicator() override { group_->leave(rank_); }

  int rank() const noexcept override { return static_cast<int>(rank_); }
  int size() const noexcept override { return static_cast<int>(group_->size()); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream) override {
    group_->run(rank_, ranks::all_gather_call(mine.size(), all.size(), size()), {.in = mine.data()}, [&] {
      for (size_t rank = 0; rank < group_->size(); rank++)
        copy(group_->of(rank).in, all.data() + rank * mine.size(), mine.size());
    });
  }

  void broadcast(std::span<std::byte> data, int root, Stream) override {
    group_->run(rank_, ranks::broadcast_call(data.size(), root, size()), {.in = data.data()},
                [&] { copy(group_->of(static_cast<size_t>(root)).in, data.data(), data.size()); });
  }

  // A reduce-scatter and an all-gather: each rank reduces one slice in its own buffer, and then copies the slices that
  // the other ranks have reduced.
  void all_reduce(TensorView data, Reduction reduction, Stream) override {
    auto* const bytes = static_cast<std::byte*>(data.data);
    group_->run(
        rank_, ranks::all_reduce_call(data, reduction), {.in = bytes},
        [&] { reduce_slice(data, reduction, slice_of(data, rank(), size()).data()); },
        [&] {
          for (int other = 0; other < size(); other++) {
            const std::span slice = slice_of(data, other, size());
            copy(group_->of(static_cast<size_t>(other)).in + (slice.data() - bytes), slice.data(), slice.size());
          }
        });
  }

  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream) override {
    group_->run(rank_, ranks::reduce_scatter_call(data, mine, reduction, size()),
                {.in = static_cast<const std::byte*>(data.data)},
                [&] { reduce_slice(data, reduction, static_cast<std::byte*>(mine.data)); });
  }

  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream) override {
    group_->run(rank_, ranks::send_receive_call(sends, receives, size()), {.sends = sends, .receives = receives}, [&] {
      std::ranges::fill(taken_, 0);
      for (const Part& part : receives) {
        const std::span<const Part> theirs = group_->of(static_cast<size_t>(part.rank)).sends;
        size_t& next = taken_[static_cast<size_t>(part.rank)];
        while (theirs[next].rank != rank()) next++;
        copy(theirs[next++].bytes.data(), part.bytes.data(), part.bytes.size());
      }
    });
  }

  void barrier() override { group_->run(rank_, {}, {}); }

  void abort(const Error& why) noexcept override { group_->abort(rank_, why); }
  std::optional<Error> failure() const override { return group_->failure(); }

 private:
  static void copy(const std::byte* from, std::byte* to, size_t bytes) {
    // memcpy() may not be given null, which an empty buffer may have as its address.
    // Any bound: no test can notice, because copying 0 bytes changes nothing.
    if (from != to && bytes > 0) std::memcpy(to, from, bytes);
  }

  // Reduces this rank's slice of all ranks' data, and writes the result to `to`.
  void reduce_slice(const TensorView& data, Reduction reduction, std::byte* to) noexcept {
    const std::span slice = slice_of(data, rank(), size());
    const auto offset = slice.data() - static_cast<const std::byte*>(data.data);
    for (size_t rank = 0; rank < group_->size(); rank++) in_[rank] = group_->of(rank).in + offset;
    gpu::reduce(in_, data.dtype, reduction, slice.size() / size_of(data.dtype), to);
  }

  const std::shared_ptr<Group> group_;
  const size_t rank_;
  // Allocated beforehand, because phases must not throw.
  std::vector<const std::byte*> in_;  // by rank r: the address, in the data of r, of the slice that this rank reduces
  std::vector<size_t> taken_;         // by rank r: the index of the first send of r that has not been examined yet
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> communicators_between_threads(int ranks) {
  const auto group = std::make_shared<Group>(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Communicator>> ends;
  for (size_t rank = 0; rank < group->size(); rank++) ends.push_back(std::make_unique<HostCommunicator>(group, rank));
  return ends;
}

}  // namespace feedline
