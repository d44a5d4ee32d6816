// A translation that takes a moment to learn: numbers as words, for which the other language has words of its own.
#pragma once

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tasks/translation/config.h"

namespace hinge::translation {

inline void write_tiny_text(const std::string& folder) {
  const std::vector<std::string> words = {"zero", "one", "two", "three", "four", "five", "six", "seven"};
  const std::vector<std::string> others = {"null", "eins", "zwei", "drei", "vier", "fuenf", "sechs", "sieben"};
  std::mt19937 random(7);
  for (const auto& [name, pairs] : {std::pair("train", 240), std::pair("valid", 40)}) {
    std::ofstream source(folder + "/" + name + ".en"), target(folder + "/" + name + ".de");
    for (int pair = 0; pair < pairs; ++pair) {
      std::string said, translated;
      for (uint32_t n = 1 + random() % 6; n > 0; --n) {
        const uint32_t word = random() % 8;
        said += (said.empty() ? "" : " ") + words[word];
        translated += (translated.empty() ? "" : " ") + others[word];
      }
      source << said << "\n", target << translated << "\n";
    }
  }
}

inline Config tiny(const std::string& folder, int64_t steps) {
  Config config;
  config.model.width = 32, config.model.ffn.width = 64, config.model.heads = 2, config.model.depth = 1;
  config.model.norm = nn::NormPlacement::pre, config.model.dropout = 0.05, config.model.attention.preset = "reluformer",
  config.model.attention.dropout = 0.05;
  config.model.max_length = 64;
  config.data.source.kind = text::SourceKind::files, config.data.source.path = folder, config.data.source.pair = "en-de";
  config.data.corpus.longest = 60, config.data.vocabulary.size = 60;
  config.optim.batch = 320, config.optim.steps = steps, config.optim.lr = 5e-3, config.optim.warmup_steps = 4;
  config.optim.regulariser_weight = 0.02, config.optim.regulariser_warmup_steps = 8;
  config.train.workers = config.train.threads = 1, config.train.log_steps = 5, config.train.eval_every = 1.5, config.train.checkpoint_every = 0.5;
  config.train.average = 3;
  return config;
}

}  // namespace hinge::translation
