#include "tool/convert/pickle.h"

#include <fmt/format.h>

#include <utility>

namespace feedline::cli {
namespace {

constexpr size_t most_values = 1 << 20;
constexpr uint8_t highest_protocol = 5;

}  // namespace

Pickle::Pickle(std::string_view data) : data_(data) {
  if (take_byte() != 0x80 || take_byte() > highest_protocol) fail("this is not a pickle of protocol 2 to 5");
  for (uint8_t opcode; (opcode = take_byte()) != '.';) {
    if (stack_.size() > most_values || marks_.size() > most_values || memo_.size() > most_values)
      fail("there are too many values");
    if (!step(opcode))
      fail(fmt::format("opcode 0x{:02x} is none that a number, text, list, dictionary or NumPy array needs", opcode));
  }
  root_ = pop();
}

void Pickle::fail(const std::string& why) const {
  throw Malformed(fmt::format("at byte {} of the pickle: {}", position_, why));
}

uint8_t Pickle::take_byte() { return static_cast<uint8_t>(take(1)[0]); }

uint64_t Pickle::take_number(size_t bytes) {
  uint64_t number = 0;
  const std::string_view digits = take(bytes);
  for (size_t i = bytes; i-- > 0;) number = number << 8 | static_cast<uint8_t>(digits[i]);
  return number;
}

std::string_view Pickle::take(uint64_t size) {
  if (size > data_.size() - position_) fail("it is cut short");
  const std::string_view taken = data_.substr(position_, size);
  position_ += size;
  return taken;
}

std::string_view Pickle::take_line() {
  const size_t end = data_.find('\n', position_);
  if (end == std::string_view::npos) fail("it is cut short");
  const std::string_view line = take(end - position_);
  position_++;
  return line;
}

Pickle::Ref Pickle::add(Value value) {
  if (values_.size() == most_values) fail("there are too many values");
  values_.push_back(std::move(value));
  return static_cast<Ref>(values_.size() - 1);
}

void Pickle::push_bytes(std::string_view bytes) { push({Type::bytes, 0, bytes, {}}); }

void Pickle::push_integer(int64_t number) { push({Type::integer, number, {}, {}}); }

/// Pushes the result of a call. Protocol 2 has no bytes, so Python 3 writes _codecs.encode(text, "latin1"), or bytes()
/// for no bytes. These two calls become bytes. All other calls become objects.
void Pickle::push_call(std::vector<Ref> called_with) {
  const Value &called = values_[called_with[0]], &arguments = values_[called_with[1]];
  if (is_global(called, "__builtin__", "bytes") && arguments.type == Type::tuple && arguments.items.empty())
    return push_bytes({});
  if (is_global(called, "_codecs", "encode") && arguments.type == Type::tuple && arguments.items.size() == 2)
    if (const Value& text = values_[arguments.items[0]], &encoding = values_[arguments.items[1]];
        text.type == Type::bytes && encoding.type == Type::bytes && encoding.bytes == "latin1")
      return push_bytes(from_latin1(text.bytes));
  push({Type::object, 0, {}, std::move(called_with)});
}

/// Returns the bytes of a text whose characters are all below U+0100.
std::string_view Pickle::from_latin1(std::string_view utf8) {
  // Python writes each text once. A pickle that encodes one text again and again could otherwise grow far beyond its
  // size.
  decoded_bytes_ += utf8.size();
  if (decoded_bytes_ > data_.size()) fail("the same text is encoded several times");
  std::string& bytes = decoded_.emplace_back();
  bytes.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size(); i++) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
      continue;
    }
    if ((lead != 0xc2 && lead != 0xc3) || ++i == utf8.size() || (utf8[i] & 0xc0) != 0x80)
      fail("there are bytes beyond Latin-1");
    bytes += static_cast<char>((lead & 3) << 6 | (utf8[i] & 0x3f));
  }
  return bytes;
}

Pickle::Ref Pickle::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("the stack is empty");
  const Ref ref = stack_.back();
  stack_.pop_back();
  return ref;
}

Pickle::Value& Pickle::top(Type type) {
  if (stack_.empty() || values_[stack_.back()].type != type)
    fail("the value on the stack has another type than the opcode needs");
  return values_[stack_.back()];
}

std::vector<Pickle::Ref> Pickle::pop_items(size_t count) {
  std::vector<Ref> items(count);
  for (size_t i = count; i-- > 0;) items[i] = pop();
  return items;
}

