// What the layers of a translation model do on real text, in numbers and as maps: how strong each layer is beside its residual, how its
// weights are spread, how alike its values are. The measures of the ReLUFormer study and their like, which sees attention and feed-forward
// layers as key-value memories alike: the keys of a feed-forward layer are its hidden units, and their activations are its weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/seq2seq.h"
#include "text/corpus.h"
#include "text/vocabulary.h"

namespace hinge::eval {

// Percent of the keys that a row sees, or of the hidden units; always at least one.
inline constexpr std::array<double, 10> kTopPercents = {0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};

// What a token is, by its piece of the vocabulary.
enum class TokenKind : uint8_t { word, comma, punctuation, end };

// Of every token of a vocabulary: a piece without letters and digits is punctuation, or a comma; `end` is the end of a sentence.
std::vector<TokenKind> token_kinds(const text::Vocabulary& vocabulary);

// Shares that tokens of these kinds have in something. Commas are punctuation, too.
struct TokenShares {
  double punctuation = 0, comma = 0, end = 0;
};

// A row is a token with a head of attention, or a token of a feed-forward layer; its weights are those of the keys it sees. Means are over
// rows; entropy and top_shares leave out rows without any weight.
struct LayerStatistics {
  std::string name;  // "decoder.0.cross_attn"
  std::string kind;  // "encoder self-attention", "encoder feed-forward", "decoder cross-attention", ...
  int64_t block = 0;
  int64_t rows = 0;
  double variance_ratio = 0;  // variance of the elements of a token's output by that of its residual: means over tokens, divided
  double weight_sum = 0;
  double entropy = 0;           // of the absolute weights divided by their sum, in nats
  double relative_entropy = 0;  // the same as a share of log n, the largest it can be with n keys; rows of one key do not count
  double zero_share = 0;        // weights that are exactly 0
  double anisotropy = 0;        // mean cosine between two values: of a head in one sentence, or of the feed-forward layer
  std::array<double, kTopPercents.size()> top_shares{};  // share of the sum of absolute weights that the top p% hold
  std::optional<TokenShares> source_shares = {};         // of attention to the source: share of the absolute weights on such tokens
};

// A source and its translation, as the model reads them: the one with its end token, the other with its first token.
struct ModelPair {
  std::vector<int64_t> source, target;
};

// At most `most` items of a corpus, evenly spread over it.
std::vector<ModelPair> sample_pairs(const text::Corpus& corpus, int64_t most);

// The shares of the source's tokens that are of these kinds: what attention with even weights would have.
TokenShares source_token_shares(const std::vector<ModelPair>& pairs, const std::vector<TokenKind>& kinds);

// One entry for each layer, in the order of computation. The pairs are looked at one by one. `kinds` of the vocabulary's tokens are for
// source_shares. Throws std::runtime_error without pairs.
std::vector<LayerStatistics> analyze_layers(const models::Seq2Seq& model, const std::vector<ModelPair>& pairs,
                                            const std::vector<TokenKind>& kinds);

// The means over all layers of a kind, in the order in which kinds come first; `name` is the kind, `rows` those of all layers together.
std::vector<LayerStatistics> means_by_kind(const std::vector<LayerStatistics>& layers);

// The weights of an attention, the mean of its heads.
struct AttentionMap {
  std::string name;                                  // "encoder.0.attn"
  bool source_columns = false, source_rows = false;  // the keys, or the queries, are the source's tokens; else the target's
  at::Tensor weights;                                // float64 [queries, keys]
};
std::vector<AttentionMap> attention_maps(const models::Seq2Seq& model, const ModelPair& pair);

}  // namespace hinge::eval
