// Where a feeder's tasks run.
#pragma once

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

namespace feedline::flow {

/// An arena of oneTBB whose threads are kept on a set of CPUs (none: on any) while they are in it. The workers belong
/// to the whole program: each goes back to the CPUs that it came from.
class WorkerArena {
 public:
  WorkerArena(int threads, const std::vector<int>& cpus) : arena_(threads) {
    if (!cpus.empty()) pinning_.emplace(arena_, cpus);
  }

  template <typename Body>
  void execute(Body&& body) {
    arena_.execute(body);
  }

 private:
  class Pinning : public tbb::task_scheduler_observer {
   public:
    Pinning(tbb::task_arena& arena, const std::vector<int>& cpus) : task_scheduler_observer(arena) {
      CPU_ZERO(&inside_);
      for (int cpu : cpus) CPU_SET(cpu, &inside_);
      observe(true);
    }
    ~Pinning() override {
      observe(false);
      for (Guest& guest : guests_) guest.release();  // who is still in the arena leaves it unobserved
    }
    void on_scheduler_entry(bool) override {
      Guest& guest = guests_.local();
      guest.thread = gettid();
      guest.inside = sched_getaffinity(0, sizeof guest.before, &guest.before) == 0 &&
                     // Refused: these CPUs were taken from the process since. Then threads run where they may.
                     sched_setaffinity(0, sizeof inside_, &inside_) == 0;
    }
    void on_scheduler_exit(bool) override { guests_.local().release(); }

   private:
    struct Guest {
      pid_t thread = 0;
      bool inside = false;
      cpu_set_t before = {};
      void release() {
        if (std::exchange(inside, false)) sched_setaffinity(thread, sizeof before, &before);
      }
    };
    cpu_set_t inside_;
    tbb::enumerable_thread_specific<Guest> guests_;
  };

  tbb::task_arena arena_;
  std::optional<Pinning> pinning_;
};

}  // namespace feedline::flow
