// What every communicator must do. Each rank checks it for itself; a failed check throws an exception that says what.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "feedline/communicator.h"
#include "unpack/dispatch.h"

namespace feedline::test {

inline void expect(bool holds, const std::string& what, std::source_location where = std::source_location::current()) {
  if (!holds) throw std::runtime_error(fmt::format("{}:{}: {}", where.file_name(), where.line(), what));
}

/// Returns the Error that `body` throws.
template <typename F>
Error error_of(F body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error came");
}

inline std::vector<std::byte> pattern(int rank, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; i++) out[i] = static_cast<std::byte>(static_cast<size_t>(rank) * 31 + i * 7);
  return out;
}

inline void gathers(Communicator& c) {
  for (const size_t bytes : {0, 1, 1000, 300'001}) {
    std::vector<std::byte> all(bytes * static_cast<size_t>(c.size()));
    c.all_gather(pattern(c.rank(), bytes), all, Stream::host);
    std::vector<std::byte> in_place(all.size());
    const std::span mine = std::span(in_place).subspan(static_cast<size_t>(c.rank()) * bytes, bytes);
    std::ranges::copy(pattern(c.rank(), bytes), mine.begin());
    c.all_gather(mine, in_place, Stream::host);
    std::vector<std::byte> wanted;
    for (int rank = 0; rank < c.size(); rank++) {
      const std::vector<std::byte> theirs = pattern(rank, bytes);
      wanted.insert(wanted.end(), theirs.begin(), theirs.end());
    }
    expect(all == wanted, fmt::format("all_gather of {} bytes", bytes));
    expect(in_place == wanted, fmt::format("all_gather of {} bytes in place", bytes));
  }
}

inline void broadcasts(Communicator& c) {
  for (int root = 0; root < c.size(); root++)
    for (const size_t bytes : {0, 1, 300'001}) {
      std::vector<std::byte> data = pattern(c.rank() == root ? root : c.rank() + 100, bytes);
      c.broadcast(data, root, Stream::host);
      expect(data == pattern(root, bytes), fmt::format("broadcast of {} bytes from {}", bytes, root));
    }
}

// Returns small whole numbers. Every type can represent them and their sums.
template <typename T>
std::vector<T> numbers(int rank, size_t n) {
  std::vector<T> out(n);
  for (size_t i = 0; i < n; i++)
    out[i] = unpack::cast<T>(static_cast<int32_t>((static_cast<size_t>(rank) * 5 + i) % 11));
  return out;
}

template <typename T>
std::vector<T> reduced(Reduction reduction, int ranks, size_t n) {
  std::vector<T> out(n);
  for (size_t i = 0; i < n; i++) {
    int32_t result = 0;
    for (int rank = 0; rank < ranks; rank++) {
      const auto value = static_cast<int32_t>((static_cast<size_t>(rank) * 5 + i) % 11);
      result = rank == 0                     ? value
               : reduction == Reduction::sum ? result + value
               : reduction == Reduction::min ? std::min(result, value)
                                             : std::max(result, value);
    }
    out[i] = unpack::cast<T>(result);
  }
  return out;
}

template <typename T>
bool same_bytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

inline void reduces(Communicator& c) {
  for (const DType dtype : {DType::uint8, DType::int8, DType::uint16, DType::int16, DType::uint32, DType::int32,
                            DType::int64, DType::float16, DType::bfloat16, DType::float32, DType::float64})
    for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
      for (const size_t n : {0, 1, 3, 5000})
        unpack::with_type(dtype, [&](auto type) {
          using T = typename decltype(type)::t;
          const auto what = fmt::format("reduction {} of {} {}", static_cast<int>(reduction), n, name(dtype));
          std::vector<T> data = numbers<T>(c.rank(), n);
          c.all_reduce({data.data(), dtype, {static_cast<int64_t>(n)}}, reduction, Stream::host);
          expect(same_bytes<T>(data, reduced<T>(reduction, c.size(), n)), "all " + what);

          const size_t all = n * static_cast<size_t>(c.size());
          data = numbers<T>(c.rank(), all);
          std::vector<T> mine(n);
          c.reduce_scatter({data.data(), dtype, {static_cast<int64_t>(all)}},
                           {mine.data(), dtype, {static_cast<int64_t>(n)}}, reduction, Stream::host);
          const std::vector<T> wanted = reduced<T>(reduction, c.size(), all);
          expect(same_bytes<T>(mine, std::span(wanted).subspan(static_cast<size_t>(c.rank()) * n, n)),
                 "scattered " + what);
          expect(same_bytes<T>(data, numbers<T>(c.rank(), all)), "what was given to " + what);
        });
}

// A sum that rounds is computed over the ranks in their order, so that all ranks get the same bits.
inline void sums_in_order(Communicator& c) {
  const auto values = [](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> out(1001);
    for (float& value : out) value = static_cast<float>(random()) / 1e6f;
    return out;
  };
  std::vector<float> data = values(c.rank()), wanted = values(0);
  c.all_reduce({data.data(), DType::float32, {1001}}, Reduction::sum, Stream::host);
  for (int rank = 1; rank < c.size(); rank++) {
    const std::vector<float> more = values(rank);
    for (size_t i = 0; i < more.size(); i++) wanted[i] += more[i];
  }
  expect(same_bytes<float>(data, wanted), "a sum of floats over the ranks in their order");
}

// Each rank sends `rank + 1` parts to every rank, itself included. The parts have many sizes.
inline void sends(Communicator& c) {
  const auto bytes = [](int from, int to, int part) {
    return pattern(from * 7 + to * 3 + part, static_cast<size_t>(part) * 20'000 + static_cast<size_t>(from));
  };
  std::vector<std::vector<std::byte>> out, in;
  std::vector<std::pair<int, int>> from;
  for (int to = 0; to < c.size(); to++)
    for (int part = 0; part <= c.rank(); part++) out.push_back(bytes(c.rank(), to, part));
  for (int other = c.size() - 1; other >= 0; other--)
    for (int part = 0; part <= other; part++) {
      in.emplace_back(bytes(other, c.rank(), part).size());
      from.emplace_back(other, part);
    }
  std::vector<Communicator::Part> sent, received;
  for (size_t i = 0; i < out.size(); i++) sent.push_back({static_cast<int>(i) / (c.rank() + 1), out[i]});
  for (size_t i = 0; i < in.size(); i++) received.push_back({from[i].first, in[i]});
  c.send_receive(sent, received, Stream::host);
  for (size_t i = 0; i < in.size(); i++)
    expect(in[i] == bytes(from[i].first, c.rank(), from[i].second),
           fmt::format("part {} from rank {}", from[i].second, from[i].first));
}

inline void refuses(Communicator& c) {
  std::vector<std::byte> bytes(10);
  std::vector<uint8_t> flags(4);
  expect(error_of([&] { c.broadcast(bytes, c.size(), Stream::host); }).category() == Category::bad_pipeline,
         "no such root");
  expect(error_of([&] { c.all_gather(bytes, std::span(bytes).first(9), Stream::host); }).category() ==
             Category::bad_pipeline,
         "no room for all");
  expect(error_of([&] {
           c.all_reduce({flags.data(), DType::boolean, {4}}, Reduction::sum, Stream::host);
         }).category() == Category::bad_pipeline,
         "no sum of truths");
}

/// Checks all calls that must succeed. The communicator can be used afterwards.
inline void conformance(Communicator& c) {
  gathers(c);
  broadcasts(c);
  reduces(c);
  sums_in_order(c);
  sends(c);
  refuses(c);
  // Calls in random order.
  std::mt19937 random(7);
  for (int call = 0; call < 200; call++) {
    const auto which = random() % 4;
    if (which == 0) broadcasts(c);
    if (which == 1) sums_in_order(c);
    if (which == 2) sends(c);
    if (which == 3) c.barrier();
  }
}

// How a group ends. Each of these is the last use of its communicator and needs at least three ranks. `made` is the
// number of calls that making the communicator took.

inline void calls_differently(Communicator& c, int made = 0) {
  std::vector<std::byte> data(8), all(8 * static_cast<size_t>(c.size()));
  c.barrier();
  const Error error = error_of([&] {
    if (c.rank() == 2)
      c.broadcast(data, 1, Stream::host);
    else
      c.all_gather(data, all, Stream::host);
  });
  expect(error.category() == Category::bad_pipeline, error.what());
  expect(error.message() == fmt::format("call {}: rank 2 calls broadcast of 8 bytes from rank 1, but rank 0 calls "
                                        "all_gather of 8 bytes; all ranks must make the same calls in the same order",
                                        made + 1),
         error.message());
  expect(error_of([&] { c.barrier(); }).message() == error.message(), "and so does every later call");
}

inline void sends_what_nobody_wants(Communicator& c) {
  std::vector<std::byte> data(8);
  const std::vector<Communicator::Part> part = {{c.size() - 1, data}};
  const Error error = error_of([&] {
    if (c.rank() == 2)
      c.send_receive(part, {}, Stream::host);
    else
      c.send_receive({}, {}, Stream::host);
    c.barrier();
  });
  expect(error.message().find(fmt::format("rank 2 sends to rank {}", c.size() - 1)) != std::string::npos,
         error.message());
}

inline void aborts(Communicator& c, int made = 0) {
  // A rank may be told of the abort before its own part of the first barrier is over.
  const Error error = error_of([&] {
    c.barrier();
    if (c.rank() == 1)
      c.abort(
          Error(Category::bad_image, "no such picture", {.file = "cats", .offset = 7, .record = 3, .feature = "x"}));
    c.barrier();
  });
  expect(error.category() == Category::bad_image, error.what());
  expect(error.place() == Place{"cats", 7, 3, "x"}, error.what());
  expect(error.message() == fmt::format("rank 1, call {}: no such picture", made + 1), error.message());
}

inline void leaves(std::unique_ptr<Communicator> c, int made = 0) {
  if (c->rank() == 0) return c->barrier();
  const Error error = error_of([&] {
    c->barrier();
    c->barrier();
  });
  expect(error.category() == Category::stalled &&
             error.message().starts_with(
                 fmt::format("rank 0, call {}: the rank has destroyed its communicator", made + 1)),
         error.what());
}

}  // namespace feedline::test
