// What `hinge train` reads for a vision transformer: configs/vit/*.toml, bound to structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/source.h"
#include "hinge/kernels/cross_entropy.h"
#include "models/vit.h"

namespace hinge::train {

struct DataConfig {
  std::string format = "fashion-mnist", path = {};
  std::string train = "train", eval = "test";
  std::string train_pp = "value_range(-1,1)", eval_pp = "value_range(-1,1)";
  std::string label_map = {};
  double mixup = 0;
  int64_t threads = 1;
  std::string on_error = "stop";
  int64_t synthetic_count = 1024, synthetic_classes = 10, synthetic_size = 32, synthetic_channels = 3;

  template <class V> void visit(V& v) {
    v("format", format, "fashion-mnist, mnist, kmnist, idx, cifar10, cifar100, folder or synthetic");
    v("path", path, "folder of the data; fashion-mnist has a default");
    v("train", train, "split to train on, such as train[:90%]");
    v("eval", eval, "split to evaluate on");
    v("train_pp", train_pp, "preprocessing in training; docs/data.md lists the steps");
    v("eval_pp", eval_pp, "preprocessing in evaluation");
    v("label_map", label_map, "file with lines: class, tab, new class");
    v("mixup", mixup, "p of the Beta(p, p) distribution of mixup; 0: none");
    v("threads", threads, "threads that decode and augment in the background");
    v("on_error", on_error, "what a file that cannot be decoded does", {"stop", "skip"});
    v("synthetic_count", synthetic_count, "format synthetic: images");
    v("synthetic_classes", synthetic_classes, "format synthetic: classes");
    v("synthetic_size", synthetic_size, "format synthetic: pixels of a side");
    v("synthetic_channels", synthetic_channels, "format synthetic: channels");
  }
};

struct OptimConfig {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-4;
  std::optional<double> clip = 1.0;
  int64_t batch = 128, accumulate = 1;
  double epochs = 1;
  std::optional<int64_t> steps = {};
  int64_t warmup_steps = 0;
  std::string schedule = "cosine", loss = "softmax";

  template <class V> void visit(V& v) {
    v("lr", lr, "peak learning rate of Adam");
    v("beta1", beta1, "decay of the mean of gradients");
    v("beta2", beta2, "decay of the mean of their squares");
    v("eps", eps, "added to the root of that mean");
    v("weight_decay", weight_decay, "share of a kernel taken off at each step, multiplied by the schedule but not by lr");
    v("clip", clip, "largest norm of all gradients together");
    v("batch", batch, "images of a step");
    v("accumulate", accumulate, "parts that a step's batch is worked off in, to save memory");
    v("epochs", epochs, "times through the training images");
    v("steps", steps, "number of steps, instead of epochs");
    v("warmup_steps", warmup_steps, "steps in which the learning rate grows from 0");
    v("schedule", schedule, "the learning rate after the warm-up", {"cosine", "linear", "constant"});
    v("loss", loss, "cross-entropy over all classes, or of each class by itself", {"softmax", "sigmoid"});
  }
};

struct RunConfig {
  int64_t seed = 0;
  int64_t threads = 0;
  double eval_every = 1, checkpoint_every = 1;
  int64_t log_steps = 20, keep = 2;
  bool recompute = false;

  template <class V> void visit(V& v) {
    v("seed", seed, "of the weights, the order of the images and everything else that is drawn");
    v("threads", threads, "threads to compute with; 0: OMP_NUM_THREADS, else one for every core");
    v("eval_every", eval_every,
      "epochs between evaluations; the last step is evaluated in any case, and none less than half of that before it");
    v("checkpoint_every", checkpoint_every, "epochs between checkpoints");
    v("log_steps", log_steps, "steps between lines of metrics");
    v("keep", keep, "checkpoints that are kept, besides the best");
    v("recompute", recompute, "keep only the blocks' inputs for backward: less memory, a third more time");
  }
};

struct VitTrainConfig {
  std::string task = "vit";
  models::VitConfig model = {};
  DataConfig data = {};
  OptimConfig optim = {};
  RunConfig train = {};

  template <class V> void visit(V& v) {
    v("task", task, "what is trained", {"vit"});
    v("model", model, "the model");
    v("data", data, "the images");
    v("optim", optim, "the optimiser");
    v("train", train, "the run");
  }
};

// The data set of a split with this config.
data::DataSource source_of(const DataConfig& config, const std::string& split);

// The steps of that many epochs over `images`.
double steps_of(const OptimConfig& config, double epochs, int64_t images);

kernels::CrossEntropy loss_kind(const OptimConfig& config);

// Of a run's config: takes back what follows from the value of a key, so that another one has an effect.
inline void take_back_derived(VitTrainConfig& config, const std::string& key) {
  if (key == "optim.epochs") config.optim.steps.reset();
}

}  // namespace hinge::train
