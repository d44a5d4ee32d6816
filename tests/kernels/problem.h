// One description of an attention problem (Case) drives every comparison: it names itself, makes its random inputs in any layout, and
// runs through the fast kernels or the reference. Inputs hold NaN wherever no element lives; outputs hold a guard value there, which
// must survive.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/quick.h"
#include "hinge/kernels/attention.h"
#include "hinge/kernels/cpu.h"
#include "kernels/reference.h"
#include "kernels/sequences.h"
#include "threads.h"

namespace hinge::kernels::testing {

enum class Visibility { all, causal, key_lengths, causal_key_lengths, jagged, causal_jagged };
inline constexpr std::array kVisibilityNames = {"all", "causal", "keylengths", "causalkeylengths", "jagged", "causaljagged"};

// contiguous [B, H, L, D]; packed: q, k, v inside one [B, L, 3, H, D] (or k, v inside [B, L, 2, H, D]), the rest [B, L, H, D];
// padded: gaps after every row, head and batch row.
enum class Layout { contiguous, packed, padded };
inline constexpr std::array kLayoutNames = {"contiguous", "packed", "padded"};

// The shape of a mask: which of B, Hq, Lq and Lk it has; the others are broadcast. transposed: all, with keys far apart in memory.
enum class MaskShape { full, rows_and_keys, batch_and_keys, heads_rows_and_keys, batch_and_rows, transposed };
inline constexpr std::array kMaskShapeNames = {"BHqk", "qk", "Bk", "Hqk", "Bq", "BHkq"};
enum class MaskKind { none, boolean, additive };
inline constexpr std::array kMaskKindNames = {"", "boolean", "additive"};

struct Case {
  Activation h = Activation::relu;
  Visibility visibility = Visibility::all;
  LengthRule length_rule = LengthRule::keys;
  bool bias_log_n = false;
  int64_t B = 2, Hkv = 2, group = 1, Lq = 16, Lk = 16, D = 16;
  int64_t Dv = 0;  // 0: D
  Layout layout = Layout::contiguous;
  bool head_parameters = false;     // random gain, bias and alpha; else their defaults
  bool statistics = false;          // ask for them, and give gradients for them
  bool parameter_gradients = true;  // ask for dgain, dbias and dalpha
  double dropout = 0;
  int workers = 1;
  double scale = 0;  // 0: 1/sqrt(D)
  MaskKind mask = MaskKind::none;
  MaskShape mask_shape = MaskShape::full;
  int64_t window_left = -1, window_right = -1;
  bool hstu = false;  // with targets, past, context and full
  int64_t targets = 0, past = 0, context = 0, full = 0;
  IdentityOrder identity_order = IdentityOrder::automatic;
  uint64_t seed = 1;

  bool causal() const {
    return visibility == Visibility::causal || visibility == Visibility::causal_key_lengths || visibility == Visibility::causal_jagged;
  }
  bool jagged() const { return visibility == Visibility::jagged || visibility == Visibility::causal_jagged; }
  bool has_key_lengths() const { return visibility == Visibility::key_lengths || visibility == Visibility::causal_key_lengths; }

  // Letters, digits and underscores only, as GoogleTest wants it.
  std::string name() const {
    std::string text = std::string(activation_name(h)) + "_" + kVisibilityNames[static_cast<size_t>(visibility)];
    text += "_B" + std::to_string(jagged() ? 1 : B) + "_H" + std::to_string(Hkv * group) + "to" + std::to_string(Hkv);
    text += "_L" + std::to_string(Lq) + "x" + std::to_string(Lk) + "_D" + std::to_string(D) + (Dv ? "v" + std::to_string(Dv) : "");
    text += "_n" + std::string(kLengthRuleNames[static_cast<size_t>(length_rule)]) + (bias_log_n ? "log" : "");
    text += std::string("_") + kLayoutNames[static_cast<size_t>(layout)];
    if (head_parameters) text += "_parameters";
    if (statistics) text += "_statistics";
    if (parameter_gradients) text += "_dparameters";
    if (dropout > 0) text += "_dropout";
    if (identity_order == IdentityOrder::linear) text += "_linear";
    if (mask != MaskKind::none)
      text += std::string("_") + kMaskKindNames[static_cast<size_t>(mask)] + kMaskShapeNames[static_cast<size_t>(mask_shape)];
    const auto bound = [](int64_t n) { return n < 0 ? std::string("x") : std::to_string(n); };
    if (window_left >= 0 || window_right >= 0) text += "_window" + bound(window_left) + "to" + bound(window_right);
    if (hstu)
      text +=
          "_hstu" + std::to_string(targets) + "t" + std::to_string(past) + "p" + std::to_string(context) + "c" + std::to_string(full) + "f";
    return text + "_t" + std::to_string(workers);
  }
};

inline void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name(); }

