// Formulas over named quantities.
#include "experiment/formula.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/errors.h"

namespace hinge::experiment {
namespace {

TEST(Formula, ReadsNamesWithDotsBesideNumbersWithDots) {
  const Formula formula("(mnist.accuracy+cub.top5)/2 + 1.5*L^(1-alpha) - 1e-1");
  EXPECT_EQ(formula.names(), (std::vector<std::string>{"L", "alpha", "cub.top5", "mnist.accuracy"}));
  EXPECT_DOUBLE_EQ(formula.value({{"mnist.accuracy", 0.8}, {"cub.top5", 0.4}, {"L", 16}, {"alpha", 0.5}, {"unused", 3}}), 0.6 + 6 - 0.1);
  EXPECT_DOUBLE_EQ(Formula("log(e.x)").value({{"e.x", std::exp(2.0)}}), 2) << "the natural logarithm";
  EXPECT_DOUBLE_EQ(Formula("2*3").value({}), 6);
}

TEST(Formula, IsNaNWhereAQuantityIsMissing) { EXPECT_TRUE(std::isnan(Formula("a+b").value({{"a", 1}}))); }

TEST(Formula, SaysWhatIsWrong) {
  for (const char* wrong : {"", "L^", "(L", "L alpha", "nonsense(L)", "L # 2"}) EXPECT_ERROR(Formula(wrong), wrong, "is wrong");
}

TEST(Formula, NamesAreThoseOfTheQuantitiesWithoutOperators) {
  EXPECT_EQ(formula_name("eval/accuracy"), "eval.accuracy");
  EXPECT_EQ(formula_name("test.top-5 %"), "test.top_5__");
}

}  // namespace
}  // namespace hinge::experiment
