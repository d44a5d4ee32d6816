#include "models/seq2seq.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "hinge/ops/sequence.h"
#include "models/sizes.h"
#include "nn/random.h"
#include "support/require.h"

namespace hinge::models {
namespace {

using at::Tensor;
using nn::Forward;
using nn::Rows;
using support::require;

struct Size {
  const char* name;
  int64_t width, slots, heads, depth;  // encoder and decoder are equally deep
};
// iwslt and base are the usual ones for IWSLT14 and WMT14.
constexpr Size kSizes[] = {{"tiny", 128, 256, 4, 4}, {"small", 256, 1024, 4, 4}, {"iwslt", 512, 1024, 4, 6}, {"base", 512, 2048, 8, 6}};

struct Norm {
  Tensor weight, bias;
  Norm(const nn::Builder& builder, const std::string& name, int64_t width)
      : weight(builder.constant(name + ".weight", {width}, 1)), bias(builder.constant(name + ".bias", {width}, 0)) {}
};

// The residual stream of a stack. Before (pre) or after (post) each branch there is a norm; the sum that ends a branch and the next norm
// are one pass. `norms`: those of the branches in their order, and behind them the last one of a pre-norm stack.
class Stream {
 public:
  Stream(const Tensor& x, const std::vector<Norm>& norms, bool pre, double dropout, const Forward& forward)
      : norms_(norms), pre_(pre), dropout_(forward.noise ? dropout : 0), noise_(forward.noise), x_(x), input_(x) {
    if (pre_) std::tie(input_, x_) = layer_norm_fork(x, norms_[0].weight, norms_[0].bias, nn::kNormEps);
  }

  const Tensor& residual() const { return x_; }
  const Tensor& input() const { return input_; }  // of the next branch; after the last one, the result of the stack

  void add(const Tensor& branch) {
    const Norm& norm = norms_[branches_++ + (pre_ ? 1 : 0)];
    const auto [normed, sum] = residual_norm(x_, branch, norm.weight, norm.bias, nn::kNormEps, dropout_, dropout_ > 0 ? noise_->next() : 0);
    input_ = normed;
    x_ = pre_ ? sum : normed;
  }

