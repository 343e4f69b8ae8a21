// Runs ranks as threads of the test.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "feedline/exchange.h"

namespace feedline::test {

/// Runs `body` for all ranks at the same time, each in a thread. Returns what each threw (its message), or "".
inline std::vector<std::string> side_by_side(int count, const std::function<void(int rank)>& body) {
  std::vector<std::string> thrown(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; rank++)
    threads.emplace_back([&body, &what = thrown[static_cast<size_t>(rank)], rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        what = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// Does the same and gives each rank an exchange. A rank whose `body` has ended has left the exchange.
inline std::vector<std::string> on_ranks(int count, const std::function<void(int rank, Exchange exchange)>& body) {
  std::vector<Exchange> exchanges = exchanges_between_threads(count);
  return side_by_side(count, [&](int rank) { body(rank, std::move(exchanges[static_cast<size_t>(rank)])); });
}

}  // namespace feedline::test
