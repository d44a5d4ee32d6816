#include "tasks/translation/config.h"

#include <fmt/format.h>

#include "support/require.h"

namespace hinge::translation {

support::Renames Config::renames() {
  support::Renames renames{.keys = {{"model.slots", "model.ffn.width"},
                                    {"model.encoder_depth", "model.encoder.depth"},
                                    {"model.decoder_depth", "model.decoder.depth"},
                                    {"model.ffn", "model.ffn.activation"},
                                    {"model.ffn_dropout", "model.ffn.dropout"},
                                    {"model.attention", "model.attention.preset"},
                                    {"model.gamma", "model.attention.gamma"},
                                    {"model.attention_dropout", "model.attention.dropout"},
                                    {"optim.tokens", "optim.batch"},
                                    {"optim.accumulate", "train.shards"}}};
  for (const std::string part : {"model.encoder.", "model.decoder.", "model.cross."})
    for (const char* key : {"preset", "h", "alpha", "length", "length_n", "gain", "bias", "gamma", "learn_alpha", "learn_gain",
                            "learn_bias", "qk_norm", "gate", "dropout"})
      renames.keys.push_back({part + key, part + "attention." + key});
  for (const std::string part : {"model.", "model.encoder.", "model.decoder.", "model.cross."}) {
    const std::vector<support::Renames::Word> words = nn::AttentionConfig::renames(part + "attention");
    renames.words.insert(renames.words.end(), words.begin(), words.end());
  }
  return renames;
}

void check_lengths(const Config& config) {
  const text::CorpusOptions& corpus = config.data.corpus;
  const bool documents = corpus.document_tokens > 0;
  const int64_t longest = documents ? corpus.document_tokens : corpus.longest;
  support::require(longest <= config.model.max_length, fmt::format("model.max_length {} is less than data.{} {}", config.model.max_length,
                                                                   documents ? "document_tokens" : "longest_tokens", longest));
}

}  // namespace hinge::translation