 private:
  const std::vector<Norm>& norms_;
  bool pre_;
  double dropout_;
  nn::Noise* noise_;
  Tensor x_, input_;
  size_t branches_ = 0;
};

// Runs a branch and adds it to the stream; shows it if that is asked for.
template <class Branch>
void run_branch(Stream& stream, Forward forward, Seq2SeqViews* views, const std::string& name, const Branch& branch) {
  nn::MemoryView view;
  if (views) forward.view = &view;
  const Tensor out = branch(stream.input(), forward);
  if (views) {
    view.name = name, view.residual = stream.residual(), view.output = out;
    views->memories.push_back(view);
  }
  stream.add(out);
}

struct EncoderLayer {
  nn::LocalMemory self;
  nn::GlobalMemory ffn;
};

struct DecoderLayer {
  nn::LocalMemory self, cross;
  nn::GlobalMemory ffn;
};

void check_sequences(const char* what, const Sequences& sequences, const Seq2SeqConfig& config) {
  const auto integers = [](const Tensor& t) { return t.defined() && t.is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1; };
  require(integers(sequences.tokens) && integers(sequences.offsets) && sequences.offsets.numel() >= 2,
          std::string(what) + ": tokens and offsets must be int64 tensors of one dimension, with at least one sequence");
  const Tensor offsets = sequences.offsets.contiguous();
  const int64_t* at = offsets.data_ptr<int64_t>();
  require(at[0] == 0 && at[sequences.count()] == sequences.tokens.numel(),
          std::string(what) + ": offsets must go from 0 to the number of tokens, " + std::to_string(sequences.tokens.numel()));
  for (int64_t s = 0; s < sequences.count(); ++s) {
    require(at[s + 1] > at[s], std::string(what) + ": sequence " + std::to_string(s) + " has no tokens");
    require(at[s + 1] - at[s] <= config.max_length, std::string(what) + ": sequence " + std::to_string(s) + " has " +
                                                        std::to_string(at[s + 1] - at[s]) + " tokens, more than model.max_length " +
                                                        std::to_string(config.max_length));
  }
  const auto [least, most] = at::aminmax(sequences.tokens);
  require(least.item<int64_t>() >= 0 && most.item<int64_t>() < config.vocabulary,
          std::string(what) + ": tokens must be in [0, " + std::to_string(config.vocabulary) + "), got " +
              std::to_string(least.item<int64_t>() < 0 ? least.item<int64_t>() : most.item<int64_t>()));
}

}  // namespace

// ---- configuration

Seq2SeqConfig resolved(Seq2SeqConfig config) {
  const std::string name = config.size.empty() ? "iwslt" : config.size;
  const auto size = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& one) { return name == one.name; });
  require(size != std::end(kSizes), "model.size: '" + name + "' is not one of tiny, small, iwslt, base");
  const std::string named = config.size.empty() ? "" : "model.size " + name;
  fill_in_size("width", config.width, size->width, named);
  fill_in_size("slots", config.slots, size->slots, "");  // may differ: the size of the memory that the paper varies
  fill_in_size("heads", config.heads, size->heads, named);
  fill_in_size("encoder_depth", config.encoder_depth, size->depth, named);
  fill_in_size("decoder_depth", config.decoder_depth, size->depth, named);
  for (nn::LocalMemoryConfig* memory : {&config.encoder, &config.decoder, &config.cross}) {
    if (memory->preset.empty()) memory->preset = config.attention;
    if (memory->preset == "reluformer" && !memory->gamma) memory->gamma = config.gamma;
    if (!memory->dropout) memory->dropout = config.attention_dropout;
  }
  const auto positive = [](const char* key, int64_t value) {
    require(value > 0, std::string("model.") + key + " must be at least 1, got " + std::to_string(value));
  };
  positive("vocabulary", config.vocabulary);
  positive("max_length", config.max_length);
  require(*config.width % *config.heads == 0,
          fmt::format("model.width {} is not a multiple of model.heads {}", *config.width, *config.heads));
  require(config.norm == "pre" || config.norm == "post", "model.norm: '" + config.norm + "' is not one of pre, post");
  require(config.position == "sinusoidal" || config.position == "learned",
          "model.position: '" + config.position + "' is not one of sinusoidal, learned");
  require(config.position != "sinusoidal" || *config.width % 2 == 0,
          fmt::format("model.position sinusoidal needs an even width, got {}", *config.width));
  for (const auto& [key, value] : {std::pair<const char*, double>{"dropout", config.dropout}, {"ffn_dropout", config.ffn_dropout}})
    require(value >= 0 && value < 1, std::string("model.") + key + " must be in [0, 1), got " + std::to_string(value));
  nn::parse_global_memory(config.ffn);
  nn::read_options(config.encoder, "model.encoder", /*causal=*/false);
  nn::read_options(config.decoder, "model.decoder", /*causal=*/true);
  nn::read_options(config.cross, "model.cross", /*causal=*/false);
  return config;
}

Sequences sequences_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> tokens, offsets = {0};
  for (const std::vector<int64_t>& row : rows) {
    tokens.insert(tokens.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int64_t>(tokens.size()));
  }
  return {at::tensor(tokens, at::kLong), at::tensor(offsets, at::kLong)};
}

Tensor sinusoidal_positions(int64_t length, int64_t width) {
  const Tensor frequency = at::pow(10000.0, -at::arange(0, width, 2, at::kDouble) / static_cast<double>(width));
  const Tensor angle = at::arange(length, at::kDouble).unsqueeze(1) * frequency;  // [length, width / 2]
  return at::stack({angle.sin(), angle.cos()}, 2).view({length, width}).to(at::kFloat);
}

// ---- the model

