// A training that takes a moment: made-up images of 8 x 8 pixels, two patches wide, one block.
#pragma once

#include <filesystem>
#include <string>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "data/codec.h"
#include "data/source.h"
#include "support/atomic_file.h"
#include "support/jsonl.h"
#include "train/run_folder.h"
#include "train/vit_config.h"
#include "train/vit_trainer.h"

namespace hinge::train {

inline VitTrainConfig tiny(int64_t steps) {
  VitTrainConfig config;
  config.model.image_size = 8, config.model.channels = 1, config.model.classes = 0, config.model.patch = 4;
  config.model.width = 16, config.model.depth = 1, config.model.ffn.width = 32, config.model.heads = 2;
  config.data.format = "synthetic", config.data.synthetic_count = 64, config.data.synthetic_classes = 4;
  config.data.synthetic_size = 8, config.data.synthetic_channels = 1;
  config.data.train_pp = "pad_crop(1)|flip_lr|value_range(-1,1)", config.data.mixup = 0.2;
  config.optim.batch = 16, config.optim.steps = steps, config.optim.lr = 3e-3, config.optim.warmup_steps = 4;
  config.model.dropout = 0.05, config.model.drop_path = 0.1, config.model.attention.dropout = 0.05;
  config.train.threads = 1, config.train.log_steps = 5, config.train.eval_every = 2,
  config.train.checkpoint_every = 1;  // epochs of 4 steps
  return config;
}

// PNG files of 8 x 8 pixels, three channels: 0.png, 1.png, ...
inline void write_tiny_images(const std::string& folder, int64_t count) {
  data::DataSource source = source_of(tiny(1).data, "train");
  source.synthetic.shape.channels = 3, source.synthetic.count = count;
  const auto images = data::open_images(source);
  std::filesystem::create_directories(folder);
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> png = data::encode_png(images->load(i));
    std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary) << std::string(png.begin(), png.end());
  }
}

// Trains on the folder `images` and evaluates on the split `eval` of it.
inline VitTrainConfig tiny_of_files(const std::string& images, const std::string& eval, int64_t steps) {
  VitTrainConfig config = tiny(steps);
  config.model.channels = 3;
  config.data.format = "folder", config.data.path = images, config.data.eval = eval;
  return config;
}

// Shows every step, on nothing but `said`; asks the run to stop when it says `word`.
inline support::ProgressOutput stopping_when(const std::string& word, std::atomic<bool>& stop, std::string* said = nullptr) {
  auto clock = std::make_shared<double>(0);
  return {.write =
              [=, &stop](std::string_view text) {
                stop = stop || text.find(word) != std::string::npos;
                if (said) *said += text;
              },
          .seconds = [clock] { return *clock += 1; },
          .columns = [] { return 300; },
          .terminal = true,
          .unicode = false};
}

// Once `step` of its steps are done, and before the evaluation that may follow.
inline support::ProgressOutput stopping_at(int64_t step, int64_t steps, std::atomic<bool>& stop) {
  return stopping_when(" " + std::to_string(step) + "/" + std::to_string(steps) + " ", stop);
}

inline std::string last_checkpoint_bytes(const std::string& run, int64_t step) {
  const std::string digits = std::to_string(step), folder = run + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
  const std::string averaged = folder + "/averaged.safetensors";
  return support::read_file(folder + "/weights.safetensors") + support::read_file(folder + "/state.safetensors") +
         (std::filesystem::exists(averaged) ? support::read_file(averaged) : "");
}

// The metrics of two runs are the same numbers, all but the time they took.
inline void expect_same_metrics(const std::string& left, const std::string& right) {
  const auto read = [](const std::string& run) {
    std::vector<support::MetricRecord> records = support::read_metrics(metrics_path(run));
    for (support::MetricRecord& record : records)
      std::erase_if(record.values,
                    [](const auto& value) { return value.first.ends_with("_per_second") || value.first.ends_with("/waiting_share"); });
    return records;
  };
  const auto a = read(left), b = read(right);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a.size(), 2u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step) << "record " << i;
    EXPECT_EQ(a[i].values, b[i].values) << "step " << a[i].step;
  }
}

}  // namespace hinge::train
