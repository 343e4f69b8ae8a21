// A TCP port for a test.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

namespace feedline::test {

/// Returns a TCP port of this machine that is not in use, another one each time. The port is below 32768, where the
/// kernel's ports for outgoing connections begin, because a connection made meanwhile might take it otherwise.
inline int free_port() {
  constexpr int first = 16384, count = 16384;
  static std::atomic<int> tried = getpid() * 251 % count;
  for (int i = 0; i < count; i++) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(first + tried++ % count));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "socket");
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return ntohs(address.sin_port);
  }
  throw std::runtime_error("no port is free");
}

}  // namespace feedline::test
