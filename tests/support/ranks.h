// Ranks as threads of the test.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "feedline/exchange.h"

namespace feedline::test {

/// Runs `body` for each rank side by side; what each threw, or "". A rank that has ended has left the exchange.
inline std::vector<std::string> on_ranks(int count, const std::function<void(int rank, Exchange exchange)>& body) {
  std::vector<std::string> thrown(static_cast<size_t>(count));
  std::vector<Exchange> exchanges = exchanges_between_threads(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; rank++) {
    std::string& what = thrown[static_cast<size_t>(rank)];
    threads.emplace_back([&body, &what, rank, exchange = std::move(exchanges[static_cast<size_t>(rank)])]() mutable {
      try {
        body(rank, std::move(exchange));
      } catch (const std::exception& error) {
        what = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace feedline::test