struct Seq2Seq::Parts {
  Tensor source_embedding, target_embedding, output;  // one matrix if tied
  Tensor source_positions, target_positions;
  std::vector<EncoderLayer> encoder;
  std::vector<DecoderLayer> decoder;
  std::vector<Norm> encoder_norms, decoder_norms;  // as Stream wants them

  // The source as the cross-attention reads it, [S, C].
  Tensor encode(const Seq2SeqConfig& config, const Sequences& source, const Forward& forward, Seq2SeqViews* views) const;
  // What leaves the decoder, [T, C].
  Tensor decode(const Seq2SeqConfig& config, const Sequences& target, const Sequences& source, const Tensor& encoded,
                const Forward& forward, Seq2SeqViews* views) const;
};

namespace {

Tensor embedded(const Seq2SeqConfig& config, const Tensor& embedding, const Tensor& positions, const Sequences& sequences,
                const Forward& forward) {
  const double dropout = forward.noise ? config.dropout : 0;
  return embed_tokens(embedding, sequences.tokens, sequences.offsets, positions.to(embedding.scalar_type()),
                      std::sqrt(static_cast<double>(*config.width)), dropout, dropout > 0 ? forward.noise->next() : 0);
}

}  // namespace

Tensor Seq2Seq::Parts::encode(const Seq2SeqConfig& config, const Sequences& source, const Forward& forward, Seq2SeqViews* views) const {
  Stream stream(embedded(config, source_embedding, source_positions, source, forward), encoder_norms, config.norm == "pre", config.dropout,
                forward);
  const Rows rows{source.offsets, source.offsets};
  for (size_t i = 0; i < encoder.size(); ++i) {
    const std::string name = "encoder." + std::to_string(i) + ".";
    run_branch(stream, forward, views, name + "self",
               [&](const Tensor& x, const Forward& f) { return encoder[i].self.read(x, {}, rows, f); });
    run_branch(stream, forward, views, name + "ffn", [&](const Tensor& x, const Forward& f) { return encoder[i].ffn.read(x, f); });
  }
  if (views) views->encoder = stream.input();
  return stream.input();
}

Tensor Seq2Seq::Parts::decode(const Seq2SeqConfig& config, const Sequences& target, const Sequences& source, const Tensor& encoded,
                              const Forward& forward, Seq2SeqViews* views) const {
  Stream stream(embedded(config, target_embedding, target_positions, target, forward), decoder_norms, config.norm == "pre", config.dropout,
                forward);
  const Rows self{target.offsets, target.offsets}, cross{target.offsets, source.offsets};
  for (size_t i = 0; i < decoder.size(); ++i) {
    const std::string name = "decoder." + std::to_string(i) + ".";
    const DecoderLayer& layer = decoder[i];
    run_branch(stream, forward, views, name + "self", [&](const Tensor& x, const Forward& f) { return layer.self.read(x, {}, self, f); });
    run_branch(stream, forward, views, name + "cross",
               [&](const Tensor& x, const Forward& f) { return layer.cross.read(x, encoded, cross, f); });
    run_branch(stream, forward, views, name + "ffn", [&](const Tensor& x, const Forward& f) { return layer.ffn.read(x, f); });
  }
  if (views) views->decoder = stream.input();
  return stream.input();
}

