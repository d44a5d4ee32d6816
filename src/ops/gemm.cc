#include "ops/gemm.h"

#include <ATen/ATen.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <tuple>
#include <utility>

#include "hinge/kernels/column_sums.h"
#include "hinge/kernels/cpu.h"
#include "ops/function.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine cpu = [] {
    dnnl::set_primitive_cache_capacity(0);  // linear() keeps its own
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

memory::desc matrix(int64_t rows, int64_t columns, bool transposed = false) {
  return memory::desc({rows, columns}, memory::data_type::f32, transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
}

memory over(const memory::desc& desc, const at::Tensor& tensor) { return memory(desc, engine(), tensor.data_ptr<float>()); }

dnnl::stream& stream() {
  thread_local dnnl::stream of_this_thread(engine());
  return of_this_thread;
}

// A product with what follows it, made once for each shape.
struct Linear {
  dnnl::matmul run;
  memory::desc x, w, bias, y;
  bool packed = false;  // reads w in a layout of oneDNN's own
};

// With weights as they are, or packed where oneDNN has a layout of its own for them. With AVX2 it has none and would only transpose them,
// which made products of 64 rows slower: 0.55-0.87 times the rate.
const Linear& linear(int64_t R, int64_t N, int64_t K, bool packed, bool has_bias, bool has_residual) {
  // oneDNN plans for the number of threads; jagged batches bring ever new numbers of rows.
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, int>;
  constexpr size_t kMost = 512;
  thread_local std::map<Key, Linear> made;
  const Key key{R, N, K, packed, has_bias, has_residual, omp_get_max_threads()};
  const auto found = made.find(key);
  if (found != made.end()) return found->second;
  if (made.size() >= kMost) made.clear();
  Linear l{dnnl::matmul(), matrix(R, K), matrix(K, N, true), matrix(1, N), matrix(R, N)};
  dnnl::post_ops after;
  if (has_residual) after.append_binary(dnnl::algorithm::binary_add, l.y);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  const auto plan = [&](const memory::desc& w) {
    const auto desc = has_bias ? dnnl::matmul::desc(l.x, w, l.bias, l.y) : dnnl::matmul::desc(l.x, w, l.y);
    return dnnl::matmul::primitive_desc(desc, attributes, engine());
  };
  if (packed) {
    const auto planned = plan(memory::desc({K, N}, memory::data_type::f32, memory::format_tag::any));
    const dnnl_memory_desc_t layout = planned.weights_desc().data;
    l.packed = layout.format_kind == dnnl_blocked && layout.format_desc.blocking.inner_nblks > 0;
    if (l.packed) l.run = dnnl::matmul(planned), l.w = planned.weights_desc();
  }
  if (!l.packed) l.run = dnnl::matmul(plan(l.w));
  return made.emplace(key, std::move(l)).first->second;
}

// c [M, N] = a b, plus `old` times c.
void sgemm(char transpose_a, int64_t M, int64_t N, int64_t K, const float* a, int64_t a_row, const float* b, float old, float* c) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a, 'N', M, N, K, 1.0F, a, a_row, b, N, old, c, N);
  TORCH_CHECK(status == dnnl_success, "hinge: oneDNN refused a product of M ", M, ", N ", N, " and K ", K, " (status ",
              static_cast<int>(status), ")");
}

// The rows of a [K, M] and b [K, N] that one product takes for a^T b; the products are added up in order. On Intel's AVX-512 (Cascade Lake)
// oneDNN 2.6 is up to 1.25 times as fast on slices of 400 rows where the result is narrow, as for weights of 384 x 1536; on AMD's it is
// slower. Larger results would be read and written too often, and for smaller ones the calls would count (docs/benchmarks.md).
int64_t depth_of_transposed(int64_t M, int64_t N, int64_t K) {
  constexpr int64_t kMostDepth = 400, kLeastResult = int64_t{1} << 16, kMostResult = int64_t{1} << 20;
  static const bool slices = kernels::has_intel_avx512();
  if (!slices || K <= kMostDepth || M * N < kLeastResult || M * N > kMostResult) return K;
  const int64_t parts = (K + kMostDepth - 1) / kMostDepth, equal = (K + parts - 1) / parts;
  return (equal + 7) / 8 * 8;  // depths that are no multiple of 8 are slower
}

// c = a^T b, plus `old` times c; a [K, M], b [K, N].
void transposed_sgemm(const at::Tensor& a, const at::Tensor& b, float old, const at::Tensor& c) {
  const int64_t K = a.size(0), M = a.size(1), N = b.size(1);
  const int64_t step = depth_of_transposed(M, N, K);
  for (int64_t k = 0; k < K; k += step)
    sgemm('T', M, N, std::min(step, K - k), a.data_ptr<float>() + k * M, M, b.data_ptr<float>() + k * N, k > 0 ? 1.0F : old,
          c.data_ptr<float>());
}

