// One idea for every layer of a sequence model: a read from a memory of keys and values,
//
//   H = phi(X K^T) V,      K and V [slots, ...], phi along the slots
//
// A local memory holds what the tokens at hand are projected to: attention. Its slots are the tokens, its phi is any attention of the
// engine, sparsemax, 1.5-entmax or ReLA. A global memory holds parameters: the feed-forward network. Its slots are the hidden units, its
// phi is a point-wise function or a softmax. Both read rows of tokens [tokens, width] of sequences that follow one another without padding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hinge/ops/memory.h"
#include "nn/attention.h"
#include "nn/parameters.h"

namespace hinge::nn {

// ---- what a forward pass brings along

// Seeds for everything that drops something, one after another from a first one: the same first one, the same noise.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  int64_t next();

 private:
  uint64_t state_;
};

// The rows of a memory's readers and of its slots: sequence s owns the readers [readers[s], readers[s + 1]) and the slots likewise.
struct Rows {
  at::Tensor readers, slots;  // int64 [sequences + 1]
};

// What a memory shows on request. `output` is what is added to `residual`, before any dropout.
struct MemoryView {
  std::string name;             // "decoder.0.cross"
  at::Tensor residual, output;  // [tokens, width]
  at::Tensor scores;            // of a global memory: phi(X K^T) [tokens, slots]
  at::Tensor values;            // of a global memory: V [slots, width]
  bool local = false;
  Read read = Read::engine;  // of a local memory: what its phi is (of rela the engine's, before the norm of its result),
  AttentionView attention;   // and its q [1, H, T, D], k, v [1, H, S, D] with the options of the engine, offsets among them
};

// The weights phi(X K^T) of a local memory's view, [1, H, T, S]; 0 between different sequences. Made for looking at short inputs.
at::Tensor memory_weights(const MemoryView& view);

// Sums of the ReLUFormer's regulariser over the memories that have one (hinge/ops/memory.h).
struct Regulariser {
  at::Tensor sum;
  int64_t memories = 0;
};

struct Forward {
  Noise* noise = nullptr;              // none: nothing is dropped
  Regulariser* regulariser = nullptr;  // none: not computed
  MemoryView* view = nullptr;          // none: nothing is shown
};

// ---- local memory: attention

// Attention as configs have it, with what translation adds to it: the presets sparsemax, entmax15 and rela, and `visible` in the place of
// the length rule `keys`, because a decoder does not know how many keys there will be.
struct LocalMemoryConfig : AttentionConfig {
  explicit LocalMemoryConfig(const std::string& which = "softmax") {
    preset = which;
    qk_norm = false;
  }

  template <class V> void visit(V& v) {
    v("preset", preset,
      "point in the family of attentions that the other keys change: relu-vit, reluformer, relu2, sigmoid, silu, linear, softmax; or "
      "sparsemax, entmax15, rela, which take no others but qk_norm, gate and dropout");
    visit_parts(v);
  }
};

// The presets that a local memory takes: the engine's, then sparsemax, entmax15 and rela.
std::vector<std::string> local_memory_presets();

// What reads the memory, checked, without dropout. `key` is where the config is, such as "model.cross". Throws std::runtime_error.
ReadOptions read_options(const LocalMemoryConfig& config, const std::string& key, bool causal);

class LocalMemory {
 public:
  // Of its own readers (self-attention), or of another sequence's tokens (cross-attention).
  enum class Of { readers, others };

  LocalMemory(const Builder& builder, const LocalMemoryConfig& config, const std::string& key, int64_t width, int64_t heads, Of of,
              bool causal);

  // x [T, width] reads; `others` [S, width] are the tokens behind the slots, undefined for a memory of the readers.
  // The result [T, width] of the output projection.
  at::Tensor read(const at::Tensor& x, const at::Tensor& others, const Rows& rows, const Forward& forward) const;

  // Decoding, in parts. project(): queries [R, width] of x [R, width]; in a memory of the readers with the keys and values of x behind
  // them, [R, 3 width]. slots(): keys and values [S, 2 width] of others. read_slots(): x with the queries q [R, width] reads slots
  // [R, n, 2 width], each row its own (no rows given), or slots [S, 2 width] by rows.
  at::Tensor project(const at::Tensor& x) const;
  at::Tensor slots(const at::Tensor& others) const;
  at::Tensor read_slots(const at::Tensor& x, const at::Tensor& q, const at::Tensor& slots, const Rows& rows = {}) const;

  // Whether the regulariser is made for it: weights are not negative and their sum is free.
  bool regularised() const;

 private:
  LocalMemoryConfig config_;
  int64_t width_, heads_;
  Of of_;
  ReadOptions options_;
  at::Tensor qkv_weight_, qkv_bias_;                    // of readers
  at::Tensor q_weight_, q_bias_, kv_weight_, kv_bias_;  // of others
  std::optional<AttentionParameters> parameters_;       // made behind those above
};

// ---- global memory: the feed-forward network

// The names of phi: every point-wise activation, softmax, and softmax_norm (softmax with a layer norm of what was read).
std::vector<std::string> global_memory_names();
// The activation of such a name, softmax for softmax_norm; throws std::runtime_error for another.
kernels::Activation parse_global_memory(const std::string& phi);

class GlobalMemory {
 public:
  GlobalMemory(const Builder& builder, const std::string& phi, int64_t width, int64_t slots, double dropout);

  // x [T, width]; the result [T, width].
  at::Tensor read(const at::Tensor& x, const Forward& forward) const;

 private:
  kernels::Activation activation_;
  double dropout_;
  at::Tensor keys_, key_bias_, values_, value_bias_, norm_weight_, norm_bias_;
};

}  // namespace hinge::nn