Seq2Seq::Seq2Seq(const Seq2SeqConfig& given, uint64_t seed) : config_(resolved(given)), parts_(std::make_unique<Parts>()) {
  const at::NoGradGuard guard;
  const nn::Builder builder{parameters_, at::make_generator<at::CPUGeneratorImpl>(seed)};
  const int64_t width = *config_.width;
  const double deviation = 1 / std::sqrt(static_cast<double>(width));
  Parts& parts = *parts_;
  if (config_.tied) {
    parts.source_embedding = parts.target_embedding = parts.output =
        builder.normal("embedding.weight", {config_.vocabulary, width}, deviation);
  } else {
    parts.source_embedding = builder.normal("encoder.embedding.weight", {config_.vocabulary, width}, deviation);
    parts.target_embedding = builder.normal("decoder.embedding.weight", {config_.vocabulary, width}, deviation);
    parts.output = builder.normal("output.weight", {config_.vocabulary, width}, deviation, /*decays=*/true);
  }
  if (config_.position == "learned") {
    parts.source_positions = builder.normal("encoder.positions.weight", {config_.max_length, width}, deviation);
    parts.target_positions = builder.normal("decoder.positions.weight", {config_.max_length, width}, deviation);
  } else {
    parts.source_positions = parts.target_positions = sinusoidal_positions(config_.max_length, width);
  }
  using Of = nn::LocalMemory::Of;
  const auto memory = [&](const nn::Builder& under, const nn::LocalMemoryConfig& config, const char* key, Of of, bool causal) {
    return nn::LocalMemory(under, config, std::string("model.") + key, width, *config_.heads, of, causal);
  };
  const auto global = [&](const nn::Builder& under) {
    return nn::GlobalMemory(under, config_.ffn, width, *config_.slots, config_.ffn_dropout);
  };
  const bool pre = config_.norm == "pre";
  for (int64_t i = 0; i < *config_.encoder_depth; ++i) {
    const nn::Builder layer = builder.under("encoder." + std::to_string(i));
    parts.encoder.push_back({memory(layer.under("self"), config_.encoder, "encoder", Of::readers, false), global(layer.under("ffn"))});
    for (const char* norm : {"norm1", "norm2"}) parts.encoder_norms.emplace_back(layer, norm, width);
  }
  if (pre) parts.encoder_norms.emplace_back(builder, "encoder.norm", width);
  for (int64_t i = 0; i < *config_.decoder_depth; ++i) {
    const nn::Builder layer = builder.under("decoder." + std::to_string(i));
    parts.decoder.push_back({memory(layer.under("self"), config_.decoder, "decoder", Of::readers, true),
                             memory(layer.under("cross"), config_.cross, "cross", Of::others, false), global(layer.under("ffn"))});
    for (const char* norm : {"norm1", "norm2", "norm3"}) parts.decoder_norms.emplace_back(layer, norm, width);
  }
  if (pre) parts.decoder_norms.emplace_back(builder, "decoder.norm", width);
}

Seq2Seq::~Seq2Seq() = default;

bool Seq2Seq::has_regulariser() const {
  const auto regularised = [](const nn::LocalMemory& memory) { return memory.regularised(); };
  return regularised(parts_->encoder[0].self) || regularised(parts_->decoder[0].self) || regularised(parts_->decoder[0].cross);
}

Tensor Seq2Seq::run(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options, Tensor* regulariser) const {
  check_sequences("source", source, config_);
  check_sequences("target", target, config_);
  require(source.count() == target.count(),
          "there are " + std::to_string(source.count()) + " source sequences and " + std::to_string(target.count()) + " target sequences");
  require(!options.regulariser || has_regulariser(),
          "the regulariser is that of attention with relu, relu2 or relu6 weights, and no attention of this model has them");
  nn::Noise noise(options.training ? static_cast<uint64_t>(nn::drawn_seed()) : 0);
  nn::Regulariser total;
  Forward forward;
  if (options.training) forward.noise = &noise;
  if (options.regulariser) forward.regulariser = &total;
  const Tensor encoded = parts_->encode(config_, source, forward, options.views);
  const Tensor decoded = parts_->decode(config_, target, source, encoded, forward, options.views);
  if (options.regulariser) *regulariser = total.sum / static_cast<double>(total.memories);
  return decoded;
}

Seq2SeqOutput Seq2Seq::forward(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options) const {
  Seq2SeqOutput result;
  const Tensor decoded = run(source, target, options, &result.regulariser);
  result.logits = hinge::linear(decoded, parts_->output);
  return result;
}

