// Fake GPUs, simulated on the host. A program that links fake_cuda.cc instead of the CUDA runtime has as many GPUs as
// it asks for.
//
// A stream is a thread that works at its own pace, so work that no event orders runs in any order. The kernels' own
// code runs, one GPU thread after another (support/run_threads.h). Device memory can be touched only by work that is
// given to a stream; the host gets a page fault. Only a real GPU can show what a GPU does (suite 'gpu'). The fake shows
// what the host does with GPUs: order, lifetimes, failures.
//
// What no real GPU would survive ends the program with a message: a stream that has been destroyed, a kernel that
// touches memory of a GPU that its own cannot reach, words and vectors that are not aligned. A launch on a stream of
// another device than the current one, and a copy past the end of an allocation, are errors, as with CUDA. Memory ends
// at a page that cannot be touched, or less than 256 bytes before one. Pageable memory of the host is read when a copy
// is called, and has its bytes when the call returns; only copies of pinned memory run in the order of their stream.
// cudaFree() does not wait for the GPUs' work, as CUDA's does: so work on memory that is freed too early ends the
// program.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <utility>

struct CUstream_st;

namespace feedline::test {

/// Sets the number of GPUs, and clears the driver's error, the failure of the GPUs, the unreachable GPUs, the peer
/// access that fails, the compute capabilities, and the counts of contexts, peer access and pageable copies.
void set_fake_gpus(int count);

/// When streams do the work that they are given. The environment variable FAKE_CUDA_PACE says it, if no Lazily lives:
/// "lazy", "delayed:SEED" (the seed of the random times), or nothing.
enum class Pace {
  at_once,
  /// Only when somebody waits for it: a stream does what it was given until the point that is waited for. So work that
  /// nobody waits for is not done in time by chance.
  lazy,
  /// Each piece after a random time of at most a millisecond.
  delayed
};
/// While an object of this class lives, streams are lazy.
class Lazily {
 public:
  Lazily();
  ~Lazily();
  Lazily(const Lazily&) = delete;
  Lazily& operator=(const Lazily&) = delete;

 private:
  Pace otherwise_;
};

/// Makes device memory reachable by the host, for a program's own code that runs on a stream (see run_on_stream()).
/// Call it before any device memory is allocated; it may be called before main().
void act_reachable_memory();

/// Makes this GPU's memory unreachable by direct access from any other GPU.
void act_unreachable(int gpu);

/// Makes GPUs read wrong bytes from this GPU by direct access.
void act_garbled(int gpu);
/// Sets the compute capability of a GPU, which is 9.0 otherwise.
void set_capability(int gpu, int major, int minor);
/// Makes cudaDeviceEnablePeerAccess fail with this error.
void set_peer_error(int error);

/// Makes the driver return this error in place of a number of GPUs: cudaErrorNoDevice, cudaErrorInsufficientDriver...
void set_driver_error(int error);

/// Begins or ends the capture of a graph on the stream, in CUDA's global mode: during a capture, calls that wait for a
/// GPU or allocate or free its memory fail on every thread whose own capture mode is not relaxed.
void set_capturing(CUstream_st* stream, bool capturing);

/// Fails the GPUs, like a kernel that crashed: work that they have not begun is never done, and every call fails from
/// now on. Waits until the work that they have begun has ended, so that afterwards they touch no memory.
void fail_gpus();
/// Fails the GPUs when their streams have done so many more pieces of work (copies, launches, records of events and
/// waits for them), instead of the next one.
void fail_gpus_after(size_t pieces);

/// Gives the stream a function of the test to run.
void run_on_stream(CUstream_st* stream, std::function<void()> work);
/// Says that somebody waits for all work that the stream has been given so far, which matters if streams are lazy.
void want_work(CUstream_st* stream);
/// Returns where streams find the data that lies at a device address.
std::byte* fake_pages(const void* address);

struct FakeCudaState {
  std::set<int> contexts;                  // the GPUs with a context: nearly any call makes one on the current device
  std::set<std::pair<int, int>> reaching;  // {a, b}: GPU a reads GPU b's memory by direct access
  size_t streams = 0, events = 0;          // numbers of those that exist now
  size_t allocations = 0;                  // the number of blocks of device memory
  size_t pinned = 0;                       // the number of pinned ranges of host memory
  size_t pageable_copies = 0;              // the number of copies to a device from memory that is not pinned
  bool operator==(const FakeCudaState&) const = default;
};
FakeCudaState fake_cuda_state();

}  // namespace feedline::test
