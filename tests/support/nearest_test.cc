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
  EXPECT_EQ(nearest("soft max", names), "softmax");
  EXPECT_EQ(nearest("gelux", {"gelu", "geluz"}), "gelu");                 // the first of those that are as near
  EXPECT_EQ(nearest(std::string(50'000'000, 'k'), names), std::nullopt);  // at once
}

}  // namespace
}  // namespace hinge::support
