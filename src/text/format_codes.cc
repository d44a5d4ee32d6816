// A scanner for the format codes of C, gcc, Python, Perl, Ruby, Qt, Boost, Java, C#, Lisp and shells.
#include "text/format_codes.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace hinge::text {
namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

class Scanner {
 public:
  Scanner(std::string_view text, const FormatSyntax& syntax) : text_(text), syntax_(syntax) {}

  std::vector<FormatCode> scan() {
    while (at_ < text_.size()) {
      if (syntax_.quotes && text_[at_] == '\'') {
        at_ = std::min(text_.find('\'', at_ + 1), text_.size() - 1) + 1;
        continue;
      }
      const size_t begin = at_;
      std::string meaning;
      if (text_[at_] == '%')
        meaning = percent();
      else if (text_[at_] == '{')
        meaning = braces();
      else if (text_[at_] == '$' && syntax_.shell)
        meaning = variable();
      else if (text_[at_] == '~' && syntax_.tildes)
        meaning = tilde();
      if (meaning.empty() && syntax_.quotes && (text_[begin] == '{' || text_[begin] == '}')) {
        meaning = text_[begin];  // Java refuses one that is not quoted
        at_ = begin + 1;
      }
      if (meaning.empty())
        at_ = begin + 1;
      else
        codes_.push_back({begin, at_, std::move(meaning)});
    }
    return std::move(codes_);
  }

  // Of the text that was scanned: whether some arguments are numbered and others are counted, "%2$d %s" or "{1} {}".
  bool mixed() const { return arguments_.mixed() || fields_.mixed(); }

 private:
  struct Numbering {
    int count = 0;  // of the arguments without a number
    bool numbered = false;
    bool mixed() const { return numbered && count > 0; }
  };

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
    if (syntax_.boost) {
      if (std::string meaning = boost_code(); !meaning.empty()) return meaning;
      at_ = sign + 1;
    }
    const bool localised = peek() == 'L' && is_ascii_digit(peek(1));  // Qt: %L1 is %1 in the user's language
    if (!localised && !(syntax_.qt && is_ascii_digit(peek()))) {
      const Numbering before = arguments_;
      const bool enclosed = peek() == '(' || (syntax_.ruby && peek() == '<');
      if (std::string meaning = enclosed ? named() : printf_code(); !meaning.empty()) return meaning;
      arguments_ = before;
    }
    at_ = sign + (localised ? 2 : 1);
    if (peek() != '\0' && is_one_of(peek(), "<>'")) return fmt::format("%{}", text_[at_++]);  // gcc's quotation marks
    if (const std::string_view number = digits(); !number.empty() && number.size() <= 2) return fmt::format("%{}", number);
    at_ = sign + 1;
    return syntax_.percent ? "%" : "";
  }

  // %N% and %|...|
  std::string boost_code() {
    if (peek() == '|') {
      const size_t close = text_.find('|', at_ + 1);
      if (close == std::string_view::npos) return "";
      const std::string_view inside = text_.substr(at_, close + 1 - at_);
      at_ = close + 1;
      return fmt::format("%{}", inside);
    }
    const std::string_view number = digits();
    if (number.empty() || peek() != '%') return "";
    ++at_;
    return fmt::format("%{}%", number);
  }

  // %(name)s, and Ruby's %<name>s
  std::string named() {
    const size_t close = text_.find(peek() == '(' ? ')' : '>', at_);
    if (close == std::string_view::npos) return "";
    const std::string name(text_.substr(at_, close + 1 - at_));
    if (name.find_first_of(syntax_.spaced_names ? "%\n" : " %\n") != std::string::npos) return "";
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
      if (!syntax_.numbered) return "";
      number = given;
      ++at_;
    } else {
      at_ = begin;
    }
    while (is_one_of(peek(), syntax_.percent ? "-+#0'I " : "-+#0'") && peek() != '\0') ++at_;
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
      if (peek() != '$' || !syntax_.numbered) return false;
      ++at_;
    }
    stars += argument(number) + "*";
    return true;
  }

  std::string argument(const std::string& number) {
    if (number.empty()) return std::to_string(++arguments_.count) + "$";
    arguments_.numbered = true;
    return number + "$";
  }

  // {}, {0}, {name}, {name.part}, {name[0]}, {name!r}, {name:>10}; Java's {0,number,#.#}, where the word behind the comma is a type, and
  // C#'s {0,10}, where it is a width.
  std::string braces() {
    size_t end = ++at_;
    const auto inside = [&](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || is_one_of(c, "_.-[]"); };
    while (end < text_.size() && inside(text_[end])) ++end;
    std::string name(text_.substr(at_, end - at_));
    std::string type;
    if (end < text_.size() && is_one_of(text_[end], syntax_.commas ? "!:," : "!:")) {
      if (text_[end] == ',') {
        const size_t first = std::min(text_.find_first_not_of(' ', end + 1), text_.size());
        size_t last = first;
        while (last < text_.size() && is_ascii_letter(text_[last])) ++last;
        if (last > first) type = fmt::format(",{}", text_.substr(first, last - first));
      }
      while (end < text_.size() && !is_one_of(text_[end], "{}\n") && end - at_ < 40) ++end;
    }
    if (end >= text_.size() || text_[end] != '}') return "";
    at_ = end + 1;
    if (name.empty())
      name = std::to_string(fields_.count++);
    else if (is_ascii_digit(name[0]))
      fields_.numbered = true;
    return fmt::format("{{{}{}}}", name, type);
  }

  // $name or ${name}, which are the same.
  std::string variable() {
    const bool enclosed = peek(1) == '{';
    at_ += enclosed ? 2 : 1;
    const size_t begin = at_;
    while (is_ascii_letter(peek()) || peek() == '_' || (at_ > begin && is_ascii_digit(peek()))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty() || (enclosed && peek() != '}')) return "";
    if (enclosed) ++at_;
    return fmt::format("${}", name);
  }

  // ~, parameters, one character; counted, as the arguments are taken one by one.
  std::string tilde() {
    ++at_;
    while (is_ascii_digit(peek()) || (peek() != '\0' && is_one_of(peek(), ",:@#+-v'"))) at_ += peek() == '\'' ? 2 : 1;
    if (at_ >= text_.size()) return "";
    const char directive = text_[at_++];
    if (is_one_of(directive, "%&|~\n")) return fmt::format("~{}", directive);  // takes no argument
    return fmt::format("{}~{}", ++arguments_.count, directive >= 'A' && directive <= 'Z' ? static_cast<char>(directive + 32) : directive);
  }

  std::string_view text_;
  FormatSyntax syntax_;
  size_t at_ = 0;
  Numbering arguments_, fields_;
  std::vector<FormatCode> codes_;
};

