#include "models/seq2seq.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "hinge/ops/dense.h"
#include "hinge/ops/sequence.h"
#include "models/sizes.h"
#include "support/require.h"

namespace hinge::models {
namespace {

using at::Tensor;
using nn::Forward;
using support::require;

struct Size {
  const char* name;
  int64_t width, ffn_width, heads, depth;  // encoder and decoder are equally deep
};
// iwslt and base are the usual ones for IWSLT14 and WMT14.
constexpr Size kSizes[] = {{"tiny", 128, 256, 4, 4}, {"small", 256, 1024, 4, 4}, {"iwslt", 512, 1024, 4, 6}, {"base", 512, 2048, 8, 6}};

// The message is made only when it is needed: this runs over every sequence of every forward pass.
void check_sequences(const char* what, const Sequences& sequences, const Seq2SeqConfig& config) {
  const auto integers = [](const Tensor& t) { return t.defined() && t.is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1; };
  const auto fail = [&](const std::string& problem) { throw std::runtime_error(fmt::format("{}: {}", what, problem)); };
  if (!integers(sequences.tokens) || !integers(sequences.offsets) || sequences.offsets.numel() < 2)
    fail("tokens and offsets must be int64 tensors of one dimension, with at least one sequence");
  const Tensor offsets = sequences.offsets.contiguous();
  const int64_t *at = offsets.data_ptr<int64_t>(), tokens = sequences.tokens.numel();
  if (at[0] != 0 || at[sequences.count()] != tokens) fail(fmt::format("offsets must go from 0 to the number of tokens, {}", tokens));
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const int64_t length = at[s + 1] - at[s];
    if (length <= 0) fail(fmt::format("sequence {} has no tokens", s));
    if (length > config.max_length)
      fail(fmt::format("sequence {} has {} tokens, more than model.max_length {}", s, length, config.max_length));
  }
  const auto [least, most] = at::aminmax(sequences.tokens);
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  if (low < 0 || high >= config.vocabulary) fail(fmt::format("tokens must be in [0, {}), got {}", config.vocabulary, low < 0 ? low : high));
}

std::vector<nn::BlockConfig> blocks_of(const Seq2SeqConfig& config, bool decoder) {
  nn::BlockConfig block;
  block.width = *config.width, block.heads = *config.heads;
  block.attention = decoder ? config.decoder_attention() : config.encoder_attention();
  block.attention_key = decoder ? "model.decoder.attention" : "model.encoder.attention";
  if (decoder) block.cross = config.cross_attention(), block.cross_key = "model.cross.attention";
  block.causal = decoder;
  block.ffn = config.ffn, block.norm = config.norm, block.dropout = config.dropout;
  block.gradient_checkpointing = config.gradient_checkpointing;
  const int64_t depth = decoder ? config.decoder_depth() : config.encoder_depth();
  std::vector<nn::BlockConfig> blocks;
  for (int64_t i = 0; i < depth; ++i) {
    block.drop_path = nn::drop_path_of(config.drop_path, i, depth);
    blocks.push_back(block);
  }
  return blocks;
}

// Nothing: no ranks, all tokens are here.
std::optional<nn::SequenceSplit> split_of(const Sequences& sequences, nn::SequenceRanks* ranks, const nn::TokenShares& context = {}) {
  if (!ranks) return {};
  const int rank = ranks->rank(), count = ranks->count();
  return nn::SequenceSplit{ranks, nn::TokenShares::of_sequences(sequences.offsets, count), context,
                           nn::rows_of_rank(sequences.offsets, rank, count)};
}

// Where the sequences begin among the rows that are here.
Tensor offsets_of(const Sequences& sequences, const Forward& forward) {
  const nn::SequenceSplit* split = forward.sequence;
  return split ? split->own.offsets[static_cast<size_t>(split->ranks->rank())] : sequences.offsets;
}

}  // namespace

// ---- configuration

