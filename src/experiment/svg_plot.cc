// Charts as SVG: layout in pixels, then text. Nothing here knows what is plotted.
#include "experiment/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "experiment/markup.h"

namespace hinge::experiment {
namespace {

// Okabe and Ito's palette for colour-blind readers (its yellow darkened for a white page), then four of Paul Tol's muted colours.
constexpr std::array<unsigned, 12> kPalette = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9,
                                               0xA89A00, 0x555555, 0x332288, 0x882255, 0x117733, 0x999933};
constexpr double kPaleness = 0.52;  // share of white in a pale tint

constexpr double kTitleSize = 19, kTextSize = 13, kSmallSize = 10.5;
constexpr double kMargin = 18, kLineHeight = 21, kPlotHeight = 340;
constexpr double kBarWidth = 27, kNarrowestBar = 9, kGroupGap = 34;
constexpr size_t kMostMarkers = 60;   // a line of more points is drawn without its points
constexpr double kWidestBars = 1500;  // bars get narrower rather than make the plot wider than this

// Width of a text in a common sans-serif font; a little too wide rather than too narrow.
double text_width(std::string_view text, double size) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return 0.61 * size * static_cast<double>(letters);
}

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

struct LegendEntry {
  std::string label;
  std::string colour;
  bool line = false, dashed = false;
};

// What both kinds of chart have: title, legend, y axis with grid, reference lines with their labels at the right.
struct Frame {
  double left = 0, top = 0, width = 0, height = kPlotHeight, total_width = 0, total_height = 0;
  std::vector<double> ticks;
  double label_room = 0;
  std::vector<std::pair<double, double>> legend_places;  // x, y of each entry

  double y(double value) const { return top + height * (1 - (value - ticks.front()) / (ticks.back() - ticks.front())); }
};

Frame lay_out(const std::string& title, const std::string& subtitle, const std::vector<ReferenceLine>& references,
              const std::vector<LegendEntry>& legend, double low, double high, double plot_width) {
  Frame frame;
  for (const ReferenceLine& reference : references) {
    low = std::min(low, reference.value);
    high = std::max(high, reference.value);
    frame.label_room = std::max(frame.label_room, text_width(reference.label, kTextSize) + 12);
  }
  frame.ticks = nice_ticks(low, high);
  double tick_width = 0;
  for (const double tick : frame.ticks) tick_width = std::max(tick_width, text_width(number_text(tick), kTextSize));
  frame.left = kMargin + kLineHeight + tick_width + 10;
  frame.width = plot_width;
  frame.total_width = std::max({frame.left + plot_width + frame.label_room + kMargin, 2 * kMargin + text_width(title, kTitleSize),
                                2 * kMargin + text_width(subtitle, kTextSize)});
  // What a long title adds goes to the plot.
  frame.width = frame.total_width - frame.left - frame.label_room - kMargin;

  double y = kMargin + kTitleSize + (subtitle.empty() ? 0 : kLineHeight) + kLineHeight + 6, x = frame.left;
  for (const LegendEntry& entry : legend) {
    const double needed = 24 + text_width(entry.label, kTextSize) + 18;
    if (x > frame.left && x + needed > frame.total_width - kMargin) {
      x = frame.left;
      y += kLineHeight;
    }
    frame.legend_places.emplace_back(x, y);
    x += needed;
  }
  frame.top = y + 22;
  frame.total_height = frame.top + frame.height + 2 * kLineHeight + kMargin;
  return frame;
}

Svg begin_chart(const Frame& frame, const std::string& title, const std::string& subtitle, const std::string& x_label,
                const std::string& y_label, const std::vector<LegendEntry>& legend) {
  Svg svg(frame.total_width, frame.total_height, title);
  svg.text(kMargin, kMargin + kTitleSize - 3, title, kTitleSize, "start", "#111111", R"( font-weight="600")");
  if (!subtitle.empty()) svg.text(kMargin, kMargin + kTitleSize + kLineHeight - 3, subtitle, kTextSize, "start", "#666666");
  for (size_t i = 0; i < legend.size(); ++i) {
    const auto [x, y] = frame.legend_places[i];
    if (legend[i].line)
      svg.line(x, y - 4.5, x + 18, y - 4.5, legend[i].colour.c_str(), 2.5, legend[i].dashed ? R"( stroke-dasharray="5 3")" : "");
    else
      svg.add(R"(<rect x="{:.1f}" y="{:.1f}" width="14" height="13" rx="2" fill="{}"/>)", x + 2, y - 11, legend[i].colour);
    svg.text(x + 24, y, legend[i].label, kTextSize);
  }
  for (const double tick : frame.ticks) {
    const double y = frame.y(tick);
    svg.line(frame.left, y, frame.left + frame.width, y, "#E4E4E4", 1);
    svg.text(frame.left - 8, y + 4.5, number_text(tick), kTextSize, "end", "#555555");
  }
  const double middle = frame.top + frame.height / 2, x = kMargin + 10;
  const std::string turned = fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, middle);
  svg.text(x, middle, y_label, kTextSize, "middle", "#333333", turned.c_str());
  svg.text(frame.left + frame.width / 2, frame.total_height - kMargin + 2, x_label, kTextSize, "middle");
  return svg;
}

