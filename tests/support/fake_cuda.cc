#include "fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda/cuda_launch.h"
#include "run_threads.h"

namespace {

using Clock = std::chrono::steady_clock;

// Never destroyed, because streams may still run when the program ends.
std::mutex& mutex = *new std::mutex;  // guards all state of this file

// Somebody who waits until a predicate holds, which any thread may ask. Who changes something asks for all of them, and
// wakes only those for whom it holds: threads that wake up to sleep on would take most of a test's CPU time.
struct Waiter {
  std::function<bool()> holds;
  bool woken = false;
  std::condition_variable wakes = {};
};
std::list<Waiter*>& waiters = *new std::list<Waiter*>;

// Returns when the predicate has held. Call it with `mutex` locked.
void wait_until(std::unique_lock<std::mutex>& lock, std::function<bool()> holds) {
  if (holds()) return;
  Waiter waiter = {std::move(holds)};
  waiters.push_back(&waiter);
  waiter.wakes.wait(lock, [&] { return waiter.woken; });
}
// Call it with `mutex` locked.
void wake_waiters() {
  std::erase_if(waiters, [](Waiter* waiter) {
    if (!waiter->holds()) return false;
    waiter->woken = true;
    waiter->wakes.notify_one();
    return true;
  });
}
unsigned streams_made = 0;
int gpu_count = 8;
int driver_error = cudaSuccess;
bool failed = false;
std::optional<size_t> work_before_failure;  // how many pieces streams still do before the GPUs fail
std::set<int>&unreachable = *new std::set<int>, &garbled = *new std::set<int>;
// Of GPUs that are not of 9.0.
std::map<int, std::pair<int, int>>& capabilities = *new std::map<int, std::pair<int, int>>;
int peer_error = cudaSuccess;
bool reachable_memory = false;
feedline::test::Pace pace = feedline::test::Pace::at_once;
unsigned seed = 0;
feedline::test::FakeCudaState& state = *new feedline::test::FakeCudaState;
thread_local int current_device = 0;
thread_local std::vector<int> pushed;  // contexts pushed through the driver API; the last one takes precedence over the
                                       // current device

// Returns the current device of the calling thread and makes its context if it has none, as nearly every CUDA call
// does. Call it with `mutex` locked.
int touched_device() {
  const int device = pushed.empty() ? current_device : pushed.back();
  state.contexts.insert(device);
  return device;
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

// Device memory: an address range that the host cannot touch, and a second mapping of the same pages, which streams
// use. Both end at a page that nobody can touch, less than 256 bytes after the end of the memory, which is so aligned.
struct Allocation {
  size_t bytes;
  std::byte* pages;
  int device;
  std::byte *mapped, *mapped_pages;  // where the two mappings begin
  size_t mapped_bytes;               // of each, with the page at its end
};
std::map<std::byte*, Allocation>& allocations = *new std::map<std::byte*, Allocation>;
std::map<const std::byte*, size_t>& pinned = *new std::map<const std::byte*, size_t>;

// Returns the allocation that an address lies in; null for memory of the host. Call it with `mutex` locked.
const std::pair<std::byte* const, Allocation>* allocation_of(const void* address) {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  auto above = allocations.upper_bound(at);
  if (above == allocations.begin()) return nullptr;
  --above;
  return at < above->first + above->second.bytes ? &*above : nullptr;
}

std::byte* pages_of(const void* address) {
  const std::lock_guard lock(mutex);
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  const auto* const found = allocation_of(at);
  return found ? found->second.pages + (at - found->first) : at;
}

// Returns whether the bytes lie in one allocation, or in none. Call it with `mutex` locked.
bool lie_together(const void* address, size_t bytes) {
  const auto* const found = allocation_of(address);
  return !found || static_cast<const std::byte*>(address) + bytes <= found->first + found->second.bytes;
}

// Returns whether the bytes lie in pinned memory of the host. Call it with `mutex` locked.
bool is_pinned(const void* address, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto above = pinned.upper_bound(at);
  return above != pinned.begin() && (--above, at + bytes <= above->first + above->second);
}

// Makes a pointer of a kernel on `device` one that the kernel's threads can use here.
template <typename T>
void to_pages(T*& pointer, int device) {
  if (!pointer) return;
  {
    const std::lock_guard lock(mutex);
    const auto* const found = allocation_of(pointer);
    if (found && found->second.device != device && !state.reaching.contains({device, found->second.device}))
      die("A kernel on GPU " + std::to_string(device) + " touches memory of GPU " +
          std::to_string(found->second.device) + ", which it cannot reach.");
  }
  pointer = reinterpret_cast<T*>(pages_of(pointer));
}

cudaError_t answer() {
  const std::lock_guard lock(mutex);
  touched_device();
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}

int captures = 0;  // the number of streams that capture; guarded by `mutex`
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
// Returns whether a capture forbids the calling thread the calls that a relaxed capture mode would allow. Call it with
// `mutex` locked.
bool is_forbidden() { return captures > 0 && capture_mode != cudaStreamCaptureModeRelaxed; }

}  // namespace

struct CUevent_st {
  // Shared, because streams may still reach it after the event has been destroyed.
  struct State {
    uint64_t recorded = 0, done = 0;
    CUstream_st* stream = nullptr;  // that of the last record, and how many pieces it had been given with it
    uint64_t given = 0;
    bool timed = false;
    Clock::time_point time;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  int device = 0;
};

// A stream that has been destroyed lives until it has done its work, as with CUDA.
struct CUstream_st {
  std::deque<std::function<void()>> work;
  // How many pieces of work it was given in all, how many it has begun, and how many somebody waits for.
  uint64_t given = 0, begun = 0, wanted = 0;
  bool busy = false, ending = false, capturing = false;
  bool waits_for_legacy = false;  // it was created without cudaStreamNonBlocking
  const int device;
  const unsigned number;