std::vector<std::pair<std::string, PackedAttentionOptions>> attention_options(const Seq2SeqConfig& config) {
  return {{"encoder", nn::attention_options(config.encoder_attention(), "model.encoder.attention")},
          {"decoder", nn::attention_options(config.decoder_attention(), "model.decoder.attention", /*causal=*/true)},
          {"cross", nn::attention_options(config.cross_attention(), "model.cross.attention")}};
}

Seq2SeqConfig resolved(Seq2SeqConfig config) {
  const std::string name = config.size.empty() ? "iwslt" : config.size;
  const auto size = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& one) { return name == one.name; });
  require(size != std::end(kSizes), "model.size: '" + name + "' is not one of tiny, small, iwslt, base");
  const std::string named = config.size.empty() ? "" : "model.size " + name;
  fill_in_size("width", config.width, size->width, named);
  fill_in_size("depth", config.depth, size->depth, named);
  fill_in_size("heads", config.heads, size->heads, named);
  fill_in_size("ffn.width", config.ffn.width, size->ffn_width, "");  // may differ: the size of the layer that the paper varies
  const auto positive = [](const char* key, int64_t value) {
    require(value > 0, fmt::format("model.{} must be at least 1, got {}", key, value));
  };
  positive("vocabulary", config.vocabulary);
  positive("max_length", config.max_length);
  positive("encoder.depth", config.encoder_depth());
  positive("decoder.depth", config.decoder_depth());
  require(*config.width % *config.heads == 0,
          fmt::format("model.width {} is not a multiple of model.heads {}", *config.width, *config.heads));
  require(config.position != nn::Position::sinusoidal || *config.width % 2 == 0,
          fmt::format("model.position sinusoidal needs an even width, got {}", *config.width));
  for (const auto& [key, value] : {std::pair<const char*, double>{"dropout", config.dropout}, {"drop_path", config.drop_path}})
    require(value >= 0 && value < 1, fmt::format("model.{} must be in [0, 1), got {}", key, value));
  check(config.ffn, "model.ffn");
  nn::attention_options(config.attention, "model.attention");
  attention_options(config);
  return config;
}

void require_splittable(const Seq2SeqConfig& config, int64_t ranks) {
  if (ranks == 1) return;
  nn::require_splittable(config.encoder_attention(), "model.encoder.attention");
  nn::require_splittable(config.decoder_attention(), "model.decoder.attention");
  nn::require_splittable(config.cross_attention(), "model.cross.attention");
  for (const auto& [name, options] : attention_options(config)) {
    const kernels::LengthRule rule = options.attention.length_rule;
    require(
        !options.attention.bias_log_n || rule == kernels::LengthRule::none || rule == kernels::LengthRule::fixed,
        fmt::format("model.{}.attention: the bias of the preset sigmoid depends on each row's length: train.sequence_parallel must be 1",
                    name));
  }
}

Sequences sequences_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> tokens, offsets = {0};
  for (const std::vector<int64_t>& row : rows) {
    tokens.insert(tokens.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int64_t>(tokens.size()));
  }
  return {at::tensor(tokens, at::kLong), at::tensor(offsets, at::kLong)};
}

// ---- the model

