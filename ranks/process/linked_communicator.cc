#include "ranks/process/linked_communicator.h"

#include <new>
#include <vector>

#include "base/leak.h"
#include "gpu/reduce/reduction.h"
#include "ranks/collective_call.h"
#include "ranks/process/process_thread.h"
#include "ranks/slices.h"

namespace feedline::ranks {
namespace {

// The communicator's own buffers for sending and receiving.
struct Kept {
  CollectiveCall call;                     // the call of this rank
  std::vector<CollectiveCall> calls;       // the calls of all ranks
  std::vector<PartsDigest> sent, to_come;  // by rank r: what this rank sends to r, and what r sends to this rank
  std::vector<std::byte> others;           // by rank r: the slice that this rank reduces, from the data of r
};

class LinkedCommunicator final : public Communicator {
 public:
  LinkedCommunicator(std::shared_ptr<Links> links, std::chrono::milliseconds timeout)
      : thread_(std::move(links), timeout) {}
  ~LinkedCommunicator() override {
    if (thread_.failure() && thread_.keeps_buffers()) leak(kept_);
  }

  int rank() const noexcept override { return thread_.rank(); }
  int size() const noexcept override { return thread_.size(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream) override {
    run(all_gather_call(mine.size(), all.size(), size()),
        [&] { thread_.run([&](Links& links) { links.begin_all_gather(mine, all); }); });
  }

  void broadcast(std::span<std::byte> data, int root, Stream) override {
    run(broadcast_call(data.size(), root, size()),
        [&] { thread_.run([&](Links& links) { links.begin_broadcast(data, root); }); });
  }

  // A reduce-scatter and an all-gather: each rank reduces one slice, and then receives the slices that the other ranks
  // have reduced.
  void all_reduce(TensorView data, Reduction reduction, Stream) override {
    const auto slice = [&](int rank) { return slice_of(data, rank, size()); };
    run(all_reduce_call(data, reduction), [&] {
      reduce_slices(slice, data.dtype, reduction, slice(rank()));
      swap([&](int) { return slice(rank()); }, slice);
    });
  }

  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream) override {
    run(reduce_scatter_call(data, mine, reduction, size()), [&] {
      reduce_slices([&](int rank) { return slice_of(data, rank, size()); }, data.dtype, reduction,
                    {static_cast<std::byte*>(mine.data), mine.size_bytes()});
    });
  }

  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream) override {
    run(send_receive_call(sends, receives, size()), [&] {
      check_parts(sends, receives);
      thread_.run([&](Links& links) { links.begin(sends, receives); });
    });
  }

  void barrier() override {
    run({}, [] {});
  }

  void abort(const Error& why) noexcept override { thread_.fail(failure_of_rank(rank(), thread_.calls(), why)); }
  std::optional<Error> failure() const override { return thread_.failure(); }

 private:
  // Makes sure that all ranks make this call, and then runs `body`, which carries it out.
  template <typename Body>
  void run(const CollectiveCall& call, Body body) {
    kept_->call = call;
    kept_->calls.resize(static_cast<size_t>(size()));
    thread_.run([&](Links& links) {
      links.begin_all_gather(std::as_bytes(std::span(&kept_->call, 1)),
                             std::as_writable_bytes(std::span(kept_->calls)));
    });
    if (const auto error = disagreement(kept_->calls, thread_.calls())) throw thread_.fail(*error);
    try {
      body();
    } catch (const std::bad_alloc&) {  // the other ranks are inside this call and must be told
      throw thread_.fail(failure_of_rank(rank(), thread_.calls(), Error(Category::io_error, "out of memory")));
    }
    thread_.finish_call();
  }

  // For each rank r but this one: sends the bytes mine(r) to rank r, and receives its bytes into theirs(r).
  template <typename Mine, typename Theirs>
  void swap(Mine mine, Theirs theirs) {
    std::vector<Part> sends, receives;
    for (int other = 0; other < size(); other++) {
      if (other == rank()) continue;
      sends.push_back({other, mine(other)});
      receives.push_back({other, theirs(other)});
    }
    thread_.run([&](Links& links) { links.begin(sends, receives); });
  }

  // Reduces this rank's slice of all ranks' data and writes it to `to`, which may be slice(rank()). slice(r) is the
  // part of this rank's data that rank r reduces.
  template <typename Slice>
  void reduce_slices(Slice slice, DType dtype, Reduction reduction, std::span<std::byte> to) {
    const size_t bytes = to.size();
    std::vector<std::byte>& others = kept_->others;
    others.resize(bytes * static_cast<size_t>(size()));
    const auto place = [&](int rank) { return std::span(others).subspan(static_cast<size_t>(rank) * bytes, bytes); };
    swap(slice, place);
    std::vector<const std::byte*> from;
    for (int other = 0; other < size(); other++)
      from.push_back(other == rank() ? slice(other).data() : place(other).data());
    gpu::reduce(from, dtype, reduction, bytes / size_of(dtype), to.data());
  }

  // Throws if the parts that other ranks send do not match those that this rank receives. Without this check, a rank
  // would wait forever for a part that no rank sends.
  void check_parts(std::span<const Part> sends, std::span<const Part> receives) {
    const auto ranks = static_cast<size_t>(size());
    kept_->sent.assign(ranks, {});
    kept_->to_come.assign(ranks, {});
    std::vector<PartsDigest> wanted(ranks);
    for (const Part& part : sends) kept_->sent[static_cast<size_t>(part.rank)].add(part.bytes.size());
    for (const Part& part : receives) wanted[static_cast<size_t>(part.rank)].add(part.bytes.size());
    const auto digest = [](std::vector<PartsDigest>& of) {
      return [&of](int other) { return std::as_writable_bytes(std::span(of).subspan(static_cast<size_t>(other), 1)); };
    };
    kept_->to_come[static_cast<size_t>(rank())] = kept_->sent[static_cast<size_t>(rank())];
    swap(digest(kept_->sent), digest(kept_->to_come));
    for (size_t other = 0; other < ranks; other++)
      if (kept_->to_come[other] != wanted[other])
        throw thread_.fail(unmatched_parts(static_cast<int>(other), rank(), thread_.calls()));
  }

  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  ProcessThread thread_;
};

}  // namespace

std::unique_ptr<Communicator> linked_communicator(std::shared_ptr<Links> links, std::chrono::milliseconds timeout) {
  return std::make_unique<LinkedCommunicator>(std::move(links), timeout);
}

}  // namespace feedline::ranks
