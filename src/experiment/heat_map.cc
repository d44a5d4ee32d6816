#include "experiment/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "experiment/markup.h"

namespace hinge::experiment {
namespace {

constexpr double kCell = 18, kText = 12, kTitle = 16, kMargin = 16, kLine = 20;
constexpr double kLegendWidth = 160, kLegendHeight = 10, kLegendRoom = 42;  // the bar, and what it takes with its numbers below the map

double widest(const std::vector<std::string>& names) {
  double width = 0;
  for (const std::string& name : names) width = std::max(width, text_width(name, kText));
  return width;
}

// From white over a colour to a dark one: the same order in grey. Blue and orange look different to colour-blind readers, too.
using Colours = std::array<std::array<double, 3>, 3>;
constexpr Colours kPositive = {{{255, 255, 255}, {74, 144, 198}, {8, 33, 84}}};
constexpr Colours kNegative = {{{255, 255, 255}, {224, 130, 20}, {96, 40, 4}}};

// Of a share of the largest absolute value, from -1 to 1.
std::string colour_of(double share) {
  const Colours& stops = share < 0 ? kNegative : kPositive;
  const double at = std::clamp(std::abs(share), 0.0, 1.0) * 2;
  const size_t stop = at < 1 ? 0 : 1;
  const auto channel = [&](size_t c) {
    return std::lround(stops[stop][c] + (stops[stop + 1][c] - stops[stop][c]) * (at - static_cast<double>(stop)));
  };
  return fmt::format("#{:02X}{:02X}{:02X}", channel(0), channel(1), channel(2));
}

// The colours from -largest to largest with their numbers, below the map.
std::string legend(double largest, double top) {
  std::string svg = "<defs><linearGradient id=\"weights\">";
  for (const double share : {-1.0, -0.5, 0.0, 0.5, 1.0})
    svg += fmt::format(R"(<stop offset="{:.2f}" stop-color="{}"/>)", (share + 1) / 2, colour_of(share));
  svg += "</linearGradient></defs>\n";
  svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"url(#weights)\" stroke=\"#999999\"/>\n", kMargin,
                     top, kLegendWidth, kLegendHeight);
  const auto number = [&](double share, const char* anchor) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#333333\" text-anchor=\"{}\">{:.3g}</text>\n",
                       kMargin + kLegendWidth * (share + 1) / 2, top + kLegendHeight + kText + 2, anchor, share * largest);
  };
  number(-1, "start"), number(0, "middle"), number(1, "end");
  return svg;
}

void check(const HeatMap& map) {
  const size_t columns = map.columns.size(), rows = map.rows.size();
  if (columns == 0 || rows == 0) throw std::invalid_argument("heat map: it has no rows or no columns");
  if (map.values.size() != columns * rows)
    throw std::invalid_argument(fmt::format("heat map: {} values for {} rows and {} columns", map.values.size(), rows, columns));
  if (!std::all_of(map.values.begin(), map.values.end(), [](double value) { return std::isfinite(value); }))
    throw std::invalid_argument("heat map: a value is not finite");
}

}  // namespace

std::string render(const HeatMap& map) {
  check(map);
  const size_t columns = map.columns.size(), rows = map.rows.size();
  const auto [least, most] = std::minmax_element(map.values.begin(), map.values.end());
  const double largest = std::max(std::abs(*least), std::abs(*most));
  const bool negative = *least < 0;

  const double left = kMargin + kLine + widest(map.rows) + 8, head = kMargin + kTitle + (map.subtitle.empty() ? 0 : kLine) + kLine;
  const double top = head + widest(map.columns) + 12;
  const double right = left + kCell * static_cast<double>(columns), bottom = top + kCell * static_cast<double>(rows);
  const double width = std::max({right, kMargin + text_width(map.title, kTitle), kMargin + text_width(map.subtitle, kText),
                                 negative ? kMargin + kLegendWidth : 0.0}) +
                       kMargin;
  const double height = bottom + (negative ? kLegendRoom : 0) + kMargin;

  std::string svg =
      fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" role="img" )"
                  R"(font-family="'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif" font-size="{2}">)"
                  "\n<title>{3}</title>\n"
                  R"(<rect width="100%" height="100%" fill="#FFFFFF"/>)"
                  "\n",
                  width, height, kText, escaped(map.title));
  const auto text = [&](double x, double y, std::string_view content, const char* more) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#333333\"{}>{}</text>\n", x, y, more, escaped(content));
  };
  text(kMargin, kMargin + kTitle - 3, map.title, R"( font-size="16" font-weight="600")");
  if (!map.subtitle.empty()) text(kMargin, kMargin + kTitle + kLine - 3, map.subtitle, "");
  text((left + right) / 2, head, map.x_label, R"( text-anchor="middle" font-style="italic")");
  const std::string turned = fmt::format(R"svg( text-anchor="middle" font-style="italic" transform="rotate(-90 {:.1f} {:.1f})")svg",
                                         kMargin + kText, (top + bottom) / 2);
  text(kMargin + kText, (top + bottom) / 2, map.y_label, turned.c_str());
  for (size_t c = 0; c < columns; ++c) {
    const double x = left + kCell * (static_cast<double>(c) + 0.5) + 4, y = top - 5;
    text(x, y, map.columns[c], fmt::format(R"svg( transform="rotate(-90 {:.1f} {:.1f})")svg", x, y).c_str());
  }
  for (size_t r = 0; r < rows; ++r) text(left - 6, top + kCell * (static_cast<double>(r) + 0.5) + 4, map.rows[r], R"( text-anchor="end")");

  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) {
      const double value = map.values[r * columns + c];
      if (value == 0) continue;
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{} → {}: {:.4g}</title></rect>\n",
                         left + kCell * static_cast<double>(c), top + kCell * static_cast<double>(r), kCell, kCell,
                         colour_of(value / largest), escaped(map.rows[r]), escaped(map.columns[c]), value);
    }
  svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#999999\"/>\n", left, top,
                     right - left, bottom - top);
  if (negative) svg += legend(largest, bottom + kMargin);
  return svg + "</svg>\n";
}

}  // namespace hinge::experiment