using support::quick;

template <typename S> S not_a_number() { return static_cast<S>(std::numeric_limits<ComputeType<S>>::quiet_NaN()); }

// A [B, H, L, D] array somewhere in a storage that it may share with others. T is what is stored.
template <typename T> class Array {
 public:
  static constexpr T kGuard = T(-7777.25f);

  Array() = default;

  int64_t B = 0, H = 0, L = 0, D = 0;
  View<T> view;

  T& at(int64_t b, int64_t h, int64_t l, int64_t d) const {
    return view.data[b * view.stride_b + h * view.stride_h + l * view.stride_l + d];
  }
  View<const T> cview() const { return {view.data, view.stride_b, view.stride_h, view.stride_l}; }

  template <typename Body> void for_each(Body&& body) const {
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t l = 0; l < L; ++l)
          for (int64_t d = 0; d < D; ++d) body(at(b, h, l, d));
  }

  std::vector<T> flat() const {
    std::vector<T> values;
    values.reserve(static_cast<size_t>(B * H * L * D));
    for_each([&](T& element) { values.push_back(element); });
    return values;
  }

  bool guards_intact() const {
    for (size_t i = 0; i < storage_->data.size(); ++i)
      if (!storage_->owned[i] && storage_->data[i] != kGuard) return false;
    return true;
  }

  // `count` arrays of one shape in one storage. Inputs end exactly where their last element does, so that ASan sees reads past it.
  // Elements start as NaN: an output must be written, not added to.
  static std::vector<Array> make(Layout layout, int64_t count, bool output, int64_t B, int64_t H, int64_t L, int64_t D) {
    const int64_t margin = output ? 67 : 0;
    int64_t stride_b, stride_h, stride_l, stride_count;
    if (layout == Layout::packed) {
      stride_h = D, stride_count = H * D, stride_l = count * H * D, stride_b = L * stride_l;
    } else {
      const int64_t gap = layout == Layout::padded ? 1 : 0;
      stride_l = D + 3 * gap, stride_h = L * stride_l + 5 * gap, stride_b = H * stride_h + 7 * gap, stride_count = B * stride_b;
    }
    auto storage = std::make_shared<Storage>();
    const auto size = static_cast<size_t>(
        count * B * H * L * D == 0 ? 0 : (count - 1) * stride_count + (B - 1) * stride_b + (H - 1) * stride_h + (L - 1) * stride_l + D);
    storage->data.assign(size + static_cast<size_t>(2 * margin), output ? kGuard : not_a_number<T>());
    storage->owned.assign(storage->data.size(), 0);
    std::vector<Array> arrays(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      Array& array = arrays[static_cast<size_t>(i)];
      array.B = B, array.H = H, array.L = L, array.D = D, array.storage_ = storage;
      array.view = {storage->data.data() + (size ? margin + i * stride_count : 0), stride_b, stride_h, stride_l};
      array.for_each([&](T& element) {
        storage->owned[static_cast<size_t>(&element - storage->data.data())] = 1;
        element = not_a_number<T>();
      });
    }
    return arrays;
  }

  static Array make_one(Layout layout, bool output, int64_t B, int64_t H, int64_t L, int64_t D) {
    return make(layout, 1, output, B, H, L, D)[0];
  }

  static std::array<Array, 3> make_qkv(Layout layout, bool output, const AttentionShape& s) {
    if (s.value_width() != s.D)
      return {make_one(layout, output, s.B, s.Hq, s.Lq, s.D), make_one(layout, output, s.B, s.Hkv, s.Lk, s.D),
              make_one(layout, output, s.B, s.Hkv, s.Lk, s.value_width())};
    if (layout == Layout::packed && s.Hq == s.Hkv && s.Lq == s.Lk) {
      auto qkv = make(layout, 3, output, s.B, s.Hq, s.Lq, s.D);
      return {qkv[0], qkv[1], qkv[2]};
    }
    auto kv = make(layout, 2, output, s.B, s.Hkv, s.Lk, s.D);
    return {make_one(layout, output, s.B, s.Hq, s.Lq, s.D), kv[0], kv[1]};
  }

 private:
  struct Storage {
    std::vector<T> data;
    std::vector<char> owned;
  };
  std::shared_ptr<Storage> storage_;
};

