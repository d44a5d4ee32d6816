// The measures on models whose weights are set so that the answers are known.
#include "eval/seq2seq_analysis.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace hinge::eval {
namespace {

models::Seq2SeqConfig small_model(const std::string& attention) {
  models::Seq2SeqConfig config;
  config.vocabulary = 30, config.width = 16, config.ffn.width = 1000, config.heads = 2;
  config.encoder.depth = 2, config.decoder.depth = 1;
  config.attention.preset = attention, config.max_length = 40;
  return config;
}

const std::vector<ModelPair> kPairs = {{{5, 6, 7, 8, 9, 10, 11, 2}, {1, 12, 13, 14}}, {{20, 21, 2}, {1, 3, 4, 5, 6}}};

// The end token is 2; 6 is a comma, 8 and 21 are other signs.
const std::vector<TokenKind> kKinds = [] {
  std::vector<TokenKind> kinds(30, TokenKind::word);
  kinds[2] = TokenKind::end, kinds[6] = TokenKind::comma, kinds[8] = kinds[21] = TokenKind::punctuation;
  return kinds;
}();

const LayerStatistics& of(const std::vector<LayerStatistics>& layers, const std::string& name) {
  for (const LayerStatistics& layer : layers)
    if (layer.name == name) return layer;
  throw std::runtime_error("no " + name);
}

at::Tensor parameter(const models::Seq2Seq& model, const std::string& name) {
  for (const auto& one : model.parameters().all())
    if (one.name == name) return one.value;
  throw std::runtime_error("no " + name);
}

TEST(Analysis, NamesEveryLayer) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  std::vector<std::string> names, kinds;
  for (const LayerStatistics& layer : analyze_layers(model, kPairs, kKinds)) names.push_back(layer.name), kinds.push_back(layer.kind);
  EXPECT_EQ(names, (std::vector<std::string>{"encoder.0.attn", "encoder.0.mlp", "encoder.1.attn", "encoder.1.mlp", "decoder.0.attn",
                                             "decoder.0.cross_attn", "decoder.0.mlp"}));
  EXPECT_EQ(kinds[2], "encoder self-attention");
  EXPECT_EQ(kinds[5], "decoder cross-attention");
  EXPECT_EQ(analyze_layers(model, kPairs, kKinds)[2].block, 1);
  EXPECT_THROW(analyze_layers(model, {}, kKinds), std::runtime_error);
}

TEST(Analysis, MeansAreOverTheBlocksOfAKind) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  const std::vector<LayerStatistics> layers = analyze_layers(model, kPairs, kKinds), means = means_by_kind(layers);
  ASSERT_EQ(means.size(), 5U);
  EXPECT_EQ(means[1].name, "encoder feed-forward");
  EXPECT_NEAR(means[1].top_shares.back(), 1, 1e-9);
  EXPECT_NEAR(means[1].variance_ratio, (layers[1].variance_ratio + layers[3].variance_ratio) / 2, 1e-12);
  EXPECT_NEAR(means[0].anisotropy, (layers[0].anisotropy + layers[2].anisotropy) / 2, 1e-12);
  EXPECT_NEAR(means[0].source_shares->comma, (layers[0].source_shares->comma + layers[2].source_shares->comma) / 2, 1e-12);
  EXPECT_EQ(means[0].rows, layers[0].rows + layers[2].rows);
  EXPECT_EQ(means[3].kind, "decoder cross-attention");
  EXPECT_EQ(means[3].entropy, layers[5].entropy);
}

// Rows without a weight on a kind of token have their share, too: 0.
TEST(Analysis, WeighsTokensOfTheSource) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  {
    const at::NoGradGuard guard;
    parameter(model, "encoder.0.attn.qkv.weight").narrow(0, 0, 16).zero_();  // even weights
    parameter(model, "encoder.0.attn.qkv.bias").zero_();
  }
  const std::vector<LayerStatistics> layers = analyze_layers(model, kPairs, kKinds);
  // Sources of 8 tokens, with a comma, another sign and the end, and of 3, with a sign and the end; a row for each token.
  const TokenShares& even = *of(layers, "encoder.0.attn").source_shares;
  EXPECT_NEAR(even.punctuation, (8 * 2.0 / 8 + 3 * 1.0 / 3) / 11, 1e-6);
  EXPECT_NEAR(even.comma, (8 * 1.0 / 8) / 11, 1e-6);
  EXPECT_NEAR(even.end, (8 * 1.0 / 8 + 3 * 1.0 / 3) / 11, 1e-6);
  const TokenShares tokens = source_token_shares(kPairs, kKinds);
  EXPECT_NEAR(even.punctuation, tokens.punctuation, 1e-6);
  EXPECT_NEAR(even.comma, tokens.comma, 1e-6);
  EXPECT_NEAR(even.end, tokens.end, 1e-6);
  // From the maps of cross-attention, which are means over heads: of one pair, a row counts as the mean of its heads.
  const std::vector<LayerStatistics> one = analyze_layers(model, {kPairs[0]}, kKinds);
  const at::Tensor map = attention_maps(model, kPairs[0])[3].weights;  // [4, 8]
  EXPECT_NEAR(of(one, "decoder.0.cross_attn").source_shares->comma, map.select(1, 1).mean().item<double>(), 1e-6);
  EXPECT_NEAR(of(one, "decoder.0.cross_attn").source_shares->end, map.select(1, 7).mean().item<double>(), 1e-6);
  // The decoder's own tokens and hidden units are none of the source's.
  EXPECT_FALSE(of(layers, "decoder.0.attn").source_shares);
  EXPECT_FALSE(of(layers, "encoder.0.mlp").source_shares);
}

