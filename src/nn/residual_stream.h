// The residual stream of a transformer: what runs past the branches (attention, feed-forward), to which each adds its result.
//
//   pre-norm    x = x + drop(branch(norm(x)))        the last norm comes behind the stack
//   post-norm   x = norm(x + drop(branch(x)))
//
// The sum that ends a branch and the norm that follows it are one pass over memory, also across blocks.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "nn/forward.h"
#include "nn/parameters.h"

namespace hinge::nn {

enum class NormPlacement { pre, post };
inline std::vector<std::pair<std::string, NormPlacement>> config_words(NormPlacement) {
  return {{"pre", NormPlacement::pre}, {"post", NormPlacement::post}};
}

// A layer norm's parameters.
struct Norm {
  at::Tensor weight, bias;
  Norm() = default;
  Norm(const Builder& builder, const std::string& name, int64_t width);
  at::Tensor operator()(const at::Tensor& x) const;
};

class ResidualStream {
 public:
  // x [B, L, width] or, jagged, [T, width] by `offsets`.
  ResidualStream(at::Tensor x, NormPlacement placement, double dropout, const Offsets& offsets, const Forward& forward)
      : x_(std::move(x)), placement_(placement), dropout_(forward.noise ? dropout : 0), offsets_(offsets), forward_(forward) {}

  // Runs a branch: `layer(input, residual, view)` gives its result, plus the residual where that is defined. In training a sequence skips
  // the branch with the probability `drop_path`. `name` is for the view.
  template <class Layer> void branch(const Norm& norm, double drop_path, const std::string& name, const Layer& layer) {
    const at::Tensor input = begin(norm);
    LayerView view{name, x_, {}, {}, {}};
    LayerView* const shown = forward_.views ? &view : nullptr;
    const bool paths = forward_.noise && drop_path > 0;
    if (dropout_ == 0 && !paths) {
      const at::Tensor sum = layer(input, x_, shown);
      if (shown) show(std::move(view), sum - x_);
      return end_with_sum(sum, norm);
    }
    const at::Tensor output = layer(input, at::Tensor(), shown);
    if (shown) show(std::move(view), output);
    end(paths ? dropped_paths(output, drop_path) : output, norm);
  }

  // The stream as it is now: pre-norm the sum, post-norm its norm.
  const at::Tensor& value();
  // The result of the stack: value(), pre-norm with the last norm.
  at::Tensor finish(const Norm& last);

 private:
  at::Tensor begin(const Norm& norm);  // the branch's input
  void show(LayerView view, const at::Tensor& output) const;
  void end_with_sum(const at::Tensor& sum, const Norm& norm);
  void end(const at::Tensor& output, const Norm& norm);
  at::Tensor dropped_paths(const at::Tensor& output, double probability) const;
  // {norm(x_ + drop(pending_)), x_ + drop(pending_)}
  std::pair<at::Tensor, at::Tensor> sum_and_norm(const Norm& norm);

  at::Tensor x_;
  at::Tensor pending_;  // pre-norm: the last branch's result, which is not yet in x_
  int64_t seed_ = 0;    // of its dropout
  NormPlacement placement_;
  double dropout_;
  Offsets offsets_;
  Forward forward_;
};

}  // namespace hinge::nn