// What a forward and a backward give, in the order [B, H, L, D] and [B, H, L].
template <typename T> struct Results {
  std::vector<T> out, weight_sum, weight_log, zero_share, lse, dq, dk, dv, dmask;
  std::vector<double> dgain, dbias, dalpha;
  std::vector<SkipCount> forward_skipped, backward_skipped;
};

// Inputs are stored as S, and their statistics as T.
template <typename S, typename T = ComputeType<S>> struct Problem {
  Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  Problem(Problem&&) noexcept = default;
  Problem& operator=(Problem&&) noexcept = default;

  Layout layout = Layout::contiguous;
  AttentionShape shape;
  AttentionRule rule;
  bool statistics = false, parameter_gradients = true;
  std::vector<int64_t> key_lengths, q_offsets, k_offsets, num_targets;
  std::vector<double> gain, bias, alpha;
  std::vector<uint8_t> boolean_mask;
  std::vector<double> additive_mask;  // numbers that S has
  std::vector<S> stored_mask;         // the same
  Array<S> q, k, v, grad_out;
  std::vector<T> grad_weight_sum, grad_weight_log;

  void allocate() {
    const auto qkv = Array<S>::make_qkv(layout, false, shape);
    q = qkv[0], k = qkv[1], v = qkv[2];
    grad_out = Array<S>::make_one(layout, false, shape.B, shape.Hq, shape.Lq, shape.value_width());
    grad_weight_sum.assign(row_count(), T(0));
    grad_weight_log.assign(row_count(), T(0));
  }
  size_t row_count() const { return static_cast<size_t>(shape.B * shape.Hq * shape.Lq); }
  bool softmax() const { return rule.h == Activation::softmax; }

  // The gradient of an additive mask is laid out as the mask is.
  size_t dmask_size() const { return additive_mask.size(); }
  size_t dmask_at(int64_t b, int64_t head, int64_t i, int64_t j) const {
    const MaskView& m = shape.mask;
    return static_cast<size_t>(b * m.stride_b + head * m.stride_h + i * m.stride_q + j * m.stride_k);
  }

  // The same problem with exactly the same numbers in another type.
  template <typename U> Problem<U> as() const {
    Problem<U> other;
    other.shape = shape, other.rule = rule, other.statistics = statistics, other.parameter_gradients = parameter_gradients;
    other.key_lengths = key_lengths, other.q_offsets = q_offsets, other.k_offsets = k_offsets;
    other.gain = gain, other.bias = bias, other.alpha = alpha;
    other.num_targets = num_targets, other.boolean_mask = boolean_mask, other.additive_mask = additive_mask;
    other.point_into_own_vectors();
    other.allocate();
    const auto copy = [](const Array<S>& from, const Array<U>& to) {
      const std::vector<S> values = from.flat();
      size_t i = 0;
      to.for_each([&](U& element) { element = static_cast<U>(values[i++]); });
    };
    copy(q, other.q), copy(k, other.k), copy(v, other.v), copy(grad_out, other.grad_out);
    other.grad_weight_sum.assign(grad_weight_sum.begin(), grad_weight_sum.end());
    other.grad_weight_log.assign(grad_weight_log.begin(), grad_weight_log.end());
    return other;
  }

  void point_into_own_vectors() {
    const auto data = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    shape.key_lengths = data(key_lengths), shape.q_offsets = data(q_offsets), shape.k_offsets = data(k_offsets);
    rule.gain = data(gain), rule.bias = data(bias), rule.alpha = data(alpha);
    shape.hstu.num_targets = data(num_targets);
    if (!boolean_mask.empty()) shape.mask.data = boolean_mask.data(), shape.mask.type = MaskType::boolean;
    if (additive_mask.empty()) return;
    shape.mask.data = additive_mask.data(), shape.mask.type = MaskType::float64;
    if (!std::is_same_v<T, float>) return;
    stored_mask.clear();
    for (const double value : additive_mask) stored_mask.push_back(static_cast<S>(static_cast<float>(value)));
    shape.mask.data = stored_mask.data();
    shape.mask.type = std::is_same_v<S, BFloat16> ? MaskType::bfloat16 : std::is_same_v<S, Float16> ? MaskType::float16 : MaskType::float32;
  }
};