thread_local PackedWeights* weights_in_use = nullptr;

}  // namespace

// ---- packed weights

struct PackedWeights::Kept {
  // The storage is known by its address, which is nobody else's as long as a weak reference is held.
  using Key = std::tuple<const c10::StorageImpl*, int64_t, int64_t, int64_t>;  // and offset, N, K
  struct Weight {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
    uint32_t version;
    memory packed;

    bool is(const at::Tensor& w, const memory::desc& layout) const {
      return data == w.data_ptr() && version == version_of(w) && packed.get_desc() == layout;
    }
  };

  mutable std::shared_mutex mutex;
  std::map<Key, Weight> weights;

  static uint32_t version_of(const at::Tensor& w) {
    return w.is_inference() ? 0 : w.unsafeGetTensorImpl()->version_counter().current_version();
  }
  static Key key_of(const at::Tensor& w) { return {w.storage().unsafeGetStorageImpl(), w.storage_offset(), w.size(0), w.size(1)}; }

  // w [N, K] in this layout.
  memory packed(const at::Tensor& w, const memory::desc& layout) {
    const Key key = key_of(w);
    {
      const std::shared_lock lock(mutex);
      const auto found = weights.find(key);
      if (found != weights.end() && found->second.is(w, layout)) return found->second.packed;
    }
    const std::unique_lock lock(mutex);
    const auto found = weights.find(key);
    if (found != weights.end() && found->second.is(w, layout)) return found->second.packed;
    std::erase_if(weights, [&](const auto& one) { return one.first == key || one.second.storage.expired(); });
    memory from = over(matrix(w.size(1), w.size(0), true), w), to(layout, engine());
    dnnl::reorder(from, to).execute(stream(), from, to);
    weights.emplace(key, Weight{w.storage().getWeakStorageImpl(), w.data_ptr(), version_of(w), to});
    return to;
  }
};

PackedWeights::PackedWeights() : kept_(std::make_unique<Kept>()) {}
PackedWeights::~PackedWeights() = default;

size_t PackedWeights::count() const {
  const std::shared_lock lock(kept_->mutex);
  return kept_->weights.size();
}

PackedWeights::Use::Use(PackedWeights& weights) : outer_(std::exchange(weights_in_use, &weights)) {}
PackedWeights::Use::~Use() { weights_in_use = outer_; }

struct WeightSource {
  // w as the product wants it: from the weights in use on this thread, or itself.
  static memory of(const at::Tensor& w, const Linear& l) { return l.packed ? weights_in_use->kept_->packed(w, l.w) : over(l.w, w); }
};

// ---- products

void linear_into(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& residual, const at::Tensor& y) {
  if (y.numel() == 0) return;
  if (x.scalar_type() != at::kFloat || x.size(1) == 0) {
    at::Tensor result = at::mm(x, w.t());
    if (bias.defined()) result = result + bias;
    if (residual.defined()) result = result + residual;
    y.copy_(result);
    return;
  }
  const Linear& l = linear(x.size(0), w.size(0), x.size(1), weights_in_use != nullptr, bias.defined(), residual.defined());
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, over(l.x, x)}, {DNNL_ARG_WEIGHTS, WeightSource::of(w, l)}, {DNNL_ARG_DST, over(l.y, y)}};
  if (bias.defined()) arguments.insert({DNNL_ARG_BIAS, over(l.bias, bias)});
  if (residual.defined()) arguments.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, over(l.y, residual)});
  l.run.execute(stream(), arguments);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  product_into(a, b, c);
  return c;
}

at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor c = at::empty({a.size(1), b.size(1)}, a.options());
  transposed_product_into(a, b, c);
  return c;
}

at::Tensor column_sums(const at::Tensor& x) {
  const at::Tensor sums = at::empty({x.size(1)}, x.options());
  with_type_of(x, [&](auto type) {
    using T = decltype(type);
    AtenParallel parallel;
    kernels::column_sums(x.data_ptr<T>(), x.size(0), x.size(1), x.size(1), sums.data_ptr<T>(), parallel);
  });
  return sums;
}

void product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (a.scalar_type() != at::kFloat || a.numel() == 0 || b.numel() == 0)
    c.copy_(at::mm(a, b));
  else
    sgemm('N', a.size(0), b.size(1), a.size(1), a.data_ptr<float>(), a.size(1), b.data_ptr<float>(), 0, c.data_ptr<float>());
}

void transposed_product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (a.scalar_type() != at::kFloat || a.numel() == 0 || b.numel() == 0)
    c.copy_(at::mm(a.t(), b));
  else
    transposed_sgemm(a, b, 0, c);
}

void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (a.scalar_type() != at::kFloat || a.numel() == 0 || b.numel() == 0)
    c.add_(at::mm(a.t(), b));
  else
    transposed_sgemm(a, b, 1, c);
}

}  // namespace hinge
