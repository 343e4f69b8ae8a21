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

  size_t size() const noexcept { return bytes_.size(); }
  /// Returns everything that was put, and leaves the writer empty.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Reads a message from the front. Every get...() throws Error bad_pipeline if the message ends before the item does,
/// or if the bytes are not a value of the item's type. `bytes` must outlive the reader.
class MessageReader {
 public:
  /// `rank` is the rank that has sent the message, for the texts of errors; -1 if the caller does not know it.
  explicit MessageReader(std::string_view bytes, int rank = -1) : rest_(bytes), rank_(rank) {}

  template <typename T>
  T get() {
    static_assert(!std::is_same_v<T, bool> && !std::is_enum_v<T>, "not all bytes are one: see get_bool(), get_enum()");
    return load<T>(next(sizeof(T)).data());
  }
  bool get_bool() {
    const auto byte = get<uint8_t>();
    if (byte > 1) refuse("has a boolean that is neither 0 nor 1");
    return byte == 1;
  }
  /// Returns the next item, an enumerator of E. The enumerators of E are numbered from 0 to `last`.
  template <typename E>
  E get_enum(E last) {
    using Number = std::underlying_type_t<E>;
    static_assert(std::is_unsigned_v<Number>);
    const auto number = get<Number>();
    if (number > static_cast<Number>(last)) refuse("has a value that this version of feedline does not know");
    return static_cast<E>(number);
  }
  template <typename T>
  std::vector<T> get_rows() {
    static_assert(!std::is_same_v<T, bool> && !std::is_enum_v<T>);
    const auto size = get<uint64_t>();
    if (size > rest_.size() / sizeof(T)) refuse(too_short);
    std::vector<T> rows(size);
    if (size > 0) std::memcpy(rows.data(), next(size * sizeof(T)).data(), size * sizeof(T));
    return rows;
  }
  /// Returns the next text. The view points into the message.
  std::string_view get_text() { return next(get<uint64_t>()); }
  bool at_end() const noexcept { return rest_.empty(); }
  /// Throws Error bad_pipeline unless all items have been read.
  void end() const {
    if (!at_end()) refuse("has bytes after its end");
  }
  /// Throws Error bad_pipeline, whose text is "the message of rank N `what`; ...". `what` is a verb with its object,
  /// such as "ends too early".
  [[noreturn]] void refuse(std::string_view what) const {
    const std::string whose = rank_ < 0 ? "a message of another rank" : "the message of rank " + std::to_string(rank_);
    throw Error(
        Category::bad_pipeline,
        "exchange: " + whose + ' ' + std::string(what) +
            "; the exchange must return the string of every rank unchanged, and all ranks must run the same version of "
            "feedline");
  }

 private:
  static constexpr const char* too_short = "ends too early";

  std::string_view next(uint64_t size) {
    if (size > rest_.size()) refuse(too_short);
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  std::string_view rest_;
  int rank_;
};

}  // namespace feedline
