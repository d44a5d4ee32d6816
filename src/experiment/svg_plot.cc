// Charts as SVG: layout in pixels, then text. Nothing here knows what is plotted.
#include "experiment/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>
#include <string_view>

#include "experiment/markup.h"

namespace hinge::experiment {
namespace {

// Okabe and Ito's palette for colour-blind readers (its yellow darkened for a white page), then four of Paul Tol's muted colours.
constexpr std::array<unsigned, 12> kPalette = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9,
                                               0xA89A00, 0x555555, 0x332288, 0x882255, 0x117733, 0x999933};
constexpr double kPaleness = 0.52;  // share of white in a pale tint

constexpr double kTitleSize = 19, kPanelTitleSize = 14, kTextSize = 13, kSmallSize = 10.5;
constexpr double kMargin = 18, kLineHeight = 21, kPlotHeight = 340;
constexpr double kBarWidth = 27, kNarrowestBar = 9, kGroupGap = 34;
constexpr size_t kMostMarkers = 60;   // a line of more points is drawn without its points
constexpr double kWidestBars = 1500;  // bars get narrower rather than make the plot wider than this
constexpr double kPanelGap = 24;
constexpr double kMarkRoom = 11;  // of a cross or triangle at the bottom
constexpr double kInset = 16;     // from the sides of a plot to its first and last x
constexpr const char *kDark = "#333333", *kQuiet = "#555555", *kGrid = "#E4E4E4";

std::string colour_of(size_t number, bool pale = false) {
  const unsigned rgb = kPalette[number % kPalette.size()];
  const auto channel = [&](int shift) {
    const double full = (rgb >> shift) & 0xFF;
    return static_cast<int>(std::lround(pale ? full + (255 - full) * kPaleness : full));
  };
  return fmt::format("#{:02X}{:02X}{:02X}", channel(16), channel(8), channel(0));
}

std::string number_text(double value) {
  if (std::abs(value) < 1e-12) return "0";
  return fmt::format("{:.6g}", value);
}

// For an axis, where FLOPs may stand: 2×10¹⁵.
std::string axis_text(double value) {
  if (value == 0 || (std::abs(value) < 1e6 && std::abs(value) >= 1e-4)) return number_text(value);
  static constexpr std::array<const char*, 10> kRaised = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  const int power = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  const std::string factor = number_text(value / std::pow(10.0, power));
  std::string text = factor == "1" ? "10" : factor + "×10";
  if (power < 0) text += "⁻";
  for (const char digit : std::to_string(std::abs(power))) text += kRaised[static_cast<size_t>(digit - '0')];
  return text;
}

class Svg {
 public:
  Svg(double width, double height, std::string_view title) {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" role="img" )"
        R"(font-family="'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif">)",
        width, height);
    add("<title>{}</title>", escaped(title));
    add(R"(<rect width="100%" height="100%" fill="#FFFFFF"/>)");
  }

  template <typename... Args> void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void text(double x, double y, std::string_view content, double size, const char* anchor = "start", const char* fill = "#333333",
            const char* more = "") {
    add(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="{}"{}>{}</text>)", x, y, size, anchor, fill, more,
        escaped(content));
  }

