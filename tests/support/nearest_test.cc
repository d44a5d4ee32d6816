// Mistyped names find the one that was meant.
#include "support/nearest.h"

#include <gtest/gtest.h>

namespace hinge::support {
namespace {

TEST(Nearest, FindsTypingMistakesAndBeginnings) {
  const std::vector<std::string> names = {"relu", "gelu", "sigmoid", "softmax"};
  EXPECT_EQ(nearest("rleu", names), "relu");
  EXPECT_EQ(nearest("sigmod", names), "sigmoid");
  EXPECT_EQ(nearest("soft", names), "softmax");
  EXPECT_EQ(nearest("convolution", names), std::nullopt);
  EXPECT_EQ(nearest("relu", {}), std::nullopt);
}

}  // namespace
}  // namespace hinge::support