TEST(Analysis, TellsPunctuationFromWords) {
  const text::Vocabulary vocabulary =
      text::Vocabulary::train({"Ein Mann, der lacht.", "Two dogs, 2 cats - all run!", "Er sagt: „Nein“, und geht."}, {.size = 60});
  const std::vector<TokenKind> kinds = token_kinds(vocabulary);
  ASSERT_EQ(kinds.size(), 60U);
  EXPECT_EQ(kinds[static_cast<size_t>(vocabulary.eos())], TokenKind::end);
  EXPECT_EQ(kinds[static_cast<size_t>(vocabulary.bos())], TokenKind::word);
  EXPECT_EQ(kinds[static_cast<size_t>(vocabulary.unk())], TokenKind::word);
  const std::set<std::string> signs = {".", "!", "-", ":", "“", "„", "▁-", "▁„"}, words = {"a", "▁", "2", "▁2", "n"};
  int found = 0;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& piece = vocabulary.piece(id);
    const TokenKind kind = kinds[static_cast<size_t>(id)];
    found += signs.contains(piece) ? 1 : 0;
    EXPECT_EQ(kind == TokenKind::comma, piece == ",") << piece;
    EXPECT_TRUE(!signs.contains(piece) || kind == TokenKind::punctuation) << piece;
    EXPECT_TRUE(!words.contains(piece) || kind == TokenKind::word) << piece;
  }
  EXPECT_GE(found, 4);
}

TEST(Analysis, OfEvenWeightsAndEqualValues) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  {
    const at::NoGradGuard guard;
    // No query, so that all keys weigh the same; no input to the values, so that all are the same.
    parameter(model, "encoder.0.attn.qkv.weight").zero_();
    parameter(model, "encoder.0.attn.qkv.bias").narrow(0, 32, 16).fill_(0.5);
    parameter(model, "decoder.0.attn.qkv.weight").narrow(0, 0, 16).zero_();
  }
  const std::vector<LayerStatistics> layers = analyze_layers(model, kPairs, kKinds);
  const LayerStatistics& encoder = of(layers, "encoder.0.attn");
  EXPECT_EQ(encoder.rows, 2 * (8 + 3));
  EXPECT_NEAR(encoder.weight_sum, 1, 1e-6);
  EXPECT_NEAR(encoder.entropy, (8 * std::log(8.0) + 3 * std::log(3.0)) / 11, 1e-6);
  EXPECT_NEAR(encoder.relative_entropy, 1, 1e-6);
  EXPECT_EQ(encoder.zero_share, 0);
  EXPECT_NEAR(encoder.anisotropy, 1, 1e-6);
  // The top 50%: 4 of 8 keys, and 2 of 3.
  EXPECT_NEAR(encoder.top_shares[8], (8 * 0.5 + 3 * 2.0 / 3) / 11, 1e-6);
  EXPECT_NEAR(encoder.top_shares[0], (8 / 8.0 + 3 / 3.0) / 11, 1e-6) << "at least one key";
  EXPECT_NEAR(encoder.top_shares[9], 1, 1e-6);
  // Row t of the decoder sees t + 1 tokens.
  double entropy = 0, rows = 0;
  for (const int length : {4, 5})
    for (int seen = 1; seen <= length; ++seen) entropy += std::log(static_cast<double>(seen)), ++rows;
  EXPECT_NEAR(of(layers, "decoder.0.attn").entropy, entropy / rows, 1e-6);
  EXPECT_NEAR(of(layers, "decoder.0.attn").relative_entropy, 1, 1e-6);
  EXPECT_NEAR(of(layers, "decoder.0.cross_attn").weight_sum, 1, 1e-6);
  EXPECT_LT(of(layers, "decoder.0.cross_attn").anisotropy, 0.999);
}

