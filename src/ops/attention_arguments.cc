// The checks of the attention op: what it accepts, and the error for everything else.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "ops/attention_impl.h"
#include "ops/attention_options.h"

#define HINGE_CHECK(condition, ...) TORCH_CHECK(condition, "hinge::attention: ", __VA_ARGS__)
#define HINGE_NAMED(option)         #option, options.option

namespace hinge {
namespace {

using kernels::Activation;
using kernels::IdentityOrder;
using kernels::LengthRule;

bool is_supported(at::ScalarType type) { return type == at::kFloat || type == at::kDouble || is_only_stored(type); }

void check_tensor(const char* name, const at::Tensor& tensor, const at::Tensor& query) {
  HINGE_CHECK(tensor.dim() == 4, name, " must have four dimensions [batch, heads, length, width], got the shape ", tensor.sizes());
  HINGE_CHECK(tensor.layout() == at::kStrided, name, " must be a dense tensor, got the layout ", tensor.layout());
  HINGE_CHECK(is_supported(tensor.scalar_type()), name, " has dtype ", tensor.scalar_type(),
              "; float32, float64, bfloat16 and float16 are supported, cast it to one of them");
  HINGE_CHECK(tensor.scalar_type() == query.scalar_type(), "query, key and value must have one dtype, got ", query.scalar_type(),
              " for query and ", tensor.scalar_type(), " for ", name);
  HINGE_CHECK(tensor.device() == query.device(), "query, key and value must be on one device, got ", query.device(), " for query and ",
              tensor.device(), " for ", name);
}

at::Tensor per_head(const char* name, const PerHead& option, int64_t heads) {
  const at::Tensor& values = option.values;
  if (!values.defined()) return {};
  HINGE_CHECK(is_supported(values.scalar_type()), name, " has dtype ", values.scalar_type(),
              "; float32, float64, bfloat16 and float16 are supported");
  HINGE_CHECK(values.numel() == 1 || values.numel() == heads, name, " must have 1 element or one for each of the ", heads,
              " query heads, got the shape ", values.sizes());
  const at::Tensor result = values.detach().to(at::kCPU, at::kDouble).reshape({-1}).expand({heads}).contiguous();
  const double *begin = result.data_ptr<double>(), *end = begin + heads;
  const double* wrong = std::find_if_not(begin, end, [](double x) { return std::isfinite(x); });
  HINGE_CHECK(wrong == end, name, " must be finite, got ", *wrong, " for head ", wrong - begin);
  return result;
}

at::Tensor integers(const char* name, const at::Tensor& values) {
  if (!values.defined()) return {};
  HINGE_CHECK(values.scalar_type() == at::kLong || values.scalar_type() == at::kInt, name, " has dtype ", values.scalar_type(),
              "; int64 and int32 are supported");
  HINGE_CHECK(values.dim() == 1, name, " must have one dimension, got the shape ", values.sizes());
  return values.to(at::kCPU, at::kLong).contiguous();
}

void check_offsets(const char* name, const at::Tensor& offsets, const char* what, int64_t length) {
  const int64_t* begin = offsets.data_ptr<int64_t>();
  const int64_t* end = begin + offsets.numel();
  HINGE_CHECK(offsets.numel() >= 1 && *begin == 0, name, " must start with 0, got ",
              offsets.numel() ? std::to_string(*begin) : "no elements");
  const int64_t* fall = std::adjacent_find(begin, end, std::greater<>());
  HINGE_CHECK(fall == end, name, " must not decrease, but ", *fall, " is followed by ", *(fall + 1));
  HINGE_CHECK(*(end - 1) == length, name, " must end with the length of ", what, ", ", length, ", got ", *(end - 1));
}

kernels::MaskType mask_type(const at::Tensor& mask) {
  switch (mask.scalar_type()) {
    case at::kBool: return kernels::MaskType::boolean;
    case at::kBFloat16: return kernels::MaskType::bfloat16;
    case at::kHalf: return kernels::MaskType::float16;
    case at::kFloat: return kernels::MaskType::float32;
    default: return kernels::MaskType::float64;
  }
}

at::Tensor expanded_mask(const at::Tensor& mask, const kernels::AttentionShape& shape, const at::Tensor& q) {
  if (!mask.defined()) return {};
  HINGE_CHECK(mask.scalar_type() == at::kBool || is_supported(mask.scalar_type()), "attn_mask has dtype ", mask.scalar_type(),
              "; it must be bool (true: visible) or of a floating type (added to the scores)");
  HINGE_CHECK(mask.layout() == at::kStrided, "attn_mask must be a dense tensor, got the layout ", mask.layout());
  HINGE_CHECK(mask.device() == q.device(), "attn_mask must be on the device of query, ", q.device(), ", got ", mask.device());
  const std::array<int64_t, 4> sizes = {shape.B, shape.Hq, shape.Lq, shape.Lk};
  bool fits = mask.dim() <= 4;
  for (int64_t d = 0; fits && d < mask.dim(); ++d) fits = mask.size(-1 - d) == 1 || mask.size(-1 - d) == sizes[static_cast<size_t>(3 - d)];
  HINGE_CHECK(fits, "attn_mask must broadcast to [batch, query heads, query length, key length], ", at::IntArrayRef(sizes),
              ", got the shape ", mask.sizes());
  return mask.detach().expand(sizes);
}

void check_window(const std::optional<Window>& window, bool hstu) {
  if (!window) return;
  HINGE_CHECK(window->left >= -1 && window->right >= -1, "window must be (left, right) with numbers of keys, or -1 for no bound, got (",
              window->left, ", ", window->right, ")");
  HINGE_CHECK(!hstu, "window and the mask of HSTU exclude each other; give max_attn_len instead of window");
}

// The sequences that HSTU's mask is for.
void check_hstu(const AttentionProblem& problem, const AttentionOptions& options) {
  const kernels::AttentionShape& shape = problem.shape;
  if (!shape.hstu.used) return;
  const char* given = problem.num_targets.defined() ? "num_targets"
                      : options.max_attn_len != 0   ? "max_attn_len"
                      : options.contextual_seq_len  ? "contextual_seq_len"
                                                    : "min_full_attn_seq_len";
  HINGE_CHECK(options.max_attn_len >= 0 && options.contextual_seq_len >= 0 && options.min_full_attn_seq_len >= 0,
              "max_attn_len, contextual_seq_len and min_full_attn_seq_len must not be negative, got ", options.max_attn_len, ", ",
              options.contextual_seq_len, " and ", options.min_full_attn_seq_len);
  HINGE_CHECK(options.min_full_attn_seq_len == 0 || options.max_attn_len > 0,
              "min_full_attn_seq_len says which rows ignore max_attn_len; give that, too, or leave both out");
  HINGE_CHECK(shape.causal, given, " belongs to the mask of HSTU, which is causal; give causal = true with it");
  HINGE_CHECK(!shape.key_lengths, given, " and key_lengths exclude each other; use offsets for sequences of different lengths");
  const int64_t sequences = shape.q_offsets ? shape.sequences : shape.B;
  HINGE_CHECK(!problem.num_targets.defined() || problem.num_targets.numel() == sequences,
              "num_targets must have one element for each of the ", sequences, " sequences, got ", problem.num_targets.numel());
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t lq = shape.q_offsets ? shape.q_offsets[s + 1] - shape.q_offsets[s] : shape.Lq;
    const int64_t lk = shape.q_offsets ? shape.k_offsets[s + 1] - shape.k_offsets[s] : shape.Lk;
    HINGE_CHECK(lq == lk, given, " needs as many keys as queries, got ", lk, " and ", lq, " in sequence ", s);
    const int64_t targets = shape.hstu.num_targets ? shape.hstu.num_targets[s] : 0;
    HINGE_CHECK(targets >= 0 && (lk == 0 || targets + options.contextual_seq_len <= lk),
                "num_targets and contextual_seq_len must fit into their sequence, got ", targets, " and ", options.contextual_seq_len,
                " for sequence ", s, " of length ", lk);
  }
}

void check_visibility(const AttentionProblem& problem) {
  const kernels::AttentionShape& shape = problem.shape;
  const bool jagged = problem.q_offsets.defined() || problem.k_offsets.defined();
  if (problem.key_lengths.defined()) {
    HINGE_CHECK(!jagged, "key_lengths and offsets exclude each other; give the lengths of jagged sequences by the offsets alone");
    HINGE_CHECK(problem.key_lengths.numel() == shape.B, "key_lengths must have one element for each of the ", shape.B, " batch rows, got ",
                problem.key_lengths.numel());
    const int64_t* end = shape.key_lengths + shape.B;
    const int64_t* wrong = std::find_if(shape.key_lengths, end, [&](int64_t n) { return n < 0 || n > shape.Lk; });
    HINGE_CHECK(wrong == end, "key_lengths must be between 0 and the number of keys, ", shape.Lk, ", got ", *wrong, " for batch row ",
                wrong - shape.key_lengths);
  }
  if (jagged) {
    HINGE_CHECK(problem.q_offsets.defined() && problem.k_offsets.defined(), "q_offsets and k_offsets go together, got only ",
                problem.q_offsets.defined() ? "q_offsets" : "k_offsets");
    HINGE_CHECK(!problem.attn_mask.defined(),
                "attn_mask and offsets exclude each other; pad the sequences, or say by causal, window or the "
                "mask of HSTU what is visible");
    HINGE_CHECK(shape.B == 1, "with offsets the batch must be 1 (the sequences follow one another in L), got ", shape.B);
    HINGE_CHECK(problem.q_offsets.numel() == problem.k_offsets.numel(), "q_offsets and k_offsets must be equally long, got ",
                problem.q_offsets.numel(), " and ", problem.k_offsets.numel());
    check_offsets("q_offsets", problem.q_offsets, "query", shape.Lq);
    check_offsets("k_offsets", problem.k_offsets, "key", shape.Lk);
  }
}

void check_rule(const kernels::AttentionRule& rule, const AttentionOptions& options) {
  HINGE_CHECK(std::isfinite(rule.scale), "scale must be finite, got ", rule.scale);
  HINGE_CHECK(std::isfinite(rule.length_n) && rule.length_n > 0, "length_n must be positive and finite, got ", rule.length_n);
  HINGE_CHECK(rule.length_rule == LengthRule::fixed || rule.length_n == 1, "length_n is for length_rule = \"fixed\" only, got ",
              rule.length_n, " with length_rule = \"", length_rule_name(rule.length_rule), "\"");
  if (rule.h == Activation::softmax) {
    const char* given = rule.bias_log_n ? "bias_log_n" : nullptr;
    for_each_attention_option([&]<typename T>(const AttentionOption<T>& option) {
      if constexpr (std::is_same_v<T, PerHead>)
        if ((options.*option.field).values.defined()) given = option.name;
    });
    HINGE_CHECK(!given, "softmax takes no ", given, "; leave it out or choose a point-wise h");
    HINGE_CHECK(rule.length_rule == LengthRule::keys,
                "softmax takes no length rule; leave length_rule at its default or choose a point-wise h");
  }
  HINGE_CHECK(rule.h == Activation::identity || rule.identity_order == IdentityOrder::automatic,
              "identity_order is for h = \"identity\" only, got h = \"", kernels::activation_name(rule.h).data(), "\"");
}

}  // namespace

