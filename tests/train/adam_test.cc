// Adam takes the steps of its formula, and goes on from its file.
#include "train/adam.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "small_model.h"

namespace hinge::train {
namespace {

using support::error_of;
using support::mentions;

kernels::Serial serial;

class AdamTest : public support::TemporaryFolderTest {};

TEST_F(AdamTest, TakesTheStepsOfTheFormula) {
  const Small small;
  Adam adam(small.parameters, {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3});
  const int64_t version = small.kernel._version();
  at::Tensor m = at::zeros({3, 5}, at::kDouble), v = m.clone(), w = small.kernel.detach().to(at::kDouble);
  for (int t = 1; t <= 3; ++t) {
    const Gradients gradients = Small::gradients(static_cast<uint64_t>(t));
    const at::Tensor g = 0.5 * gradients[0].to(at::kDouble);
    EXPECT_NEAR(adam.gradient_norm(gradients, serial),
                std::sqrt((gradients[0].square().sum() + gradients[1].square().sum()).item<double>()), 1e-6);
    adam.step(gradients, 0.1, 0.02, 0.5, serial);
    m = 0.8 * m + 0.2 * g, v = 0.95 * v + 0.05 * g * g;
    w = w - 0.1 * (m / (1 - std::pow(0.8, t))) / ((v / (1 - std::pow(0.95, t))).sqrt() + 1e-3) - 0.02 * w;
  }
  EXPECT_LE((small.kernel.to(at::kDouble) - w).abs().max().item<double>(), 2e-6);
  EXPECT_EQ(adam.steps(), 3);
  EXPECT_EQ(small.kernel._version(), version + 3) << "copies in another layout must be made anew";
}

TEST_F(AdamTest, BiasesDoNotDecayAndMissingGradientsAreZero) {
  const Small small;
  Adam adam(small.parameters, {});
  const at::Tensor kernel = small.kernel.detach().clone(), bias = small.bias.detach().clone();
  EXPECT_EQ(adam.gradient_norm({at::Tensor(), at::Tensor()}, serial), 0);
  adam.step({at::zeros({3, 5}), at::zeros({7})}, 0.1, 0.5, 1, serial);
  EXPECT_TRUE(at::allclose(small.kernel, kernel / 2));
  EXPECT_TRUE(at::equal(small.bias, bias));
}

TEST_F(AdamTest, GoesOnFromItsFile) {
  const Small straight, resumed;
  Adam whole(straight.parameters, {}), first(resumed.parameters, {});
  const auto step = [](Adam& adam, uint64_t seed) { adam.step(Small::gradients(seed), 0.1, 0.01, 1, serial); };
  for (uint64_t t = 0; t < 5; ++t) step(whole, t);
  for (uint64_t t = 0; t < 3; ++t) step(first, t);
  first.save(path("state"));
  Adam second(resumed.parameters, {});
  second.load(path("state"), first.steps());
  EXPECT_EQ(second.steps(), 3);
  for (uint64_t t = 3; t < 5; ++t) step(second, t);
  EXPECT_TRUE(at::equal(straight.kernel, resumed.kernel));
  EXPECT_TRUE(at::equal(straight.bias, resumed.bias));

  nn::Parameters other;
  other.add("kernel", at::zeros({5, 3}), true);
  EXPECT_TRUE(mentions(error_of([&] { Adam(other, {}).load(path("state"), 1); }), {path("state"), "m.kernel", "shape"}));
  nn::Parameters unknown;
  unknown.add("kernle", at::zeros({3, 5}), true);
  EXPECT_TRUE(mentions(error_of([&] { Adam(unknown, {}).load(path("state"), 1); }), {path("state"), "m.kernle", "m.kernel"}));
}

}  // namespace
}  // namespace hinge::train
