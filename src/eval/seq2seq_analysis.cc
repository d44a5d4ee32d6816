#include "eval/seq2seq_analysis.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "text/unicode.h"

namespace hinge::eval {
namespace {

using at::Tensor;

models::Seq2SeqViews views_of(const models::Seq2Seq& model, const ModelPair& pair) {
  const at::NoGradGuard guard;
  models::Seq2SeqViews views;
  models::Seq2SeqOptions options;
  options.views = &views;
  model.forward(models::sequences_of({pair.source}), models::sequences_of({pair.target}), options);
  return views;
}

double number(const Tensor& tensor) { return tensor.item<double>(); }

// Sums over all pairs, of one layer.
struct Sums {
  double output_variance = 0, residual_variance = 0, tokens = 0;
  double weight_sum = 0, rows = 0, zeros = 0, weights = 0;
  double entropy = 0, with_weights = 0;
  double relative_entropy = 0, with_choice = 0;
  std::array<double, kTopPercents.size()> top_shares{};
  double cosine = 0, groups = 0;
  TokenShares source;
  double with_source = 0;  // rows
};

// The mean cosine of two different rows of each of x [..., n, width], added up over the groups; n >= 2.
Tensor mean_cosines(const Tensor& x) {
  const Tensor unit = x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-30);
  const auto n = static_cast<double>(x.size(-2));
  // |sum u|^2 holds every pair twice and every vector with itself.
  const Tensor whole = unit.sum(-2).square().sum(-1), itself = unit.square().sum({-2, -1});
  return (whole - itself) / (n * (n - 1));
}

// Rows of weights [rows, n] that all see n keys.
void add_rows(Sums& sums, const Tensor& weights) {
  const Tensor w = weights.to(at::kDouble).abs();
  const int64_t n = w.size(1);
  sums.weight_sum += number(weights.to(at::kDouble).sum());
  sums.rows += static_cast<double>(w.size(0));
  sums.zeros += number((w == 0).sum().to(at::kDouble));
  sums.weights += static_cast<double>(w.numel());
  const Tensor total = w.sum(1), some = total > 0;
  const Tensor p = w.index({some}) / total.index({some}).unsqueeze(1);  // [rows with weights, n]
  if (p.size(0) == 0) return;
  const double entropy = -number(at::xlogy(p, p).sum());
  sums.entropy += entropy;
  sums.with_weights += static_cast<double>(p.size(0));
  if (n > 1) sums.relative_entropy += entropy / std::log(static_cast<double>(n)), sums.with_choice += static_cast<double>(p.size(0));
  const Tensor held = std::get<0>(p.sort(1, /*descending=*/true)).cumsum(1);
  for (size_t i = 0; i < kTopPercents.size(); ++i) {
    const auto most = static_cast<int64_t>(std::ceil(kTopPercents[i] / 100 * static_cast<double>(n) - 1e-9));
    sums.top_shares[i] += number(held.select(1, std::clamp<int64_t>(most, 1, n) - 1).sum());
  }
}

// Where the source's tokens are of a kind, float64 [S].
struct SourceMasks {
  Tensor punctuation, comma, end;

