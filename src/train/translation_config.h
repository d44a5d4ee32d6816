// What `hinge train` reads for a translation model: configs/translation/*.toml, bound to structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/seq2seq.h"
#include "text/corpus.h"
#include "text/source.h"
#include "text/vocabulary.h"

namespace hinge::train {

struct TranslationDataConfig {
  text::TextSource source = {};
  text::CorpusOptions corpus = {};
  std::string vocabulary_file = {};
  text::VocabularyOptions vocabulary = {};

  template <class V> void visit(V& v) {
    source.visit(v);
    v("document_tokens", corpus.document_tokens, "cut documents to so many tokens, at sentence ends; 0: every sentence stands alone");
    v("longest_tokens", corpus.longest, "tokens of a sentence that stands alone, on either side");
    v("over_long", corpus.over_long, "what a pair with more tokens is: left out or cut", {"drop", "truncate"});
    v("vocabulary_file", vocabulary_file,
      "a SentencePiece model to use; empty: one is trained on the training text, both languages together");
    v("vocabulary", vocabulary, "the one that is trained");
  }
};

struct TranslationOptimConfig {
  double lr = 5e-4, beta1 = 0.9, beta2 = 0.98, eps = 1e-9, weight_decay = 0;
  std::optional<double> clip = 1.0;
  int64_t tokens = 4096, accumulate = 1;
  double epochs = 1;
  std::optional<int64_t> steps = {};
  int64_t warmup_steps = 4000;
  std::string schedule = "inverse_sqrt";
  double label_smoothing = 0.1;
  double regulariser_weight = 0;
  int64_t regulariser_warmup_steps = 0;

  template <class V> void visit(V& v) {
    v("lr", lr, "peak learning rate of Adam");
    v("beta1", beta1, "decay of the mean of gradients");
    v("beta2", beta2, "decay of the mean of their squares");
    v("eps", eps, "added to the root of that mean");
    v("weight_decay", weight_decay, "share of a kernel taken off at each step, multiplied by the schedule but not by lr");
    v("clip", clip, "largest norm of all gradients together");
    v("tokens", tokens, "source or target tokens of a step, whichever are more: about that many, never more");
    v("accumulate", accumulate, "parts that a step's tokens are worked off in, to save memory");
    v("epochs", epochs, "times through the training text");
    v("steps", steps, "number of steps, instead of epochs");
    v("warmup_steps", warmup_steps, "steps in which the learning rate grows from 0");
    v("schedule", schedule, "the learning rate after the warm-up", {"inverse_sqrt", "cosine", "linear", "constant"});
    v("label_smoothing", label_smoothing, "share of a target that is spread evenly over the vocabulary");
    v("regulariser_weight", regulariser_weight,
      "weight of the ReLUFormer's L_reg beside the loss; a model without relu attention has none");
    v("regulariser_warmup_steps", regulariser_warmup_steps, "steps in which that weight grows from 0");
  }
};

struct TranslationRunConfig {
  int64_t seed = 0;
  int64_t threads = 0;
  double eval_every = 1, checkpoint_every = 1;
  int64_t log_steps = 20, keep = 2;
  int64_t average = 0;
  int64_t bleu_sentences = 0;

  template <class V> void visit(V& v) {
    v("seed", seed, "of the weights, the order of the text and everything else that is drawn");
    v("threads", threads, "threads to compute with; 0: OMP_NUM_THREADS, else one for every core");
    v("eval_every", eval_every,
      "epochs between evaluations; the last step is evaluated in any case, and none less than half of that before it");
    v("checkpoint_every", checkpoint_every, "epochs between checkpoints");
    v("log_steps", log_steps, "steps between lines of metrics");
    v("keep", keep, "checkpoints that are kept, besides the best");
    v("average", average, "at the end, also save the mean of the weights of that many last checkpoints; 0 or 1: do not");
    v("bleu_sentences", bleu_sentences, "validation sentences that each evaluation translates greedily for a BLEU; 0: none");
  }
};

struct TranslationTrainConfig {
  std::string task = "translation";
  models::Seq2SeqConfig model = {};
  TranslationDataConfig data = {};
  TranslationOptimConfig optim = {};
  TranslationRunConfig train = {};

  template <class V> void visit(V& v) {
    v("task", task, "what is trained", {"translation"});
    v("model", model, "the model");
    v("data", data, "the text");
    v("optim", optim, "the optimiser");
    v("train", train, "the run");
  }
};

// Of a run's config: takes back what follows from the value of a key, so that another one has an effect.
inline void take_back_derived(TranslationTrainConfig& config, const std::string& key) {
  if (key == "optim.epochs") config.optim.steps.reset();
}

}  // namespace hinge::train