  void line(double x1, double y1, double x2, double y2, const char* stroke, double width, const char* more = "") {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{}"{}/>)", x1, y1, x2, y2, stroke, width, more);
  }

  std::string finish() { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

enum class Shape { bar, line, dashed, cross, triangle };

struct LegendEntry {
  std::string label, colour;
  Shape shape = Shape::bar;
};

// A cross or a triangle around a place.
void draw_mark(Svg& svg, double x, double y, Shape shape, std::string_view colour, std::string_view meaning) {
  if (shape == Shape::cross)
    svg.add(R"(<path d="M{0:.1f} {1:.1f}l7 7m0 -7l-7 7" fill="none" stroke="{2}" stroke-width="2"><title>{3}</title></path>)", x - 3.5,
            y - 3.5, colour, escaped(meaning));
  else
    svg.add(R"(<path d="M{:.1f} {:.1f}h8l-4 7z" fill="{}"><title>{}</title></path>)", x - 4, y - 3.5, colour, escaped(meaning));
}

// The title, the line below it and the legend: where they are, and where they end.
struct Heading {
  std::vector<std::pair<double, double>> legend_places;  // x, y of each entry
  double bottom = 0;
};

double widest_heading(const std::string& title, const std::string& subtitle) {
  return 2 * kMargin + std::max(text_width(title, kTitleSize), text_width(subtitle, kTextSize));
}

Heading lay_out_heading(const std::string& subtitle, const std::vector<LegendEntry>& legend, double left, double total_width) {
  Heading heading;
  double y = kMargin + kTitleSize + (subtitle.empty() ? 0 : kLineHeight) + kLineHeight + 6, x = left;
  for (const LegendEntry& entry : legend) {
    const double needed = 24 + text_width(entry.label, kTextSize) + 18;
    if (x > left && x + needed > total_width - kMargin) {
      x = left;
      y += kLineHeight;
    }
    heading.legend_places.emplace_back(x, y);
    x += needed;
  }
  heading.bottom = y + 22;
  return heading;
}

void draw_heading(Svg& svg, const Heading& heading, const std::string& title, const std::string& subtitle,
                  const std::vector<LegendEntry>& legend) {
  svg.text(kMargin, kMargin + kTitleSize - 3, title, kTitleSize, "start", "#111111", R"( font-weight="600")");
  if (!subtitle.empty()) svg.text(kMargin, kMargin + kTitleSize + kLineHeight - 3, subtitle, kTextSize, "start", "#666666");
  for (size_t i = 0; i < legend.size(); ++i) {
    const auto [x, y] = heading.legend_places[i];
    const std::string& colour = legend[i].colour;
    switch (legend[i].shape) {
      case Shape::bar: svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="14" height="13" rx="2" fill="{}"/>)", x + 2, y - 11, colour); break;
      case Shape::line: svg.line(x, y - 4.5, x + 18, y - 4.5, colour.c_str(), 2.5); break;
      case Shape::dashed: svg.line(x, y - 4.5, x + 18, y - 4.5, colour.c_str(), 2, R"( stroke-dasharray="7 4")"); break;
      case Shape::cross:
      case Shape::triangle: draw_mark(svg, x + 9, y - 4.5, legend[i].shape, colour, legend[i].label); break;
    }
    svg.text(x + 24, y, legend[i].label, kTextSize);
  }
}

// The rectangle in which data are drawn, with its y axis.
struct Frame {
  double left = 0, top = 0, width = 0, height = kPlotHeight, low = 0, high = 1;
  std::vector<double> ticks;
  bool log = false;

  double y(double value) const {
    const double share = log ? std::log(std::max(value, low) / low) / std::log(high / low) : (value - low) / (high - low);
    return top + height * (1 - share);
  }
  double bottom() const { return top + height; }
  double right() const { return left + width; }
};

// What stands left of the y axis.
double y_axis_room(const std::vector<double>& ticks) {
  double tick_width = 0;
  for (const double tick : ticks) tick_width = std::max(tick_width, text_width(axis_text(tick), kTextSize));
  return kMargin + kLineHeight + tick_width + 10;
}

void draw_grid(Svg& svg, const Frame& frame) {
  for (const double tick : frame.ticks) svg.line(frame.left, frame.y(tick), frame.right(), frame.y(tick), kGrid, 1);
}

void draw_y_axis(Svg& svg, const Frame& frame, const std::string& label) {
  for (const double tick : frame.ticks) svg.text(frame.left - 8, frame.y(tick) + 4.5, axis_text(tick), kTextSize, "end", kQuiet);
  const double middle = frame.top + frame.height / 2, x = kMargin + 10;
  const std::string turned = fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, middle);
  svg.text(x, middle, label, kTextSize, "middle", kDark, turned.c_str());
}

// Lines with their labels at the right.
void draw_references(Svg& svg, const Frame& frame, std::vector<ReferenceLine> references) {
  std::sort(references.begin(), references.end(), [](const auto& a, const auto& b) { return a.value > b.value; });
  double lowest_free = -std::numeric_limits<double>::infinity();
  for (const ReferenceLine& reference : references) {
    const double y = frame.y(reference.value);
    svg.line(frame.left, y, frame.right(), y, kDark, 1.4, R"( stroke-dasharray="7 4")");
    const double label_y = std::max(y + 4.5, lowest_free);
    svg.text(frame.right() + 8, label_y, reference.label, kTextSize);
    lowest_free = label_y + kTextSize + 4;
  }
}

// Lines over x

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void add(double value, double deviation = 0) {
    if (!std::isfinite(value) || !std::isfinite(deviation)) return;
    low = std::min(low, value - deviation), high = std::max(high, value + deviation);
  }
  bool empty() const { return low > high; }
};