  SourceMasks(const std::vector<int64_t>& source, const std::vector<TokenKind>& kinds) {
    std::vector<double> signs, commas, ends;
    for (const int64_t token : source) {
      const TokenKind kind = kinds.at(static_cast<size_t>(token));
      signs.push_back(kind == TokenKind::punctuation || kind == TokenKind::comma ? 1 : 0);
      commas.push_back(kind == TokenKind::comma ? 1 : 0);
      ends.push_back(kind == TokenKind::end ? 1 : 0);
    }
    punctuation = at::tensor(signs, at::kDouble), comma = at::tensor(commas, at::kDouble), end = at::tensor(ends, at::kDouble);
  }
};

// weights [H, T, S]: each row's share on the tokens of a kind, of rows that have weights.
void add_source_shares(Sums& sums, const Tensor& weights, const SourceMasks& masks) {
  const Tensor w = weights.to(at::kDouble).abs().flatten(0, 1), total = w.sum(1), some = total > 0;
  const Tensor p = w.index({some}) / total.index({some}).unsqueeze(1);
  sums.source.punctuation += number(p.mv(masks.punctuation).sum());
  sums.source.comma += number(p.mv(masks.comma).sum());
  sums.source.end += number(p.mv(masks.end).sum());
  sums.with_source += static_cast<double>(p.size(0));
}

bool in_encoder(const nn::LayerView& view) { return view.name.starts_with("encoder."); }
// Whether the keys of an attention are the source's tokens.
bool attends_to_source(const nn::LayerView& view) { return in_encoder(view) || view.name.ends_with(".cross_attn"); }

void add(Sums& sums, const nn::LayerView& view, const SourceMasks& masks, bool first_pair) {
  const auto variance = [](const Tensor& x) { return number(x.to(at::kDouble).var(1, /*unbiased=*/false).sum()); };
  sums.output_variance += variance(view.output);
  sums.residual_variance += variance(view.residual);
  sums.tokens += static_cast<double>(view.output.size(0));
  if (!view.attention) {
    add_rows(sums, nn::hidden_units(*view.ffn));
    if (first_pair) sums.cosine = number(mean_cosines(view.ffn->values.to(at::kDouble))), sums.groups = 1;  // parameters: always the same
    return;
  }
  const Tensor weights = nn::attention_weights(*view.attention)[0];  // [H, T, S]
  const int64_t queries = weights.size(1), keys = weights.size(2);
  if (view.attention->options.attention.causal) {
    for (int64_t row = 0; row < queries; ++row) add_rows(sums, weights.select(1, row).narrow(1, 0, keys - queries + row + 1));
  } else {
    add_rows(sums, weights.reshape({-1, keys}));
  }
  if (attends_to_source(view)) add_source_shares(sums, weights, masks);
  if (keys < 2) return;
  const Tensor cosines = mean_cosines(view.attention->v[0].to(at::kDouble));  // [H]
  sums.cosine += number(cosines.sum());
  sums.groups += static_cast<double>(cosines.numel());
}

// "decoder.3.cross_attn" is number 3 of the kind "decoder cross-attention".
void name_parts(LayerStatistics& layer) {
  const size_t first = layer.name.find('.'), second = layer.name.find('.', first + 1);
  const std::string part = layer.name.substr(second + 1);
  layer.kind = layer.name.substr(0, first) + (part == "attn"         ? " self-attention"
                                              : part == "cross_attn" ? " cross-attention"
                                                                     : " feed-forward");
  layer.block = std::stoll(layer.name.substr(first + 1, second - first - 1));
}

double ratio(double sum, double count) { return count > 0 ? sum / count : 0; }

}  // namespace

