#include "tasks/vision/attention_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "data/codec.h"
#include "data/resize.h"
#include "tasks/vision/model_input.h"

namespace hinge::vision {
namespace {

using at::Tensor;

constexpr int kLeastSide = 256;
constexpr int kGap = 6;

// From the weights of queries and keys [..., L, L] the map of the patches [..., side, side].
Tensor patch_map(const Tensor& weights, int64_t side, bool class_token) {
  const Tensor row = class_token ? weights.select(-2, 0).slice(-1, 1) : weights.mean(-2);  // [..., side^2]
  std::vector<int64_t> sizes = row.sizes().vec();
  sizes.back() = side;
  sizes.push_back(side);
  return row.reshape(sizes);
}

// Rows that add up to 1; rows of zeros stay.
Tensor normalised(const Tensor& weights) {
  const Tensor size = weights.abs();
  const Tensor sum = size.sum(-1, /*keepdim=*/true);
  return size / at::where(sum > 0, sum, at::ones_like(sum));
}

struct Colour {
  double r, g, b;
};

// Dark violet to pale yellow over red: lightness grows evenly, so that it can also be read without colours.
Colour heat(double t) {
  static constexpr std::array<Colour, 5> kStops = {{{8, 4, 30}, {88, 18, 110}, {190, 56, 84}, {246, 144, 20}, {252, 250, 170}}};
  const double place = std::clamp(t, 0.0, 1.0) * (kStops.size() - 1);
  const size_t i = std::min<size_t>(static_cast<size_t>(place), kStops.size() - 2);
  const double f = place - static_cast<double>(i);
  const Colour &a = kStops[i], &b = kStops[i + 1];
  return {a.r + f * (b.r - a.r), a.g + f * (b.g - a.g), a.b + f * (b.b - a.b)};
}

// The map between the centres of its squares, linearly.
double value_at(const double* map, int64_t side, double y, double x) {
  const auto most = static_cast<double>(side - 1);
  y = std::clamp(y, 0.0, most), x = std::clamp(x, 0.0, most);
  const auto y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x);
  const int64_t y1 = std::min(y0 + 1, side - 1), x1 = std::min(x0 + 1, side - 1);
  const double fy = y - static_cast<double>(y0), fx = x - static_cast<double>(x0);
  const double top = map[y0 * side + x0] * (1 - fx) + map[y0 * side + x1] * fx;
  const double bottom = map[y1 * side + x0] * (1 - fx) + map[y1 * side + x1] * fx;
  return top * (1 - fy) + bottom * fy;
}

}  // namespace

AttentionMaps attention_maps(const models::Vit& model, const Tensor& pixels) {
  const at::NoGradGuard guard;
  models::VitViews views;
  model.forward(pixels, /*noise=*/{}, &views);
  const models::VitConfig& config = model.config();
  const int64_t side = config.image_size / *config.patch;
  const bool class_token = config.pool == models::Pool::tok;

  AttentionMaps maps;
  Tensor rollout;
  for (const nn::AttentionView& view : nn::attentions_of(views.layers)) {
    const Tensor weights = nn::attention_weights(view)[0].to(at::kDouble);  // [H, L, L]
    const Tensor mean = weights.mean(0);
    LayerAttention& layer = maps.layers.emplace_back();
    layer.map = patch_map(mean, side, class_token);
    layer.heads = patch_map(weights, side, class_token);
    static_cast<AttentionNumbers&>(layer) = attention_numbers(view);
    const Tensor step = normalised(normalised(mean) + at::eye(mean.size(0), at::kDouble));
    rollout = rollout.defined() ? at::mm(step, rollout) : step;
  }
  maps.rollout = patch_map(rollout, side, class_token);
  return maps;
}

AttentionNumbers mean_of_layers(const AttentionMaps& maps) {
  AttentionNumbers mean;
  const double share = 1 / static_cast<double>(maps.layers.size());
  for (const LayerAttention& layer : maps.layers) {
    mean.mass += share * layer.mass;
    mean.entropy += share * layer.entropy;
    mean.zero_share += share * layer.zero_share;
    mean.skipped_share += share * layer.skipped_share;
  }
  return mean;
}