Seq2SeqLoss Seq2Seq::loss(const Sequences& source, const Sequences& target, const Tensor& labels, const Seq2SeqOptions& options) const {
  Seq2SeqLoss result;
  const Tensor decoded = run(source, target, options, &result.regulariser);
  const ProjectedLoss projected = projected_cross_entropy(decoded, parts_->output, labels, options.label_smoothing);
  result.loss = projected.loss, result.nll = projected.nll, result.right = projected.right;
  result.tokens = decoded.size(0);
  return result;
}

// ---- decoding

DecodeState Seq2Seq::encode(const Sequences& source) const {
  check_sequences("source", source, config_);
  const at::NoGradGuard guard;
  const Tensor encoded = parts_->encode(config_, source, {}, nullptr);
  DecodeState state;
  for (const DecoderLayer& layer : parts_->decoder) state.layers_.push_back({layer.cross.slots(encoded), Tensor()});
  state.source_offsets_ = source.offsets;
  for (int64_t s = 0; s < source.count(); ++s) state.sentence_.push_back(s);
  state.row_offsets_ = at::arange(source.count() + 1, at::kLong);
  return state;
}

Tensor Seq2Seq::step(const Tensor& tokens, DecodeState& state) const {
  const int64_t rows = state.rows(), width = *config_.width, at = state.length_;
  require(tokens.defined() && tokens.scalar_type() == at::kLong && tokens.dim() == 1 && tokens.size(0) == rows && rows > 0,
          "a step takes one token (int64) for each of the " + std::to_string(rows) + " rows of the state");
  require(at < config_.max_length, "the target is longer than model.max_length " + std::to_string(config_.max_length));
  const at::NoGradGuard guard;
  state.make_room(at + 1, width, parts_->output.options());
  for (int64_t row = 0; row < rows; ++row) state.writer_[static_cast<size_t>(row * state.room_ + at)] = static_cast<int32_t>(row);

  const Sequences last{tokens, at::arange(rows + 1, at::kLong)};
  Stream stream(embedded(config_, parts_->target_embedding, parts_->target_positions.narrow(0, at, 1), last, {}), parts_->decoder_norms,
                config_.norm == "pre", 0, {});
  const Rows cross{state.row_offsets_, state.source_offsets_};
  for (size_t i = 0; i < parts_->decoder.size(); ++i) {
    const DecoderLayer& layer = parts_->decoder[i];
    const DecodeState::Layer& memory = state.layers_[i];
    const Tensor qkv = layer.self.project(stream.input());  // [R, 3 C]
    const Tensor past = memory.past.narrow(0, 0, rows);
    past.select(1, at).copy_(qkv.narrow(1, width, 2 * width));
    stream.add(layer.self.read_slots(stream.input(), qkv.narrow(1, 0, width), past.narrow(1, 0, at + 1)));
    stream.add(layer.cross.read_slots(stream.input(), layer.cross.project(stream.input()), memory.source, cross));
    stream.add(layer.ffn.read(stream.input(), {}));
  }
  ++state.length_;
  return hinge::linear(stream.input(), parts_->output);
}

void DecodeState::make_room(int64_t length, int64_t width, const at::TensorOptions& options) {
  if (length <= room_ && layers_[0].past.defined()) return;
  const int64_t room = std::max<int64_t>({16, length, 2 * room_});
  for (Layer& layer : layers_) {
    const Tensor larger = at::empty({rows(), room, 2 * width}, options.requires_grad(false));
    if (layer.past.defined()) larger.narrow(1, 0, length_).copy_(layer.past.narrow(0, 0, rows()).narrow(1, 0, length_));
    layer.past = larger;
  }
  std::vector<int32_t> writer(static_cast<size_t>(rows() * room));
  for (int64_t row = 0; row < rows(); ++row) std::copy_n(writer_.begin() + row * room_, length_, writer.begin() + row * room);
  writer_ = std::move(writer);
  room_ = room;
}

