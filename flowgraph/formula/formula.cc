// formula := or;  or := and ("or" and)*;  and := not ("and" not)*;  not := "not" not | comparison
// comparison := sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)?;  sum := product (("+" | "-") product)*
// product := unary (("*" | "/") unary)*;  unary := "-" unary | primary
// primary := number | name | "out" "." name | function "(" or ("," or)* ")" | "(" or ")"
#include "flowgraph/formula/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/did_you_mean.h"
#include "feedline/error.h"

namespace feedline::flow {
namespace {

using Type = FormulaType;

struct Function {
  std::string_view name;
  uint8_t arity;
  Op of_int, of_float;  // if they are equal, there is only a float64 operation
};
constexpr std::array functions = {
    Function{"abs", 1, Op::abs_int, Op::abs},    Function{"sign", 1, Op::sign, Op::sign},
    Function{"min", 2, Op::min_int, Op::min},    Function{"max", 2, Op::max_int, Op::max},
    Function{"floor", 1, Op::floor, Op::floor},  Function{"mod", 2, Op::mod_int, Op::mod},
    Function{"exp", 1, Op::exp, Op::exp},        Function{"log", 1, Op::log, Op::log},
    Function{"sqrt", 1, Op::sqrt, Op::sqrt},     Function{"pow", 2, Op::pow, Op::pow},
    Function{"tanh", 1, Op::tanh, Op::tanh},     Function{"sigmoid", 1, Op::sigmoid, Op::sigmoid},
    Function{"if", 3, Op::if_int, Op::if_float},
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_keyword(std::string_view text) { return text == "and" || text == "or" || text == "not"; }

// Returns whether a formula can contain this name, such as "s" or "out.mate": an identifier that is no keyword, with
// or without "out." before it.
bool can_be_written(std::string_view name) {
  if (name.starts_with("out.")) name.remove_prefix(4);
  return is_name(name) && !is_keyword(name);
}

class Parser {
 public:
  Parser(std::string_view text, const std::map<std::string, double>& constants, std::span<const FormulaInput> known)
      : text_(text), constants_(constants), known_(known) {}

  Formula parse() {
    if (text_.size() > longest_formula)
      fail(fmt::format(
               "the formula has {} characters, and at most {} are allowed; split it into several outputs; a formula "
               "reads the others as out.NAME",
               text_.size(), longest_formula),
           0);
    next();
    if (token_.empty()) fail("the formula is empty");
    formula_.root = disjunction();
    if (!token_.empty()) fail(fmt::format("'{}' does not belong here{}", token_, instead_of(token_)));
    return std::move(formula_);
  }

 private:
  // Moves on to the next token. The current token is token_, and begins at position at_ of the text. At the end of the
  // text token_ is empty.
  void next() {
    size_t i = at_ + token_.size();
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t' || text_[i] == '\n' || text_[i] == '\r')) i++;
    at_ = i;
    size_t length = 0;
    const auto at = [&](size_t k) { return i + k < text_.size() ? text_[i + k] : '\0'; };
    if (i == text_.size()) {
    } else if (is_letter(at(0))) {
      while (is_letter(at(length)) || is_digit(at(length))) length++;
    } else if (is_digit(at(0)) || (at(0) == '.' && is_digit(at(1)))) {
      while (is_digit(at(length)) || at(length) == '.') length++;
      if (at(length) == 'e' || at(length) == 'E') {
        const size_t sign = at(length + 1) == '+' || at(length + 1) == '-' ? 1 : 0;
        if (is_digit(at(length + 1 + sign))) {
          length += 1 + sign;
          while (is_digit(at(length))) length++;
        }
      }
      while (is_letter(at(length)) || is_digit(at(length))) length++;  // "0x10" and "1.5f" are refused as a whole
    } else {
      constexpr std::array pairs = {"<=", ">=", "==", "!=", "&&", "||", "**"};
      length =
          std::any_of(pairs.begin(), pairs.end(), [&](const char* pair) { return text_.substr(i, 2) == pair; }) ? 2 : 1;
      while ((at(length) & 0xC0) == 0x80) length++;  // the rest of a UTF-8 character
    }
    token_ = text_.substr(i, length);
  }
  bool accept(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }
  void expect(std::string_view token, std::string_view after) {
    if (!accept(token))
      fail(token_.empty()
               ? fmt::format("'{}' is missing {}", token, after)
               : fmt::format("'{}' was found instead of '{}' {}{}", token_, token, after, instead_of(token_)));
  }
  static std::string_view instead_of(std::string_view token) {
    if (token == "%") return "; write mod(a, b)";
    if (token == "^" || token == "**") return "; write pow(a, b)";
    if (token == "&&" || token == "&") return "; write 'and'";
    if (token == "||" || token == "|") return "; write 'or'";
    if (token == "!") return "; write 'not'";
    if (token == "=") return "; write '=='";
    if (token == "?") return "; write if(c, a, b)";
    return "";
  }

  [[noreturn]] void fail(const std::string& why) const { fail(why, at_); }
  [[noreturn]] void fail(const std::string& why, size_t at) const {
    // Show the text around the error as one line, even if the formula has line breaks there.
    constexpr size_t margin = 60;
    const size_t from = at > margin ? at - margin : 0;
    std::string line(text_.substr(from, 2 * margin));
    for (char& c : line)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    throw Error(Category::bad_pipeline, fmt::format("{}\n  {}\n  {}^", why, line, std::string(at - from, ' ')));
  }

  // The functions below name nodes by their numbers.
  int add(Node node) {
    formula_.nodes.push_back(node);
    return static_cast<int>(formula_.nodes.size()) - 1;
  }
  Type type(int node) const { return formula_.nodes[static_cast<size_t>(node)].type; }

  int operation(Op op, std::initializer_list<int> args, size_t at) {
    Node node;
    node.op = op;
    Scalar values[3];
    bool constant = true;
    for (int arg : args) {
      const Node& operand = formula_.nodes[static_cast<size_t>(arg)];
      constant = constant && operand.op == Op::constant;
      node.depth = std::max(node.depth, operand.depth + 1);
      values[node.arity] = operand.value;
      node.args[node.arity++] = arg;
    }
    if (node.depth > deepest_formula)
      fail(
          "too many operations depend on each other here; move a part of the formula into a second output, and read "
          "it as out.NAME",
          at);
    node.type = with_operation(op, []<typename Operation>(Operation) { return result_type(&Operation::of); });
    if (constant) {
      uint64_t failed = 0;
      node.value = apply(op, values, failed);
      if (failed)
        fail(op == Op::mod_int ? "mod by 0"
                               : "this overflows int64; write a number with a decimal point to compute in float64",
             at);
      node.op = Op::constant;
      node.arity = 0;
    }
    return add(node);
  }
  template <typename... A>
  static constexpr Type result_type(int64_t (*)(A...)) {
    return Type::int64;
  }
  template <typename... A>
  static constexpr Type result_type(double (*)(A...)) {
    return Type::float64;
  }

  int constant(Scalar value, Type type) {
    Node node;
    node.type = type;
    node.value = value;
    return add(node);
  }
  int as_float(int node) { return type(node) == Type::int64 ? operation(Op::to_float, {node}, at_) : node; }
  int as_truth(int node) {
    if (type(node) == Type::int64) return node;
    const int zero = constant(Scalar::of(0.0), Type::float64);
    return operation(Op::not_, {operation(Op::equal, {node, zero}, at_)}, at_);
  }
  int binary(Op of_int, Op of_float, int a, int b, size_t at) {
    if (of_int != of_float && type(a) == Type::int64 && type(b) == Type::int64) return operation(of_int, {a, b}, at);
    a = as_float(a);
    b = as_float(b);
    return operation(of_float, {a, b}, at);
  }

  // Counts one level of recursion. Refuses formulas that are nested too deeply, so that the parser cannot overflow the
  // stack.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.level_ > deepest_nesting)
        parser.fail(
            "the formula is nested too deeply here; move a part of the formula into a second output, and read "
            "it as out.NAME");
    }
    ~Level() { parser.level_--; }
    Parser& parser;
  };

