#include "experiment/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace hinge::experiment {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(HeatMap, ShowsEveryNameAndEveryValueAboveZero) {
  const HeatMap map{"a <title>", "more", "read", "reader", {"▁Haus", "&"}, {"x", "y", "z"}, {0.5, 0, 0.25, -1, 1, 0.125}};
  const std::string svg = render(map);
  EXPECT_NE(svg.find("<title>a &lt;title&gt;</title>"), std::string::npos);
  EXPECT_EQ(count(svg, ">▁Haus</text>"), 1U);
  EXPECT_EQ(count(svg, ">&amp;</text>"), 1U);
  for (const char* name : {">x</text>", ">y</text>", ">z</text>"}) EXPECT_EQ(count(svg, name), 1U);
  EXPECT_EQ(count(svg, " → "), 4U) << "0 and below are white";
  EXPECT_NE(svg.find("<title>z → ▁Haus: 1</title>"), std::string::npos);
  EXPECT_EQ(count(svg, "fill=\"#082154\""), 1U) << "the largest is the darkest";
  EXPECT_EQ(count(svg, "<rect"), count(svg, "</rect>") + 2) << "page and frame";
}

TEST(HeatMap, OfNothingIsWhite) { EXPECT_EQ(count(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {0}}), " → "), 0U); }

TEST(HeatMap, RefusesWhatItCannotDraw) {
  EXPECT_THROW(render(HeatMap{}), std::invalid_argument);
  EXPECT_THROW(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {1, 2}}), std::invalid_argument);
  EXPECT_THROW(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {std::nan("")}}), std::invalid_argument);
}

}  // namespace
}  // namespace hinge::experiment