double deviation_at(const LineSeries& series, size_t point) { return point < series.deviations.size() ? series.deviations[point] : 0; }

// Round numbers between low and high.
std::vector<double> ticks_inside(double low, double high) {
  std::vector<double> ticks = nice_ticks(low, high, 7);
  const double tiny = 1e-9 * (high - low);
  std::erase_if(ticks, [&](double tick) { return tick < low - tiny || tick > high + tiny; });
  if (ticks.empty()) ticks = {low};
  return ticks;
}

// From x to pixels; the same in all panels.
struct XAxis {
  bool log = false, named = false;
  Range range;
  std::vector<std::pair<double, std::string>> ticks;

  double at(const Frame& frame, double x) const {
    const auto scaled = [&](double value) { return log ? std::log(value) : value; };
    const double wide = scaled(range.high) - scaled(range.low);
    const double inset = named ? frame.width / static_cast<double>(2 * ticks.size()) : kInset;
    return frame.left + inset + (frame.width - 2 * inset) * (wide > 0 ? (scaled(x) - scaled(range.low)) / wide : 0.5);
  }
};

XAxis make_x_axis(const LineChart& chart) {
  XAxis axis{chart.log_x, !chart.x_names.empty(), {}, {}};
  const auto add = [&](const LineSeries& series, double x) {
    if (!std::isfinite(x) || (chart.log_x && x <= 0))
      throw std::invalid_argument(fmt::format("series '{}' has a point at x = {}, which the axis cannot show", series.label, x));
    axis.range.add(x);
  };
  for (const LinePanel& panel : chart.panels)
    for (const LineSeries& series : panel.series) {
      if (!series.deviations.empty() && series.deviations.size() != series.points.size())
        throw std::invalid_argument(
            fmt::format("series '{}' has {} deviations for {} points", series.label, series.deviations.size(), series.points.size()));
      for (const auto& point : series.points) add(series, point.first);
      for (const auto& sample : series.samples) add(series, sample.first);
      for (const double cross : series.crosses) add(series, cross);
    }
  if (axis.range.empty()) throw std::invalid_argument("a line chart needs at least one point");
  if (axis.named) {
    if (axis.range.low < 0 || axis.range.high > static_cast<double>(chart.x_names.size()) - 1)
      throw std::invalid_argument(fmt::format("a point is outside of the {} names of the x axis", chart.x_names.size()));
    for (size_t i = 0; i < chart.x_names.size(); ++i) axis.ticks.emplace_back(static_cast<double>(i), chart.x_names[i]);
    axis.range = {0, static_cast<double>(chart.x_names.size()) - 1};
    return axis;
  }
  std::vector<double> ticks = chart.x_ticks;
  if (ticks.empty() && chart.log_x) {
    ticks = log_ticks(axis.range.low, axis.range.high);
  } else if (ticks.empty()) {
    if (axis.range.low > 0 && axis.range.low < 0.25 * axis.range.high) axis.range.low = 0;
    ticks = ticks_inside(axis.range.low, axis.range.high);
  }
  for (const double tick : ticks) {
    axis.ticks.emplace_back(tick, axis_text(tick));
    axis.range.add(tick);
  }
  return axis;
}

// A logarithmic y axis. What a band has at or below zero is cut off.
void choose_log_y(const LineChart& chart, Frame& frame) {
  Range range;
  const auto add = [&](const std::string& label, double y) {
    if (y <= 0)
      throw std::invalid_argument(fmt::format("series '{}' has a point at y = {}, which a logarithmic axis cannot show", label, y));
    range.add(y);
  };
  for (const LinePanel& panel : chart.panels) {
    for (const LineSeries& series : panel.series) {
      for (const auto& point : series.points) add(series.label, point.second);
      for (const auto& sample : series.samples) add(series.label, sample.second);
    }
    for (const ReferenceLine& reference : panel.references) add(reference.label, reference.value);
  }
  if (range.empty()) range = {1, 10};
  frame.log = true;
  frame.low = range.low / 1.2, frame.high = range.high * 1.2;
  frame.ticks = log_ticks(frame.low, frame.high);
}

