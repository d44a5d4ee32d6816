#include "decode/documents.h"

#include <gtest/gtest.h>

namespace hinge::decode {
namespace {

TEST(Documents, AreCutAtSentenceEndsAndBlankLines) {
  const std::vector<std::string_view> lines = {"a", "b", "c", "", "d", "  ", "", "e", "f"};
  const std::vector<int64_t> tokens = {3, 4, 3, 0, 20, 0, 0, 5, 4};
  const std::vector<DocumentPart> expected = {{0, 2}, {2, 1}, {4, 1}, {7, 2}};
  EXPECT_EQ(cut_documents(lines, {0}, tokens, 10), expected) << "9 and the end token in a part, or one line that has more";
  EXPECT_TRUE(cut_documents({"", ""}, {0}, {0, 0}, 10).empty());
  EXPECT_EQ(cut_documents(lines, {0, 1}, tokens, 10), (std::vector<DocumentPart>{{0, 1}, {1, 2}, {4, 1}, {7, 2}})) << "the end of a file";
}

TEST(Documents, AreCutShorterWhereTheTranslationIsLonger) {
  EXPECT_EQ(longest_source(512, 1000, 1150), 445) << "about 512 tokens in the other language";
  EXPECT_EQ(longest_source(512, 1000, 1000), 512);
  EXPECT_EQ(longest_source(512, 1150, 1000), 512) << "the source itself has no more";
}

}  // namespace
}  // namespace hinge::decode
