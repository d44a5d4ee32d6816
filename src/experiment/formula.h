// A formula over named quantities, as in "L^(1-alpha)". The parser is muParser, which only formula.cc knows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hinge::experiment {

class Formula {
 public:
  // Throws std::invalid_argument that says what is wrong and where.
  explicit Formula(const std::string& text);
  ~Formula();
  Formula(Formula&&) noexcept;

  // The quantities that it reads.
  const std::vector<std::string>& names() const { return names_; }

  // NaN if one of its quantities is not among those given.
  double value(const std::map<std::string, double>& quantities) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  std::vector<std::string> names_;
};

// The name by which a formula reads a quantity: eval/top-5 is eval.top_5, because / and - calculate.
std::string formula_name(std::string name);

}  // namespace hinge::experiment