Seq2Seq::Seq2Seq(const Seq2SeqConfig& given, uint64_t seed) : config_(resolved(given)) {
  const at::NoGradGuard guard;
  const nn::Builder builder{parameters_, at::make_generator<at::CPUGeneratorImpl>(seed)};
  const int64_t width = *config_.width;
  const double deviation = 1 / std::sqrt(static_cast<double>(width));
  if (config_.tied) {
    source_embedding_ = target_embedding_ = output_ = builder.normal("embedding.weight", {config_.vocabulary, width}, deviation);
  } else {
    source_embedding_ = builder.normal("encoder.embedding.weight", {config_.vocabulary, width}, deviation);
    target_embedding_ = builder.normal("decoder.embedding.weight", {config_.vocabulary, width}, deviation);
    output_ = builder.normal("output.weight", {config_.vocabulary, width}, deviation, /*decays=*/true);
  }
  if (config_.position == nn::Position::learned) {
    source_positions_ = builder.normal("encoder.positions.weight", {config_.max_length, width}, deviation);
    target_positions_ = builder.normal("decoder.positions.weight", {config_.max_length, width}, deviation);
  } else {
    source_positions_ = target_positions_ = nn::sinusoidal_positions(config_.max_length, width);
  }
  const bool pre = config_.norm == nn::NormPlacement::pre;
  encoder_.emplace(builder, "encoder", blocks_of(config_, /*decoder=*/false));
  if (pre) encoder_norm_ = nn::Norm(builder, "encoder.norm", width);
  decoder_.emplace(builder, "decoder", blocks_of(config_, /*decoder=*/true));
  if (pre) decoder_norm_ = nn::Norm(builder, "decoder.norm", width);
}

bool Seq2Seq::has_regulariser() const { return encoder_->regularised() || decoder_->regularised(); }

Tensor Seq2Seq::embedded(const Tensor& embedding, const Tensor& positions, const Sequences& sequences, const Forward& forward) const {
  const double dropout = forward.noise ? config_.dropout : 0;
  const Tensor all = embed_tokens(embedding, sequences.tokens, sequences.offsets, positions.to(embedding.scalar_type()),
                                  std::sqrt(static_cast<double>(*config_.width)), dropout, dropout > 0 ? forward.noise->next() : 0);
  return forward.sequence ? all.index_select(0, forward.sequence->numbers) : all;
}

Tensor Seq2Seq::encoded(const Sequences& source, const Forward& forward) const {
  const Tensor offsets = offsets_of(source, forward);
  const nn::BlockContext context{.self = {offsets, offsets}};
  return encoder_->forward(embedded(source_embedding_, source_positions_, source, forward), context, forward).finish(encoder_norm_);
}

Tensor Seq2Seq::run(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options, Tensor* regulariser) const {
  check_sequences("source", source, config_);
  check_sequences("target", target, config_);
  if (source.count() != target.count())
    throw std::runtime_error(fmt::format("there are {} source sequences and {} target sequences", source.count(), target.count()));
  require(!options.regulariser || has_regulariser(),
          "the regulariser is that of attention with relu, relu2 or relu6 weights, and no attention of this model has them");
  nn::Noise noise(options.noise.value_or(0));
  nn::Regulariser total{options.regulariser_margin};
  const std::optional<nn::SequenceSplit> of_source = split_of(source, options.ranks);
  const std::optional<nn::SequenceSplit> of_target = split_of(target, options.ranks, of_source ? of_source->own : nn::TokenShares());
  const auto given_to = [&](const std::optional<nn::SequenceSplit>& split) {
    return Forward{options.noise ? &noise : nullptr, options.regulariser ? &total : nullptr,
                   options.views ? &options.views->layers : nullptr, split ? &*split : nullptr};
  };
  const Forward of_encoder = given_to(of_source), forward = given_to(of_target);
  const Tensor context = encoded(source, of_encoder);
  const Tensor source_offsets = offsets_of(source, of_encoder), target_offsets = offsets_of(target, forward);
  const nn::BlockContext attends{{target_offsets, target_offsets}, context, {target_offsets, source_offsets}};
  const Tensor decoded =
      decoder_->forward(embedded(target_embedding_, target_positions_, target, forward), attends, forward).finish(decoder_norm_);
  if (options.views) options.views->encoder = context, options.views->decoder = decoded;
  if (options.regulariser) *regulariser = total.sum / static_cast<double>(total.attentions);
  return decoded;
}

Seq2SeqOutput Seq2Seq::forward(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options) const {
  Seq2SeqOutput result;
  const Tensor decoded = run(source, target, options, &result.regulariser);
  result.logits = hinge::linear(decoded, output_);
  return result;
}

