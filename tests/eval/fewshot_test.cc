// The few-shot probe: its solver against numbers that numpy has found by another way, and its choice of examples.
#include "eval/fewshot.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace hinge::eval {
namespace {

at::Tensor formula_features(int64_t n, int64_t d, double shift) {
  const at::Tensor features = at::empty({n, d}, at::kDouble);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < d; ++j) {
      const auto x = static_cast<double>(i), y = static_cast<double>(j);
      features.data_ptr<double>()[i * d + j] = std::sin(0.7 * x * (y + 1) + shift) + 0.3 * std::cos(1.3 * x + y * y) +
                                               static_cast<double>(i % 3) * 0.5 * static_cast<double>(j % 2);
    }
  return features;
}

at::Tensor cycling_labels(int64_t n, int64_t classes) { return at::arange(n, at::kLong).remainder(classes); }

void expect_near(const at::Tensor& got, const std::vector<double>& expected) {
  const at::Tensor flat = got.contiguous().view(-1);
  ASSERT_EQ(flat.numel(), static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < flat.numel(); ++i) EXPECT_NEAR(flat[i].item<double>(), expected[static_cast<size_t>(i)], 1e-12) << "number " << i;
}

// numpy: with x whitened by its mean and std (ddof 0) + 1e-5 and a column of 100 appended, and y of -1 and 1,
// w = numpy.linalg.solve(x.T @ x + 1024 * numpy.eye(d + 1), x.T @ y), whether n >= d or not.
TEST(FitProbe, EqualsNumpyWithMoreExamplesThanFeatures) {
  const LinearProbe probe = fit_probe(formula_features(12, 4, 0), cycling_labels(12, 3), 3);
  expect_near(probe.weights.slice(0, 0, 2), {-0.0009400721643036318, 0.0005469587633876519, 0.0003931134009159797, -0.005612409957040528,
                                             0.0013361815787558161, 0.004276228378284712});
  expect_near(probe.weights[4], {-0.003305129561078794, -0.003305129561078794, -0.003305129561078794});
  expect_near(probe_scores(probe, formula_features(2, 4, 1)), {-0.3362970489137059, -0.3204707628155244, -0.334771056594408,
                                                               -0.3300240749490667, -0.32709016104094196, -0.3344246323336295});
}

TEST(FitProbe, EqualsNumpyWithFewerExamplesThanFeatures) {
  const LinearProbe probe = fit_probe(formula_features(3, 7, 0), cycling_labels(3, 3), 3);
  expect_near(probe.weights.slice(0, 0, 2), {-0.0027319387007396787, 0.0013443175644294281, 0.0013876211363102512, -0.00268462810853423,
                                             0.001776486081401843, 0.0009081420271323871});
  expect_near(probe.weights[7], {-0.0032233109850438374, -0.0032233109850438374, -0.0032233109850438374});
  expect_near(probe_scores(probe, formula_features(2, 7, 1)), {-0.32763259709422243, -0.3277178374796961, -0.3116428609392327,
                                                               -0.32153833252347747, -0.3177052823392067, -0.327749680650467});
}

std::shared_ptr<const data::ImageSet> made_up_images(uint64_t stream, int64_t count = 60, int64_t classes = 4) {
  data::Synthetic what;
  what.shape = {8, 8, 1};
  what.classes = classes;
  what.count = count;
  what.stream = stream;
  return data::make_synthetic(what);
}

TEST(ChooseShots, TakesEachClassEquallyAndDependsOnTheSeed) {
  const auto images = made_up_images(0);
  const std::vector<uint32_t> five = choose_shots(*images, 5, 0);
  ASSERT_EQ(five.size(), 20U);
  EXPECT_EQ(std::set<uint32_t>(five.begin(), five.end()).size(), 20U);
  for (size_t i = 0; i < five.size(); ++i) EXPECT_EQ(images->label(five[i]), static_cast<int64_t>(i / 5));
  EXPECT_EQ(choose_shots(*images, 5, 0), five);
  EXPECT_NE(choose_shots(*images, 5, 1), five);
  const std::vector<uint32_t> two = choose_shots(*images, 2, 0);
  for (size_t label = 0; label < 4; ++label)
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(two[2 * label + i], five[5 * label + i]);
}

TEST(ChooseShots, TakesAllOfASmallClass) { EXPECT_EQ(choose_shots(*made_up_images(0, 8, 4), 25, 0).size(), 8U); }

// Made-up classes are smooth patterns: even the features of a model that was never trained tell them apart.
TEST(Fewshot, MoreExamplesTellPatternsApart) {
  models::VitConfig config;
  config.image_size = 8, config.channels = 1, config.classes = 4, config.patch = 4, config.width = 16, config.depth = 1,
  config.ffn.width = 32, config.heads = 2;
  const models::Vit model(config, 1);
  FewshotOptions options;
  options.shots = {1, 10};
  const auto results = fewshot(model, made_up_images(0), made_up_images(1), data::Pipeline("value_range(-1,1)"), options);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].shots, 1);
  ASSERT_EQ(results[1].accuracies.size(), 3U);
  EXPECT_GT(results[1].mean(), 0.6);  // 0.25 by chance
  EXPECT_GT(results[1].mean(), results[0].mean());
}

TEST(Fewshot, RefusesSetsOfDifferentClasses) {
  models::VitConfig config;
  config.image_size = 8, config.channels = 1, config.classes = 4, config.patch = 4, config.width = 16, config.depth = 1,
  config.ffn.width = 32, config.heads = 2;
  EXPECT_THROW(fewshot(models::Vit(config, 1), made_up_images(0, 60, 4), made_up_images(1, 60, 5), data::Pipeline(""), {}),
               std::runtime_error);
}

}  // namespace
}  // namespace hinge::eval
