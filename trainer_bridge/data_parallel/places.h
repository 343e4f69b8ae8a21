// Where variables are read, and where they are changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "feedline/communicator.h"
#include "feedline/data_parallel.h"
#include "gpu/device/queue.h"

namespace feedline {

/// `here` the trainer's variables lie; at `home` its ranks meet and gradients are applied. Both are one device, or here
/// is a GPU and home the host: masters then lie at home.
class Places {
 public:
  /// home: the device of the communicator. Throws Error bad_pipeline where that does not go together.
  Places(const DataParallelOptions& options, DeviceId home);

  gpu::Queue& here() noexcept { return *here_; }
  gpu::Queue& home() noexcept { return *home_; }
  bool apart() const noexcept { return here_ != home_; }

  /// Nothing, where they are not apart. What goes home has come when it returns; what comes here is not written at home
  /// before here().wait().
  void to_home(void* at_home, const void* here, size_t bytes);
  void to_here(void* here, const void* at_home, size_t bytes);

  /// Memory of the host that GPUs and communicators take, too.
  std::byte* allocate_on_host(size_t bytes) { return host_->allocate(bytes); }
  void keep_host_memory() const;

 private:
  std::shared_ptr<gpu::Queue> host_, here_, home_;
};

/// A communicator. When it has failed, it may still use memory of the host, which is then kept.
class Group {
 public:
  Group(std::shared_ptr<Communicator> communicator, const Places& places)
      : communicator_(std::move(communicator)), places_(places) {}
  ~Group() {
    if (communicator_->failure()) places_.keep_host_memory();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Communicator* operator->() const noexcept { return communicator_.get(); }

 private:
  const std::shared_ptr<Communicator> communicator_;
  const Places& places_;
};

/// Whether all is finite: where gradients are divided, where ranks compare, where the program reads it.
class Verdict {
 public:
  explicit Verdict(Places& places);

  /// "All is finite", on this queue of the places'.
  void begin(gpu::Queue& on);
  /// For a division on that queue, and for communicators.
  int32_t* at(gpu::Queue& queue) const noexcept { return &queue == &places_.home() ? home_ : here_; }
  void home_to_here() { places_.to_here(here_, home_, sizeof *here_); }
  /// Waits for what it is here.
  bool read();

 private:
  Places& places_;
  int32_t *host_, *here_, *home_;
};

}  // namespace feedline