// The y axis: its range and ticks.
void choose_y(const LineChart& chart, Frame& frame) {
  if (chart.log_y) return choose_log_y(chart, frame);
  Range range;
  for (const LinePanel& panel : chart.panels) {
    for (const LineSeries& series : panel.series) {
      for (size_t i = 0; i < series.points.size(); ++i) range.add(series.points[i].second, deviation_at(series, i));
      for (const auto& sample : series.samples) range.add(sample.second);
    }
    for (const ReferenceLine& reference : panel.references) range.add(reference.value, reference.deviation);
  }
  if (range.empty()) range = {0, 1};
  if (chart.from_zero) {
    frame.ticks = nice_ticks(std::min(0.0, range.low), std::max(0.0, range.high * 1.04));
    frame.low = frame.ticks.front(), frame.high = frame.ticks.back();
    return;
  }
  const double low = chart.y_from.value_or(range.low), high = std::max(range.high, low);
  double pad = 0.05 * (high - low);
  if (pad <= 0) pad = low == 0 ? 1 : 0.05 * std::abs(low);
  frame.low = chart.y_from ? low : low - pad;
  frame.high = high + pad;
  frame.ticks = ticks_inside(frame.low, frame.high);
}

// What stands below the plot in place of a y: crosses, and triangles for what is below the y axis' begin. One over the other where they
// would overlap.
struct Mark {
  double x = 0;
  Shape shape = Shape::cross;
  std::string colour, meaning;
  size_t row = 0;
};

std::vector<Mark> place_marks(const LineChart& chart, const LinePanel& panel, const XAxis& axis, const Frame& frame) {
  std::vector<Mark> marks;
  for (const LineSeries& series : panel.series) {
    const std::string colour = series.reference ? kDark : colour_of(series.colour);
    for (const double x : series.crosses)
      marks.push_back(
          {axis.at(frame, x), Shape::cross, colour, fmt::format("{}: {} at {}", series.label, chart.cross_label, axis_text(x)), 0});
    for (const auto& [x, y] : series.points)
      if (chart.y_from && y < *chart.y_from)
        marks.push_back(
            {axis.at(frame, x), Shape::triangle, colour, fmt::format("{}: {} at {}", series.label, number_text(y), axis_text(x)), 0});
  }
  std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.x < b.x; });
  std::vector<double> row_ends;  // in pixels
  for (Mark& mark : marks) {
    while (mark.row < row_ends.size() && mark.x < row_ends[mark.row] + kMarkRoom) ++mark.row;
    row_ends.resize(std::max(row_ends.size(), mark.row + 1));
    row_ends[mark.row] = mark.x;
  }
  return marks;
}

std::vector<LegendEntry> legend_of(const LineChart& chart) {
  std::vector<LegendEntry> legend;
  std::set<std::string> seen = {""};
  bool crosses = false, below = false;
  const auto add = [&](const std::string& label, const std::string& colour, Shape shape) {
    if (seen.insert(label).second) legend.push_back({label, colour, shape});
  };
  for (const LinePanel& panel : chart.panels)
    for (const LineSeries& series : panel.series) {
      if (!series.reference) add(series.label, colour_of(series.colour), Shape::line);
      crosses = crosses || !series.crosses.empty();
      for (const auto& point : series.points) below = below || (chart.y_from && point.second < *chart.y_from);
    }
  for (const LinePanel& panel : chart.panels) {
    for (const LineSeries& series : panel.series)
      if (series.reference) add(series.label, kDark, Shape::dashed);
    for (const ReferenceLine& reference : panel.references) add(reference.label, kDark, Shape::dashed);
  }
  if (crosses) add(chart.cross_label, kDark, Shape::cross);
  if (below) add("below " + number_text(*chart.y_from), kDark, Shape::triangle);
  return legend;
}

void draw_bands(Svg& svg, const LinePanel& panel, const XAxis& axis, const Frame& frame) {
  const auto band = [&](const std::string& outline, std::string_view colour) {
    svg.add(R"(<path d="{}Z" fill="{}" fill-opacity="0.14"/>)", outline, colour);
  };
  for (const ReferenceLine& reference : panel.references)
    if (reference.deviation > 0)
      svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" fill-opacity="0.12"/>)", frame.left,
              frame.y(reference.value + reference.deviation), frame.width,
              frame.y(reference.value - reference.deviation) - frame.y(reference.value + reference.deviation), kDark);
  if (axis.named) return;
  for (const LineSeries& series : panel.series) {
    std::string over, under;  // there, and back
    bool spread = false;
    for (size_t i = 0; i <= series.points.size(); ++i) {
      if (i == series.points.size() || !std::isfinite(series.points[i].second)) {
        if (spread) band("M" + over.substr(1) + under, series.reference ? kDark : colour_of(series.colour));
        over.clear(), under.clear(), spread = false;
        continue;
      }
      const auto [x, y] = series.points[i];
      const double deviation = deviation_at(series, i);
      over += fmt::format("L{:.1f} {:.1f} ", axis.at(frame, x), frame.y(y + deviation));
      under = fmt::format("L{:.1f} {:.1f} ", axis.at(frame, x), frame.y(y - deviation)) + under;
      spread = spread || deviation > 0;
    }
  }
}