std::vector<ModelPair> sample_pairs(const text::Corpus& corpus, int64_t most) {
  std::vector<ModelPair> pairs;
  const int64_t count = std::min(most, corpus.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t item = i * corpus.size() / count;
    const auto source = corpus.source(item), target = corpus.target(item);
    ModelPair pair{{source.begin(), source.end()}, {corpus.bos()}};
    pair.target.insert(pair.target.end(), target.begin(), target.end());
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<TokenKind> token_kinds(const text::Vocabulary& vocabulary) {
  constexpr std::string_view kSpace = "\u2581";
  std::vector<TokenKind> kinds(static_cast<size_t>(vocabulary.size()), TokenKind::word);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    std::string_view piece = vocabulary.piece(id);
    if (piece.starts_with(kSpace)) piece.remove_prefix(kSpace.size());
    const std::u32string points = text::to_code_points(piece);
    const bool has_word = std::any_of(points.begin(), points.end(), [](char32_t c) { return text::is_letter(c) || text::is_digit(c); });
    if (!points.empty() && !has_word) kinds[static_cast<size_t>(id)] = piece == "," ? TokenKind::comma : TokenKind::punctuation;
  }
  kinds[static_cast<size_t>(vocabulary.eos())] = TokenKind::end;
  return kinds;
}

TokenShares source_token_shares(const std::vector<ModelPair>& pairs, const std::vector<TokenKind>& kinds) {
  TokenShares shares;
  double tokens = 0;
  for (const ModelPair& pair : pairs) {
    const SourceMasks masks(pair.source, kinds);
    shares.punctuation += number(masks.punctuation.sum()), shares.comma += number(masks.comma.sum());
    shares.end += number(masks.end.sum());
    tokens += static_cast<double>(pair.source.size());
  }
  return {shares.punctuation / tokens, shares.comma / tokens, shares.end / tokens};
}

std::vector<LayerStatistics> analyze_layers(const models::Seq2Seq& model, const std::vector<ModelPair>& pairs,
                                            const std::vector<TokenKind>& kinds) {
  if (pairs.empty()) throw std::runtime_error("there is no text to analyse the model on");
  const at::NoGradGuard guard;
  std::vector<LayerStatistics> layers;
  std::vector<Sums> sums;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const models::Seq2SeqViews views = views_of(model, pairs[i]);
    if (i == 0) {
      sums.resize(views.layers.size()), layers.resize(sums.size());
      for (size_t m = 0; m < sums.size(); ++m) layers[m].name = views.layers[m].name, name_parts(layers[m]);
    }
    const SourceMasks masks(pairs[i].source, kinds);
    for (size_t m = 0; m < sums.size(); ++m) add(sums[m], views.layers[m], masks, i == 0);
  }
  for (size_t m = 0; m < sums.size(); ++m) {
    const Sums& sum = sums[m];
    LayerStatistics& layer = layers[m];
    layer.rows = static_cast<int64_t>(sum.rows);
    layer.variance_ratio = ratio(sum.output_variance, sum.residual_variance);
    layer.weight_sum = ratio(sum.weight_sum, sum.rows);
    layer.entropy = ratio(sum.entropy, sum.with_weights);
    layer.relative_entropy = ratio(sum.relative_entropy, sum.with_choice);
    layer.zero_share = ratio(sum.zeros, sum.weights);
    layer.anisotropy = ratio(sum.cosine, sum.groups);
    for (size_t i = 0; i < kTopPercents.size(); ++i) layer.top_shares[i] = ratio(sum.top_shares[i], sum.with_weights);
    if (sum.with_source > 0)
      layer.source_shares = {sum.source.punctuation / sum.with_source, sum.source.comma / sum.with_source,
                             sum.source.end / sum.with_source};
  }
  return layers;
}

std::vector<LayerStatistics> means_by_kind(const std::vector<LayerStatistics>& layers) {
  std::vector<LayerStatistics> means;
  for (const LayerStatistics& first : layers) {
    if (std::any_of(means.begin(), means.end(), [&](const LayerStatistics& known) { return known.kind == first.kind; })) continue;
    LayerStatistics mean{.name = first.kind, .kind = first.kind};
    const auto count = static_cast<double>(
        std::count_if(layers.begin(), layers.end(), [&](const LayerStatistics& layer) { return layer.kind == first.kind; }));
    for (const LayerStatistics& layer : layers) {
      if (layer.kind != first.kind) continue;
      mean.rows += layer.rows;
      for (double LayerStatistics::*value :
           {&LayerStatistics::variance_ratio, &LayerStatistics::weight_sum, &LayerStatistics::entropy, &LayerStatistics::relative_entropy,
            &LayerStatistics::zero_share, &LayerStatistics::anisotropy})
        mean.*value += layer.*value / count;
      for (size_t i = 0; i < kTopPercents.size(); ++i) mean.top_shares[i] += layer.top_shares[i] / count;
      if (!layer.source_shares) continue;
      if (!mean.source_shares) mean.source_shares.emplace();
      for (double TokenShares::*share : {&TokenShares::punctuation, &TokenShares::comma, &TokenShares::end})
        *mean.source_shares.*share += *layer.source_shares.*share / count;
    }
    means.push_back(std::move(mean));
  }
  return means;
}

std::vector<AttentionMap> attention_maps(const models::Seq2Seq& model, const ModelPair& pair) {
  const at::NoGradGuard guard;
  std::vector<AttentionMap> maps;
  for (const nn::LayerView& view : views_of(model, pair).layers) {
    if (!view.attention) continue;
    maps.push_back(
        {view.name, attends_to_source(view), in_encoder(view), nn::attention_weights(*view.attention)[0].to(at::kDouble).mean(0)});
  }
  return maps;
}

}  // namespace hinge::eval
