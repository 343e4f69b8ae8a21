// Owns file descriptors.
#pragma once

#include <unistd.h>

#include <utility>

namespace feedline {

/// Owns a file descriptor, and closes it when the object is destroyed. Has no descriptor if fd() is negative.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  /// Swaps the descriptors. So `d = {}` closes the descriptor of `d`.
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Returns the descriptor, which the caller must close.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace feedline
