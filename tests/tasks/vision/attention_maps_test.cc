// Attention maps: against weights computed by hand from what a layer shows, and the pictures made of them.
#include "tasks/vision/attention_maps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/codec.h"

namespace hinge::vision {
namespace {

models::VitConfig small_config(const std::string& preset, models::Pool pool) {
  models::VitConfig config;
  config.image_size = 12, config.channels = 1, config.classes = 3, config.patch = 4, config.width = 16, config.depth = 2,
  config.ffn.width = 32, config.heads = 2, config.pool = pool, config.attention.preset = preset;
  return config;
}

at::Tensor some_pixels() { return at::sin(at::arange(144, at::kFloat) * 0.37F).view({1, 12, 12, 1}); }

// The weights of one layer, [H, L, L], from its queries and keys.
at::Tensor weights_by_hand(const nn::AttentionView& view, bool softmax) {
  const auto length = static_cast<double>(view.k.size(2)), width = static_cast<double>(view.q.size(3));
  const at::Tensor scores = at::matmul(view.q[0].to(at::kDouble), view.k[0].to(at::kDouble).transpose(1, 2)) / std::sqrt(width);
  return softmax ? scores.softmax(-1) : scores.relu() / length;
}

class Maps : public testing::TestWithParam<std::tuple<const char*, models::Pool>> {};

TEST_P(Maps, EqualThoseByHand) {
  const auto [preset, pool] = GetParam();
  const bool softmax = std::string(preset) == "softmax", token = pool == models::Pool::tok;
  const models::Vit model(small_config(preset, pool), 3);
  const at::Tensor pixels = some_pixels();
  const AttentionMaps maps = attention_maps(model, pixels);
  models::VitViews views;
  const at::NoGradGuard guard;
  model.forward(pixels, /*noise=*/{}, &views);
  ASSERT_EQ(maps.layers.size(), 2U);
  at::Tensor through;
  for (size_t i = 0; i < 2; ++i) {
    const at::Tensor w = weights_by_hand(nn::attentions_of(views.layers)[i], softmax);
    const int64_t length = w.size(1);
    const at::Tensor read = (token ? w.select(1, 0).slice(1, 1) : w.mean(1)).reshape({2, 3, 3});
    EXPECT_TRUE(at::allclose(maps.layers[i].heads, read, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(maps.layers[i].map, read.mean(0), 1e-5, 1e-6));
    EXPECT_NEAR(maps.layers[i].mass, w.sum(-1).mean().item<double>(), 1e-5);
    EXPECT_NEAR(maps.layers[i].zero_share, (w == 0).to(at::kDouble).mean().item<double>(), 1e-6);
    double entropy = 0, rows = 0;
    at::Tensor step = at::zeros({length, length}, at::kDouble);
    for (int64_t r = 0; r < length; ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        const at::Tensor row = w[h][r];
        const double sum = row.sum().item<double>();
        if (sum == 0) continue;
        ++rows;
        for (int64_t c = 0; c < length; ++c) {
          const double p = row[c].item<double>() / sum;
          if (p > 0) entropy -= p * std::log(p);
        }
      }
      // A query that reads nothing (the class token of a new model with relu does so) keeps what it has.
      const at::Tensor mean = w.mean(0)[r];
      const double sum = mean.sum().item<double>();
      if (sum > 0) step[r] += mean / sum * 0.5;
      step[r][r] += sum > 0 ? 0.5 : 1;
    }
    EXPECT_NEAR(maps.layers[i].entropy, entropy / rows, 1e-4);
    through = i == 0 ? step : at::mm(step, through);
  }
  const at::Tensor read = (token ? through[0].slice(0, 1) : through.mean(0)).reshape({3, 3});
  EXPECT_TRUE(at::allclose(maps.rollout, read, 1e-4, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(All, Maps,
                         testing::Combine(testing::Values("relu-vit", "softmax"), testing::Values(models::Pool::gap, models::Pool::tok)));

TEST(AttentionMaps, SkippedWorkGrowsWithTheZerosAndSoftmaxHasNone) {
  const AttentionMaps softmax = attention_maps(models::Vit(small_config("softmax", models::Pool::gap), 3), some_pixels());
  EXPECT_EQ(softmax.layers[0].skipped_share, 0);
  EXPECT_EQ(softmax.layers[0].zero_share, 0);
  // Normalised queries and keys of 8 elements have scores of at most sqrt(8) = 2.8: the bias leaves few of them above zero, then none.
  models::VitConfig config = small_config("relu-vit", models::Pool::gap);
  config.attention.bias = -1.5;
  const LayerAttention few = attention_maps(models::Vit(config, 3), some_pixels()).layers[0];
  EXPECT_GT(few.zero_share, 0.8);
  EXPECT_LT(few.zero_share, 1);
  EXPECT_GT(few.skipped_share, 0.2);
  EXPECT_LE(few.skipped_share, few.zero_share);
  config.attention.bias = -3.0;
  const LayerAttention none = attention_maps(models::Vit(config, 3), some_pixels()).layers[0];
  EXPECT_EQ(none.zero_share, 1);
  EXPECT_EQ(none.skipped_share, 1);
  EXPECT_EQ(none.mass, 0);
}

TEST(AttentionMaps, TheNumbersOfAllLayersAreTheirMean) {
  AttentionMaps maps;
  for (const double x : {1.0, 2.0, 6.0}) {
    LayerAttention& layer = maps.layers.emplace_back();
    layer.mass = x, layer.entropy = 10 * x, layer.zero_share = x / 10, layer.skipped_share = x / 100;
  }
  const AttentionNumbers all = mean_of_layers(maps);
  EXPECT_NEAR(all.mass, 3, 1e-12);
  EXPECT_NEAR(all.entropy, 30, 1e-12);
  EXPECT_NEAR(all.zero_share, 0.3, 1e-12);
  EXPECT_NEAR(all.skipped_share, 0.03, 1e-12);
}

data::Image grey_image(int side, uint8_t value) {
  data::Image image;
  image.reshape(side, side, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  return image;
}

TEST(Overlay, IsLargeAndBrightWhereTheMapIsHigh) {
  at::Tensor map = at::zeros({7, 7}, at::kDouble);
  map[1][5] = 1;
  const data::Image picture = overlay(grey_image(28, 128), map, 4);
  EXPECT_GE(picture.width, 256);
  EXPECT_EQ(picture.channels, 3);
  const auto brightness = [&](double row, double column) {
    const int y = static_cast<int>((row + 0.5) / 7 * picture.height), x = static_cast<int>((column + 0.5) / 7 * picture.width);
    const uint8_t* pixel = picture.row(y) + 3 * x;
    return pixel[0] + pixel[1] + pixel[2];
  };
  for (int row = 0; row < 7; ++row)
    for (int column = 0; column < 7; ++column) {
      if (row == 1 && column == 5) continue;
      EXPECT_GT(brightness(1, 5), brightness(row, column) + 100) << row << " " << column;
    }
}

TEST(Overlay, TakesAMapOfOneValue) { EXPECT_EQ(overlay(grey_image(8, 0), at::zeros({2, 2}, at::kDouble), 4).width, 256); }

TEST(Grid, LaysPicturesOutInRows) {
  std::vector<data::Image> pictures;
  for (int i = 0; i < 3; ++i) pictures.push_back(enlarged(grey_image(2, static_cast<uint8_t>(10 * i))));
  const data::Image all = grid(pictures, 2);
  EXPECT_GT(all.width, 2 * 256);
  EXPECT_LT(all.width, 3 * 256);
  EXPECT_EQ(all.row(0)[0], 0);
  EXPECT_EQ(all.row(0)[3 * (all.width - 1)], 10);
  EXPECT_EQ(all.row(all.height - 1)[0], 20);
  EXPECT_EQ(all.row(all.height - 1)[3 * (all.width - 1)], 255);
}

TEST(AttentionOverview, IsAPngOfTheImageTheLayersAndTheRollout) {
  TrainedModel loaded;
  loaded.config.model = small_config("relu-vit", models::Pool::gap);
  loaded.model = std::make_unique<models::Vit>(loaded.config.model, 3);
  data::Image picture;
  picture.reshape(20, 30, 3);
  const std::string png = attention_overview(loaded, picture);
  data::Image decoded;
  data::decode_image({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, "overview", decoded);
  EXPECT_GE(decoded.width, 4 * 256);
  EXPECT_GE(decoded.height, 256);
  EXPECT_LT(decoded.height, 300);
}

}  // namespace
}  // namespace hinge::vision
