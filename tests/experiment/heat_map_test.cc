#include "experiment/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace hinge::experiment {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(HeatMap, ShowsEveryNameAndEveryValueButZero) {
  const HeatMap map{"a <title>", "more", "read", "reader", {"▁Haus", "&"}, {"x", "y", "z"}, {0.5, 0, 0.25, 0, 1, 0.125}};
  const std::string svg = render(map);
  EXPECT_NE(svg.find("<title>a &lt;title&gt;</title>"), std::string::npos);
  EXPECT_EQ(count(svg, ">▁Haus</text>"), 1U);
  EXPECT_EQ(count(svg, ">&amp;</text>"), 1U);
  for (const char* name : {">x</text>", ">y</text>", ">z</text>"}) EXPECT_EQ(count(svg, name), 1U);
  EXPECT_EQ(count(svg, " → "), 4U) << "0 is white";
  EXPECT_NE(svg.find("<title>z → ▁Haus: 1</title>"), std::string::npos);
  EXPECT_EQ(count(svg, "fill=\"#082154\""), 1U) << "the largest is the darkest";
  EXPECT_EQ(count(svg, "<rect"), count(svg, "</rect>") + 2) << "page and frame";
}

TEST(HeatMap, OfPositiveValuesHasThisText) {
  EXPECT_EQ(render(HeatMap{"t", "", "read", "reader", {"a", "bc"}, {"x"}, {1, 0.25}}),
            R"svg(<svg xmlns="http://www.w3.org/2000/svg" width="103" height="113" viewBox="0 0 103 113" role="img" )svg"
            R"svg(font-family="'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif" font-size="12">
<title>t</title>
<rect width="100%" height="100%" fill="#FFFFFF"/>
<text x="16.0" y="29.0" fill="#333333" font-size="16" font-weight="600">t</text>
<text x="69.3" y="52.0" fill="#333333" text-anchor="middle" font-style="italic">read</text>
<text x="28.0" y="87.6" fill="#333333" text-anchor="middle" font-style="italic" transform="rotate(-90 28.0 87.6)">reader</text>
<text x="64.3" y="73.6" fill="#333333" transform="rotate(-90 64.3 73.6)">a</text>
<text x="82.3" y="73.6" fill="#333333" transform="rotate(-90 82.3 73.6)">bc</text>
<text x="45.3" y="91.6" fill="#333333" text-anchor="end">x</text>
<rect x="51.3" y="78.6" width="18" height="18" fill="#082154"><title>x → a: 1</title></rect>
<rect x="69.3" y="78.6" width="18" height="18" fill="#A5C8E3"><title>x → bc: 0.25</title></rect>
<rect x="51.3" y="78.6" width="36.0" height="18.0" fill="none" stroke="#999999"/>
</svg>
)svg");
}

TEST(HeatMap, NegativeValuesHaveAColourOfTheirOwn) {
  const std::string svg = render(HeatMap{"t", "", "", "", {"a", "b"}, {"x", "y"}, {0.5, -0.5, -1, 0}});
  const auto cell = [](const char* colour, const char* title) {
    return std::string("fill=\"") + colour + "\"><title>" + title + "</title></rect>";
  };
  EXPECT_EQ(count(svg, cell("#4A90C6", "x → a: 0.5")), 1U);
  EXPECT_EQ(count(svg, cell("#E08214", "x → b: -0.5")), 1U) << "as far from white as 0.5, in another colour";
  EXPECT_EQ(count(svg, cell("#602804", "y → a: -1")), 1U) << "the largest absolute value is the darkest";
  EXPECT_EQ(count(svg, " → "), 3U);
}

TEST(HeatMap, ALegendTellsOfNegativeValues) {
  const std::string svg = render(HeatMap{"t", "", "", "", {"a"}, {"x", "y"}, {0.25, -0.5}});
  EXPECT_EQ(count(svg, "<stop "), 5U);
  for (const char* stop :
       {R"(offset="0.00" stop-color="#602804")", R"(offset="0.50" stop-color="#FFFFFF")", R"(offset="1.00" stop-color="#082154")"})
    EXPECT_EQ(count(svg, stop), 1U) << stop;
  for (const char* number : {R"("start">-0.5</text>)", R"("middle">0</text>)", R"("end">0.5</text>)"})
    EXPECT_EQ(count(svg, number), 1U) << number;
  EXPECT_EQ(count(svg, "<rect"), count(svg, "</rect>") + 3) << "page, frame and legend";
  EXPECT_EQ(count(render(HeatMap{"t", "", "", "", {"a"}, {"x", "y"}, {0.25, 0.5}}), "<stop "), 0U);
}

TEST(HeatMap, OfNothingIsWhite) { EXPECT_EQ(count(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {0}}), " → "), 0U); }

TEST(HeatMap, RefusesWhatItCannotDraw) {
  EXPECT_THROW(render(HeatMap{}), std::invalid_argument);
  EXPECT_THROW(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {1, 2}}), std::invalid_argument);
  EXPECT_THROW(render(HeatMap{"t", "", "", "", {"a"}, {"b"}, {std::nan("")}}), std::invalid_argument);
}

}  // namespace
}  // namespace hinge::experiment
