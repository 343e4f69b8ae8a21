// Reads Python's pickles of protocols 2 to 5, as Python 2 and 3 write them: numbers, strings, tuples, lists,
// dictionaries, and the calls by which NumPy describes an array. The reader calls and imports nothing: it represents a
// call as an object, which has the name of the function and its arguments. (Protocol 2 describes bytes by a call. The
// reader turns this one call into bytes.) The opcodes are in Lib/pickletools.py of CPython.
#pragma once

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace feedline::cli {

class Pickle {
 public:
  enum class Type : uint8_t { none, boolean, integer, bytes, tuple, list, dict, global, object };
  using Ref = uint32_t;
  struct Value {
    Type type = Type::none;
    int64_t integer = 0;     // a boolean is 0 or 1
    std::string_view bytes;  // also text, as UTF-8; valid while the Pickle and its `data` exist
    /// The elements of a tuple or list; the keys and values of a dictionary in turn; the module and name of a global;
    /// for an object, what is called, its tuple of arguments, and the state that it is given, if any.
    std::vector<Ref> items;
  };
  struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  /// Parses the pickle. Throws Malformed if it is cut short, has more than 2^20 values, or has an opcode that the types
  /// above do not need. Memory and time are proportional to its size, and nothing recurses. `data` must outlive the
  /// Pickle.
  explicit Pickle(std::string_view data);

  const Value& root() const { return values_[root_]; }
  const Value& operator[](Ref ref) const { return values_[ref]; }
  /// Returns the value of a key; null if `dict` is no dictionary or lacks the key.
  const Value* find(const Value& dict, std::string_view key) const;
  /// Returns whether the value is the global (a function or class) with this name in this module.
  bool is_global(const Value& value, std::string_view module, std::string_view name) const;

 private:
  uint8_t take_byte();
  uint64_t take_number(size_t bytes);
  std::string_view take(uint64_t size);
  std::string_view take_line();
  Ref add(Value value);
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_bytes(std::string_view bytes);
  void push_integer(int64_t number);
  void push_call(std::vector<Ref> called_with);
  std::string_view from_latin1(std::string_view utf8);
  Ref pop();
  Value& top(Type type);
  std::vector<Ref> pop_items(size_t count);
  std::vector<Ref> pop_to_mark();
  /// Carries out one opcode. Returns false if the reader does not know it.
  bool step(uint8_t opcode);
  /// Throws Malformed with `why` and the place in the pickle.
  [[noreturn]] void fail(const std::string& why) const;

  const std::string_view data_;
  size_t position_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // the sizes of the stack at each mark
  std::unordered_map<uint64_t, Ref> memo_;
  std::deque<std::string> decoded_;  // bytes that the pickle stores as text
  size_t decoded_bytes_ = 0;
  Ref root_ = 0;
};

}  // namespace feedline::cli
