#include "feedline/nccl_communicator.h"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "gpu/cuda/cuda_handles.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/gpu_model.h"
#include "ranks/collective_call.h"
#include "ranks/current_error.h"
#include "ranks/group_failure.h"
#include "ranks/slices.h"

namespace feedline {
namespace {

using ranks::CollectiveCall;
using ranks::PartsDigest;
using Clock = std::chrono::steady_clock;
using Part = Communicator::Part;

using NcclOp = HookedCall<"nccl", ncclSystemError>;

constexpr auto watch_interval = std::chrono::milliseconds(10);
constexpr auto leave_timeout = std::chrono::seconds(5);

template <typename Body>
void nccl_call(DeviceId gpu, const char* name, Body body) {
  const int error = injected<NcclOp>();
  const ncclResult_t result = error ? static_cast<ncclResult_t>(error) : body();
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* why = ncclGetLastError(nullptr);  // the last error in this process
  throw Error(Category::device_error, fmt::format("GPU {}: {}: {}{}{}; set NCCL_DEBUG=WARN to see more", gpu.ordinal,
                                                  name, ncclGetErrorString(result), *why ? ": " : "", why));
}

// Owns an NCCL communicator in non-blocking mode: a call may return before NCCL has enqueued the work on the stream,
// and the caller polls busy() until NCCL has done so. abort() ends the kernels on which streams wait. After an abort,
// group() does nothing. (In a process with several communicators, the abort of the last one also waits until the
// streams have done the work of the others.)
class Comm {
 public:
  Comm(DeviceId gpu, const ncclUniqueId& id, int rank, int size) : gpu_(gpu) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      call("ncclCommInitRankConfig", [&] { return ncclCommInitRankConfig(&comm_, size, id, rank, &config); });
    } catch (...) {
      abort();  // NCCL may have made the communicator although the call failed
      throw;
    }
  }
  ~Comm() { abort(); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// Calls `body`, which gives NCCL one group of sends and receives. Returns false if the communicator was aborted.
  template <typename Body>
  bool group(Body body) {
    const Lock lock(mutex_);
    if (!comm_) return false;
    call("ncclGroupStart", [] { return ncclGroupStart(); });
    try {
      body(comm_);
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    call("ncclGroupEnd", [] { return ncclGroupEnd(); });
    return true;
  }

  /// Returns whether NCCL has not yet enqueued all the work that it was given. Throws Error if NCCL has failed
  /// asynchronously.
  bool busy() {
    const Lock lock(mutex_);
    if (!comm_) return false;
    ncclResult_t state = ncclSuccess;
    call("ncclCommGetAsyncError", [&state, comm = comm_] {
      const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
      return result == ncclSuccess ? state : result;
    });
    return state == ncclInProgress;
  }

  void finalize() {
    const Lock lock(mutex_);
    if (comm_) call("ncclCommFinalize", [comm = comm_] { return ncclCommFinalize(comm); });
  }
  void destroy() noexcept {
    const Lock lock(mutex_);
    if (comm_) ncclCommDestroy(std::exchange(comm_, nullptr));
  }
  void abort() noexcept {
    const Lock lock(mutex_);
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }
  bool aborted() const {
    const Lock lock(mutex_);
    return !comm_;
  }

  template <typename Body>
  void call(const char* name, Body body) const {
    nccl_call(gpu_, name, body);
  }

 private:
  const DeviceId gpu_;
  mutable Mutex mutex_;
  ncclComm_t comm_ FEEDLINE_GUARDED_BY(mutex_) = nullptr;
};

// The message that a rank sends to all other ranks before each call, because NCCL itself does not check that the ranks'
// calls match.
struct Announcement {
  CollectiveCall call;
  std::vector<PartsDigest> sent, to_come;  // by rank: the parts sent to it, and the parts to receive from it
};
size_t announcement_bytes(int ranks) {
  return sizeof(CollectiveCall) + 2 * static_cast<size_t>(ranks) * sizeof(PartsDigest);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> control, DeviceId gpu, const NcclOptions& options)
      : control_(std::move(control)),
        gpu_(gpu),
        drain_(options.drain),
        context_(gpu),
        made_(std::make_unique<Made>(gpu)),
        comm_(gpu, common_id(), rank(), size()),
        own_(announcement_bytes(size())),
        all_(own_.size() * static_cast<size_t>(size())) {
    gpu::check_kernels(gpu_);
    gpu::call<gpu::LoadOp>(gpu_, [] { return gpu::load_reduce(); });
    poll([&] {
      if (failure()) throw_failure();
      return comm_.busy();
    });
    watcher_ = start_thread("feedline-nccl", [this] { watch(); });
  }
  ~NcclCommunicator() override {
    const gpu::ScopedContext scoped(context_);
    try {
      wait_for_streams();
    } catch (const Error& error) {
      if (!failure()) control_->abort(error);
    }
    {
      const Lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    if (watcher_.joinable()) watcher_.join();
    // The ranks make announced calls without calling the control, their communicator over host memory. So the control
    // would not notice that this rank leaves before it has made all announced calls.
    if (!announced_.empty() && !failure())
      control_->abort(Error(Category::stalled,
                            "the rank has destroyed its communicator before it made the calls that it announced"));
    // Destroys the control before the wait: this tells the other ranks, which may be waiting for this rank, that it has
    // left.
    const bool whole = !failure();
    control_.reset();
    if (whole) wait_for_others_to_leave();
    comm_.abort();  // does nothing after destroy(); otherwise ends the kernels before their memory is freed below
    cudaEventSynchronize(made_->last.get());
    made_.reset();
  }

  DeviceId device() const noexcept override { return gpu_; }
  int rank() const noexcept override { return control_->rank(); }
  int size() const noexcept override { return control_->size(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override {
    run(ranks::all_gather_call(mine.size(), all.size(), size()), stream, [&](cudaStream_t on) {
      if (mine.empty()) return;
      group([&](ncclComm_t comm) {
        comm_.call("ncclAllGather",
                   [&] { return ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, comm, on); });
      });
    });
  }

  void broadcast(std::span<std::byte> data, int root, Stream stream) override {
    run(ranks::broadcast_call(data.size(), root, size()), stream, [&](cudaStream_t on) {
      if (data.empty()) return;
      group([&](ncclComm_t comm) {
        comm_.call("ncclBroadcast",
                   [&] { return ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, root, comm, on); });
      });
    });
  }

  // NCCL's own reductions are not used: they add up in an order that depends on the topology, and add float16 in
  // float16. Here each rank reduces one slice and then receives the slices of the others. Each rank sends as many bytes
  // as in a ring all-reduce.
  void all_reduce(TensorView data, Reduction reduction, Stream stream) override {
    const auto slice = [&](int rank) { return slice_of(data, rank, size()); };
    run_reduction(ranks::all_reduce_call(data, reduction), stream, slice(rank()).size(), [&](cudaStream_t on) {
      reduce_slices(slice, data.dtype, reduction, slice(rank()), on);
      group([&](ncclComm_t comm) {
        for (int other = 0; other < size(); other++) {
          if (other == rank()) continue;
          send(slice(rank()), other, comm, on);
          receive(slice(other), other, comm, on);
        }
      });
    });
  }

  void announce(std::span<const AllReduce> calls) override {
    std::deque<CollectiveCall> announced;
    size_t most_bytes = 0;
    for (const auto& [data, reduction] : calls) {
      announced.push_back(ranks::all_reduce_call(data, reduction));
      most_bytes = std::max(most_bytes, slice_of(data, rank(), size()).size());
    }
    reserve_slices(most_bytes);
    agree(announcement(ranks::announce_call(std::vector(announced.begin(), announced.end()))));
    calls_++;
    announced_ = std::move(announced);
  }

  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream stream) override {
    const std::span to(static_cast<std::byte*>(mine.data), mine.size_bytes());
    run_reduction(ranks::reduce_scatter_call(data, mine, reduction, size()), stream, to.size(), [&](cudaStream_t on) {
      reduce_slices([&](int rank) { return slice_of(data, rank, size()); }, data.dtype, reduction, to, on);
    });
  }

  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream stream) override {
    const CollectiveCall call = ranks::send_receive_call(sends, receives, size());
    Announcement mine = announcement(call);
    for (const Part& part : sends) mine.sent[static_cast<size_t>(part.rank)].add(part.bytes.size());
    for (const Part& part : receives) mine.to_come[static_cast<size_t>(part.rank)].add(part.bytes.size());
    run(mine, stream, [&](cudaStream_t on) {
      group([&](ncclComm_t comm) {
        for (const Part& part : sends) send(part.bytes, part.rank, comm, on);
        for (const Part& part : receives) receive(part.bytes, part.rank, comm, on);
      });
    });
  }

