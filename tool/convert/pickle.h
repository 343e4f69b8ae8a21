// Python's pickles of protocol 2 to 5, as Python 2 and 3 write them: numbers, strings, tuples, lists, dictionaries, and
// NumPy's ways of saying "an array". Nothing is called or imported: an object is the name of what Python would call,
// and with what. (Bytes, which protocol 2 has as such a call, are read as bytes.) (The opcodes: Lib/pickletools.py of
// CPython.)
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
    int64_t integer = 0;     // also of a boolean
    std::string_view bytes;  // or text, as UTF-8; lives as long as the Pickle
    /// Elements; keys and values in turn; of a global: module and name; of an object: what is called, with which tuple,
    /// and the state it is given, if any.
    std::vector<Ref> items;
  };
  struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  /// Throws Malformed: cut short, an opcode that the types above do not need, or more than 2^20 values. Memory and time
  /// are proportional to the size; nothing recurses. `data` outlives this.
  explicit Pickle(std::string_view data);

  const Value& root() const { return values_[root_]; }
  const Value& operator[](Ref ref) const { return values_[ref]; }
  /// The value of a key; null where `dict` is none, or has no such key.
  const Value* find(const Value& dict, std::string_view key) const;
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
  void run();
  bool step(uint8_t opcode);
  [[noreturn]] void fail(const char* why) const;

  const std::string_view data_;
  size_t position_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, Ref> memo_;
  std::deque<std::string> decoded_;  // bytes that the pickle has as text
  size_t decoded_bytes_ = 0;
  Ref root_ = 0;
};

}  // namespace feedline::cli