TEST(Analysis, OfReluMemories) {
  const models::Seq2Seq model(small_model("reluformer"), 2);
  const std::vector<LayerStatistics> layers = analyze_layers(model, kPairs, kKinds);
  for (const LayerStatistics& layer : layers) {
    EXPECT_GT(layer.zero_share, 0.2) << layer.name;
    EXPECT_LT(layer.zero_share, 0.8) << layer.name;
    EXPECT_LT(layer.relative_entropy, 1) << layer.name;
    EXPECT_GT(layer.variance_ratio, 0) << layer.name;
  }
  // 1000 random values of width 16 point everywhere.
  EXPECT_NEAR(of(layers, "encoder.0.mlp").anisotropy, 0, 0.02);
  {
    // All hidden units off but three that say 1, 2 and 7, whatever is read.
    const at::NoGradGuard guard;
    parameter(model, "encoder.0.mlp.fc1.weight").zero_();
    const at::Tensor bias = parameter(model, "encoder.0.mlp.fc1.bias");
    bias.fill_(-1);
    bias[10] = 1, bias[500] = 2, bias[900] = 7;
  }
  const std::vector<LayerStatistics> after = analyze_layers(model, kPairs, kKinds);
  const LayerStatistics& layer = of(after, "encoder.0.mlp");
  EXPECT_EQ(layer.rows, 11);
  EXPECT_NEAR(layer.weight_sum, 10, 1e-5);
  EXPECT_NEAR(layer.zero_share, 0.997, 1e-9);
  EXPECT_NEAR(layer.top_shares[0], 0.7, 1e-6) << "0.1% of 1000 hidden units";
  EXPECT_NEAR(layer.top_shares[1], 0.9, 1e-6);
  EXPECT_NEAR(layer.top_shares[2], 1, 1e-6);
  EXPECT_NEAR(layer.entropy, -(0.1 * std::log(0.1) + 0.2 * std::log(0.2) + 0.7 * std::log(0.7)), 1e-6);
  EXPECT_NEAR(layer.relative_entropy, layer.entropy / std::log(1000.0), 1e-9);
}

TEST(Analysis, ComparesOutputsWithResiduals) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  models::Seq2SeqViews views;
  models::Seq2SeqOptions options;
  options.views = &views;
  const at::NoGradGuard guard;
  double out = 0, residual = 0;
  for (const ModelPair& pair : kPairs) {
    views = {};
    model.forward(models::sequences_of({pair.source}), models::sequences_of({pair.target}), options);
    for (int64_t token = 0; token < static_cast<int64_t>(pair.source.size()); ++token)
      for (const auto& [x, sum] : {std::pair(views.layers[3].output, &out), std::pair(views.layers[3].residual, &residual)}) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < 16; ++c) mean += x[token][c].item<double>() / 16, square += std::pow(x[token][c].item<double>(), 2) / 16;
        *sum += square - mean * mean;
      }
  }
  EXPECT_NEAR(of(analyze_layers(model, kPairs, kKinds), "encoder.1.mlp").variance_ratio, out / residual, 1e-6 * out / residual + 1e-9);
}

TEST(AttentionMaps, AreTheWeightsOfTokensOnTokens) {
  const models::Seq2Seq model(small_model("softmax"), 1);
  const std::vector<AttentionMap> maps = attention_maps(model, kPairs[0]);
  ASSERT_EQ(maps.size(), 4U);
  EXPECT_EQ(maps[0].name, "encoder.0.attn");
  EXPECT_TRUE(maps[0].source_columns && maps[0].source_rows);
  EXPECT_TRUE(!maps[2].source_columns && !maps[2].source_rows);
  EXPECT_EQ(maps[3].name, "decoder.0.cross_attn");
  EXPECT_TRUE(maps[3].source_columns && !maps[3].source_rows);
  EXPECT_EQ(maps[0].weights.sizes(), (at::IntArrayRef{8, 8}));
  EXPECT_EQ(maps[2].weights.sizes(), (at::IntArrayRef{4, 4}));
  EXPECT_EQ(maps[3].weights.sizes(), (at::IntArrayRef{4, 8}));
  for (const AttentionMap& map : maps) EXPECT_LT((map.weights.sum(1) - 1).abs().max().item<double>(), 1e-5) << map.name;
  EXPECT_EQ(maps[2].weights.triu(1).abs().max().item<double>(), 0) << "nothing is read before it is there";
}

}  // namespace
}  // namespace hinge::eval
