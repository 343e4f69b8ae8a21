// The oneTBB arena in which the tasks of a feeder run.
#pragma once

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

namespace feedline {

/// A oneTBB arena whose threads stay on the CPUs `cpus` while they are inside the arena. If `cpus` is empty, the
/// threads run on any CPU. Other code of the program uses oneTBB's worker threads, too. So a thread that leaves the
/// arena gets back the CPU affinity that it had before.
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
  /// Sets the CPU affinity of each thread that enters the arena, and restores it when the thread leaves.
  class Pinning : public tbb::task_scheduler_observer {
   public:
    Pinning(tbb::task_arena& arena, const std::vector<int>& cpus) : task_scheduler_observer(arena) {
      CPU_ZERO(&inside_);
      for (int cpu : cpus) CPU_SET(cpu, &inside_);
      observe(true);
    }
    ~Pinning() override {
      observe(false);
      // on_scheduler_exit() is not called any more for threads that are still in the arena, so their affinity is
      // restored here.
      for (Guest& guest : guests_) guest.release();
    }
    void on_scheduler_entry(bool) override {
      Guest& guest = guests_.local();
      guest.thread = gettid();
      guest.inside = sched_getaffinity(0, sizeof guest.before, &guest.before) == 0 &&
                     // The system refuses this if the process may no longer use these CPUs. The thread then runs on
                     // any CPU.
                     sched_setaffinity(0, sizeof inside_, &inside_) == 0;
    }
    void on_scheduler_exit(bool) override { guests_.local().release(); }

   private:
    struct Guest {  // a thread that is, or was, in the arena
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

}  // namespace feedline
