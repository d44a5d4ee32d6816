// What `hinge train` reads for a vision transformer: configs/vit/*.toml, bound to structs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "data/source.h"
#include "hinge/kernels/cross_entropy.h"
#include "models/vit.h"
#include "support/config.h"
#include "train/config.h"

namespace hinge::kernels {

inline std::vector<std::pair<std::string, CrossEntropy>> config_words(CrossEntropy) {
  return {{"softmax", CrossEntropy::softmax}, {"sigmoid", CrossEntropy::sigmoid}};
}

}  // namespace hinge::kernels

namespace hinge::vision {

struct DataConfig {
  std::string format = "fashion-mnist", path = {};
  std::string train = "train", eval = "test";
  std::string train_pp = "value_range(-1,1)", eval_pp = "value_range(-1,1)";
  std::string label_map = {};
  double mixup = 0;
  int64_t threads = 1;
  data::OnError on_error = data::OnError::stop;
  int64_t synthetic_count = 1024, synthetic_classes = 10, synthetic_size = 32, synthetic_channels = 3;

  template <class V> void visit(V& v) {
    v("format", format, "format of the data; hinge data check --help describes them", data::formats());
    v("path", path, "folder of the data; fashion-mnist has a default");
    v("train", train, "split to train on, such as train[:90%]");
    v("eval", eval, "split to evaluate on");
    v("train_pp", train_pp, "preprocessing in training; docs/data.md lists the steps");
    v("eval_pp", eval_pp, "preprocessing in evaluation");
    v("label_map", label_map, "file with lines: class, tab, new class");
    v("mixup", mixup, "p of the Beta(p, p) distribution of mixup; 0: none");
    v("threads", threads, "threads that decode and augment in the background");
    v("on_error", on_error, "what to do about a file that cannot be decoded");
    v("synthetic_count", synthetic_count, "format synthetic: images");
    v("synthetic_classes", synthetic_classes, "format synthetic: classes");
    v("synthetic_size", synthetic_size, "format synthetic: pixels of a side");
    v("synthetic_channels", synthetic_channels, "format synthetic: channels");
  }
};

struct OptimConfig : train::OptimConfig {
  OptimConfig() : train::OptimConfig({.weight_decay = 1e-4}) {}
  kernels::CrossEntropy loss = kernels::CrossEntropy::softmax;

  template <class V> void visit(V& v) {
    train::OptimConfig::visit(v, "images per step");
    v("loss", loss, "cross-entropy over all classes, or of each class by itself");
  }
};

struct RunConfig : train::RunConfig {
  bool statistics = false;

  template <class V> void visit(V& v) {
    train::RunConfig::visit(v);
    v("statistics", statistics,
      "at each evaluation, measure the attention of each block on some images: weight mass, entropy, zeros, skipped work, output variance");
  }
};

struct Config {
  std::string task = "vision";
  models::VitConfig model = {};
  DataConfig data = {};
  OptimConfig optim = {};
  RunConfig train = {};

  template <class V> void visit(V& v) {
    v("task", task, "what is trained", {"vision"});
    v("model", model, "the model");
    v("data", data, "the images");
    v("optim", optim, "the optimiser");
    v("train", train, "the run");
  }

  static support::Renames renames() {
    support::Renames renames = {
        .keys = {{"model.variant", "model.size"},
                 {"model.mlp_width", "model.ffn.width"},
                 {"train.recompute", "train.gradient_checkpointing"},
                 {"optim.accumulate", "train.shards"}},
        .words = {{"task", "vit", "vision"}, {"model.position", "learn", "learned"}, {"model.position", "sincos2d", "sinusoidal"}}};
    const std::vector<support::Renames::Word> words = nn::AttentionConfig::renames("model.attention");
    renames.words.insert(renames.words.end(), words.begin(), words.end());
    return renames;
  }
};

// The data set of a split with this config.
data::DataSource source_of(const DataConfig& config, const std::string& split);

// The steps of that many epochs over `images`, or `most` if there are more.
int64_t steps_of(const OptimConfig& config, int64_t images, double epochs, int64_t most);

}  // namespace hinge::vision
