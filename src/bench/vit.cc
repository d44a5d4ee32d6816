#include "bench/vit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/rounds.h"
#include "bench/timing.h"
#include "bench/training_step.h"
#include "hinge/ops/dense.h"
#include "models/vit.h"
#include "ops/gemm.h"
#include "ops/tensor_memory.h"
#include "support/process_memory.h"
#include "train/flops.h"
#include "train/workers.h"

namespace hinge::bench {
namespace {

using at::Tensor;

struct Sizes {
  const char* name;
  int64_t batch, image, channels, patch, width, depth, heads, classes;
};
constexpr Sizes kModels[] = {
    {"S/16", 8, 224, 3, 16, 384, 12, 6, 1000},
    {"S/8", 2, 224, 3, 8, 384, 12, 6, 1000},
    {"28px/4", 128, 28, 1, 4, 192, 6, 3, 10},
    {"28px/2", 128, 28, 1, 2, 64, 6, 2, 10},
};

struct VitCase {
  std::string model;
  int64_t batch = 1;
  models::VitConfig config;
};

VitCase vit_case(const std::string& model, const std::string& attention, const std::string& gate) {
  for (const Sizes& sizes : kModels) {
    if (model != sizes.name) continue;
    VitCase c{model, sizes.batch, {}};
    c.config.image_size = sizes.image, c.config.channels = sizes.channels, c.config.patch = sizes.patch, c.config.width = sizes.width;
    c.config.depth = sizes.depth, c.config.ffn.width = 4 * sizes.width, c.config.heads = sizes.heads, c.config.classes = sizes.classes;
    c.config.attention.preset = attention;
    c.config.attention.gate = gate;
    c.config.attention.qk_norm = false;
    return c;
  }
  throw std::runtime_error("there is no model '" + model + "' to measure");
}

// The model once more in ATen's calls, from the parameters by their names; gap pooling, no qk-norm.
Tensor plain_logits(const models::Vit& model, const Tensor& images) {
  const models::VitConfig& config = model.config();
  const auto p = [&](const std::string& name) { return model.parameters().find(name)->value.detach().to(at::kDouble); };
  const auto dense = [&](const Tensor& x, const std::string& name) { return at::matmul(x, p(name + ".weight").t()) + p(name + ".bias"); };
  const auto norm = [&](const Tensor& x, const std::string& name) {
    return at::layer_norm(x, {*config.width}, p(name + ".weight"), p(name + ".bias"), 1e-6);
  };
  Tensor x =
      at::conv2d(images.to(at::kDouble).permute({0, 3, 1, 2}), p("patch_embed.proj.weight"), p("patch_embed.proj.bias"), *config.patch);
  x = x.flatten(2).transpose(1, 2) + p("pos_embed");
  const int64_t n = x.size(0), L = x.size(1), H = *config.heads, D = *config.width / H;
  const bool softmax = nn::attention_options(config.attention, "model.attention").attention.h == kernels::Activation::softmax;
  for (int64_t i = 0; i < *config.depth; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const Tensor normed = norm(x, block + "norm1");
    const Tensor qkv = dense(normed, block + "attn.qkv").view({n, L, 3, H, D}).permute({2, 0, 3, 1, 4});
    const Tensor scores = at::matmul(qkv[0], qkv[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(D));
    const Tensor weights = softmax ? at::softmax(scores, -1) : at::relu(scores) / static_cast<double>(L);
    Tensor attended = at::matmul(weights, qkv[2]).transpose(1, 2).reshape({n, L, *config.width});
    if (config.attention.has_gate()) {
      const Tensor gate = dense(normed, block + "attn.gate");
      attended = attended * (config.attention.gate == "sigmoid" ? at::sigmoid(gate) : gate);
    }
    x = x + dense(attended, block + "attn.proj");
    x = x + dense(at::gelu(dense(norm(x, block + "norm2"), block + "mlp.fc1")), block + "mlp.fc2");
  }
  return dense(norm(x, "norm").mean(1), "head");
}

// One model with its batch, optimiser and what is measured of it.
struct VitSubject {
  VitCase what;
  std::unique_ptr<models::Vit> model;
  std::unique_ptr<TrainingStep> training;   // where it is measured: Adam has twice the memory of the weights
  std::unique_ptr<train::Workers> workers;  // of inference
  std::unique_ptr<PackedWeights> packed = std::make_unique<PackedWeights>();
  Tensor images, labels;

  VitSubject(const VitCase& given, bool trains, int threads) : what(given), model(std::make_unique<models::Vit>(given.config, 0)) {
    const models::VitConfig& config = model->config();
    images = at::randn({what.batch, config.image_size, config.image_size, config.channels});
    labels = at::arange(what.batch) % config.classes;
    // A head that starts at zero would hide every error before it.
    const at::NoGradGuard guard;
    model->parameters().find("head.weight")->value.copy_(at::randn({config.classes, *config.width}) * 0.05);
    if (trains) training = std::make_unique<TrainingStep>(model->parameters(), train::AdamOptions{}, what.batch, threads);
    const auto count = static_cast<int>(std::min<int64_t>(threads, what.batch));
    workers = std::make_unique<train::Workers>(count, threads / count);
  }

  double error() const {
    const at::NoGradGuard guard;
    const Tensor few = images.narrow(0, 0, std::min<int64_t>(2, what.batch)), expected = plain_logits(*model, few);
    return ((model->forward(few).to(at::kDouble) - expected).abs().max() / expected.abs().max()).item<double>();
  }

  // The part of a worker, of images or labels.
  Tensor part_of(const Tensor& all, int64_t worker, int64_t count) const {
    const int64_t first = worker * what.batch / count;
    return all.narrow(0, first, (worker + 1) * what.batch / count - first);
  }

  void infer() const {
    workers->run([&](int worker) {
      const at::NoGradGuard guard;
      const PackedWeights::Use use(*packed);
      model->forward(part_of(images, worker, workers->count()));
    });
  }
  // Whoever infers packs the weights once, for many images.
  void pack() const {
    const at::NoGradGuard guard;
    const PackedWeights::Use use(*packed);
    model->forward(images.narrow(0, 0, 1));
  }

  void step() const {
    const int64_t count = training->workers().count();
    training->step(1e-5, 1e-6, [&](int64_t shard) {
      const Tensor own = part_of(labels, shard, count);
      const Tensor loss = hinge::cross_entropy(kernels::CrossEntropy::softmax, model->forward(part_of(images, shard, count), 1), own);
      return train::gradients_of(model->parameters(), {loss}, {static_cast<double>(own.size(0)) / static_cast<double>(what.batch)});
    });
  }

  double flops(const std::string& pass) const {
    const double forward = model->flops() * static_cast<double>(what.batch);
    return pass == "train" ? train::training_flops(forward) : forward;
  }
};

}  // namespace

std::vector<std::string> vit_model_names() {
  std::vector<std::string> names;
  for (const Sizes& sizes : kModels) names.emplace_back(sizes.name);
  return names;
}

VitReport run(const VitPlan& plan, const ShowProgress& progress) {
  at::set_num_threads(plan.threads);
  Rounds rounds(plan.threads, progress);
  VitReport report;
  std::vector<std::pair<std::string, std::string>> kinds;
  for (const std::string& attention : plan.attentions)
    for (const std::string& gate : plan.gates) kinds.emplace_back(attention, gate);
  for (const std::string& name : plan.models)
    for (const auto& [attention, gate] : kinds) {
      const std::string what = name + " " + attention + (gate == "none" ? "" : ", " + gate + " gate");
      progress("checking " + what);
      const bool trains = std::count(plan.passes.begin(), plan.passes.end(), "train") > 0;
      const VitSubject subject(vit_case(name, attention, gate), trains, plan.threads);
      // Rounding grows with the number of layers; a wrong formula is off by far more.
      const double error = subject.error();
      if (!(error < 1e-3)) throw std::runtime_error(fmt::format("{}: logits are off by {:.2g}; nothing was measured", what, error));
      report.largest_error = std::max(report.largest_error, error);
      drop_kept_tensor_memory();  // the check in float64 is no part of the memory
      support::forget_largest_resident();
      const std::vector<Timing> timings = rounds.measure(what, plan.passes.size(), plan.warm_up, plan.rounds, [&](size_t pass) {
        if (plan.passes[pass] == "train") return seconds_per_call(1, [&] { subject.step(); });
        subject.pack();
        return seconds_per_call(1, [&] { subject.infer(); });
      });
      const int64_t memory_bytes = support::largest_resident_bytes();
      report.memory_bytes = std::max(report.memory_bytes, memory_bytes);
      for (size_t p = 0; p < plan.passes.size(); ++p) {
        VitRow row;
        row.model = name, row.attention = attention, row.gate = gate, row.pass = plan.passes[p], row.batch = subject.what.batch;
        row.timing = timings[p];
        row.gflops = row.timing.gflops(subject.flops(row.pass));
        row.images_per_second = row.timing.per_second(static_cast<double>(row.batch));
        row.memory_bytes = memory_bytes;
        report.rows.push_back(row);
      }
    }
  report.yardsticks = rounds.yardsticks();
  for (VitRow& row : report.rows) row.percent_of_peak = report.yardsticks.percent_of_peak(row.gflops);
  return report;
}

nlohmann::ordered_json to_json(const VitReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const VitRow& row : report.rows) {
    nlohmann::ordered_json json = {{"model", row.model}, {"attention", row.attention}, {"gate", row.gate},
                                   {"pass", row.pass},   {"batch", row.batch},         {"threads", report.yardsticks.threads}};
    add_timing(json, row.timing);
    json["gflops"] = row.gflops;
    json["percent_of_peak"] = row.percent_of_peak;
    json["images_per_second"] = row.images_per_second;
    json["memory_bytes"] = row.memory_bytes;
    results.push_back(json);
  }
  return {{"machine", to_json(report.yardsticks)},
          {"memory_bytes", report.memory_bytes},
          {"largest_error", report.largest_error},
          {"results", results}};
}

std::string table(const VitReport& report) {
  std::string text = report.yardsticks.heading();
  text += fmt::format("Checked against plain float64: logits differ by at most {:.1g}. Memory is that of a model's passes together.\n\n",
                      report.largest_error);
  text += fmt::format("  {:8}  {:10}  {:7}  {:5}  {:>5}  {:>10}  {:>19}  {:>9}  {:>8}  {:>9}  {:>9}\n", "model", "attention", "gate",
                      "pass", "batch", "median ms", "quartiles ms", "images/s", "GFLOP/s", "% of peak", "memory MB");
  for (const VitRow& row : report.rows)
    text += fmt::format("  {:8}  {:10}  {:7}  {:5}  {:>5}  {:>10.1f}  {:>19}  {:>9.1f}  {:>8.1f}  {:>9.1f}  {:>9}\n", row.model,
                        row.attention, row.gate, row.pass, row.batch, row.timing.median_ms, row.timing.quartiles(1), row.images_per_second,
                        row.gflops, row.percent_of_peak, row.memory_bytes >> 20);
  return text;
}

}  // namespace hinge::bench
