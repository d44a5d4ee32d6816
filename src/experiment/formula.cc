#include "experiment/formula.h"

#include <fmt/format.h>
#include <muParser.h>

#include <cctype>
#include <limits>
#include <stdexcept>

namespace hinge::experiment {

struct Formula::Parser {
  mu::Parser parser;
  std::vector<double> values;  // what the parser's variables point to
};

Formula::Formula(const std::string& text) : parser_(std::make_unique<Parser>()) {
  mu::Parser& parser = parser_->parser;
  try {
    parser.DefineNameChars("0123456789_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    parser.SetExpr(text);
    for (const auto& variable : parser.GetUsedVar()) names_.push_back(variable.first);
    parser_->values.resize(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) parser.DefineVar(names_[i], &parser_->values[i]);
    parser.Eval();  // now all of it is checked
  } catch (const mu::Parser::exception_type& error) {
    throw std::invalid_argument(fmt::format("the formula '{}' is wrong: {}", text, error.GetMsg()));
  }
}

Formula::~Formula() = default;
Formula::Formula(Formula&&) noexcept = default;

double Formula::value(const std::map<std::string, double>& quantities) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto found = quantities.find(names_[i]);
    if (found == quantities.end()) return std::numeric_limits<double>::quiet_NaN();
    parser_->values[i] = found->second;
  }
  return parser_->parser.Eval();
}

std::string formula_name(std::string name) {
  for (char& c : name) {
    if (c == '/') c = '.';
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';
  }
  return name;
}

}  // namespace hinge::experiment
