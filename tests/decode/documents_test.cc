#include "decode/documents.h"

#include <gtest/gtest.h>

namespace hinge::decode {
namespace {

TEST(Documents, AreCutAtSentenceEnds) {
  DocumentCutter cutter(10);
  EXPECT_TRUE(cutter.begins_part(3));
  EXPECT_FALSE(cutter.begins_part(4));
  EXPECT_FALSE(cutter.begins_part(2)) << "9 and the end token";
  EXPECT_TRUE(cutter.begins_part(1));
  EXPECT_TRUE(cutter.begins_part(20)) << "a line that has more by itself";
  EXPECT_TRUE(cutter.begins_part(1));
  cutter.end_document();
  EXPECT_TRUE(cutter.begins_part(1));
  EXPECT_FALSE(cutter.begins_part(8));
}

TEST(Documents, AreCutShorterWhereTheTranslationIsLonger) {
  EXPECT_EQ(longest_source(512, 1000, 1150), 445) << "about 512 tokens in the other language";
  EXPECT_EQ(longest_source(512, 1000, 1000), 512);
  EXPECT_EQ(longest_source(512, 1150, 1000), 512) << "the source itself has no more";
}

}  // namespace
}  // namespace hinge::decode
