// Calls the kernels, and the reference on the part of the same problem that it can do in reasonable time.
#include "bench/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference.h"

namespace hinge::bench {
namespace {

constexpr int64_t kCheckWholeUpTo = 256;  // rows
constexpr int64_t kCheckedBlock = 18;     // rows in each of three blocks of a longer problem
constexpr uint64_t kDropoutSeed = 20;

// Largest |got - expected| as a share of the tolerance eps * 8 sqrt(L D) * (rms + |expected|): rounding errors of a sum of n terms add up
// like sqrt(n), and each term here is itself a sum over D. One key left out would show as rms / sqrt(L), far above it. NaN is infinitely
// wrong.
class Comparison {
 public:
  Comparison(int64_t L, int64_t D) : factor_(8.0 * std::numeric_limits<float>::epsilon() * std::sqrt(static_cast<double>(L * D))) {}

  void compare(const float* got, const std::vector<double>& expected, int64_t begin, int64_t end) {
    double squares = 0;
    for (int64_t i = begin; i < end; ++i) squares += expected[static_cast<size_t>(i)] * expected[static_cast<size_t>(i)];
    const double rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, end - begin)));
    for (int64_t i = begin; i < end; ++i) {
      const double want = expected[static_cast<size_t>(i)], error = std::abs(static_cast<double>(got[i]) - want);
      const double allowed = factor_ * (rms + std::abs(want));
      if (std::isnan(error)) worst_ = std::numeric_limits<double>::infinity();
      if (error > 0) worst_ = std::max(worst_, allowed > 0 ? error / allowed : std::numeric_limits<double>::infinity());
    }
  }

  double worst() const { return worst_; }

 private:
  double factor_;
  double worst_ = 0;
};

std::vector<double> widened(const float* data, int64_t size) { return {data, data + size}; }

}  // namespace

AttentionProblem::AttentionProblem(const Shape& shape, int64_t D, const std::optional<ZeroShares>& zeros, kernels::Parallel& parallel)
    : shape_(shape), D_(D), parallel_(parallel) {
  const int64_t heads = shape.B * shape.H, head_size = shape.L * D;
  for (Buffer<float>* buffer : {&q_, &k_, &v_, &grad_out_, &checked_grad_out_, &out_, &dq_, &dk_, &dv_})
    *buffer = Buffer<float>(heads * head_size);
  lse_ = Buffer<float>(heads * shape.L);

  const std::optional<ZeroRecipe> recipe = zeros ? std::optional(find_zero_recipe(*zeros)) : std::nullopt;
  // The threads that compute also touch the memory first.
  parallel.run(heads, [&](int64_t head, int) {
    const uint64_t seed = 1 + static_cast<uint64_t>(head);
    const int64_t at = head * head_size;
    fill_queries_and_keys(recipe ? &*recipe : nullptr, seed, shape.L, D, q_.data() + at, k_.data() + at);
    fill_normal(seed + 1000003, head_size, v_.data() + at);
    fill_normal(seed + 2000003, head_size, grad_out_.data() + at);
    std::fill_n(checked_grad_out_.data() + at, head_size, 0.0f);
    for (const Rows& rows : checked_rows())
      std::copy(grad_out_.data() + at + rows.begin * D, grad_out_.data() + at + rows.end * D,
                checked_grad_out_.data() + at + rows.begin * D);
    for (const Buffer<float>* buffer : {&out_, &dq_, &dk_, &dv_}) std::fill_n(buffer->data() + at, head_size, 0.0f);
    std::fill_n(lse_.data() + head * shape.L, shape.L, 0.0f);
  });
}

kernels::AttentionShape AttentionProblem::kernel_shape(const AttentionCase& which) const {
  kernels::AttentionShape shape;
  shape.B = shape_.B;
  shape.Hq = shape.Hkv = shape_.H;
  shape.Lq = shape.Lk = shape_.L;
  shape.D = D_;
  shape.causal = which.causal;
  return shape;
}

kernels::AttentionRule AttentionProblem::rule(const AttentionCase& which) const {
  kernels::AttentionRule rule;
  rule.h = which.h;
  // The power of two next to 1 / sqrt(D): with queries and keys on a grid, scores are then exact and zero in float where they are in
  // double.
  rule.scale = std::exp2(-std::round(std::log2(static_cast<double>(D_)) / 2));
  rule.length_rule = kernels::LengthRule::fixed;  // N = L, which is also that of the part problems of the check
  rule.length_n = static_cast<double>(shape_.L);
  rule.dropout = which.dropout;
  rule.seed = kDropoutSeed;
  rule.identity_order = which.linear_order ? kernels::IdentityOrder::linear : kernels::IdentityOrder::quadratic;
  return rule;
}

void AttentionProblem::forward(const AttentionCase& which, kernels::SkipCount* skipped) {
  kernels::AttentionForward<float> io;
  io.q = view<const float>(q_.data());
  io.k = view<const float>(k_.data());
  io.v = view<const float>(v_.data());
  io.out = view(out_.data());
  if (which.h == kernels::Activation::softmax) io.lse = lse_.data();
  io.skipped = skipped;
  kernels::attention_forward(kernel_shape(which), rule(which), io, parallel_);
}

void AttentionProblem::backward(const AttentionCase& which, const Buffer<float>& grad_out, kernels::SkipCount* skipped) {
  kernels::AttentionBackward<float> io;
  io.q = view<const float>(q_.data());
  io.k = view<const float>(k_.data());
  io.v = view<const float>(v_.data());
  io.grad_out = view<const float>(grad_out.data());
  if (which.h == kernels::Activation::softmax) {
    io.out = view<const float>(out_.data());
    io.lse = lse_.data();
  }
  io.dq = view(dq_.data());
  io.dk = view(dk_.data());
  io.dv = view(dv_.data());
  io.skipped = skipped;
  kernels::attention_backward(kernel_shape(which), rule(which), io, parallel_);
}