  static std::set<CUstream_st*>& all;  // guarded by `mutex`
  std::condition_variable to_do;       // wakes the thread of this stream

  // Makes a stream of the current device. Call it with `mutex` locked.
  CUstream_st() : device(touched_device()), number(streams_made++) {
    all.insert(this);
    std::thread([this] {
      run();
      delete this;
    }).detach();
  }

  // Fails the GPUs: what streams have not begun is never done. Call it with `mutex` locked.
  static void fail() {
    work_before_failure.reset();
    failed = true;
    for (CUstream_st* const stream : all) {
      stream->work.clear();
      stream->given = stream->wanted = stream->begun;
    }
    wake_waiters();
  }

  void run() {
    std::minstd_rand random(seed + number);
    std::unique_lock lock(mutex);
    for (;;) {
      to_do.wait(lock,
                 [&] { return ending || (!work.empty() && (pace != feedline::test::Pace::lazy || begun < wanted)); });
      if (work.empty()) break;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      begun++;
      if (work_before_failure && (*work_before_failure)-- == 0) {
        fail();
        continue;
      }
      busy = true;
      const bool delayed = pace == feedline::test::Pace::delayed;
      lock.unlock();
      if (delayed) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
      for (auto turns = random() % 3; turns > 0; turns--) std::this_thread::yield();
      next();
      lock.lock();
      busy = false;
      wake_waiters();
    }
    all.erase(this);
    wake_waiters();
  }
};
std::set<CUstream_st*>& CUstream_st::all = *new std::set<CUstream_st*>;

namespace {

std::set<cudaStream_t>& streams = *new std::set<cudaStream_t>;  // those that were created and not destroyed
std::map<int, cudaStream_t>& default_streams = *new std::map<int, cudaStream_t>;  // by device; made at their first use

// Returns the stream that a handle names; a default stream is that of the current device. Aborts if the stream has been
// destroyed, because no real GPU would survive its use. Call it with `mutex` locked.
CUstream_st* real(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    cudaStream_t& found = default_streams[touched_device()];
    if (!found) found = new CUstream_st;
    return found;
  }
  if (!streams.contains(stream)) die("A stream is used that has been destroyed.");
  return stream;
}

// Gives the stream a piece of work. Call it with `mutex` locked.
void give_locked(CUstream_st* stream, std::function<void()> work) {
  if (failed) return;
  stream->work.push_back(std::move(work));
  stream->given++;
  stream->to_do.notify_one();
}
void give(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  give_locked(real(stream), std::move(work));
}

// Says that somebody waits for the first `pieces` pieces of the stream's work, or for all that it was given. Call it
// with `mutex` locked.
void want(CUstream_st* stream, uint64_t pieces = UINT64_MAX) {
  const bool lives = streams.contains(stream) ||
                     std::ranges::any_of(default_streams, [&](const auto& one) { return one.second == stream; });
  if (!lives) return;  // it does all its work, or has done it
  stream->wanted = std::max(stream->wanted, std::min(pieces, stream->given));
  stream->to_do.notify_one();
}

}  // namespace

namespace feedline::test {
namespace {

[[maybe_unused]] const bool pace_is_set = [] {
  const std::string said = std::getenv("FAKE_CUDA_PACE") ? std::getenv("FAKE_CUDA_PACE") : "";
  if (said == "lazy")
    pace = Pace::lazy;
  else if (said.starts_with("delayed:")) {
    pace = Pace::delayed;
    seed = static_cast<unsigned>(std::stoul(said.substr(8)));
  } else if (!said.empty())
    die("FAKE_CUDA_PACE is neither lazy nor delayed:SEED.");
  return true;
}();

}  // namespace

void set_fake_gpus(int count) {
  std::unique_lock lock(mutex);
  if (failed) wait_until(lock, [] { return std::ranges::none_of(CUstream_st::all, &CUstream_st::busy); });
  gpu_count = count;
  driver_error = cudaSuccess;
  failed = false;
  work_before_failure.reset();
  state.contexts.clear();
  state.reaching.clear();
  state.pageable_copies = 0;
  unreachable.clear();
  garbled.clear();
  capabilities.clear();
  peer_error = cudaSuccess;
}

Lazily::Lazily() {
  const std::lock_guard lock(mutex);
  otherwise_ = std::exchange(pace, Pace::lazy);
}
Lazily::~Lazily() {
  const std::lock_guard lock(mutex);
  pace = otherwise_;
  for (CUstream_st* const stream : CUstream_st::all) stream->to_do.notify_one();
}

void act_reachable_memory() { reachable_memory = true; }

void act_unreachable(int gpu) {
  const std::lock_guard lock(mutex);
  unreachable.insert(gpu);
}

void act_garbled(int gpu) {
  const std::lock_guard lock(mutex);
  garbled.insert(gpu);
}

void set_capability(int gpu, int major, int minor) {
  const std::lock_guard lock(mutex);
  capabilities[gpu] = {major, minor};
}

void set_peer_error(int error) {
  const std::lock_guard lock(mutex);
  peer_error = error;
}

void set_driver_error(int error) {
  const std::lock_guard lock(mutex);
  driver_error = error;
}

void set_capturing(CUstream_st* stream, bool capturing) {
  const std::lock_guard lock(mutex);
  captures += capturing - stream->capturing;
  stream->capturing = capturing;
}

void fail_gpus() {
  std::unique_lock lock(mutex);
  CUstream_st::fail();
  wait_until(lock, [] { return std::ranges::none_of(CUstream_st::all, &CUstream_st::busy); });
}

void fail_gpus_after(size_t pieces) {
  const std::lock_guard lock(mutex);
  work_before_failure = pieces;
}

void run_on_stream(CUstream_st* stream, std::function<void()> work) { give(stream, std::move(work)); }
void want_work(CUstream_st* stream) {
  const std::lock_guard lock(mutex);
  want(stream);
}
std::byte* fake_pages(const void* address) { return pages_of(address); }

FakeCudaState fake_cuda_state() {
  const std::lock_guard lock(mutex);
  FakeCudaState now = state;
  now.streams = streams.size();
  now.allocations = allocations.size();
  now.pinned = pinned.size();
  return now;
}

}  // namespace feedline::test

namespace {

constexpr uint64_t threads_at_once = 4096;  // of a fake GPU

// Gives the stream a kernel, which is called with the stream's device. As CUDA does, refuses a stream of another device
// than the current one.
template <typename Kernel>
cudaError_t launch_on(cudaStream_t stream, Kernel kernel) {
  int device;
  {
    const std::lock_guard lock(mutex);
    device = real(stream)->device;
    if (device != touched_device()) return cudaErrorInvalidResourceHandle;
  }
  give(stream, [kernel = std::move(kernel), device] { kernel(device); });
  return answer();
}

}  // namespace

cudaError_t feedline::gpu::launch_unpack(std::span<const unpack::UnpackLaunch> launches, cudaStream_t stream) {
  for (const unpack::UnpackLaunch& launch : launches) {
    const cudaError_t error = launch_on(stream, [given = launch](int device) {
      unpack::UnpackLaunch on_pages = given;
      unpack::UnpackArgs& args = on_pages.args;
      to_pages(args.in, device);
      to_pages(args.numbers, device);
      to_pages(args.out, device);
      to_pages(args.channel_offset, device);
      to_pages(args.steps, device);
      to_pages(args.values, device);
      run_threads(on_pages, threads_at_once);
    });
    if (error) return error;
  }
  return cudaSuccess;
}

cudaError_t feedline::gpu::load_reduce() { return answer(); }
cudaError_t feedline::gpu::launch_reduce(const ReduceLaunch& launch, cudaStream_t stream) {
  return launch_on(stream, [launch](int device) {
    ReduceArgs args = launch.args;
    to_pages(args.in, device);
    to_pages(args.out, device);
    with_reduction(launch.dtype, launch.reduction, [&](auto type, auto combine) {
      for (uint64_t thread = 0; thread < args.elements; thread++)
        reduce_thread<typename decltype(type)::t, decltype(combine)>(args, thread);
    });
  });
}

cudaError_t feedline::gpu::load_divide() { return answer(); }
cudaError_t feedline::gpu::launch_divide(const DivideLaunch& launch, cudaStream_t stream) {
  return launch_on(stream, [launch](int device) {
    DivideArgs args = launch.args;
    to_pages(args.in, device);
    to_pages(args.out, device);
    to_pages(args.finite, device);
    with_gradient_type(launch.dtype, [&](auto type) {
      for (uint64_t thread = 0; thread < args.elements; thread++)
        divide_thread<typename decltype(type)::t>(args, thread);
    });
  });
}

cudaError_t feedline::gpu::load_copy() { return answer(); }
cudaError_t feedline::gpu::launch_copy(const CopyArgs& copies, cudaStream_t stream) {
  return launch_on(stream, [copies](int device) {
    CopyArgs args = copies;
    for (uint32_t part = 0; part < args.count; part++) {
      to_pages(args.parts[part].from, device);
      to_pages(args.parts[part].to, device);
    }
    run_threads(args);
  });
}

cudaError_t feedline::gpu::load_unpack(const unpack::UnpackKernel&) { return answer(); }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(mutex);
  *count = driver_error == cudaSuccess ? gpu_count : 0;
  return static_cast<cudaError_t>(driver_error);
}
cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(mutex);
  if (driver_error != cudaSuccess) return static_cast<cudaError_t>(driver_error);
  if (device < 0 || device >= gpu_count) return cudaErrorInvalidDevice;
  current_device = device;
  touched_device();
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const std::lock_guard lock(mutex);
  *can = device != peer && !unreachable.contains(peer);
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const std::lock_guard lock(mutex);
  touched_device();
  if (failed) return cudaErrorLaunchFailure;
  if (peer_error != cudaSuccess) return static_cast<cudaError_t>(peer_error);
  return state.reaching.insert({current_device, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  const std::lock_guard lock(mutex);
  return state.reaching.erase({touched_device(), peer}) ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaErrorSimulated";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "unspecified launch failure" : "a simulated error";
}
static CUresult get_current(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(static_cast<intptr_t>(current_device) + 1);
  return CUDA_SUCCESS;
}
static CUresult push_current(CUcontext context) {
  pushed.push_back(static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1);
  return CUDA_SUCCESS;
}
static CUresult pop_current(CUcontext*) {
  pushed.pop_back();
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const std::string name = symbol;
  *found = cudaDriverEntryPointSuccess;
  if (name == "cuCtxGetCurrent")
    *function = reinterpret_cast<void*>(&get_current);
  else if (name == "cuCtxPushCurrent")
    *function = reinterpret_cast<void*>(&push_current);
  else if (name == "cuCtxPopCurrent")
    *function = reinterpret_cast<void*>(&pop_current);
  else
    *found = cudaDriverEntryPointSymbolNotFound;
  return answer();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  {
    const std::lock_guard lock(mutex);
    CUstream_st* const asked = real(stream);
    // Whatever the legacy stream does, it orders after the streams that wait for it, so none of them may capture.
    if ((stream == nullptr || stream == cudaStreamLegacy) && std::ranges::any_of(streams, [&](CUstream_st* other) {
          return other->device == asked->device && other->capturing && other->waits_for_legacy;
        }))
      return cudaErrorStreamCaptureImplicit;
    *status = asked->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  }
  return answer();
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return answer();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const std::lock_guard lock(mutex); is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  constexpr size_t page = 4096, alignment = 256;
  const size_t aligned = (bytes + alignment - 1) / alignment * alignment;
  const size_t used = (aligned + page - 1) / page * page, mapped = used + page;
  const int file = memfd_create("gpu", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(mapped))) return cudaErrorMemoryAllocation;
  auto* const addresses = static_cast<std::byte*>(
      mmap(nullptr, mapped, reachable_memory ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, file, 0));
  auto* const pages = static_cast<std::byte*>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  if (addresses == MAP_FAILED || pages == MAP_FAILED) return cudaErrorMemoryAllocation;
  std::memset(pages, 0xa5, used);
  for (std::byte* const begin : {addresses, pages}) mprotect(begin + used, page, PROT_NONE);
  const std::lock_guard lock(mutex);
  std::byte* const address = addresses + (used - aligned);
  allocations[address] = {bytes, pages + (used - aligned), touched_device(), addresses, pages, mapped};
  *memory = address;
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  give(stream, [memory] { cudaFree(memory); });
  return answer();
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(mutex);
  if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  const auto found = allocations.find(static_cast<std::byte*>(memory));
  if (found == allocations.end()) return cudaErrorInvalidValue;
  munmap(found->second.mapped, found->second.mapped_bytes);
  munmap(found->second.mapped_pages, found->second.mapped_bytes);
  allocations.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex);
  *free = *total = size_t{1} << 40;
  for (const auto& [address, allocation] : allocations) *free -= allocation.bytes;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex);
  if (failed) return cudaErrorLaunchFailure;
  if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  pinned[static_cast<const std::byte*>(memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(mutex);
  pinned.erase(static_cast<const std::byte*>(memory));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::malloc(std::max<size_t>(1, bytes));
  if (!*memory) return cudaErrorMemoryAllocation;
  const cudaError_t error = cudaHostRegister(*memory, bytes, cudaHostRegisterDefault);
  if (error) std::free(*memory);
  return error;
}
cudaError_t cudaFreeHost(void* memory) {
  cudaHostUnregister(memory);
  std::free(memory);
  return cudaSuccess;
}

// As CUDA does with pageable memory of the host: a source is read when the copy is called, and a copy to it has ended when
// the call returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  bool arrives_garbled = false, is_waited_for = false;
  std::shared_ptr<std::vector<std::byte>> staged;
  {
    const std::lock_guard lock(mutex);
    if (!lie_together(to, bytes) || !lie_together(from, bytes)) return cudaErrorInvalidValue;
    const auto *const there = allocation_of(from), *const here = allocation_of(to);
    arrives_garbled = there && here && garbled.contains(there->second.device) &&
                      state.reaching.contains({here->second.device, there->second.device});
    if (here && !there && !is_pinned(from, bytes)) {
      state.pageable_copies++;
      const auto* const source = static_cast<const std::byte*>(from);
      staged = std::make_shared<std::vector<std::byte>>(source, source + bytes);
    }
    is_waited_for = there && !here && !is_pinned(to, bytes);
  }
  give(stream, [=] {
    if (bytes == 0) return;
    std::memcpy(pages_of(to), staged ? staged->data() : pages_of(from), bytes);
    if (arrives_garbled) pages_of(to)[bytes / 2] ^= std::byte{1};
  });
  return is_waited_for ? cudaStreamSynchronize(stream) : answer();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (const std::lock_guard lock(mutex); !lie_together(to, bytes)) return cudaErrorInvalidValue;
  give(stream, [=] { std::memset(pages_of(to), value, bytes); });
  return answer();
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(pages_of(to), pages_of(from), bytes);
  return answer();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const std::lock_guard lock(mutex);
  *properties = {};
  std::tie(properties->major, properties->minor) =
      capabilities.contains(device) ? capabilities[device] : std::pair(9, 0);
  properties->uuid.bytes[0] = static_cast<char>(0x10 + device);
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
  std::snprintf(address, static_cast<size_t>(bytes), "ffff:%02X:00.0", static_cast<unsigned>(device));
  return answer();
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  if (lowest) *lowest = 0;
  if (highest) *highest = -5;
  return answer();
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t error = answer()) return error;
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  (*stream)->waits_for_legacy = !(flags & cudaStreamNonBlocking);
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock lock(mutex);
  touched_device();
  if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  CUstream_st* const on = real(stream);
  want(on);
  // What other threads give it from now on is not waited for.
  wait_until(lock, [on, given = on->given] {
    return failed ? !on->busy : on->begun > given || (on->begun == given && !on->busy);
  });
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return cudaSuccess;
  const std::lock_guard lock(mutex);
  real(stream)->ending = true;
  streams.erase(stream);
  stream->to_do.notify_one();
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t body, void* data) {
  give(stream, [=] { body(data); });
  return answer();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = answer()) return error;
  *event = new CUevent_st;
  (*event)->state->timed = !(flags & cudaEventDisableTiming);
  const std::lock_guard lock(mutex);
  (*event)->device = touched_device();
  state.events++;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return cudaSuccess;
  const std::lock_guard lock(mutex);
  state.events--;
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  touched_device();
  if (failed) return cudaErrorLaunchFailure;
  CUstream_st* const on = real(stream);
  if (event->device != on->device) return cudaErrorInvalidResourceHandle;
  event->state->recorded++;
  give_locked(on, [number = event->state->recorded, state = event->state] {
    const std::lock_guard in_stream(mutex);
    if (number > state->done) {  // two streams may have recorded it, and the later record may be done first
      state->done = number;
      state->time = Clock::now();
    }
    wake_waiters();
  });
  event->state->stream = on;
  event->state->given = on->given;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  touched_device();
  if (failed) return cudaErrorLaunchFailure;
  give_locked(real(stream), [now = *event->state, state = event->state] {
    std::unique_lock in_stream(mutex);
    if (state->done < now.recorded) want(now.stream, now.given);
    wait_until(in_stream, [&] { return failed || state->done >= now.recorded; });
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(mutex);
  touched_device();
  if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  const std::shared_ptr<CUevent_st::State> waited_for = event->state;
  const uint64_t number = waited_for->recorded;
  if (waited_for->done < number) want(waited_for->stream, waited_for->given);
  wait_until(lock, [&] { return failed || waited_for->done >= number; });
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  touched_device();
  if (failed) return cudaErrorLaunchFailure;
  if (is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  if (event->state->done < event->state->recorded) want(event->state->stream, event->state->given);
  return event->state->done == event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(mutex);
  touched_device();
  if (failed) return cudaErrorLaunchFailure;
  if (!from->state->timed || !to->state->timed) return cudaErrorInvalidResourceHandle;
  for (const cudaEvent_t event : {from, to})
    if (event->state->done != event->state->recorded) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->state->time - from->state->time).count();
  return cudaSuccess;
}

}  // extern "C"
