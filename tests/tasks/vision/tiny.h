// A training that takes a moment: made-up images of 8 x 8 pixels, two patches wide, one block.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/codec.h"
#include "data/source.h"
#include "tasks/vision/config.h"

namespace hinge::vision {

inline Config tiny(int64_t steps) {
  Config config;
  config.model.image_size = 8, config.model.channels = 1, config.model.classes = 0, config.model.patch = 4;
  config.model.width = 16, config.model.depth = 1, config.model.ffn.width = 32, config.model.heads = 2;
  config.data.format = "synthetic", config.data.synthetic_count = 64, config.data.synthetic_classes = 4;
  config.data.synthetic_size = 8, config.data.synthetic_channels = 1;
  config.data.train_pp = "pad_crop(1)|flip_lr|value_range(-1,1)", config.data.mixup = 0.2;
  config.optim.batch = 16, config.optim.steps = steps, config.optim.lr = 3e-3, config.optim.warmup_steps = 4;
  config.model.dropout = 0.05, config.model.drop_path = 0.1, config.model.attention.dropout = 0.05;
  config.train.workers = config.train.threads = 1, config.train.log_steps = 5, config.train.eval_every = 2,
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
inline Config tiny_of_files(const std::string& images, const std::string& eval, int64_t steps) {
  Config config = tiny(steps);
  config.model.channels = 3;
  config.data.format = "folder", config.data.path = images, config.data.eval = eval;
  return config;
}

}  // namespace hinge::vision
