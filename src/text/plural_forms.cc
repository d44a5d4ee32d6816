// Evaluates the expressions by recursive descent, one level of C's precedence after the other.
#include "text/plural_forms.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <stdexcept>

#include "text/unicode.h"

namespace hinge::text {
namespace {

constexpr uint64_t kLargestChecked = 200;

class Evaluator {
 public:
  Evaluator(std::string_view text, uint64_t n) : text_(text), n_(n) {}

  uint64_t value() {
    const uint64_t result = choice();
    skip_spaces();
    if (at_ != text_.size()) fail();
    return result;
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("'{}' is no plural rule: character {} is not understood", text_, at_ + 1));
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  uint64_t choice() {
    if (++depth_ > 100) fail();
    const uint64_t condition = binary(0);
    uint64_t result = condition;
    if (take("?")) {
      const uint64_t yes = choice();
      if (!take(":")) fail();
      const uint64_t no = choice();
      result = condition != 0 ? yes : no;
    }
    --depth_;
    return result;
  }

  static constexpr std::array<std::array<std::string_view, 4>, 6> kOperators = {
      {{"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}}};

  uint64_t binary(size_t level) {
    if (level == kOperators.size()) return unary();
    uint64_t left = binary(level + 1);
    for (;;) {
      std::string_view found;
      for (const std::string_view op : kOperators[level])
        if (found.empty() && !op.empty() && take(op)) found = op;
      if (found.empty()) return left;
      left = apply(found, left, binary(level + 1));
    }
  }

  uint64_t apply(std::string_view op, uint64_t a, uint64_t b) const {
    if (op == "||") return a != 0 || b != 0;
    if (op == "&&") return a != 0 && b != 0;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<=") return a <= b;
    if (op == ">=") return a >= b;
    if (op == "<") return a < b;
    if (op == ">") return a > b;
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (b == 0) fail();
    return op == "/" ? a / b : a % b;
  }

  uint64_t unary() {
    if (++depth_ > 100) fail();
    uint64_t result = 0;
    skip_spaces();
    if (take("!")) {
      result = unary() == 0;
    } else if (take("(")) {
      result = choice();
      if (!take(")")) fail();
    } else if (take("n")) {
      result = n_;
    } else {
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result);
      if (error != std::errc()) fail();
      at_ = static_cast<size_t>(end - text_.data());
    }
    --depth_;
    return result;
  }

  std::string_view text_;
  uint64_t n_;
  size_t at_ = 0;
  int depth_ = 0;
};

// The text between "NAME=" and the next semicolon.
std::string assigned(std::string_view text, std::string_view name) {
  const size_t at = text.find(std::string(name) + "=");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + name.size() + 1);
  return std::string(strip(rest.substr(0, rest.find(';'))));
}

}  // namespace

PluralForms::PluralForms(std::string_view text) {
  if (strip(text).empty()) return;
  const std::string count = assigned(text, "nplurals");
  expression_ = assigned(text, "plural");
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), count_);
  if (error != std::errc() || end != count.data() + count.size() || count_ < 1 || count_ > 10 || expression_.empty())
    throw std::runtime_error(fmt::format("Plural-Forms '{}' is malformed; it looks like: nplurals=2; plural=(n != 1);", strip(text)));
  for (uint64_t n = 0; n <= kLargestChecked; ++n) form(n);  // complains about what cannot be evaluated
}

size_t PluralForms::form(uint64_t n) const {
  const uint64_t form = Evaluator(expression_, n).value();
  return form < count_ ? static_cast<size_t>(form) : 0;
}

bool PluralForms::singular_is_one() const {
  const size_t one = form(1);
  for (uint64_t n = 0; n <= kLargestChecked; ++n)
    if (n != 1 && form(n) == one) return false;
  return true;
}

std::string header_field(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const size_t end = header.find('\n');
    const std::string_view line = header.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) return std::string(strip(line.substr(name.size() + 1)));
    header.remove_prefix(end == std::string_view::npos ? header.size() : end + 1);
  }
  return {};
}

}  // namespace hinge::text