Seq2SeqLoss Seq2Seq::loss(const Sequences& source, const Sequences& target, const Tensor& labels, const Seq2SeqOptions& options) const {
  Seq2SeqLoss result;
  const Tensor decoded = run(source, target, options, &result.regulariser);
  result.tokens = decoded.size(0);
  if (result.tokens == 0) {  // of a rank that has no target tokens: nothing, but in the graph, as the others are
    result.loss = decoded.sum();
    return result;
  }
  const Tensor own =
      options.ranks ? labels.index_select(0, nn::rows_of_rank(target.offsets, options.ranks->rank(), options.ranks->count())) : labels;
  const ProjectedLoss projected = projected_cross_entropy(decoded, output_, own, options.label_smoothing);
  result.loss = projected.loss, result.nll = projected.nll, result.right = projected.right;
  return result;
}

// ---- decoding

KvCache Seq2Seq::encode(const Sequences& source, nn::SequenceRanks* ranks) const {
  check_sequences("source", source, config_);
  const at::NoGradGuard guard;
  const std::optional<nn::SequenceSplit> split = split_of(source, ranks);
  Forward forward;
  if (split) forward.sequence = &*split;
  const Tensor context = encoded(source, forward);
  std::vector<Tensor> cached;
  for (const nn::Block& block : decoder_->blocks()) cached.push_back(block.context_keys_and_values(context));
  if (!split) return {std::move(cached), source.offsets};
  return {std::move(cached), offsets_of(source, forward), nn::SequenceSplit{ranks, {}, split->own, {}}};
}

Tensor Seq2Seq::step(const Tensor& tokens, KvCache& cache) const {
  const int64_t rows = cache.rows(), at = cache.length();
  if (!tokens.defined() || tokens.scalar_type() != at::kLong || tokens.dim() != 1 || tokens.size(0) != rows || rows == 0)
    throw std::runtime_error(fmt::format("a step takes one token (int64) for each of the {} rows of the cache", rows));
  if (at >= config_.max_length) throw std::runtime_error(fmt::format("the target is longer than model.max_length {}", config_.max_length));
  const at::NoGradGuard guard;
  cache.make_room();
  const Sequences last{tokens, at::arange(rows + 1, at::kLong)};
  const Forward forward;
  nn::ResidualStream stream = decoder_->stream(embedded(target_embedding_, target_positions_.narrow(0, at, 1), last, forward), {}, forward);
  for (size_t i = 0; i < decoder_->blocks().size(); ++i)
    decoder_->blocks()[i].step(stream, cache.block(i), at, cache.cross(), cache.split());
  cache.advance();
  return hinge::linear(stream.finish(decoder_norm_), output_);
}

// ---- size of the work

double Seq2Seq::flops(const std::vector<int64_t>& source_lengths, const std::vector<int64_t>& target_lengths) const {
  require(source_lengths.size() == target_lengths.size(), "flops: as many source lengths as target lengths");
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double C = d(*config_.width), W = d(*config_.ffn.width);
  const auto gate = [&](const nn::AttentionConfig& attention) { return attention.has_gate() ? C * C : 0.0; };
  double pairs = 0;
  for (size_t i = 0; i < source_lengths.size(); ++i) {
    const double S = d(source_lengths[i]), T = d(target_lengths[i]);
    pairs += d(config_.encoder_depth()) * (S * (4 * C * C + 2 * C * W + gate(config_.encoder_attention())) + 2 * S * S * C);
    pairs += d(config_.decoder_depth()) *
             (T * (4 * C * C + 2 * C * C + 2 * C * W + gate(config_.decoder_attention()) + gate(config_.cross_attention())) +
              S * 2 * C * C + 2 * C * T * (T + 1) / 2 + 2 * C * S * T);
    pairs += T * C * d(config_.vocabulary);
  }
  return 2 * pairs;
}

}  // namespace hinge::models