  int disjunction() {
    int a = conjunction();
    for (size_t at = at_; accept("or"); at = at_) {
      const int b = as_truth(conjunction());
      a = operation(Op::or_, {as_truth(a), b}, at);
    }
    return a;
  }
  int conjunction() {
    int a = negation();
    for (size_t at = at_; accept("and"); at = at_) {
      const int b = as_truth(negation());
      a = operation(Op::and_, {as_truth(a), b}, at);
    }
    return a;
  }
  int negation() {
    const Level level(*this);
    const size_t at = at_;
    if (accept("not")) return operation(Op::not_, {as_truth(negation())}, at);
    return comparison();
  }
  static bool is_comparison(std::string_view token) {
    return token == "<" || token == "<=" || token == ">" || token == ">=" || token == "==" || token == "!=";
  }
  int comparison() {
    const int a = sum();
    if (!is_comparison(token_)) return a;
    const size_t at = at_;
    const std::string_view sign = token_;
    next();
    const int b = sum();
    if (is_comparison(token_)) fail("comparisons cannot be chained; join them with 'and', as in a < b and b < c");
    if (sign == "==") return binary(Op::equal_int, Op::equal, a, b, at);
    if (sign == "!=") return operation(Op::not_, {binary(Op::equal_int, Op::equal, a, b, at)}, at);
    const bool swap = sign[0] == '>';  // a > b is b < a, also with NaN
    const bool or_equal = sign.size() == 2;
    return binary(or_equal ? Op::less_equal_int : Op::less_int, or_equal ? Op::less_equal : Op::less, swap ? b : a,
                  swap ? a : b, at);
  }
  int sum() {
    int a = product();
    for (;;) {
      const size_t at = at_;
      if (accept("+"))
        a = binary(Op::add_int, Op::add, a, product(), at);
      else if (accept("-"))
        a = binary(Op::subtract_int, Op::subtract, a, product(), at);
      else
        return a;
    }
  }
  int product() {
    int a = unary();
    for (;;) {
      const size_t at = at_;
      if (accept("*"))
        a = binary(Op::multiply_int, Op::multiply, a, unary(), at);
      else if (accept("/"))
        a = binary(Op::divide, Op::divide, a, unary(), at);
      else
        return a;
    }
  }
  int unary() {
    const Level level(*this);
    const size_t at = at_;
    if (!accept("-")) return primary();
    if (token_ == smallest_int_digits) {
      next();
      return constant(Scalar::of(std::numeric_limits<int64_t>::min()), Type::int64);
    }
    const int a = unary();
    return operation(type(a) == Type::int64 ? Op::negate_int : Op::negate, {a}, at);
  }
  int primary() {
    if (accept("(")) {
      const int a = disjunction();
      expect(")", "at the end of the parenthesis");
      return a;
    }
    if (token_.empty()) fail("the formula ends where a value is expected");
    if (is_digit(token_[0]) || token_[0] == '.') return number();
    if (is_name(token_) && !is_keyword(token_)) return name();
    fail(fmt::format("'{}' was found where a value is expected{}", token_, instead_of(token_)));
  }