std::vector<std::string> sorted_meanings(Scanner& scanner) {
  std::vector<std::string> meanings;
  for (FormatCode& code : scanner.scan()) meanings.push_back(std::move(code.meaning));
  std::sort(meanings.begin(), meanings.end());
  return meanings;
}

std::string without_codes(std::string_view text, const FormatSyntax& syntax) {
  std::string rest;
  size_t at = 0;
  for (const FormatCode& code : Scanner(text, syntax).scan()) {
    rest += text.substr(at, code.begin - at);
    at = code.end;
  }
  return rest.append(text.substr(at));
}

// Without "https://..." and the like: the letters before "://" and what is behind it, to the next character that is none of an address.
std::string without_addresses(std::string text) {
  for (size_t at = text.find("://"); at != std::string::npos; at = text.find("://")) {
    size_t begin = at, end = at;
    while (begin > 0 && is_ascii_letter(text[begin - 1])) --begin;
    while (end < text.size() && text[end] > ' ' && text[end] < 0x7f) ++end;
    text.erase(begin, end - begin);
  }
  return text;
}

}  // namespace

std::vector<FormatCode> find_format_codes(std::string_view text, const FormatSyntax& syntax) { return Scanner(text, syntax).scan(); }

bool same_format_codes(std::string_view source, std::string_view target, const FormatSyntax& syntax) {
  Scanner from(source, syntax), to(target, syntax);
  return sorted_meanings(from) == sorted_meanings(to) && !to.mixed();
}

bool has_words(std::string_view text, const FormatSyntax& syntax) {
  const std::u32string points = to_code_points(without_addresses(without_codes(text, syntax)));
  return std::any_of(points.begin(), points.end(), is_letter);
}

}  // namespace hinge::text
