// A convolution is the product of its windows, as rows, with the kernels. The windows take nine times the memory of the images, so they are
// made for a few images at a time, which stay in the cache, and made again in backward.
#include "hinge/ops/convolution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "hinge/kernels/windows.h"
#include "ops/function.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of one product: enough for it to run at full speed.
constexpr int64_t kRows = 256;
// Groups of images whose gradients of the kernels are added up side by side, and then in order: a number that the threads have no part in.
constexpr int64_t kGroups = 16;

struct Convolution {
  Tensor images;   // [n, height, width, in]
  Tensor kernels;  // [out, window], in the order of the windows
  kernels::WindowGrid grid;

  Convolution(const Tensor& x, const Tensor& w, int64_t stride)
      : images(x.contiguous()),
        kernels(w.permute({0, 2, 3, 1}).reshape({w.size(0), -1}).contiguous()),
        grid{x.size(1), x.size(2), x.size(3), stride} {}

  int64_t n() const { return images.size(0); }
  int64_t places() const { return grid.down() * grid.across(); }
  int64_t images_per_product() const { return std::max<int64_t>(1, kRows / places()); }

  // The windows of some images: [count places, window].
  Tensor windows(int64_t first, int64_t count) const {
    const Tensor rows = at::empty({count * places(), grid.window_size()}, images.options());
    with_type_of(images, [&](auto type) {
      using T = decltype(type);
      kernels::gather_windows(grid, count, images.narrow(0, first, count).data_ptr<T>(), rows.data_ptr<T>());
    });
    return rows;
  }
  // Of a result, or of its gradient, the rows of some images.
  Tensor rows_of(const Tensor& result, int64_t first, int64_t count) const {
    return result.narrow(0, first, count).view({count * places(), result.size(3)});
  }
};

class ConvolutionFunction : public torch::autograd::Function<ConvolutionFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, int64_t stride) {
    const Convolution c(x, w, stride);
    const Tensor y = at::empty({c.n(), c.grid.down(), c.grid.across(), w.size(0)}, x.options());
    const int64_t step = c.images_per_product();
    AtenParallel parallel;
    parallel.run((c.n() + step - 1) / step, [&](int64_t task, int) {
      const at::NoGradGuard guard;
      const int64_t first = task * step, count = std::min(step, c.n() - first);
      linear_into(c.windows(first, count), c.kernels, {}, {}, c.rows_of(y, first, count));
    });
    ctx->save_for_backward({x, w});
    ctx->saved_data["stride"] = stride;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::convolution");
    const variable_list saved = ctx->get_saved_variables();
    const Convolution c(saved[0], saved[1], ctx->saved_data["stride"].toInt());
    const Tensor grad = grads[0].contiguous();
    const bool of_images = ctx->needs_input_grad(0), of_kernels = ctx->needs_input_grad(1);
    const int64_t groups = std::min(kGroups, c.n()), step = c.images_per_product();
    const Tensor dx = of_images ? at::zeros_like(c.images) : Tensor();
    const Tensor parts = of_kernels ? at::zeros({groups, c.kernels.size(0), c.kernels.size(1)}, grad.options()) : Tensor();
    AtenParallel parallel;
    parallel.run(groups, [&](int64_t group, int) {
      const at::NoGradGuard guard;
      const int64_t end = (group + 1) * c.n() / groups;
      for (int64_t first = group * c.n() / groups; first < end; first += step) {
        const int64_t count = std::min(step, end - first);
        const Tensor rows = c.rows_of(grad, first, count);
        if (of_kernels) add_transposed_product(rows, c.windows(first, count), parts[group]);
        if (of_images) add_gradient(c, product(rows, c.kernels), dx.narrow(0, first, count));
      }
    });
    Tensor dw;
    if (of_kernels) {
      dw = parts[0];
      for (int64_t group = 1; group < groups; ++group) dw.add_(parts[group]);
      dw = dw.view({dw.size(0), 3, 3, c.grid.channels}).permute({0, 3, 1, 2}).contiguous();
    }
    return {dx, dw, Tensor()};
  }

 private:
  static void add_gradient(const Convolution& c, const Tensor& windows, const Tensor& images) {
    with_type_of(images, [&](auto type) {
      using T = decltype(type);
      kernels::add_windows(c.grid, images.size(0), windows.data_ptr<T>(), images.data_ptr<T>());
    });
  }
};

}  // namespace

Tensor convolution(const Tensor& images, const Tensor& kernels, int64_t stride) {
  constexpr const char* op = "hinge::convolution";
  check_floating(op, "images", images, 4);
  TORCH_CHECK(images.numel() > 0, op, ": there are no images in the shape ", images.sizes());
  TORCH_CHECK(stride > 0, op, ": stride must be at least 1, got ", stride);
  TORCH_CHECK(kernels.defined() && kernels.dim() == 4 && kernels.size(0) > 0, op, ": kernels must be [out, in, 3, 3]");
  check_shape(op, "kernels", kernels, {kernels.size(0), images.size(3), 3, 3}, images);
  return ConvolutionFunction::apply(images, kernels, stride);
}

}  // namespace hinge