data::Image enlarged(const data::Image& image) {
  data::Image colour = image;
  convert_channels(colour, 3);
  if (image.width >= kLeastSide) return colour;
  data::Image large;
  if (image.width >= kLeastSide / 2) {
    data::ResizeScratch scratch;
    data::resize(colour, {0, 0, colour.height, colour.width}, kLeastSide * image.height / image.width, kLeastSide,
                 data::ResizeMethod::antialias, large, scratch);
    return large;
  }
  // Few pixels stay visible as squares.
  const int factor = (kLeastSide + image.width - 1) / image.width;
  large.reshape(image.height * factor, image.width * factor, 3);
  for (int y = 0; y < large.height; ++y)
    for (int x = 0; x < large.width; ++x) std::copy_n(colour.row(y / factor) + 3 * (x / factor), 3, large.row(y) + 3 * x);
  return large;
}

data::Image overlay(const data::Image& image, const Tensor& map, int64_t patch) {
  const Tensor values = map.to(at::kDouble).contiguous();
  const double low = values.min().item<double>(), high = values.max().item<double>(), span = high > low ? high - low : 1;
  const double* data = values.data_ptr<double>();
  const int64_t side = values.size(0);
  data::Image picture = enlarged(image);
  const double squares = static_cast<double>(image.width) / static_cast<double>(picture.width) / static_cast<double>(patch);  // a pixel
  for (int y = 0; y < picture.height; ++y)
    for (int x = 0; x < picture.width; ++x) {
      uint8_t* pixel = picture.row(y) + 3 * x;
      const double grey = 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
      const Colour colour = heat((value_at(data, side, (y + 0.5) * squares - 0.5, (x + 0.5) * squares - 0.5) - low) / span);
      const auto mixed = [&](double part) { return static_cast<uint8_t>(std::lround(0.4 * grey + 0.6 * part)); };
      pixel[0] = mixed(colour.r), pixel[1] = mixed(colour.g), pixel[2] = mixed(colour.b);
    }
  return picture;
}

data::Image grid(const std::vector<data::Image>& pictures, int columns) {
  const int rows = (static_cast<int>(pictures.size()) + columns - 1) / columns;
  const int height = pictures.front().height, width = pictures.front().width;
  data::Image all;
  all.reshape(rows * (height + kGap) - kGap, columns * (width + kGap) - kGap, 3);
  std::fill(all.pixels.begin(), all.pixels.end(), uint8_t{255});
  for (size_t i = 0; i < pictures.size(); ++i) {
    const int top = static_cast<int>(i) / columns * (height + kGap), left = static_cast<int>(i) % columns * (width + kGap);
    for (int y = 0; y < height; ++y) std::copy_n(pictures[i].row(y), pictures[i].row_bytes(), all.row(top + y) + 3 * left);
  }
  return all;
}

data::Image overview(const data::Image& image, const AttentionMaps& maps, int64_t patch) {
  std::vector<data::Image> pictures = {enlarged(image)};
  for (const LayerAttention& layer : maps.layers) pictures.push_back(overlay(image, layer.map, patch));
  pictures.push_back(overlay(image, maps.rollout, patch));
  return grid(pictures, static_cast<int>(std::min<size_t>(pictures.size(), 8)));
}

data::Image head_overview(const data::Image& image, const AttentionMaps& maps, int64_t patch) {
  std::vector<data::Image> pictures;
  for (const LayerAttention& layer : maps.layers)
    for (const Tensor& head : layer.heads.unbind(0)) pictures.push_back(overlay(image, head, patch));
  return grid(pictures, static_cast<int>(maps.layers.front().heads.size(0)));
}

std::string png_of(const data::Image& image) {
  const std::vector<uint8_t> bytes = data::encode_png(image);
  return {bytes.begin(), bytes.end()};
}

std::string attention_overview(const TrainedModel& model, const data::Image& image) {
  const ModelInput input = model_input(model.config, image);
  return png_of(overview(input.image, attention_maps(*model.model, input.pixels), *model.model->config().patch));
}

}  // namespace hinge::vision