std::vector<Pickle::Ref> Pickle::pop_to_mark() {
  if (marks_.empty()) fail("there is no mark");
  std::vector<Ref> items = pop_items(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

bool Pickle::step(uint8_t opcode) {
  const auto extend = [this](Type type, std::vector<Ref> items) {
    Value& value = top(type);
    if (type == Type::dict && items.size() % 2) fail("a key has no value");
    value.items.insert(value.items.end(), items.begin(), items.end());
  };
  switch (opcode) {
    case 0x95:  // FRAME
      take(8);
      return true;
    case 'N':  // NONE
      push({});
      return true;
    case 0x88:  // NEWTRUE, NEWFALSE
    case 0x89:
      push({Type::boolean, opcode == 0x88, {}, {}});
      return true;
    case 'K':  // BININT1
      push_integer(static_cast<int64_t>(take_number(1)));
      return true;
    case 'M':  // BININT2
      push_integer(static_cast<int64_t>(take_number(2)));
      return true;
    case 'J':  // BININT
      push_integer(static_cast<int32_t>(take_number(4)));
      return true;
    case 0x8a: {  // LONG1: a size, then a number of that many bytes
      const uint64_t size = take_number(1);
      if (size > 8) fail("a number has more than 64 bits");
      const uint64_t unused = 64 - 8 * size;
      push_integer(size == 0 ? 0 : static_cast<int64_t>(take_number(size) << unused) >> unused);
      return true;
    }
    case 'U':  // SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE
    case 'C':
    case 0x8c:
      push_bytes(take(take_number(1)));
      return true;
    case 'T':  // BINSTRING, BINBYTES, BINUNICODE
    case 'B':
    case 'X':
      push_bytes(take(take_number(4)));
      return true;
    case 0x8d:  // BINUNICODE8, BINBYTES8, BYTEARRAY8
    case 0x8e:
    case 0x96:
      push_bytes(take(take_number(8)));
      return true;
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return true;
    case ')':  // EMPTY_TUPLE
      push({Type::tuple, 0, {}, {}});
      return true;
    case 't':  // TUPLE
      push({Type::tuple, 0, {}, pop_to_mark()});
      return true;
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      push({Type::tuple, 0, {}, pop_items(opcode - 0x84u)});
      return true;
    case ']':  // EMPTY_LIST
      push({Type::list, 0, {}, {}});
      return true;
    case 'a':  // APPEND
      extend(Type::list, pop_items(1));
      return true;
    case 'e':  // APPENDS
      extend(Type::list, pop_to_mark());
      return true;
    case '}':  // EMPTY_DICT
      push({Type::dict, 0, {}, {}});
      return true;
    case 's':  // SETITEM
      extend(Type::dict, pop_items(2));
      return true;
    case 'u':  // SETITEMS
      extend(Type::dict, pop_to_mark());
      return true;
    case 'c': {  // GLOBAL
      const Ref module = add({Type::bytes, 0, take_line(), {}});
      const Ref name = add({Type::bytes, 0, take_line(), {}});
      push({Type::global, 0, {}, {module, name}});
      return true;
    }
    case 0x93:  // STACK_GLOBAL
      push({Type::global, 0, {}, pop_items(2)});
      return true;
    case 'R':  // REDUCE
      push_call(pop_items(2));
      return true;
    case 0x97:  // NEXT_BUFFER
      fail(
          "the bytes of an array are in a separate buffer (out of band, protocol 5), not in the pickle; write the "
          "pickle without buffer_callback");
    case 'b':  // BUILD
      extend(Type::object, pop_items(1));
      return true;
    case 'q':  // BINPUT, LONG_BINPUT, MEMOIZE
    case 'r':
    case 0x94: {
      const uint64_t key = opcode == 0x94 ? memo_.size() : take_number(opcode == 'q' ? 1 : 4);
      if (stack_.empty()) fail("there is nothing to store");
      memo_[key] = stack_.back();
      return true;
    }
    case 'h':  // BINGET, LONG_BINGET
    case 'j': {
      const auto found = memo_.find(take_number(opcode == 'h' ? 1 : 4));
      if (found == memo_.end()) fail("an object is used that was never stored");
      stack_.push_back(found->second);
      return true;
    }
    default:
      return false;
  }
}

const Pickle::Value* Pickle::find(const Value& dict, std::string_view key) const {
  if (dict.type != Type::dict) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (const Value& k = values_[dict.items[i]]; k.type == Type::bytes && k.bytes == key)
      return &values_[dict.items[i + 1]];
  return nullptr;
}

bool Pickle::is_global(const Value& value, std::string_view module, std::string_view name) const {
  return value.type == Type::global && value.items.size() == 2 && values_[value.items[0]].bytes == module &&
         values_[value.items[1]].bytes == name;
}

}  // namespace feedline::cli