  int number() {
    const char* end = token_.data() + token_.size();
    Scalar value;
    Type type = Type::int64;
    if (std::all_of(token_.begin(), token_.end(), is_digit)) {
      int64_t whole = 0;
      if (std::from_chars(token_.data(), end, whole).ec != std::errc())
        fail(fmt::format("{} does not fit into int64; write {}.0 to compute in float64", token_, token_));
      value = Scalar::of(whole);
    } else {
      double real = 0;
      const auto [rest, error] = std::from_chars(token_.data(), end, real);
      if (rest != end) fail(fmt::format("'{}' is not a number", token_));
      if (error != std::errc()) fail(fmt::format("{} is out of float64's range", token_));
      value = Scalar::of(real);
      type = Type::float64;
    }
    next();
    return constant(value, type);
  }

  int name() {
    const size_t at = at_;
    std::string name(token_);
    next();
    if (token_ == "(") return function(name, at);
    if (name == "out" && token_ == ".") {
      next();
      if (!is_name(token_)) fail("the name of an output is expected after 'out.'");
      name += '.';
      name += token_;
      next();
    }
    if (const auto it = constants_.find(name); it != constants_.end())
      return constant(Scalar::of(it->second), Type::float64);
    const auto it = std::find_if(known_.begin(), known_.end(), [&](const auto& input) { return input.name == name; });
    if (it == known_.end()) unknown(name, at);
    auto& inputs = formula_.inputs;
    const auto used = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.name == name; });
    Node node;
    node.op = Op::input;
    node.type = it->type;
    node.input = static_cast<int>(used - inputs.begin());
    if (used == inputs.end()) inputs.push_back(*it);
    return add(node);
  }

  int function(const std::string& name, size_t at) {
    const auto it = std::find_if(functions.begin(), functions.end(), [&](const Function& f) { return f.name == name; });
    if (it == functions.end()) {
      std::vector<std::string> names;
      for (const Function& f : functions) names.emplace_back(f.name);
      fail(fmt::format("there is no function '{}'; the functions are: {}", name, fmt::join(names, " ")), at);
    }
    next();
    int args[3] = {};
    uint8_t count = 0;
    if (token_ != ")") {
      do {
        if (count == it->arity) fail(fmt::format("{} takes {} value{}", name, it->arity, it->arity == 1 ? "" : "s"));
        args[count++] = disjunction();
      } while (accept(","));
    }
    if (count < it->arity)
      fail(fmt::format("{} takes {} value{}, not {}", name, it->arity, it->arity == 1 ? "" : "s", count));
    expect(")", fmt::format("at the end of {}(...)", name));
    if (it->of_int == Op::if_int) {
      const bool whole = type(args[1]) == Type::int64 && type(args[2]) == Type::int64;
      const int condition = as_truth(args[0]);
      if (whole) return operation(Op::if_int, {condition, args[1], args[2]}, at);
      const int a = as_float(args[1]), b = as_float(args[2]);
      return operation(Op::if_float, {condition, a, b}, at);
    }
    if (it->arity == 2) return binary(it->of_int, it->of_float, args[0], args[1], at);
    if (it->of_int != it->of_float && type(args[0]) == Type::int64) return operation(it->of_int, {args[0]}, at);
    return operation(it->of_float, {as_float(args[0])}, at);
  }

  [[noreturn]] void unknown(const std::string& name, size_t at) const {
    for (const FormulaInput& input : known_)
      if (!can_be_written(input.name) && text_.substr(at).starts_with(input.name)) {
        std::string plain = input.name;
        for (char& c : plain)
          if (!is_name(std::string("_") + c)) c = '_';
        fail(fmt::format(
                 "unknown name '{}'; names in formulas have only letters, digits and _; give the feature such a name, "
                 "and its present name as the key: name: \"{}\" key: \"{}\"",
                 name, plain, input.name),
             at);
      }
    std::vector<std::string> names;
    for (const auto& [constant, value] : constants_) names.push_back(constant);
    for (const FormulaInput& input : known_)
      if (input.offered && can_be_written(input.name)) names.push_back(input.name);
    fail(names.empty()
             ? fmt::format("unknown name '{}': the pipeline has no feature or output of one number in each record, "
                           "which a formula could read",
                           name)
             : fmt::format("unknown name '{}'{} The known names are: {}", name,
                           nearest(name, names).empty() ? "." : did_you_mean(name, names), fmt::join(names, " ")),
         at);
  }

  static constexpr size_t longest_formula = 65536;
  static constexpr int deepest_nesting = 200;
  static constexpr std::string_view smallest_int_digits = "9223372036854775808";  // int64's minimum without its sign

  std::string_view text_;
  const std::map<std::string, double>& constants_;
  std::span<const FormulaInput> known_;
  std::string_view token_;
  size_t at_ = 0;
  int level_ = 0;
  Formula formula_;
};

}  // namespace

Formula parse_formula(std::string_view text, const std::map<std::string, double>& constants,
                      std::span<const FormulaInput> known) {
  for (const auto& [name, value] : constants)
    if (!is_name(name) || is_keyword(name))
      throw Error(Category::bad_pipeline,
                  fmt::format("constant '{}': a name has only letters, digits and _, does not begin with a digit, and "
                              "is not 'and', 'or' or 'not'",
                              name));
  return Parser(text, constants, known).parse();
}

}  // namespace feedline::flow