// A mask with everything that can go wrong: rows that see nothing, keys that nobody sees, a hidden rectangle larger than tiles, one that is
// all open, and elements hidden here and there.
template <typename S> void make_mask(const Case& c, Problem<S>& p) {
  if (c.mask == MaskKind::none) return;
  const AttentionShape& s = p.shape;
  const MaskShape shape = c.mask_shape;
  const bool has_b = shape != MaskShape::rows_and_keys && shape != MaskShape::heads_rows_and_keys;
  const bool has_h = shape == MaskShape::full || shape == MaskShape::transposed || shape == MaskShape::heads_rows_and_keys;
  const bool has_q = shape != MaskShape::batch_and_keys, has_k = shape != MaskShape::batch_and_rows;
  const int64_t B = has_b ? s.B : 1, H = has_h ? s.Hq : 1, Q = has_q ? s.Lq : 1, K = has_k ? s.Lk : 1;
  const bool transposed = shape == MaskShape::transposed;
  const std::array<int64_t, 4> strides = {H * Q * K, Q * K, transposed ? 1 : K, transposed ? Q : 1};
  MaskView& view = p.shape.mask;
  view.stride_b = has_b ? strides[0] : 0, view.stride_h = has_h ? strides[1] : 0;
  view.stride_q = has_q ? strides[2] : 0, view.stride_k = has_k ? strides[3] : 0;

  std::mt19937_64 random(c.seed * 77003 + 5);
  std::normal_distribution<double> normal;
  std::bernoulli_distribution sometimes(0.3);
  const auto size = static_cast<size_t>(std::max<int64_t>(B * H * Q * K, 1));
  if (c.mask == MaskKind::boolean) p.boolean_mask.assign(size, 0);
  if (c.mask == MaskKind::additive) p.additive_mask.assign(size, 0);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < Q; ++i)
        for (int64_t j = 0; j < K; ++j) {
          bool hidden = sometimes(random);
          if (i >= Q / 3 && j < K / 2) hidden = false;
          if (i < Q / 2 && j >= K / 2 && Q > 1) hidden = true;
          if ((Q > 1 && (i + b) % 11 == 3) || (K > 1 && j % 7 == 2)) hidden = true;
          const size_t at = p.dmask_at(b, h, i, j);
          if (c.mask == MaskKind::boolean) p.boolean_mask[at] = hidden ? 0 : 1;
          if (c.mask == MaskKind::additive) {
            const double value = static_cast<double>(static_cast<S>(static_cast<ComputeType<S>>(normal(random))));
            p.additive_mask[at] = hidden ? -std::numeric_limits<double>::infinity() : value;
          }
        }
}