void draw_series(Svg& svg, const LineSeries& series, const XAxis& axis, const Frame& frame, double shift) {
  const std::string colour = series.reference ? kDark : colour_of(series.colour);
  std::string path;
  bool drawing = false;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto [x, y] = series.points[i];
    if (std::isfinite(y) && axis.named) {  // nothing lies between names: a whisker in place of line and band
      const double deviation = deviation_at(series, i), place = axis.at(frame, x) + shift;
      if (deviation > 0) path += fmt::format("M{0:.1f} {1:.1f} L{0:.1f} {2:.1f} ", place, frame.y(y - deviation), frame.y(y + deviation));
    } else if (std::isfinite(y)) {
      path += fmt::format("{}{:.1f} {:.1f} ", drawing ? "L" : "M", axis.at(frame, x), frame.y(y));
    }
    drawing = std::isfinite(y);
  }
  if (!path.empty())
    svg.add(R"(<path d="{}" fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round"{}/>)", path, colour,
            series.reference ? 2 : 2.4, series.reference && !axis.named ? R"( stroke-dasharray="7 4")" : "");
  for (const auto& [x, y] : series.samples)
    if (std::isfinite(y))
      svg.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2" fill="{}" fill-opacity="0.6"/>)", axis.at(frame, x) + shift, frame.y(y), colour);
  if (series.points.size() > kMostMarkers) return;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto [x, y] = series.points[i];
    if (!std::isfinite(y)) continue;
    const double deviation = deviation_at(series, i);
    svg.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.6" fill="{}" stroke="#FFFFFF" stroke-width="1"><title>{}: {}, {}{}</title></circle>)",
            axis.at(frame, x) + shift, frame.y(y), colour, escaped(series.label),
            escaped(axis.named ? axis.ticks[static_cast<size_t>(x)].second : axis_text(x)), axis_text(y),
            deviation > 0 ? " ± " + axis_text(deviation) : "");
  }
}

// Ticks with labels above or below y, those left out for which there is no room.
void draw_x_ticks(Svg& svg, const XAxis& axis, const Frame& frame, const std::vector<std::pair<double, std::string>>& ticks, double y,
                  bool above) {
  double label_end = -std::numeric_limits<double>::infinity();
  for (const auto& [value, label] : ticks) {
    const double x = axis.at(frame, value), half = text_width(label, kTextSize) / 2;
    if (!axis.named) svg.line(x, y, x, above ? y - 5 : y + 5, kDark, 1.2);
    if (x - half < label_end + 4) continue;
    svg.text(x, above ? y - 9 : y + kLineHeight - 1, label, kTextSize, "middle", kQuiet);
    label_end = x + half;
  }
}

