// Top-1, top-5 and the loss, counted as one would by hand.
#include "tasks/vision/evaluation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tiny.h"

namespace hinge::vision {
namespace {

TEST(Evaluate, CountsAsOneWouldByHand) {
  Config config = tiny(1);
  config.data.synthetic_classes = config.model.classes = 7, config.data.synthetic_count = 50;
  const models::Vit model(config.model, 0);
  at::manual_seed(3);
  for (const nn::Parameter& parameter : model.parameters().all()) {
    const at::NoGradGuard guard;
    parameter.value.add_(at::randn(parameter.value.sizes()) * 0.5);
  }
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(config.data, "test"));
  const data::Pipeline pipeline(config.data.eval_pp);
  for (const bool some : {false, true}) {
    // With `among`, label i of the set is class among[i] of the model.
    const std::vector<int64_t> among = some ? std::vector<int64_t>{6, 0, 5, 1, 4, 2, 3} : std::vector<int64_t>{};
    for (const auto kind : {kernels::CrossEntropy::softmax, kernels::CrossEntropy::sigmoid}) {
      int64_t top1 = 0, top5 = 0;
      double loss = 0;
      std::vector<int64_t> right(7), seen(7);
      for (int64_t i = 0; i < images->size(); ++i) {
        const at::NoGradGuard guard;
        auto pixels = pipeline.run(images->load(i), data::Random(0, data::Purpose::augment, 0, 0)).pixels;
        const at::Tensor all = model.forward(at::from_blob(pixels.data(), {1, 8, 8, 1}))[0].to(at::kDouble);
        std::vector<double> logits(7);
        for (size_t c = 0; c < 7; ++c) logits[c] = all[some ? among[c] : static_cast<int64_t>(c)].item<double>();
        const auto label = static_cast<size_t>(images->label(i));
        int64_t above = 0;
        double sum = 0;
        for (size_t c = 0; c < 7; ++c) {
          above += logits[c] > logits[label];
          if (kind == kernels::CrossEntropy::softmax)
            sum += std::exp(logits[c]);
          else
            loss += std::log1p(std::exp(c == label ? -logits[c] : logits[c]));
        }
        if (kind == kernels::CrossEntropy::softmax) loss += std::log(sum) - logits[label];
        top1 += above == 0, top5 += above < 5, ++seen[label], right[label] += above == 0;
      }
      EvaluationOptions options;
      options.batch = 16, options.threads = 2, options.loss = kind, options.among = among;
      int64_t last = 0;
      options.progress = [&](int64_t done, int64_t total) {
        last = done;
        EXPECT_EQ(total, 50);
      };
      const Evaluation got = evaluate(model, images, pipeline, options);
      EXPECT_EQ(got.images, 50);
      EXPECT_EQ(last, 50);
      EXPECT_EQ(got.top1, top1);
      EXPECT_EQ(got.top5, top5);
      EXPECT_GT(got.top5, got.top1);
      EXPECT_NEAR(got.loss, loss / 50, 1e-5 * loss / 50);
      for (size_t c = 0; c < 7; ++c) {
        EXPECT_EQ(got.classes[c].images, seen[c]);
        EXPECT_EQ(got.classes[c].right, right[c]);
      }
    }
  }
}

}  // namespace
}  // namespace hinge::vision
