// Two passes, columns of an output line first: its inner loop runs along whole input rows.
#include "data/resize.h"

#include <algorithm>
#include <cmath>

namespace hinge::data {
namespace {

void make_taps(int from, int to, ResizeMethod method, ResizeScratch::Taps& taps) {
  const double scale = static_cast<double>(from) / to, reach = method == ResizeMethod::antialias ? std::max(scale, 1.0) : 1.0;
  // Not yet divided by their sum: of input place `place` for the output place around `centre`.
  const auto weight = [&](int place, double centre) {
    if (method != ResizeMethod::area) return std::max(0.0, 1 - std::abs(place - centre) / reach);
    return std::max(0.0, std::min(place + 0.5, centre + scale / 2) - std::max(place - 0.5, centre - scale / 2));
  };
  const double extent = method == ResizeMethod::area ? scale / 2 + 0.5 : reach;  // how far from the centre weights can be above 0
  taps.width = std::min(from, static_cast<int>(std::ceil(extent)) * 2 + 1);
  taps.first.resize(static_cast<size_t>(to));
  taps.weights.assign(static_cast<size_t>(to) * static_cast<size_t>(taps.width), 0);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale - 0.5;
    const int first = std::clamp(static_cast<int>(std::floor(centre - extent)) + 1, 0, from - taps.width);
    float* weights = taps.weights.data() + static_cast<size_t>(i) * static_cast<size_t>(taps.width);
    double sum = 0;
    for (int tap = 0; tap < taps.width; ++tap) sum += weight(first + tap, centre);
    for (int tap = 0; tap < taps.width; ++tap) weights[tap] = static_cast<float>(weight(first + tap, centre) / sum);
    taps.first[static_cast<size_t>(i)] = first;
  }
}

template <int kChannels> void squeeze_line(const float* line, const ResizeScratch::Taps& taps, int width, uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    const float* weights = taps.weights.data() + static_cast<size_t>(x) * static_cast<size_t>(taps.width);
    const float* from = line + static_cast<size_t>(taps.first[static_cast<size_t>(x)]) * kChannels;
    float sum[kChannels] = {};
    for (int tap = 0; tap < taps.width; ++tap)
      for (int channel = 0; channel < kChannels; ++channel) sum[channel] += weights[tap] * from[tap * kChannels + channel];
    for (int channel = 0; channel < kChannels; ++channel)
      out[x * kChannels + channel] = static_cast<uint8_t>(std::min(sum[channel] + 0.5f, 255.0f));
  }
}

}  // namespace

void resize(const Image& from, const Box& box, int height, int width, ResizeMethod method, Image& to, ResizeScratch& scratch) {
  make_taps(box.height, height, method, scratch.rows);
  make_taps(box.width, width, method, scratch.columns);
  to.reshape(height, width, from.channels);
  const size_t line_length = static_cast<size_t>(box.width) * static_cast<size_t>(from.channels);
  scratch.line.resize(line_length);
  float* const line = scratch.line.data();
  for (int y = 0; y < height; ++y) {
    std::fill_n(line, line_length, 0.0f);
    for (int tap = 0; tap < scratch.rows.width; ++tap) {
      const float weight =
          scratch.rows.weights[static_cast<size_t>(y) * static_cast<size_t>(scratch.rows.width) + static_cast<size_t>(tap)];
      if (weight == 0) continue;
      const uint8_t* row = from.row(box.top + scratch.rows.first[static_cast<size_t>(y)] + tap) + box.left * from.channels;
      for (size_t x = 0; x < line_length; ++x) line[x] += weight * row[x];
    }
    if (from.channels == 1)
      squeeze_line<1>(line, scratch.columns, width, to.row(y));
    else
      squeeze_line<3>(line, scratch.columns, width, to.row(y));
  }
}

}  // namespace hinge::data