void draw_panel(Svg& svg, const LineChart& chart, const LinePanel& panel, const XAxis& axis, const Frame& frame, double strip) {
  const double bottom = frame.bottom() + strip;
  draw_grid(svg, frame);
  if (strip > 0)
    svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="#F4F4F4"/>)", frame.left, frame.bottom(), frame.width,
            strip);

  // A picture of its own cuts off what lies below the y axis' begin.
  if (chart.y_from)
    svg.add(R"(<svg x="{0:.1f}" y="{1:.1f}" width="{2:.1f}" height="{3:.1f}" viewBox="{0:.1f} {1:.1f} {2:.1f} {3:.1f}" overflow="hidden">)",
            frame.left, frame.top, frame.width, frame.height);
  draw_bands(svg, panel, axis, frame);
  for (const ReferenceLine& reference : panel.references)
    svg.line(frame.left, frame.y(reference.value), frame.right(), frame.y(reference.value), kDark, 2, R"( stroke-dasharray="7 4")");
  const double count = static_cast<double>(panel.series.size());
  const double step = axis.named ? std::min(16.0, 0.7 * frame.width / static_cast<double>(axis.ticks.size()) / std::max(1.0, count)) : 0;
  for (size_t i = 0; i < panel.series.size(); ++i)
    draw_series(svg, panel.series[i], axis, frame, step * (static_cast<double>(i) - (count - 1) / 2));
  if (chart.y_from) svg.add("</svg>");

  for (const Mark& mark : place_marks(chart, panel, axis, frame))
    draw_mark(svg, mark.x, bottom - kMarkRoom * (static_cast<double>(mark.row) + 0.5) - 2, mark.shape, mark.colour, mark.meaning);
  if (!chart.panels.front().top_ticks.empty() || chart.panels.size() > 1)
    svg.add(R"(<path d="M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}V{1:.1f}Z" fill="none" stroke="{4}" stroke-width="1.2"/>)", frame.left, bottom,
            frame.top, frame.right(), kDark);
  else
    svg.line(frame.left, bottom, frame.right(), bottom, kDark, 1.2);
  draw_x_ticks(svg, axis, frame, axis.ticks, bottom, false);
  svg.text(frame.left + frame.width / 2, bottom + 2 * kLineHeight, chart.x_label, kTextSize, "middle");

  double above = frame.top - 9;
  if (!panel.top_ticks.empty()) {
    draw_x_ticks(svg, axis, frame, panel.top_ticks, frame.top, true);
    above -= kLineHeight - 2;
    svg.text(frame.left + frame.width / 2, above, chart.top_label, kTextSize, "middle", kQuiet);
    above -= kLineHeight;
  }
  svg.text(frame.left + frame.width / 2, above, panel.title, kPanelTitleSize, "middle", "#111111", R"( font-weight="600")");
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int wanted) {
  if (!(high > low)) high = low + 1;
  const double rough = (high - low) / std::max(1, wanted - 1), power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0})
    if (factor * power >= rough * 0.999999) step = factor * power;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const auto ladder = [&](std::initializer_list<double> factors) {
    std::vector<double> ticks;
    for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); ++power)
      for (const double factor : factors)
        if (const double tick = factor * std::pow(10.0, power); tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9))
          ticks.push_back(tick);
    return ticks;
  };
  std::vector<double> ticks = ladder({1, 2, 5});
  if (ticks.size() > 8) ticks = ladder({1});
  if (ticks.size() < 2) {
    ticks = nice_ticks(low, high);
    std::erase_if(ticks, [&](double tick) { return tick < low * (1 - 1e-9) || tick > high * (1 + 1e-9); });
  }
  if (ticks.empty()) ticks = {low};
  return ticks;
}

