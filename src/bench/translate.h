// Measures whole translation models: training steps (forward, loss, backward, Adam) on sequences of given lengths, and beam search.
// Checked first, then timed in turn, the FMA peak among them. Flops counted: forward as Seq2Seq::flops() says, and
// train::training_flops of that for a step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/rounds.h"

namespace hinge::bench {

// 6+6 layers, width 512, 4 heads, 10,000 tokens, dropout 0.1. Cases by name: "25", "256" and "2048" tokens a sequence, about 4,000 target
// tokens a batch; "uneven": 280 sentences as long as those of Europarl, sorted by length and cut into batches of up to 1,000 tokens with
// the padding that we do not have; and "decode": beam 4, 16 sentences of 25 tokens, 25 out.
std::vector<std::string> translate_case_names();
// The lengths of the sequences of a case's batches; source and target alike.
std::vector<std::vector<int64_t>> translate_batches(const std::string& name);
// The kinds that a model knows: model.attention.preset and model.ffn.activation.
std::vector<std::string> translate_attention_names();
std::vector<std::string> translate_ffn_names();

// Every combination of a case, an attention and a feed-forward layer. Attentions that have the regulariser train with it.
struct TranslatePlan {
  std::vector<std::string> cases, attentions, ffns = {"relu"};
  int64_t ffn_width = 1024;
  int threads = 1;
  int warm_up = 2;  // rounds before those that count; the peers of bench/peers.py have as many
  int rounds = 5;
};

struct TranslateRow {
  std::string name, attention, ffn;
  int64_t ffn_width = 0;
  std::vector<std::vector<int64_t>> batches;  // lengths of their sequences; a sample is one step on each
  int64_t tokens = 0;                         // target tokens of a sample, or those that a search has written
  Timing timing;
  double tokens_per_second = 0, gflops = 0, percent_of_peak = 0;  // the last two of training only
  int64_t memory_bytes = 0;                                       // largest resident size during the case, all its models together
};

struct TranslateReport {
  Yardsticks yardsticks;
  double largest_error = 0;  // of the loss of a batch against its sequences one by one, relative
  std::vector<TranslateRow> rows;
};

TranslateReport run(const TranslatePlan& plan, const ShowProgress& progress);
nlohmann::ordered_json to_json(const TranslateReport& report);
std::string table(const TranslateReport& report);

}  // namespace hinge::bench