void draw_references(Svg& svg, const Frame& frame, std::vector<ReferenceLine> references) {
  std::sort(references.begin(), references.end(), [](const auto& a, const auto& b) { return a.value > b.value; });
  double lowest_free = -std::numeric_limits<double>::infinity();
  for (const ReferenceLine& reference : references) {
    const double y = frame.y(reference.value), right = frame.left + frame.width;
    svg.line(frame.left, y, right, y, "#333333", 1.4, R"( stroke-dasharray="7 4")");
    const double label_y = std::max(y + 4.5, lowest_free);
    svg.text(right + 8, label_y, reference.label, kTextSize);
    lowest_free = label_y + kTextSize + 4;
  }
}

void draw_base_line(Svg& svg, const Frame& frame) {
  const double y = frame.y(std::max(0.0, frame.ticks.front()));
  svg.line(frame.left, y, frame.left + frame.width, y, "#333333", 1.2);
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
    legend.push_back({series.label, colour_of(series.colour, series.pale)});
  }

  const double bars = static_cast<double>(chart.series.size()), groups = static_cast<double>(chart.groups.size());
  const double bar = std::clamp((kWidestBars / groups - kGroupGap) / bars, kNarrowestBar, kBarWidth);
  const Frame frame =
      lay_out(chart.title, chart.subtitle, chart.references, legend, low, high * 1.04, std::max(560.0, groups * (bars * bar + kGroupGap)));
  Svg svg = begin_chart(frame, chart.title, chart.subtitle, chart.x_label, chart.y_label, legend);

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
  draw_base_line(svg, frame);
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
  double low = 0, high = 0, x_low = std::numeric_limits<double>::infinity(), x_high = -x_low;
  std::vector<LegendEntry> legend;
  std::vector<double> places;
  for (const LineSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(x) || (chart.log_x && x <= 0))
        throw std::invalid_argument(fmt::format("series '{}' has a point at x = {}, which the axis cannot show", series.label, x));
      x_low = std::min(x_low, x), x_high = std::max(x_high, x);
      places.push_back(x);
      if (std::isfinite(y)) low = std::min(low, y), high = std::max(high, y);
    }
    legend.push_back({series.label, colour_of(series.colour), true, series.dashed});
  }
  if (places.empty()) throw std::invalid_argument("a line chart needs at least one point");

  const Frame frame = lay_out(chart.title, chart.subtitle, chart.references, legend, low, high * 1.04, 680);
  Svg svg = begin_chart(frame, chart.title, chart.subtitle, chart.x_label, chart.y_label, legend);

  std::vector<double> x_ticks;
  if (chart.log_x) {
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    x_ticks = places;
  } else {
    x_ticks = nice_ticks(x_low, x_high);
    x_low = x_ticks.front(), x_high = x_ticks.back();
  }
  const auto scaled = [&](double x) { return chart.log_x ? std::log(x) : x; };
  const auto x_at = [&](double x) {
    const double range = scaled(x_high) - scaled(x_low), inset = 14;
    const double share = range > 0 ? (scaled(x) - scaled(x_low)) / range : 0.5;
    return frame.left + inset + (frame.width - 2 * inset) * share;
  };

  double label_end = -std::numeric_limits<double>::infinity();
  for (const double tick : x_ticks) {
    const double x = x_at(tick), half = text_width(number_text(tick), kTextSize) / 2;
    svg.line(x, frame.top + frame.height, x, frame.top + frame.height + 5, "#333333", 1.2);
    if (x - half < label_end + 4) continue;  // no room for this label
    svg.text(x, frame.top + frame.height + kLineHeight, number_text(tick), kTextSize, "middle", "#555555");
    label_end = x + half;
  }
  draw_base_line(svg, frame);
  draw_references(svg, frame, chart.references);

  for (const LineSeries& series : chart.series) {
    const std::string colour = colour_of(series.colour);
    std::string path;
    bool drawing = false;
    for (const auto& [x, y] : series.points) {
      if (std::isfinite(y)) path += fmt::format("{}{:.1f} {:.1f} ", drawing ? "L" : "M", x_at(x), frame.y(y));
      drawing = std::isfinite(y);
    }
    if (path.empty()) continue;
    svg.add(R"(<path d="{}" fill="none" stroke="{}" stroke-width="2.4" stroke-linejoin="round"{}/>)", path, colour,
            series.dashed ? R"( stroke-dasharray="6 4")" : "");
    if (series.points.size() > kMostMarkers) continue;
    for (const auto& [x, y] : series.points)
      if (std::isfinite(y))
        svg.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.6" fill="{}" stroke="#FFFFFF" stroke-width="1"><title>{}: {}, {}</title></circle>)",
                x_at(x), frame.y(y), colour, escaped(series.label), number_text(x), number_text(y));
  }
  return svg.finish();
}

}  // namespace hinge::experiment
