#include "models/timm_weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

namespace hinge::models {
namespace {

using at::Tensor;

std::string timm_name(const std::string& ours, const VitConfig& config) {
  if (config.pool_first && ours.rfind("norm.", 0) == 0) return "fc_" + ours;
  return ours;
}

bool is_square(int64_t n) {
  const auto root = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(n))));
  return root * root == n;
}

// A copy as float32: the data of a file need not be aligned.
Tensor tensor_of(const support::SafetensorsFile& file, const support::TensorView& view) {
  at::ScalarType type{};
  switch (view.dtype) {
    case support::Dtype::kF32: type = at::kFloat; break;
    case support::Dtype::kF64: type = at::kDouble; break;
    case support::Dtype::kF16: type = at::kHalf; break;
    case support::Dtype::kBF16: type = at::kBFloat16; break;
    default:
      throw std::runtime_error(
          fmt::format("{}: {} is of type {}; weights are F32, F64, F16 or BF16", file.path(), view.name, name_of(view.dtype)));
  }
  const Tensor tensor = at::empty(view.shape, type);
  std::memcpy(tensor.data_ptr(), view.data, view.bytes());
  return tensor.to(at::kFloat);
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// What in the config decides whether a tensor is there.
std::string advice(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (name.rfind("stem.", 0) == 0) return "convolutions before the patch embedding belong to model.stem = conv";
  if (has("rms_norm.")) return "an RMS norm belongs to the preset rela of model.attention";
  if (has(".mlp.norm.")) return "a norm in the feed-forward layer belongs to model.ffn.activation = softmax_norm";
  if (has("_norm.") && has(".attn."))
    return "model.attention.qk_norm says whether queries and keys have norms, qk_norm_bias whether these have biases";
  if (name.rfind("fc_norm.", 0) == 0 || name.rfind("norm.", 0) == 0)
    return "the last norm is fc_norm with model.pool_first = true (the mean comes before it), and norm with false";
  if (name == "cls_token") return "a class token belongs to model.pool = tok";
  if (has("attn_pool.")) return "attention pooling belongs to model.pool = map";
  if (has("pre_logits.")) return "a layer before the head belongs to model.rep_size";
  if (has("head.")) return "--no-head imports all but the head";
  if (has("gate.")) return "a gate belongs to model.attention.gate";
  for (const char* learned : {"alpha", "gain", "bias"})
    if (name == std::string(nn::kSharedPrefix) + learned || name.ends_with(std::string(".attn.") + learned))
      return fmt::format("model.attention.learn_{} says whether it is learned, and for what", learned);
  return "the file belongs to another config";
}

void require_pre_norm(const VitConfig& config) {
  if (config.norm != nn::NormPlacement::pre)
    throw std::runtime_error(
        "timm's vision transformers are pre-norm: weights of a model with model.norm = post cannot be exchanged with it");
}

class Import {
 public:
  Import(const support::SafetensorsFile& file, const Vit& model, bool head)
      : file_(file), model_(model), config_(model.config()), head_(head) {}

  std::vector<std::string> run() {
    require_pre_norm(config_);
    const at::NoGradGuard guard;
    position();
    for (const nn::Parameter& parameter : model_.parameters().all()) {
      if (parameter.name == "pos_embed" || (!head_ && is_head(parameter.name))) continue;
      Tensor value = take(timm_name(parameter.name, config_), parameter.value.sizes().vec());
      if (parameter.name == "cls_token" && class_position_.defined()) value = value + class_position_;
      parameter.value.copy_(value);
    }
    for (const support::TensorView& view : file_.tensors())
      if (!used_.count(view.name) && (head_ || !is_head(view.name)))
        throw std::runtime_error(
            fmt::format("{}: the model has no place for {} {}: {}", file_.path(), view.name, shape_text(view.shape), advice(view.name)));
    return notes_;
  }

 private:
  static bool is_head(const std::string& name) { return name.rfind("head.", 0) == 0; }

  Tensor take(const std::string& name, const std::vector<int64_t>& shape) {
    const support::TensorView* view = file_.find(name);
    if (!view) throw std::runtime_error(fmt::format("{}: holds no {}, which the model has: {}", file_.path(), name, advice(name)));
    if (view->shape != shape)
      throw std::runtime_error(fmt::format("{}: {} has the shape {}, the model's has {}: {}", file_.path(), name, shape_text(view->shape),
                                           shape_text(shape), advice(name)));
    used_.insert(name);
    return tensor_of(file_, *view);
  }

  void position() {
    const support::TensorView* view = file_.find("pos_embed");
    if (!view) throw std::runtime_error(file_.path() + ": holds no pos_embed, which every model has: the file belongs to another model");
    if (view->shape.size() != 3 || view->shape[0] != 1 || view->shape[2] != *config_.width)
      throw std::runtime_error(
          fmt::format("{}: pos_embed has the shape {}, the model's has [1, tokens, {}]: the file belongs to another config", file_.path(),
                      shape_text(view->shape), *config_.width));
    used_.insert("pos_embed");
    Tensor position = tensor_of(file_, *view);
    const int64_t tokens = position.size(1);
    if (!is_square(tokens) && is_square(tokens - 1)) {
      if (config_.pool != Pool::tok)
        throw std::runtime_error(
            fmt::format("{}: pos_embed has {} tokens, one of them a class token: that belongs to model.pool = tok", file_.path(), tokens));
      class_position_ = position.slice(1, 0, 1);
      position = position.slice(1, 1).contiguous();
    }
    const int64_t side = config_.image_size / *config_.patch;
    if (position.size(1) != side * side) {
      notes_.push_back(fmt::format("the position embedding was resampled from {} to {} tokens", position.size(1), side * side));
      position = resample_position(position, side);
    }
    if (const nn::Parameter* ours = model_.parameters().find("pos_embed")) {
      ours->value.copy_(position);
    } else if (!at::allclose(position, nn::sinusoidal_positions_2d(side, *config_.width), 1e-3, 1e-3)) {
      throw std::runtime_error(file_.path() + ": pos_embed is not that of model.position = sinusoidal; take learned");
    }
  }

  const support::SafetensorsFile& file_;
  const Vit& model_;
  const VitConfig& config_;
  bool head_;
  Tensor class_position_;  // [1, 1, width]
  std::set<std::string> used_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::pair<std::string, Tensor>> timm_weights(const Vit& model) {
  const VitConfig& config = model.config();
  require_pre_norm(config);
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add_position = [&](const Tensor& position) {
    const Tensor of_token = at::zeros({1, config.pool == Pool::tok ? 1 : 0, *config.width});
    tensors.emplace_back("pos_embed", at::cat({of_token, position.detach()}, 1).contiguous());
  };
  if (!model.parameters().find("pos_embed")) add_position(nn::sinusoidal_positions_2d(config.image_size / *config.patch, *config.width));
  for (const nn::Parameter& parameter : model.parameters().all()) {
    if (parameter.name == "pos_embed")
      add_position(parameter.value);
    else
      tensors.emplace_back(timm_name(parameter.name, config), parameter.value.detach());
  }
  return tensors;
}

bool has_counterpart_in_timm(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return !name.starts_with("stem.") && !name.starts_with(nn::kSharedPrefix) && !has(".gate.") && !has("rms_norm.") && !has(".mlp.norm.") &&
         !has("attn.alpha") && !has("attn.gain") && !name.ends_with("attn.bias");
}

std::vector<std::string> load_timm_weights(const support::SafetensorsFile& file, const Vit& model, bool head) {
  return Import(file, model, head).run();
}

}  // namespace hinge::models
