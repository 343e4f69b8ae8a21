#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "base/syscall_hooks.h"
#include "feedline/error.h"

namespace feedline {
namespace {

using ThreadOp = HookedCall<"start thread", EAGAIN>;
using AffinityOp = HookedCall<"sched_setaffinity", EINVAL>;  // the process may no longer use any of these CPUs

void keep_this_thread_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  int error = injected<AffinityOp>();
  if (!error && sched_setaffinity(0, sizeof set, &set) != 0) error = errno;
  if (error)
    throw std::system_error(error, std::generic_category(), "cannot run a thread on the CPUs of parallelism.cpu_set");
}

// Blocks signals in the calling thread as long as the object lives. A new thread inherits the signal mask of its
// creator. If the creator blocks signals before the start, there is no moment at which the new thread could receive
// one.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
  constexpr const char* what =
      "starting a thread (ulimit -u and pids.max of the cgroup limit the number of threads; raise these limits)";
  if (int error = injected<ThreadOp>()) throw std::system_error(error, std::generic_category(), what);
  const SignalsBlocked blocked;
  try {
    return std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);  // a failure does not matter: the name is only for people
      body();
    });
  } catch (const std::system_error& refused) {
    throw std::system_error(refused.code(), what);  // std::thread's own text does not say what was refused
  }
}

void run_on_cpus(const char* name, const std::vector<int>& cpus, const std::function<void()>& body) try {
  std::exception_ptr failure;
  std::thread thread = start_thread(name, [&] {
    try {
      keep_this_thread_on(cpus);
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
} catch (const std::system_error& error) {
  throw Error(Category::io_error, error.what());
}

}  // namespace feedline