template <typename S, typename T = ComputeType<S>> Problem<S> make_problem(const Case& c) {
  std::mt19937_64 random(c.seed * 1000003 + static_cast<uint64_t>(c.Lq * 7919 + c.Lk * 104729 + c.D));
  std::normal_distribution<double> normal;
  const auto uniform = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };

  Problem<S> p;
  p.layout = c.layout;
  p.statistics = c.statistics, p.parameter_gradients = c.parameter_gradients;
  AttentionShape& s = p.shape;
  s.B = c.jagged() ? 1 : c.B, s.Hq = c.Hkv * c.group, s.Hkv = c.Hkv, s.Lq = c.Lq, s.Lk = c.Lk, s.D = c.D, s.Dv = c.Dv;
  s.causal = c.causal();
  if (c.has_key_lengths()) {
    // Between nothing and everything, both included.
    for (int64_t b = 0; b < s.B; ++b) p.key_lengths.push_back(b == 0 ? uniform(0, s.Lk) : b == 1 ? 0 : s.Lk);
  }
  if (c.jagged()) {
    // Four cuts, two of them at one place: one sequence is empty on both sides, others may be.
    s.sequences = 5;
    const auto offsets = [&](int64_t L) {
      std::vector<int64_t> cuts = {0, uniform(0, L), uniform(0, L), uniform(0, L), L};
      std::sort(cuts.begin(), cuts.end());
      cuts.insert(cuts.begin() + 2, cuts[2]);
      return cuts;
    };
    p.q_offsets = offsets(s.Lq), p.k_offsets = c.Lq == c.Lk ? p.q_offsets : offsets(s.Lk);
  }
  s.window_left = c.window_left, s.window_right = c.window_right;
  if (c.hstu) {
    s.hstu = {true, nullptr, c.past, c.context, c.full};
    for (int64_t n = 0; n < (c.jagged() ? s.sequences : s.B); ++n) {
      const int64_t length = c.jagged() ? p.q_offsets[static_cast<size_t>(n) + 1] - p.q_offsets[static_cast<size_t>(n)] : s.Lk;
      p.num_targets.push_back(std::clamp<int64_t>(length - c.context, 0, uniform(0, c.targets)));
    }
  }
  make_mask(c, p);
  AttentionRule& r = p.rule;
  r.h = c.h;
  r.scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.D));
  r.dropout = c.dropout;
  r.seed = c.seed * 0x9E3779B97F4A7C15u;
  if (c.h != Activation::softmax) {
    r.length_rule = c.length_rule;
    r.length_n = 37.5;
    r.bias_log_n = c.bias_log_n;
    r.identity_order = c.identity_order;
    if (c.head_parameters) {
      for (int64_t head = 0; head < s.Hq; ++head) {
        p.gain.push_back(normal(random));
        p.bias.push_back(0.5 * normal(random));
        p.alpha.push_back(0.6 + 0.3 * normal(random));
      }
    }
  }
  p.point_into_own_vectors();
  p.allocate();
  for (const Array<S>* array : {&p.q, &p.k, &p.v, &p.grad_out})
    array->for_each([&](S& element) { element = static_cast<S>(static_cast<T>(normal(random))); });
  for (T& g : p.grad_weight_sum) g = static_cast<T>(normal(random));
  for (T& g : p.grad_weight_log) g = static_cast<T>(normal(random));
  return p;
}

