// A scanner for the format codes of C, gcc, Python, Perl and Qt.
#include "text/format_codes.h"

#include <fmt/format.h>

#include <algorithm>

namespace hinge::text {
namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

class Scanner {
 public:
  Scanner(std::string_view text, bool c_format) : text_(text), c_format_(c_format) {}

  std::vector<FormatCode> scan() {
    while (at_ < text_.size()) {
      const size_t begin = at_;
      std::string meaning;
      if (text_[at_] == '%')
        meaning = percent();
      else if (text_[at_] == '{')
        meaning = braces();
      if (meaning.empty())
        at_ = begin + 1;
      else
        codes_.push_back({begin, at_, std::move(meaning)});
    }
    return std::move(codes_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string_view digits() {
    const size_t begin = at_;
    while (is_ascii_digit(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Behind a percent sign; "" if no code begins here.
  std::string percent() {
    const size_t sign = at_++;
    if (peek() == '%') return ++at_, "%%";
    if (peek() == '(') return named();
    if (peek() == 'L' && is_ascii_digit(peek(1)))
      ++at_;  // Qt: %L1 is %1 in the user's language
    else if (const std::string meaning = printf_code(); !meaning.empty())
      return meaning;
    else
      at_ = sign + 1;
    if (peek() != '\0' && is_one_of(peek(), "<>'")) return fmt::format("%{}", text_[at_++]);  // gcc's quotation marks
    if (const std::string_view number = digits(); !number.empty() && number.size() <= 2) return fmt::format("%{}", number);
    at_ = sign + 1;
    return c_format_ ? "%" : "";
  }

  // %(name)s
  std::string named() {
    const size_t close = text_.find(')', at_);
    if (close == std::string_view::npos) return "";
    const std::string name(text_.substr(at_, close + 1 - at_));
    if (name.find_first_of(" %\n") != std::string::npos) return "";
    at_ = close + 1;
    while (is_one_of(peek(), "#0-+ ") || is_ascii_digit(peek()) || peek() == '.') ++at_;
    if (!is_ascii_letter(peek())) return "";
    return fmt::format("%{}{}", name, text_[at_++]);
  }

  // [number$][flags][width][.precision][length]conversion, where a star takes an argument of its own.
  std::string printf_code() {
    std::string stars, number;
    const size_t begin = at_;
    if (const std::string_view given = digits(); !given.empty() && peek() == '$') {
      number = given;
      ++at_;
    } else {
      at_ = begin;
    }
    while (is_one_of(peek(), c_format_ ? "-+#0'I " : "-+#0'") && peek() != '\0') ++at_;
    if (!width(stars)) return "";
    if (peek() == '.') {
      ++at_;
      if (!width(stars)) return "";
    }
    if (text_.substr(at_).starts_with("<PRI")) {  // a size that <inttypes.h> names
      const size_t close = text_.find('>', at_);
      if (close == std::string_view::npos) return "";
      const std::string type(text_.substr(at_, close + 1 - at_));
      at_ = close + 1;
      return stars + argument(number) + type;
    }
    std::string length;
    while (is_one_of(peek(), "hlLqjztwZ") && peek() != '\0' && is_ascii_letter(peek(1))) length += text_[at_++];
    if (!is_ascii_letter(peek())) return "";
    const char conversion = text_[at_++];
    if (conversion == 'm') return stars + "m";  // the text of errno, no argument
    return stars + argument(number) + length + (conversion == 'i' ? 'd' : conversion);
  }

  // Digits, or a star and maybe the number of its argument; nothing is fine too.
  bool width(std::string& stars) {
    if (peek() != '*') return digits(), true;
    ++at_;
    std::string number(digits());
    if (!number.empty()) {
      if (peek() != '$') return false;
      ++at_;
    }
    stars += argument(number) + "*";
    return true;
  }

  std::string argument(const std::string& number) { return (number.empty() ? std::to_string(++arguments_) : number) + "$"; }

  // {}, {0}, {name}, {name.part}, {name[0]}, {name!r}, {name:>10}
  std::string braces() {
    size_t end = ++at_;
    const auto inside = [&](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || is_one_of(c, "_.-[]"); };
    while (end < text_.size() && inside(text_[end])) ++end;
    const std::string name(text_.substr(at_, end - at_));
    if (end < text_.size() && (text_[end] == '!' || text_[end] == ':')) {
      while (end < text_.size() && !is_one_of(text_[end], "{}\n") && end - at_ < 40) ++end;
    }
    if (end >= text_.size() || text_[end] != '}') return "";
    at_ = end + 1;
    return fmt::format("{{{}}}", name.empty() ? std::to_string(fields_++) : name);
  }

  std::string_view text_;
  bool c_format_;
  size_t at_ = 0;
  int arguments_ = 0, fields_ = 0;
  std::vector<FormatCode> codes_;
};

std::vector<std::string> sorted_meanings(std::string_view text, bool c_format) {
  std::vector<std::string> meanings;
  for (FormatCode& code : find_format_codes(text, c_format)) meanings.push_back(std::move(code.meaning));
  std::sort(meanings.begin(), meanings.end());
  return meanings;
}

}  // namespace

std::vector<FormatCode> find_format_codes(std::string_view text, bool c_format) { return Scanner(text, c_format).scan(); }

std::vector<std::string> format_codes(std::string_view text, bool c_format) {
  std::vector<std::string> codes;
  for (const FormatCode& code : find_format_codes(text, c_format)) codes.emplace_back(text.substr(code.begin, code.end - code.begin));
  return codes;
}

bool same_format_codes(std::string_view source, std::string_view target, bool c_format) {
  return sorted_meanings(source, c_format) == sorted_meanings(target, c_format);
}

}  // namespace hinge::text
