#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/syscall_hooks.h"

namespace feedline {
namespace {

struct ThreadOp {
  static constexpr const char* name = "start thread";
  static constexpr int error = EAGAIN;
};

// A new thread inherits its creator's mask: blocking before the start leaves no moment in which a signal could land.
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
  if (int error = injected<ThreadOp>()) throw std::system_error(error, std::generic_category(), "starting a thread");
  const SignalsBlocked blocked;
  return std::thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name);  // for people only: a failure changes nothing
    body();
  });
}

}  // namespace feedline