std::string render(const BarChart& chart) {
  if (chart.groups.empty() || chart.series.empty()) throw std::invalid_argument("a bar chart needs at least one group and one series");
  double low = 0, high = 0;
  std::vector<LegendEntry> legend;
  for (const BarSeries& series : chart.series) {
    if (series.values.size() != chart.groups.size())
      throw std::invalid_argument(
          fmt::format("series '{}' has {} values for {} groups", series.label, series.values.size(), chart.groups.size()));
    for (const double value : series.values)
      if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
    legend.push_back({series.label, colour_of(series.colour, series.pale), Shape::bar});
  }

  const double bars = static_cast<double>(chart.series.size()), groups = static_cast<double>(chart.groups.size());
  const double bar = std::clamp((kWidestBars / groups - kGroupGap) / bars, kNarrowestBar, kBarWidth);
  double label_room = 0;
  high *= 1.04;
  for (const ReferenceLine& reference : chart.references) {
    low = std::min(low, reference.value), high = std::max(high, reference.value);
    label_room = std::max(label_room, text_width(reference.label, kTextSize) + 12);
  }
  Frame frame;
  frame.ticks = nice_ticks(low, high);
  frame.low = frame.ticks.front(), frame.high = frame.ticks.back();
  frame.left = y_axis_room(frame.ticks);
  const double plot_width = std::max(560.0, groups * (bars * bar + kGroupGap));
  const double total_width = std::max(frame.left + plot_width + label_room + kMargin, widest_heading(chart.title, chart.subtitle));
  frame.width = total_width - frame.left - label_room - kMargin;  // what a long title adds goes to the plot
  const Heading heading = lay_out_heading(chart.subtitle, legend, frame.left, total_width);
  frame.top = heading.bottom;

  Svg svg(total_width, frame.bottom() + 2 * kLineHeight + kMargin, chart.title);
  draw_heading(svg, heading, chart.title, chart.subtitle, legend);
  draw_grid(svg, frame);
  draw_y_axis(svg, frame, chart.y_label);
  svg.text(frame.left + frame.width / 2, frame.bottom() + 2 * kLineHeight + 2, chart.x_label, kTextSize, "middle");

  const double pitch = frame.width / groups, zero = frame.y(0);
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const double centre = frame.left + pitch * (static_cast<double>(g) + 0.5);
    double x = centre - bars * bar / 2;
    for (const BarSeries& series : chart.series) {
      const double value = series.values[g];
      if (std::isfinite(value)) {
        const double y = frame.y(value);
        svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"><title>{}, {}: {}</title></rect>)", x + 0.75,
                std::min(y, zero), bar - 1.5, std::abs(zero - y), colour_of(series.colour, series.pale), escaped(series.label),
                escaped(chart.groups[g]), number_text(value));
      }
      x += bar;
    }
    svg.text(centre, frame.top + frame.height + kLineHeight - 2, chart.groups[g], kTextSize, "middle");
  }
  const double base = frame.y(std::max(0.0, frame.low));
  svg.line(frame.left, base, frame.right(), base, kDark, 1.2);
  draw_references(svg, frame, chart.references);

  // Numbers on the bars, over the reference lines, on a thin white outline that keeps them readable there.
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    double x = frame.left + pitch * (static_cast<double>(g) + 0.5) - bars * bar / 2;
    for (const BarSeries& series : chart.series) {
      const double value = series.values[g];
      const std::string label = fmt::format("{:.{}f}", value, std::abs(value) < 9.95 ? 1 : 0);
      if (std::isfinite(value) && text_width(label, kSmallSize) <= bar + 1)
        svg.text(x + bar / 2, frame.y(value) - 4, label, kSmallSize, "middle", "#333333",
                 R"( stroke="#FFFFFF" stroke-width="3" paint-order="stroke")");
      x += bar;
    }
  }
  return svg.finish();
}

std::string render(const LineChart& chart) {
  const XAxis axis = make_x_axis(chart);
  Frame frame;
  choose_y(chart, frame);
  const size_t panels = chart.panels.size(), columns = panels == 4 ? 2 : std::min<size_t>(panels, 3),
               rows = (panels + columns - 1) / columns;
  const double left = y_axis_room(frame.ticks), across = static_cast<double>(columns);
  frame.width = columns == 1 ? 680 : columns == 2 ? 430 : 340;
  frame.height = columns == 1 ? kPlotHeight : 300;
  if (axis.named)
    for (const std::string& name : chart.x_names)
      frame.width = std::max(frame.width, (text_width(name, kTextSize) + 12) * static_cast<double>(chart.x_names.size()));
  const double total_width =
      std::max(left + across * frame.width + (across - 1) * kPanelGap + kMargin, widest_heading(chart.title, chart.subtitle));
  frame.width = (total_width - left - kMargin - (across - 1) * kPanelGap) / across;  // what a long title adds goes to the plots

  const std::vector<LegendEntry> legend = legend_of(chart);
  const Heading heading = lay_out_heading(chart.subtitle, legend, kMargin, total_width);
  double above = 0, strip = 0;  // what the tallest panel has above and below its plot
  for (const LinePanel& panel : chart.panels) {
    above = std::max(above, (panel.title.empty() ? 0 : kLineHeight + 2) + (panel.top_ticks.empty() ? 0 : 2 * kLineHeight));
    for (const Mark& mark : place_marks(chart, panel, axis, frame))
      strip = std::max(strip, kMarkRoom * static_cast<double>(mark.row + 1) + 4);
  }
  const double row_height = above + frame.height + strip + 2 * kLineHeight + kMargin;

  Svg svg(total_width, heading.bottom + static_cast<double>(rows) * row_height, chart.title);
  draw_heading(svg, heading, chart.title, chart.subtitle, legend);
  for (size_t i = 0; i < panels; ++i) {
    frame.left = left + static_cast<double>(i % columns) * (frame.width + kPanelGap);
    frame.top = heading.bottom + static_cast<double>(i / columns) * row_height + above;
    if (i % columns == 0) draw_y_axis(svg, frame, chart.y_label);
    draw_panel(svg, chart, chart.panels[i], axis, frame, strip);
  }
  return svg.finish();
}

}  // namespace hinge::experiment
