// Convolution with kernels of 3 x 3 pixels as an op with autograd, on CPU tensors of float32 (fast) or float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hinge {

// images [n, height, width, in], kernels [out, in, 3, 3] (LibTorch's order); one pixel of zeros around the images, a result for every
// `stride`-th pixel of every `stride`-th row: [n, (height - 1) / stride + 1, (width - 1) / stride + 1, out]. No bias. The same bits for any
// number of threads, if there is more than one image. A second differentiation is not supported.
at::Tensor convolution(const at::Tensor& images, const at::Tensor& kernels, int64_t stride);

}  // namespace hinge
