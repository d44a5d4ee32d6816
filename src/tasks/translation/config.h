// What `hinge train` reads for a translation model: configs/translation/*.toml, bound to structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hinge/kernels/row_regulariser.h"
#include "models/seq2seq.h"
#include "support/config.h"
#include "text/corpus.h"
#include "text/source.h"
#include "text/vocabulary.h"
#include "train/config.h"

namespace hinge::translation {

struct DataConfig {
  text::TextSource source = {};
  text::CorpusOptions corpus = {};
  std::string vocabulary_file = {};
  text::VocabularyOptions vocabulary = {};

  template <class V> void visit(V& v) {
    source.visit(v);
    v("document_tokens", corpus.document_tokens,
      "cut documents into parts of at most this many tokens, at sentence ends; 0: every sentence stands alone");
    v("longest_tokens", corpus.longest, "tokens of a sentence that stands alone, on either side");
    v("over_long", corpus.over_long, "what happens to a pair with more tokens");
    v("vocabulary_file", vocabulary_file,
      "a SentencePiece model to use; empty: one is trained on the training text, both languages together");
    v("vocabulary", vocabulary, "the one that is trained");
  }
};

struct OptimConfig : train::OptimConfig {
  OptimConfig()
      : train::OptimConfig(
            {.lr = 5e-4, .beta2 = 0.98, .eps = 1e-9, .batch = 4096, .warmup_steps = 4000, .schedule = train::Schedule::inverse_sqrt}) {}
  double label_smoothing = 0.1;
  double regulariser_weight = 0;
  int64_t regulariser_warmup_steps = 0;
  std::optional<double> regulariser_margin = kernels::kRegulariserMargin;

  template <class V> void visit(V& v) {
    train::OptimConfig::visit(v, "source or target tokens per step, whichever are more; an upper bound");
    v("label_smoothing", label_smoothing, "share of the target probability that is spread evenly over the vocabulary");
    v("regulariser_weight", regulariser_weight, "weight of the ReLUFormer's L_reg in the loss; a model without relu attention has none");
    v("regulariser_warmup_steps", regulariser_warmup_steps, "steps over which that weight grows from 0");
    v("regulariser_margin", regulariser_margin,
      "entropy that L_reg allows, as a share of log n for n visible keys; none: its entropy term is left out");
  }
};

struct RunConfig : train::RunConfig {
  int64_t bleu_sentences = 0;

  template <class V> void visit(V& v) {
    train::RunConfig::visit(v);
    v("bleu_sentences", bleu_sentences, "validation sentences that each evaluation translates greedily to compute BLEU; 0: none");
  }
};

struct Config {
  std::string task = "translation";
  models::Seq2SeqConfig model = {};
  DataConfig data = {};
  OptimConfig optim = {};
  RunConfig train = {};

  template <class V> void visit(V& v) {
    v("task", task, "what is trained", {"translation"});
    v("model", model, "the model");
    v("data", data, "the text");
    v("optim", optim, "the optimiser");
    v("train", train, "the run");
  }

  static support::Renames renames();
};

// Throws std::runtime_error if the text may have longer items than the model reads.
void check_lengths(const Config& config);

}  // namespace hinge::translation
