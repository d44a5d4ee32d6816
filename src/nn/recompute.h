// Trades time for memory: a part of a model whose intermediate results are not kept for backward but made again there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace hinge::nn {

// f(x), keeping only x. `parameters`: everything else that f's result depends on and that takes a gradient. Random numbers that f draws
// from the default generator are drawn again alike.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

}  // namespace hinge::nn