  void barrier() override {
    agree(announcement({}));
    calls_++;
  }

  void abort(const Error& why) noexcept override { control_->abort(why); }
  std::optional<Error> failure() const override { return failure_ ? failure_.get() : control_->failure(); }

 private:
  // Returns NCCL's id of the group, which rank 0 makes, and sends to all ranks through the control.
  ncclUniqueId common_id() {
    ncclUniqueId id{};
    if (rank() == 0) nccl_call(gpu_, "ncclGetUniqueId", [&] { return ncclGetUniqueId(&id); });
    control_->broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, Stream::host);
    return id;
  }

  Announcement announcement(const CollectiveCall& call) const {
    const auto ranks = static_cast<size_t>(size());
    return {call, std::vector<PartsDigest>(ranks), std::vector<PartsDigest>(ranks)};
  }
  template <typename Body>
  void run(const CollectiveCall& call, Stream stream, Body body) {
    run(announcement(call), stream, body);
  }
  template <typename Body>
  void run_reduction(const CollectiveCall& call, Stream stream, size_t slice_bytes, Body body) {
    reserve_slices(slice_bytes);  // does nothing if the call was announced, because announce() did the same
    run(call, stream, body);
  }
  // Allocates memory for a slice of each rank. Call it before agree(), because an allocation may wait for the work of
  // other GPUs. At that point the work comes from earlier calls, which every rank has made or announced, so it will
  // finish.
  void reserve_slices(size_t slice_bytes) {
    try {
      const gpu::ScopedContext scoped(context_);
      reserve(slice_bytes * static_cast<size_t>(size()));
    } catch (const Error& error) {
      end_group(error);
      throw_failure();
    }
  }

  template <typename Body>
  void run(const Announcement& mine, Stream stream, Body body) {
    const bool host = stream.kind() == DeviceId::Kind::host;
    if (stream == Stream::cuda_per_thread)
      throw Error(Category::bad_pipeline,
                  "Stream::cuda_per_thread cannot be used with NCCL, which launches kernels from its own threads; use "
                  "a stream that the program has created");
    if (!host) gpu::check_device(gpu_, stream);
    const gpu::ScopedContext scoped(context_);
    const cudaStream_t on = host ? made_->stream.get() : stream.cuda_stream();
    gpu::check_no_capture(gpu_, on, "a call of a communicator");
    const UnderWay under_way(under_way_);
    agree(mine);
    bool behind_last = false;
    try {
      made_->last.wait_on(on);
      behind_last = true;
      body(on);
      made_->last.record(on);
      if (host) wait_for_streams();
    } catch (const Error& error) {
      end_group(error);
      // Part of the call's work may already be on the stream. The destructor must wait for that work, so the event for
      // which it waits is recorded here. The owners of the memory that the work uses also record events on the stream,
      // and wait for them. So NCCL must not enqueue anything after this function has returned.
      if (behind_last) {
        leave_unfinished();
        cudaEventRecord(made_->last.get(), on);
      }
      if (host) cudaStreamSynchronize(on);  // so that the caller may reuse its buffers; watch() ends stuck kernels
      throw_failure();
    }
    calls_++;
  }

  // Exchanges the Announcements of all ranks, unless this call was announced with announce(). Throws Error if the ranks
  // do not all make this call, or if this call differs from the next announced call.
  void agree(const Announcement& mine) {
    if (const auto error = failure()) throw *error;
    if (!announced_.empty()) {
      if (mine.call != announced_.front()) {
        control_->abort(ranks::not_announced(mine.call, announced_.front(), calls_));
        throw_failure();
      }
      return announced_.pop_front();
    }
    write(mine);
    control_->all_gather(own_, all_, Stream::host);
    std::vector<CollectiveCall> calls;
    std::vector<Announcement> theirs;
    for (int r = 0; r < size(); r++) calls.push_back(theirs.emplace_back(read(r)).call);
    auto error = ranks::disagreement(calls, calls_);
    for (size_t from = 0; !error && from < theirs.size(); from++)
      for (size_t to = 0; !error && to < theirs.size(); to++)
        if (theirs[from].sent[to] != theirs[to].to_come[from])
          error = ranks::unmatched_parts(static_cast<int>(from), static_cast<int>(to), calls_);
    if (!error) return;
    const Lock lock(mutex_);
    failure_.set(*error);  // all ranks compute the same Error, so none needs to be told
    throw *failure_;
  }
  void write(const Announcement& from) {
    std::byte* to = own_.data();
    const auto put = [&](const void* data, size_t bytes) {
      to = std::copy_n(static_cast<const std::byte*>(data), bytes, to);
    };
    put(&from.call, sizeof from.call);
    for (const auto* digests : {&from.sent, &from.to_come}) put(digests->data(), digests->size() * sizeof(PartsDigest));
  }
  Announcement read(int rank) const {
    Announcement to = announcement({});
    const std::byte* from = all_.data() + static_cast<size_t>(rank) * own_.size();
    const auto take = [&](void* data, size_t bytes) { std::memcpy(data, std::exchange(from, from + bytes), bytes); };
    take(&to.call, sizeof to.call);
    for (auto* digests : {&to.sent, &to.to_come}) take(digests->data(), digests->size() * sizeof(PartsDigest));
    return to;
  }

  template <typename Body>
  void group(Body body) {
    if (!comm_.group(body)) throw_failure();
    settle();
  }
  void send(std::span<const std::byte> bytes, int to, ncclComm_t comm, cudaStream_t on) const {
    if (bytes.empty()) return;
    comm_.call("ncclSend", [&] { return ncclSend(bytes.data(), bytes.size(), ncclUint8, to, comm, on); });
  }
  void receive(std::span<std::byte> bytes, int from, ncclComm_t comm, cudaStream_t on) const {
    if (bytes.empty()) return;
    comm_.call("ncclRecv", [&] { return ncclRecv(bytes.data(), bytes.size(), ncclUint8, from, comm, on); });
  }

  // Receives this rank's slice of all ranks' data, reduces it, and writes the result to `to`. slice(r) is the part of
  // this rank's data that rank r reduces.
  template <typename Slice>
  void reduce_slices(Slice slice, DType dtype, Reduction reduction, std::span<std::byte> to, cudaStream_t on) {
    std::byte* const gathered = made_->scratch.empty() ? nullptr : made_->scratch.back()->get();
    group([&](ncclComm_t comm) {
      for (int other = 0; other < size(); other++) {
        send(slice(other), other, comm, on);
        receive({gathered + static_cast<size_t>(other) * to.size(), to.size()}, other, comm, on);
      }
    });
    gpu::call<gpu::LaunchOp>(gpu_, [&] {
      return gpu::launch_reduce({.args = {.in = gathered,
                                          .out = to.data(),
                                          .ranks = static_cast<uint64_t>(size()),
                                          .elements = to.size() / size_of(dtype)},
                                 .dtype = dtype,
                                 .reduction = reduction},
                                on);
    });
  }
  // Makes the scratch memory at least `bytes` large. Keeps the smaller buffers used before, because cudaFree would wait
  // for the whole GPU and so for other ranks. Each buffer is at least twice as large as the one before, so the kept
  // buffers together are smaller than the one in use.
  void reserve(size_t bytes) {
    if (made_->scratch_bytes >= bytes) return;
    const size_t more = std::max(bytes, 2 * made_->scratch_bytes);
    made_->scratch.push_back(std::make_unique<gpu::CudaMemory>(gpu_, more));
    made_->scratch_bytes = more;
  }

  // Waits until NCCL has enqueued its work on the stream. Continues to wait after a failure of the group: all ranks
  // have made or announced this call, so its work may still complete. If it does not, watch() aborts NCCL.
  void settle() {
    poll([this] { return comm_.busy(); });
    if (comm_.aborted()) throw_failure();
  }
  // Call this after end_group(). Waits until NCCL has enqueued all the work that it was given. Aborts NCCL if that
  // takes longer than `drain_`, or if NCCL has failed.
  void leave_unfinished() noexcept {
    const auto end = Clock::now() + drain_;
    try {
      poll([&] { return comm_.busy() && Clock::now() < end; });
      if (!comm_.busy()) return;
    } catch (const Error&) {
      // NCCL itself has failed.
    }
    comm_.abort();
  }
  // Waits until the streams have done all work of this communicator. Throws Error if NCCL was aborted meanwhile.
  void wait_for_streams() {
    poll([this] { return streams_are_busy() && !comm_.aborted(); });
    if (comm_.aborted()) throw_failure();
  }
  bool streams_are_busy() {
    bool busy = false;
    gpu::call<gpu::EventQueryOp>(gpu_, [&] {
      const cudaError_t error = cudaEventQuery(made_->last.get());
      busy = error == cudaErrorNotReady;
      return busy ? cudaSuccess : error;
    });
    return busy;
  }
  template <typename Busy>
  static void poll(Busy busy) {
    constexpr int spins = 1000;
    for (int i = 0; busy(); i++)
      if (i > spins) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  [[noreturn]] void throw_failure() const {
    throw failure().value_or(
        Error(Category::device_error,
              "the NCCL communicator was aborted, and no rank has said why; see the logs of all ranks"));
  }

  void end_group(const Error& why) {
    // The control (the communicator over host memory) adds the number of one of its own calls to the message. So this
    // function adds the number of this communicator's call.
    if (!failure())
      control_->abort(Error(why.category(), fmt::format("in call {}: {}", calls_, why.message()), why.place()));
  }

  // Runs in the watcher thread. Polls NCCL and the control for a failure, such as the death of a rank. After a failure,
  // aborts NCCL as soon as the streams are done or `drain_` is over.
  void watch() {
    try {
      gpu::enter(gpu_);
    } catch (const Error& error) {
      control_->abort(error);
    }
    std::optional<Clock::time_point> failed;
    Lock lock(mutex_);
    while (!wake_.wait_for(lock, watch_interval, [this]() FEEDLINE_REQUIRES(mutex_) { return ending_; })) {
      lock.unlock();
      bool drained = true;
      try {
        comm_.busy();
        if (failure()) drained = !under_way_ && !streams_are_busy();
      } catch (const Error& error) {
        control_->abort(error);
      }
      if (!failed && failure()) failed = Clock::now();
      if (failed && (drained || Clock::now() - *failed > drain_)) comm_.abort();
      lock.lock();
    }
  }

  void wait_for_others_to_leave() noexcept {
    try {
      comm_.finalize();
      const auto end = Clock::now() + leave_timeout;
      while (comm_.busy()) {
        if (Clock::now() > end) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      comm_.destroy();
    } catch (const Error&) {
      // The destructor aborts the communicator after this.
    }
  }

  // Sets `flag` during a call. watch() looks at the flag, because the work of an unfinished call may not be on the
  // stream yet.
  struct UnderWay {
    explicit UnderWay(std::atomic<bool>& of) : flag(of) { flag = true; }
    ~UnderWay() { flag = false; }
    std::atomic<bool>& flag;
  };

  std::shared_ptr<Communicator> control_;
  const DeviceId gpu_;
  const std::chrono::milliseconds drain_;
  const gpu::Context context_;
  // Objects that must be destroyed while the context of this GPU is current. Otherwise CUDA might make a context on
  // another GPU.
  struct Made {
    explicit Made(DeviceId gpu) : stream(gpu), last(gpu, cudaEventDisableTiming) {}
    gpu::CudaStream stream;                                 // used by calls that are given Stream::host
    gpu::CudaEvent last;                                    // recorded after the work of the last call
    std::vector<std::unique_ptr<gpu::CudaMemory>> scratch;  // only the last buffer is used; see reserve()
    size_t scratch_bytes = 0;                               // the size of the last buffer
  };
  std::unique_ptr<Made> made_;
  Comm comm_;
  uint64_t calls_ = 1;  // how many calls are finished; making the communicator is the first
  std::atomic<bool> under_way_{false};
  std::vector<std::byte> own_, all_;
  std::deque<CollectiveCall> announced_;  // the next calls, on which the ranks have agreed

  Mutex mutex_;
  ranks::GroupFailure failure_;  // set with the mutex held
  bool ending_ FEEDLINE_GUARDED_BY(mutex_) = false;
  Condition wake_;
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<Communicator> nccl_communicator(std::unique_ptr<Communicator> control, DeviceId gpu,
                                                const NcclOptions& options) {
  const std::shared_ptr<Communicator> others = std::move(control);
  std::unique_ptr<Communicator> communicator;
  try {
    gpu::check_devices({&gpu, 1});
    gpu::on_gpu(gpu, [&] { communicator = std::make_unique<NcclCommunicator>(others, gpu, options); });
  } catch (...) {
    const Error error = current_error();
    others->abort(error);
    throw others->failure().value_or(error);
  }
  return communicator;
}

}  // namespace feedline
