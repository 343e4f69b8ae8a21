// The messages that ranks send to one another: numbers, texts and arrays of rows, one after another, in the byte order
// and layout of this machine. All ranks therefore run the same build on machines of the same architecture.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/load.h"
#include "feedline/error.h"

namespace feedline {

/// Builds a message. A MessageReader must read the same items, with the same types, in the same order.
class MessageWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>, "padding has no defined value, so it must not be sent");
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void put_rows(std::span<const T> rows) {
    static_assert(std::has_unique_object_representations_v<T>);
    put<uint64_t>(rows.size());
    bytes_.append(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
  }
  void put_text(std::string_view text) { put_rows(std::span(text.data(), text.size())); }

  /// Returns everything that was put, and leaves the writer empty.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Reads a message from the front. Every get...() throws Error bad_pipeline if the message ends before the item does.
/// `bytes` must outlive the reader.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T get() {
    return load<T>(next(sizeof(T)).data());
  }
  template <typename T>
  std::vector<T> get_rows() {
    const auto size = get<uint64_t>();
    if (size > rest_.size() / sizeof(T)) fail();
    std::vector<T> rows(size);
    if (size > 0) std::memcpy(rows.data(), next(size * sizeof(T)).data(), size * sizeof(T));
    return rows;
  }
  /// Returns the next text. The view points into the message.
  std::string_view get_text() { return next(get<uint64_t>()); }
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::string_view next(uint64_t size) {
    if (size > rest_.size()) fail();
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  [[noreturn]] static void fail() {
    throw Error(Category::bad_pipeline,
                "exchange: a message of another rank ends too early; an exchange must return every rank's string "
                "unchanged, and all ranks must run the same version of feedline");
  }

  std::string_view rest_;
};

}  // namespace feedline