AttentionProblem check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  check_tensor("query", q, q);
  check_tensor("key", k, q);
  check_tensor("value", v, q);
  HINGE_CHECK(k.sizes().slice(0, 3) == v.sizes().slice(0, 3), "key and value must have one shape but for the width, got ", k.sizes(),
              " and ", v.sizes());
  HINGE_CHECK(q.size(0) == k.size(0), "query and key must have one batch size, got ", q.size(0), " and ", k.size(0));
  HINGE_CHECK(q.size(3) == k.size(3), "query and key must have one head width, got ", q.size(3), " and ", k.size(3));
  HINGE_CHECK(q.size(3) > 0 && v.size(3) > 0, "the head width must be at least 1, got the query shape ", q.sizes(), " and the value shape ",
              v.sizes());
  HINGE_CHECK(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0,
              "the number of query heads must be a multiple of the number of key and value heads, got ", q.size(1), " and ", k.size(1));

  AttentionProblem problem;
  kernels::AttentionShape& shape = problem.shape;
  shape = {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
  shape.causal = options.causal;
  shape.window_left = options.window ? options.window->left : -1;
  shape.window_right = options.window ? options.window->right : -1;
  problem.attn_mask = expanded_mask(options.attn_mask, shape, q);
  if (const at::Tensor& mask = problem.attn_mask; mask.defined())
    shape.mask = {mask.data_ptr(), mask_type(mask), mask.stride(0), mask.stride(1), mask.stride(2), mask.stride(3)};
  problem.num_targets = integers(HINGE_NAMED(num_targets));
  shape.hstu = {
      problem.num_targets.defined() || options.max_attn_len != 0 || options.contextual_seq_len != 0 || options.min_full_attn_seq_len != 0,
      data_or_null<int64_t>(problem.num_targets), options.max_attn_len, options.contextual_seq_len, options.min_full_attn_seq_len};
  problem.key_lengths = integers(HINGE_NAMED(key_lengths));
  problem.q_offsets = integers(HINGE_NAMED(q_offsets));
  problem.k_offsets = integers(HINGE_NAMED(k_offsets));
  shape.key_lengths = data_or_null<int64_t>(problem.key_lengths);
  shape.q_offsets = data_or_null<int64_t>(problem.q_offsets);
  shape.k_offsets = data_or_null<int64_t>(problem.k_offsets);
  shape.sequences = shape.q_offsets ? problem.q_offsets.numel() - 1 : 0;
  check_visibility(problem);
  check_window(options.window, shape.hstu.used);
  check_hstu(problem, options);

  kernels::AttentionRule& rule = problem.rule;
  rule.h = options.h;
  rule.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(shape.D)));
  rule.length_rule = options.length_rule;
  rule.length_n = options.length_n;
  rule.bias_log_n = options.bias_log_n;
  rule.identity_order = options.identity_order;
  problem.gain = per_head(HINGE_NAMED(gain), shape.Hq);
  problem.bias = per_head(HINGE_NAMED(bias), shape.Hq);
  problem.alpha = per_head(HINGE_NAMED(alpha), shape.Hq);
  rule.gain = data_or_null<double>(problem.gain);
  rule.bias = data_or_null<double>(problem.bias);
  rule.alpha = data_or_null<double>(problem.alpha);
  check_rule(rule, options);

  HINGE_CHECK(
      rule.identity_order != IdentityOrder::linear || (!shape.mask.data && shape.window_left < 0 && !shape.hstu.used),
      "identity_order = \"linear\" sums over the first keys, so there can be no attn_mask, window on the left or mask of HSTU; leave "
      "one of the two out");
  HINGE_CHECK(options.dropout >= 0 && options.dropout < 1, "dropout must be in [0, 1), got ", options.dropout);
  if (options.dropout > 0) {
    HINGE_CHECK(options.seed.defined(), "dropout needs a seed, an int64 tensor with one element");
    HINGE_CHECK(options.seed.scalar_type() == at::kLong && options.seed.numel() == 1, "seed must be an int64 tensor with one element, got ",
                options.seed.scalar_type(), " with the shape ", options.seed.sizes());
    HINGE_CHECK(rule.identity_order != IdentityOrder::linear,
                "identity_order = \"linear\" makes no single weights that dropout could drop; leave one of the two out");
    rule.dropout = options.dropout;
    rule.seed = static_cast<uint64_t>(options.seed.item<int64_t>());
  }
  return problem;
}

at::Tensor per_head_gradient(const at::Tensor& per_head, const at::Tensor& option, const at::TensorOptions& of_none) {
  if (!per_head.defined()) return at::empty({0}, of_none);
  return (option.numel() == 1 ? per_head.sum() : per_head).to(option.options()).reshape(option.sizes());
}

bool is_only_stored(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

at::ScalarType computed_type(at::ScalarType stored) { return is_only_stored(stored) ? at::kFloat : stored; }

bool wants_mask_gradient(const AttentionBackwardInputs& inputs, const AttentionOptions& options) {
  return inputs.wanted[3] && options.attn_mask.defined() && options.attn_mask.is_floating_point();
}

at::Tensor empty_in_order_of(const at::Tensor& model, int64_t width) {
  const int64_t B = model.size(0), H = model.size(1), L = model.size(2), D = width;
  if (model.stride(2) > model.stride(1)) return at::empty_strided({B, H, L, D}, {L * H * D, D, H * D, 1}, model.options());
  return at::empty({B, H, L, D}, model.options());
}

at::Tensor with_adjacent_width(const at::Tensor& tensor) {
  return tensor.size(3) == 1 || tensor.stride(3) == 1 ? tensor : tensor.contiguous();
}

}  // namespace hinge
