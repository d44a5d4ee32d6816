// Gradient checkpointing, which trades time for memory: the intermediate results of a part of a model are not kept for backward but
// computed again there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace hinge::nn {

using Tensors = std::vector<at::Tensor>;

// f(inputs), keeping only the inputs. `parameters`: everything else that f's results depend on and that takes a gradient. Whatever is
// random in f must come from seeds that f holds: it runs twice.
Tensors checkpointed(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs, const Tensors& parameters);

}  // namespace hinge::nn