void AttentionProblem::prepare(const AttentionCase& which) {
  if (which.pass == Pass::backward && which.h == kernels::Activation::softmax) forward(which, nullptr);
}

void AttentionProblem::run(const AttentionCase& which) {
  which.pass == Pass::forward ? forward(which, nullptr) : backward(which, grad_out_, nullptr);
}

double AttentionProblem::skipped_share(const AttentionCase& which) {
  std::vector<kernels::SkipCount> counts(static_cast<size_t>(shape_.B * shape_.H));
  prepare(which);
  which.pass == Pass::forward ? forward(which, counts.data()) : backward(which, grad_out_, counts.data());
  kernels::SkipCount sum;
  for (const kernels::SkipCount& count : counts) {
    sum.groups += count.groups;
    sum.skipped += count.skipped;
  }
  return sum.share();
}

ZeroShares AttentionProblem::zero_shares(const AttentionCase& which) const {
  if (!kernels::has_zeros(which.h)) return {};
  const int64_t heads = std::min<int64_t>(4, shape_.B * shape_.H);
  ZeroShares mean;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t at = head * shape_.L * D_;
    const ZeroShares shares = measure_zero_shares(shape_.L, D_, which.causal, q_.data() + at, k_.data() + at);
    mean.weights += shares.weights / static_cast<double>(heads);
    mean.groups += shares.groups / static_cast<double>(heads);
  }
  return mean;
}

std::vector<AttentionProblem::Rows> AttentionProblem::checked_rows() const {
  const int64_t L = shape_.L;
  if (L <= kCheckWholeUpTo) return {{0, L}};
  return {{0, kCheckedBlock}, {L / 2, L / 2 + kCheckedBlock}, {L - kCheckedBlock, L}};
}

double AttentionProblem::check(const AttentionCase& which) {
  // What an earlier case left behind must not pass for a result.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Buffer<float>* buffer : {&out_, &dq_, &dk_, &dv_}) std::fill_n(buffer->data(), buffer->size(), nan);
  prepare(which);
  which.pass == Pass::forward ? forward(which, nullptr) : backward(which, checked_grad_out_, nullptr);
  const int64_t heads = shape_.B * shape_.H;
  double worst = check_head(which, 0);
  if (heads > 1 && which.dropout == 0) worst = std::max(worst, check_head(which, heads - 1));
  return worst;
}

// Each block of rows is a jagged problem of the reference, in which the rows before and after it see no keys, so that rows keep their
// numbers (dropout goes by them). With causal visibility a block sees the keys up to its own end.
double AttentionProblem::check_head(const AttentionCase& which, int64_t head) const {
  const int64_t L = shape_.L, size = L * D_, at = head * size;
  const std::vector<double> q = widened(q_.data() + at, size), k = widened(k_.data() + at, size), v = widened(v_.data() + at, size),
                            grad_out = widened(checked_grad_out_.data() + at, size);
  const auto head_view = [&](auto* data) { return kernels::View<std::remove_pointer_t<decltype(data)>>{data, size, size, D_}; };
  std::vector<double> out(static_cast<size_t>(size)), dq(out), dk(out), dv(out), block_dq(out), block_dk(out), block_dv(out);
  Comparison comparison(L, D_);

  for (const Rows& rows : checked_rows()) {
    const int64_t keys = which.causal ? rows.end : L;
    const int64_t q_offsets[] = {0, rows.begin, rows.end, L}, k_offsets[] = {0, 0, keys, keys};
    kernels::AttentionShape shape = kernel_shape(which);
    shape.B = shape.Hq = shape.Hkv = 1;
    shape.Lk = keys;
    shape.q_offsets = q_offsets;
    shape.k_offsets = k_offsets;
    shape.sequences = 3;

    if (which.pass == Pass::forward) {
      kernels::AttentionForward<double> io;
      io.q = head_view(q.data());
      io.k = head_view(k.data());
      io.v = head_view(v.data());
      io.out = head_view(out.data());
      kernels::reference::attention_forward(shape, rule(which), io);
      comparison.compare(out_.data() + at, out, rows.begin * D_, rows.end * D_);
      continue;
    }
    kernels::AttentionBackward<double> io;
    io.q = head_view(q.data());
    io.k = head_view(k.data());
    io.v = head_view(v.data());
    io.grad_out = head_view(grad_out.data());
    io.dq = head_view(block_dq.data());
    io.dk = head_view(block_dk.data());
    io.dv = head_view(block_dv.data());
    kernels::reference::attention_backward(shape, rule(which), io);
    std::copy(block_dq.begin() + rows.begin * D_, block_dq.begin() + rows.end * D_, dq.begin() + rows.begin * D_);
    for (int64_t i = 0; i < keys * D_; ++i) {
      dk[static_cast<size_t>(i)] += block_dk[static_cast<size_t>(i)];
      dv[static_cast<size_t>(i)] += block_dv[static_cast<size_t>(i)];
    }
  }
  if (which.pass == Pass::backward) {
    comparison.compare(dq_.data() + at, dq, 0, size);
    comparison.compare(dk_.data() + at, dk, 0, size);
    comparison.compare(dv_.data() + at, dv, 0, size);
  }
  return comparison.worst();
}

}  // namespace hinge::bench