void Seq2Seq::reorder(DecodeState& state, const Tensor& indices) const {
  require(indices.defined() && indices.scalar_type() == at::kLong && indices.dim() == 1, "reorder takes an int64 tensor of one dimension");
  const at::NoGradGuard guard;
  const int64_t before = state.rows(), after = indices.size(0), length = state.length_, room = state.room_;
  const Tensor from = indices.contiguous();
  const int64_t* source = from.data_ptr<int64_t>();
  std::vector<int64_t> sentence;
  for (int64_t i = 0; i < after; ++i) {
    require(source[i] >= 0 && source[i] < before,
            "reorder: there is no row " + std::to_string(source[i]) + " in a state of " + std::to_string(before) + " rows");
    sentence.push_back(state.sentence_[static_cast<size_t>(source[i])]);
  }
  require(std::is_sorted(sentence.begin(), sentence.end()),
          "reorder: the rows of a sentence must stay together, in the order of sentences");

  // A place that was written by the same row at the same step holds the same already: beams share most of their past.
  const auto writer_of = [&](int64_t row) { return state.writer_.begin() + row * room; };
  if (length > 0 && state.layers_[0].past.size(0) >= after) {
    std::vector<int64_t> read, write;
    for (int64_t i = 0; i < after; ++i)
      for (int64_t p = 0; p < length; ++p)
        if (i >= before || writer_of(i)[p] != writer_of(source[i])[p]) read.push_back(source[i] * room + p), write.push_back(i * room + p);
    if (!read.empty()) {
      const Tensor read_at = at::tensor(read, at::kLong), write_at = at::tensor(write, at::kLong);
      for (const DecodeState::Layer& layer : state.layers_) {
        const Tensor places = layer.past.view({-1, layer.past.size(2)});
        places.index_copy_(0, write_at, places.index_select(0, read_at));  // all is read before anything is written
      }
    }
  } else if (length > 0) {
    for (DecodeState::Layer& layer : state.layers_) {
      const Tensor larger = at::empty({after, room, layer.past.size(2)}, layer.past.options());
      larger.narrow(1, 0, length).copy_(layer.past.narrow(1, 0, length).index_select(0, from));
      layer.past = larger;
    }
  }
  if (length > 0) {
    std::vector<int32_t> writer(static_cast<size_t>(std::max(after, state.layers_[0].past.size(0)) * room));
    for (int64_t i = 0; i < after; ++i) std::copy_n(writer_of(source[i]), length, writer.begin() + i * room);
    state.writer_ = std::move(writer);
  } else {
    for (DecodeState::Layer& layer : state.layers_) layer.past = Tensor();
    state.room_ = 0;
  }
  const int64_t sentences = state.source_offsets_.numel() - 1;
  std::vector<int64_t> offsets(static_cast<size_t>(sentences + 1));
  for (const int64_t s : sentence) ++offsets[static_cast<size_t>(s + 1)];
  for (size_t s = 1; s < offsets.size(); ++s) offsets[s] += offsets[s - 1];
  state.row_offsets_ = at::tensor(offsets, at::kLong);
  state.sentence_ = std::move(sentence);
}

// ---- size of the work

double Seq2Seq::flops(const std::vector<int64_t>& source_lengths, const std::vector<int64_t>& target_lengths) const {
  require(source_lengths.size() == target_lengths.size(), "flops: as many source lengths as target lengths");
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double C = d(*config_.width), W = d(*config_.slots);
  const auto gate = [&](const nn::LocalMemoryConfig& memory) { return memory.gate ? C * C : 0.0; };
  double pairs = 0;
  for (size_t i = 0; i < source_lengths.size(); ++i) {
    const double S = d(source_lengths[i]), T = d(target_lengths[i]);
    pairs += d(*config_.encoder_depth) * (S * (4 * C * C + 2 * C * W + gate(config_.encoder)) + 2 * S * S * C);
    pairs += d(*config_.decoder_depth) * (T * (4 * C * C + 2 * C * C + 2 * C * W + gate(config_.decoder) + gate(config_.cross)) +
                                          S * 2 * C * C + 2 * C * T * (T + 1) / 2 + 2 * C * S * T);
    pairs += T * C * d(config_.vocabulary);
  }
  return 2 * pairs;
}

}  // namespace hinge::models