namespace detail {

// Runs `forward` and then `backward` with everything that the problem asks for.
template <typename S, typename T, typename Forward, typename Backward>
Results<T> run(const Problem<S, T>& p, Forward&& forward, Backward&& backward) {
  const AttentionShape& s = p.shape;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  constexpr size_t kMargin = 33;
  const auto stat = [&](bool wanted) {
    std::vector<T> values;
    if (wanted) values.assign(p.row_count() + 2 * kMargin, Array<T>::kGuard), std::fill_n(values.begin() + kMargin, p.row_count(), nan);
    return values;
  };
  const auto inside = [&](std::vector<T>& values) { return values.empty() ? nullptr : values.data() + kMargin; };
  const auto strip = [&](std::vector<T>& values, const char* what) {
    if (values.empty()) return;
    for (size_t i = 0; i < kMargin; ++i)
      EXPECT_TRUE(values[i] == Array<T>::kGuard && values[values.size() - 1 - i] == Array<T>::kGuard) << "guard of " << what;
    values = std::vector<T>(values.begin() + kMargin, values.end() - kMargin);
  };

  Results<T> r;
  r.weight_sum = stat(p.statistics), r.weight_log = stat(p.statistics), r.zero_share = stat(p.statistics), r.lse = stat(p.softmax());
  r.forward_skipped.assign(static_cast<size_t>(s.B * s.Hq), SkipCount{-1, -1});
  r.backward_skipped = r.forward_skipped;

  const Array<S> out = Array<S>::make_one(p.layout, true, s.B, s.Hq, s.Lq, s.value_width());
  AttentionForward<S, T> f;
  f.q = p.q.cview(), f.k = p.k.cview(), f.v = p.v.cview(), f.out = out.view;
  f.weight_sum = inside(r.weight_sum), f.weight_log = inside(r.weight_log), f.zero_share = inside(r.zero_share), f.lse = inside(r.lse);
  f.skipped = r.forward_skipped.data();
  forward(s, p.rule, f);
  EXPECT_TRUE(out.guards_intact()) << "guards of out";

  const auto grads = Array<S>::make_qkv(p.layout, true, s);
  AttentionBackward<S, T> b;
  b.q = f.q, b.k = f.k, b.v = f.v, b.grad_out = p.grad_out.cview();
  if (p.statistics) b.grad_weight_sum = p.grad_weight_sum.data(), b.grad_weight_log = p.grad_weight_log.data();
  b.dq = grads[0].view, b.dk = grads[1].view, b.dv = grads[2].view;
  if (p.softmax()) {
    b.out = out.cview(), b.lse = f.lse;
    if (p.statistics) b.weight_log = f.weight_log;
  } else if (p.parameter_gradients) {
    for (auto* values : {&r.dgain, &r.dbias, &r.dalpha}) values->assign(static_cast<size_t>(s.Hq), std::nan(""));
    b.dgain = r.dgain.data(), b.dbias = r.dbias.data(), b.dalpha = r.dalpha.data();
  }
  b.skipped = r.backward_skipped.data();
  if (p.dmask_size() > 0) {
    r.dmask.assign(p.dmask_size(), T(0));
    b.dmask = {r.dmask.data(), s.mask.stride_b, s.mask.stride_h, s.mask.stride_q, s.mask.stride_k};
  }
  backward(s, p.rule, b);
  EXPECT_TRUE(grads[0].guards_intact()) << "guards of dq";
  EXPECT_TRUE(grads[1].guards_intact() && grads[2].guards_intact()) << "guards of dk and dv";

  strip(r.weight_sum, "weight_sum"), strip(r.weight_log, "weight_log"), strip(r.zero_share, "zero_share"), strip(r.lse, "lse");
  const auto numbers = [](const Array<S>& array) {
    const std::vector<S> values = array.flat();
    return std::vector<T>(values.begin(), values.end());
  };
  r.out = numbers(out), r.dq = numbers(grads[0]), r.dk = numbers(grads[1]), r.dv = numbers(grads[2]);
  return r;
}

}  // namespace detail

template <typename T> Results<T> run_reference(const Problem<T>& p) {
  return detail::run(
      p, [](const auto&... args) { reference::attention_forward<T>(args...); },
      [](const auto&... args) { reference::attention_backward<T>(args...); });
}

template <typename S, typename T> Results<T> run_fast(const Problem<S, T>& p, Parallel& parallel) {
  return detail::run(
      p, [&](const auto&... args) { attention_forward(args..., parallel); },
      [&](const auto&... args) { attention_backward(args..., parallel); });
}

template <typename S, typename T> Results<T> run_fast(const Problem<S, T>& p) {
  Serial serial;
  return run_fast(p, serial);
}

// Calls body once with each SIMD target in use that this machine can run.
template <typename Body> void for_each_simd_target(Body&& body) {
  for (const std::string& target : usable_simd_targets()) {
    SCOPED_TRACE("SIMD target " + target);
    ASSERT_TRUE(force_simd_target(target));
    body();
    if (::testing::Test::HasFailure()) break;
  }
  ASSERT_TRUE(force_simd_target(""));
}

}  // namespace hinge::kernels::testing
