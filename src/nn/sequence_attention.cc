#include "nn/sequence_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ops/attention_impl.h"
#include "ops/attention_options.h"

#define HINGE_CHECK(condition, ...) TORCH_CHECK(condition, "hinge: attention over split sequences: ", __VA_ARGS__)

namespace hinge::nn {
namespace {

using at::Tensor;
using kernels::Activation;
using kernels::LengthRule;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- which tokens the ranks have

int64_t tokens_before(const TokenShares& shares, int rank) {
  return std::accumulate(shares.lengths.begin(), shares.lengths.begin() + rank, int64_t{0});
}

// Of jagged sequences, int64 [sequences]: the tokens that the first `ranks` ranks have of each.
Tensor tokens_of_sequences(const TokenShares& shares, int ranks) {
  Tensor sum = at::zeros({shares.offsets.front().numel() - 1}, at::kLong);
  for (int rank = 0; rank < ranks; ++rank) sum.add_(at::diff(shares.offsets[static_cast<size_t>(rank)]));
  return sum;
}

bool same(const TokenShares& left, const TokenShares& right) {
  if (left.lengths != right.lengths || left.offsets.size() != right.offsets.size()) return false;
  return std::equal(left.offsets.begin(), left.offsets.end(), right.offsets.begin(),
                    [](const Tensor& a, const Tensor& b) { return at::equal(a, b); });
}

// ---- messages

using Parcel = std::vector<Tensor>;
using Shapes = std::vector<std::vector<int64_t>>;

// Rows [B, H, L, D] travel in the order [B, L, H, D], that of projections.
Tensor flat(const Tensor& tensor) { return (tensor.dim() == 4 ? tensor.transpose(1, 2) : tensor).reshape(-1); }

Tensor shaped(const Tensor& flat, const std::vector<int64_t>& shape) {
  if (shape.size() < 4) return flat.view(shape);
  return flat.view({shape[0], shape[2], shape[1], shape[3]}).transpose(1, 2);
}

int64_t elements(const std::vector<int64_t>& shape) { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }

// One round: what is for each rank, and what comes from each, of the shapes that are expected.
std::vector<Parcel> exchanged(SequenceRanks& ranks, const std::vector<Parcel>& to, const std::vector<Shapes>& from,
                              const at::TensorOptions& type) {
  std::vector<int64_t> in_sizes, out_sizes;
  std::vector<Tensor> parts = {at::empty({0}, type)};
  for (const Parcel& parcel : to) {
    int64_t size = 0;
    for (const Tensor& tensor : parcel) parts.push_back(flat(tensor)), size += tensor.numel();
    in_sizes.push_back(size);
  }
  for (const Shapes& shapes : from) {
    int64_t size = 0;
    for (const auto& shape : shapes) size += elements(shape);
    out_sizes.push_back(size);
  }
  Tensor received = at::empty({std::accumulate(out_sizes.begin(), out_sizes.end(), int64_t{0})}, type);
  if (ranks.count() > 1) ranks.all_to_all(at::cat(parts), in_sizes, received, out_sizes);
  std::vector<Parcel> result;
  int64_t at = 0;
  for (const Shapes& shapes : from) {
    Parcel& parcel = result.emplace_back();
    for (const auto& shape : shapes) {
      parcel.push_back(shaped(received.narrow(0, at, elements(shape)), shape));
      at += elements(shape);
    }
  }
  return result;
}

// ---- the queries of one rank and the keys of another

// What a rank's queries read from a rank's keys; undefined: nothing.
struct Partial {
  Tensor out, weight_sum, weight_log, lse;
};

// What both passes know.
struct Plan : torch::CustomClassHolder {
  SequenceRanks* ranks = nullptr;
  TokenShares queries, keys;
  Travel travel = Travel::queries;
  bool statistics = false;

  int rank() const { return ranks->rank(); }
  int count() const { return ranks->count(); }

  // Whether the queries of rank p read from the keys of rank r.
  bool meet(const AttentionOptions& options, int p, int r) const {
    return (!options.causal || p >= r) && queries.of_rank(p) > 0 && keys.of_rank(r) > 0;
  }

  // The options of these queries and keys by themselves. Causal: the keys of earlier ranks are seen by all rows, those of the same rank as
  // in a sequence of their own.
  AttentionOptions between(const AttentionOptions& options, int p, int r) const {
    AttentionOptions own = options;
    own.causal = options.causal && p == r;
    if (queries.jagged()) own.q_offsets = queries.offsets[static_cast<size_t>(p)], own.k_offsets = keys.offsets[static_cast<size_t>(r)];
    if (options.key_lengths.defined()) own.key_lengths = (options.key_lengths - tokens_before(keys, r)).clamp(0, keys.of_rank(r));
    return own;
  }

  Partial read(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, int p, int r) const {
    const auto [out, weight_sum, weight_log, zero_share, skipped_share, lse] =
        attention_forward_cpu(q, k, v, between(options, p, r), statistics);
    return {out, weight_sum, weight_log, lse};
  }
};

std::vector<int64_t> with_rows(const Tensor& like, int64_t rows) { return {like.size(0), like.size(1), rows, like.size(3)}; }

Tensor sum_in_order(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  Tensor sum = parts[0] + parts[1];
  for (size_t i = 2; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum;
}

// The partial results as one; there is at least one. A row that sees none of a rank's keys has lse = -inf there.
Partial merged(const std::vector<Partial>& partials, bool softmax, bool statistics) {
  if (partials.size() == 1) return partials[0];
  std::vector<Tensor> outs, sums, logs, lses;
  for (const Partial& partial : partials) lses.push_back(partial.lse);
  Partial all;
  if (softmax) all.lse = at::logsumexp(at::stack(lses), 0);
  for (const Partial& partial : partials) {
    if (!softmax) {
      outs.push_back(partial.out), sums.push_back(partial.weight_sum), logs.push_back(partial.weight_log);
      continue;
    }
    // This rank's share of the row's weights; 0 of a row that sees no key at all.
    const Tensor share = (partial.lse - all.lse).exp().masked_fill(partial.lse.isneginf(), 0);
    outs.push_back(partial.out * share.unsqueeze(3));
    if (statistics) sums.push_back(partial.weight_sum * share);
    if (statistics) logs.push_back(partial.weight_log * share + partial.weight_sum * at::xlogy(share, share));
  }
  all.out = sum_in_order(outs);
  if (statistics) all.weight_sum = sum_in_order(sums), all.weight_log = sum_in_order(logs);
  return all;
}

// Adds up what comes from several ranks, in their order.
void add_to(Tensor& sum, const Tensor& part) {
  if (!sum.defined())
    sum = part;
  else
    sum = sum + part;
}

class SequenceAttention : public torch::autograd::Function<SequenceAttention> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*gain*/,
                               const OptionalTensor& /*bias*/, const OptionalTensor& /*alpha*/, const AttentionOptions& options,
                               const c10::intrusive_ptr<Plan>& plan) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const bool softmax = options.h == Activation::softmax, statistics = plan->statistics;
    const std::vector<Partial> partials =
        plan->travel == Travel::keys ? read_with_keys(*plan, q, k, v, options) : read_with_queries(*plan, q, k, v, options);
    Partial all;
    if (!partials.empty()) {
      all = merged(partials, softmax, statistics);
    } else {
      all.out = empty_in_order_of(q, v.size(3)).zero_();
      if (statistics) all.weight_sum = all.weight_log = at::zeros(q.sizes().slice(0, 3), q.options());
      if (softmax) all.lse = at::full(q.sizes().slice(0, 3), -std::numeric_limits<double>::infinity(), q.options());
    }
    save_attention(
        ctx, options,
        {q, k, v, softmax ? all.out : Tensor(), softmax ? all.lse : Tensor(), softmax && statistics ? all.weight_log : Tensor()});
    ctx->saved_data["plan"] = at::IValue::make_capsule(plan);
    if (!statistics) return {all.out};
    return {all.out, all.weight_sum, all.weight_log};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge: attention over split sequences");
    const auto [options, wanted, saved] = saved_attention(ctx);
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
    // What belongs to each query: the gradient of out, and what softmax and the statistics need.
    Parcel rows = {grads[0]};
    if (options.h == Activation::softmax) {
      rows.push_back(saved[4]);
      rows.push_back((grads[0] * saved[3]).sum(3));
      if (plan->statistics) rows.push_back(saved[5]);
    }
    if (plan->statistics) rows.insert(rows.end(), {grads[1], grads[2]});
    Gradients own(*plan, options, wanted, saved[0], saved[1], saved[2]);
    plan->travel == Travel::keys ? own.travel_with_keys(rows) : own.travel_with_queries(rows);
    return {own.dq, own.dk, own.dv, own.per_head[0], own.per_head[1], own.per_head[2], Tensor(), Tensor()};
  }

 private:
  static std::vector<Partial> read_with_queries(const Plan& plan, const Tensor& q, const Tensor& k, const Tensor& v,
                                                const AttentionOptions& options) {
    const int me = plan.rank(), count = plan.count();
    const bool softmax = options.h == Activation::softmax;
    std::vector<Parcel> to(static_cast<size_t>(count)), back(static_cast<size_t>(count));
    std::vector<Shapes> from(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
    for (int other = 0; other < count; ++other) {
      const auto at = static_cast<size_t>(other);
      if (other == me) continue;
      if (plan.meet(options, other, me)) from[at] = {with_rows(q, plan.queries.of_rank(other))};
      if (!plan.meet(options, me, other)) continue;
      to[at] = {q};
      expected[at] = {{q.size(0), q.size(1), q.size(2), v.size(3)}};
      if (softmax) expected[at].push_back(q.sizes().slice(0, 3).vec());
      if (plan.statistics) expected[at].insert(expected[at].end(), 2, q.sizes().slice(0, 3).vec());
    }
    const std::vector<Parcel> queries = exchanged(*plan.ranks, to, from, q.options());
    Partial mine;
    for (int p = 0; p < count; ++p) {
      const auto at = static_cast<size_t>(p);
      if (!plan.meet(options, p, me)) continue;
      const Partial partial = plan.read(p == me ? q : queries[at][0], k, v, options, p, me);
      if (p == me) {
        mine = partial;
        continue;
      }
      back[at] = {partial.out};
      if (softmax) back[at].push_back(partial.lse);
      if (plan.statistics) back[at].insert(back[at].end(), {partial.weight_sum, partial.weight_log});
    }
    const std::vector<Parcel> results = exchanged(*plan.ranks, back, expected, q.options());
    std::vector<Partial> partials;
    for (int r = 0; r < count; ++r) {
      const Parcel& result = results[static_cast<size_t>(r)];
      if (r == me && mine.out.defined()) partials.push_back(mine);
      if (result.empty()) continue;
      Partial& partial = partials.emplace_back();
      partial.out = result[0];
      if (softmax) partial.lse = result[1];
      if (plan.statistics) partial.weight_sum = result[result.size() - 2], partial.weight_log = result[result.size() - 1];
    }
    return partials;
  }

  // The keys and values that this rank's queries read from; those of other ranks as they come.
  static std::vector<Parcel> gathered_keys(const Plan& plan, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
    const int me = plan.rank(), count = plan.count();
    std::vector<Parcel> to(static_cast<size_t>(count));
    std::vector<Shapes> from(static_cast<size_t>(count));
    for (int other = 0; other < count; ++other) {
      const auto at = static_cast<size_t>(other);
      if (other == me) continue;
      if (plan.meet(options, other, me)) to[at] = {k, v};
      if (plan.meet(options, me, other)) from[at] = {with_rows(k, plan.keys.of_rank(other)), with_rows(v, plan.keys.of_rank(other))};
    }
    std::vector<Parcel> all = exchanged(*plan.ranks, to, from, k.options());
    if (plan.meet(options, me, me)) all[static_cast<size_t>(me)] = {k, v};
    return all;
  }

  static std::vector<Partial> read_with_keys(const Plan& plan, const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOptions& options) {
    const std::vector<Parcel> all = gathered_keys(plan, k, v, options);
    std::vector<Partial> partials;
    for (int r = 0; r < plan.count(); ++r)
      if (const Parcel& keys = all[static_cast<size_t>(r)]; !keys.empty())
        partials.push_back(plan.read(q, keys[0], keys[1], options, plan.rank(), r));
    return partials;
  }

  // The gradients of this rank's tensors.
  struct Gradients {
    const Plan& plan;
    const AttentionOptions& options;
    const std::array<bool, 4>& wanted;
    const Tensor &q, &k, &v;
    Tensor dq, dk, dv;
    std::array<Tensor, 3> per_head;

    Gradients(const Plan& the_plan, const AttentionOptions& the_options, const std::array<bool, 4>& are_wanted, const Tensor& own_q,
              const Tensor& own_k, const Tensor& own_v)
        : plan(the_plan), options(the_options), wanted(are_wanted), q(own_q), k(own_k), v(own_v) {}

    // dq, dk, dv of the queries of rank p and the keys of rank r; `rows` belong to the queries.
    std::array<Tensor, 3> between(int p, int r, const Tensor& queries, const Tensor& keys, const Tensor& values, const Parcel& rows) {
      AttentionBackwardInputs inputs;
      size_t next = 0;
      inputs.grad_out = rows[next++];
      if (options.h == Activation::softmax) {
        inputs.lse = rows[next++], inputs.out_products = rows[next++];
        if (plan.statistics) inputs.weight_log = rows[next++];
      }
      if (plan.statistics) inputs.grad_weight_sum = rows[next++], inputs.grad_weight_log = rows[next++];
      inputs.wanted = wanted;
      const AttentionOptions own = plan.between(options, p, r);
      const auto [gq, gk, gv, dgain, dbias, dalpha, dmask] = attention_backward_cpu(queries, keys, values, inputs, own);
      const std::array<const Tensor*, 3> of_heads = {&dgain, &dbias, &dalpha};
      for (size_t i = 0; i < of_heads.size(); ++i)
        if (wanted[i]) add_to(per_head[i], *of_heads[i]);
      return {gq, gk, gv};
    }

    void travel_with_queries(const Parcel& rows) {
      const int me = plan.rank(), count = plan.count();
      std::vector<Parcel> to(static_cast<size_t>(count)), back(static_cast<size_t>(count));
      std::vector<Shapes> from(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
      for (int other = 0; other < count; ++other) {
        const auto at = static_cast<size_t>(other);
        if (other == me) continue;
        if (plan.meet(options, me, other)) {
          to[at] = {q};
          to[at].insert(to[at].end(), rows.begin(), rows.end());
          expected[at] = {q.sizes().vec()};
        }
        if (!plan.meet(options, other, me)) continue;
        const int64_t theirs = plan.queries.of_rank(other);
        from[at] = {with_rows(q, theirs), {q.size(0), q.size(1), theirs, v.size(3)}};
        from[at].insert(from[at].end(), rows.size() - 1, {q.size(0), q.size(1), theirs});
      }
      const std::vector<Parcel> queries = exchanged(*plan.ranks, to, from, q.options());
      Tensor own;
      for (int p = 0; p < count; ++p) {
        const auto at = static_cast<size_t>(p);
        if (!plan.meet(options, p, me)) continue;
        const Parcel& parcel = queries[at];
        const auto [gq, gk, gv] =
            p == me ? between(p, me, q, k, v, rows) : between(p, me, parcel[0], k, v, Parcel(parcel.begin() + 1, parcel.end()));
        add_to(dk, gk), add_to(dv, gv);
        if (p == me)
          own = gq;
        else
          back[at] = {gq};
      }
      const std::vector<Parcel> results = exchanged(*plan.ranks, back, expected, q.options());
      for (int r = 0; r < count; ++r) {
        const Parcel& result = results[static_cast<size_t>(r)];
        if (r == me && own.defined()) add_to(dq, own);
        if (!result.empty()) add_to(dq, result[0]);
      }
      fill_in();
    }

    void travel_with_keys(const Parcel& rows) {
      const int me = plan.rank(), count = plan.count();
      const std::vector<Parcel> all = gathered_keys(plan, k, v, options);
      std::vector<Parcel> back(static_cast<size_t>(count));
      std::vector<Shapes> expected(static_cast<size_t>(count));
      Tensor own_dk, own_dv;
      for (int r = 0; r < count; ++r) {
        const auto at = static_cast<size_t>(r);
        if (r != me && plan.meet(options, r, me)) expected[at] = {k.sizes().vec(), v.sizes().vec()};
        if (all[at].empty()) continue;
        const auto [gq, gk, gv] = between(me, r, q, all[at][0], all[at][1], rows);
        add_to(dq, gq);
        if (r == me)
          own_dk = gk, own_dv = gv;
        else
          back[at] = {gk, gv};
      }
      const std::vector<Parcel> results = exchanged(*plan.ranks, back, expected, q.options());
      for (int p = 0; p < count; ++p) {
        const Parcel& result = results[static_cast<size_t>(p)];
        if (p == me && own_dk.defined()) add_to(dk, own_dk), add_to(dv, own_dv);
        if (!result.empty()) add_to(dk, result[0]), add_to(dv, result[1]);
      }
      fill_in();
    }

    // Where nobody met.
    void fill_in() {
      if (!dq.defined()) dq = at::zeros_like(q);
      if (!dk.defined()) dk = at::zeros_like(k), dv = at::zeros_like(v);
      const std::array<const Tensor*, 3> given = {&options.gain.values, &options.bias.values, &options.alpha.values};
      for (size_t i = 0; i < per_head.size(); ++i)
        if (wanted[i] && !per_head[i].defined()) per_head[i] = at::zeros_like(*given[i]);
    }
  };
};

// ---- sums of matrices, for the identity

// A number of each head, [1, 1 or Hq, 1, 1].
Tensor of_heads(const PerHead& option, double otherwise, const Tensor& q) {
  if (!option.values.defined()) return at::full({1, 1, 1, 1}, otherwise, q.options());
  return option.values.to(q.options()).reshape({1, -1, 1, 1});
}

// What a rank's own queries read from its own keys, and the rest as q (k^T v), before the division by N^alpha.
Tensor read_from_sums(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, const Plan& plan) {
  const int me = plan.rank();
  Tensor keys = k, values = v;
  if (options.key_lengths.defined()) {
    const Tensor places = at::arange(k.size(2), at::kLong) + tokens_before(plan.keys, me);
    const Tensor hidden = (places.unsqueeze(0) >= options.key_lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(3);  // [B, 1, Lk, 1]
    keys = k.masked_fill(hidden, 0), values = v.masked_fill(hidden, 0);
  }
  // [B, Hkv, D + 1, Dv]: k^T v, and the sum of the values.
  const Tensor own = at::cat({at::matmul(keys.transpose(2, 3), values), values.sum(2, /*keepdim=*/true)}, 2);
  const Tensor others =
      sum_over_ranks(own, *plan.ranks, options.causal ? Summands::earlier : Summands::others).repeat_interleave(q.size(1) / k.size(1), 1);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const Tensor read = scale * at::matmul(q, others.narrow(2, 0, q.size(3))) + of_heads(options.bias, 0, q) * others.narrow(2, q.size(3), 1);
  const Tensor far = of_heads(options.gain, 1, q) * read;
  return plan.meet(options, me, me) ? attention(q, k, v, plan.between(options, me, me)) + far : far;
}

// ---- checks

void check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, bool statistics, const SequenceRanks& ranks,
           const TokenShares& queries, const TokenShares& keys, Travel travel) {
  check_floating("hinge: attention over split sequences", "q", q, 4);
  const int count = ranks.count();
  HINGE_CHECK(queries.jagged() == keys.jagged() && queries.ranks() == count && keys.ranks() == count,
              "the shares of queries and keys must be those of ", count, " ranks, both jagged or both not");
  HINGE_CHECK(q.size(2) == queries.of_rank(ranks.rank()) && k.size(2) == keys.of_rank(ranks.rank()), "rank ", ranks.rank(), " has ",
              q.size(2), " queries and ", k.size(2), " keys, but its shares are ", queries.of_rank(ranks.rank()), " and ",
              keys.of_rank(ranks.rank()));
  HINGE_CHECK(k.sizes().slice(0, 3) == v.sizes().slice(0, 3) && q.size(0) == k.size(0) && q.size(3) == k.size(3),
              "q, k and v do not fit together: got ", q.sizes(), ", ", k.sizes(), ", ", v.sizes());
  HINGE_CHECK(!options.attn_mask.defined() && !options.window && !options.num_targets.defined() && options.max_attn_len == 0 &&
                  options.contextual_seq_len == 0,
              "attn_mask, window and the mask of HSTU are for whole sequences; causal and key_lengths may be given");
  HINGE_CHECK(options.dropout == 0, "which weights are dropped depends on their place in the whole sequence: set dropout to 0, got ",
              options.dropout);
  HINGE_CHECK(!options.q_offsets.defined() && !options.k_offsets.defined(), "offsets are given by the shares of the ranks");
  HINGE_CHECK(!queries.jagged() || !options.key_lengths.defined(), "key_lengths and jagged sequences exclude each other");
  HINGE_CHECK(!options.causal || same(queries, keys), "causal needs as many keys as queries, on every rank");
  HINGE_CHECK(travel != Travel::sums || (options.h == Activation::identity && !queries.jagged() && !statistics),
              "sums of matrices are for the identity, without statistics and for sequences of one length");
}

// N of each row, [B or 1, 1, Lq], where rows differ; undefined where N is one number, which is then in the options.
Tensor lengths_apart(AttentionOptions& options, const SequenceRanks& ranks, const TokenShares& queries, const TokenShares& keys) {
  const LengthRule rule = options.length_rule;
  if (options.h == Activation::softmax || rule == LengthRule::none || rule == LengthRule::fixed) return {};
  const bool by_visibility = rule == LengthRule::visible;
  if (!keys.jagged() && !(by_visibility && (options.causal || options.key_lengths.defined()))) {
    options.length_rule = LengthRule::fixed;
    options.length_n = static_cast<double>(std::max<int64_t>(1, tokens_before(keys, ranks.count())));
    return {};
  }
  HINGE_CHECK(!options.bias_log_n,
              "a bias of - log N (bias_log_n, the preset sigmoid) needs rows of one N: a fixed length rule, or "
              "sequences of one length that see all keys");
  AttentionOptions counted = options;
  if (!by_visibility) counted.causal = false;
  options.length_rule = LengthRule::none;
  return keys_seen(counted, ranks, queries, keys);
}

// log N^-alpha of rows with N keys, [B or 1, 1 or Hq, Lq].
Tensor log_of_scale(const AttentionOptions& options, const Tensor& n, const Tensor& q) {
  return -of_heads(options.alpha, 1, q).squeeze(3) * n.clamp_min(1).log().to(q.scalar_type());
}

}  // namespace

Tensor keys_seen(const AttentionOptions& options, const SequenceRanks& ranks, const TokenShares& queries, const TokenShares& keys) {
  const int me = ranks.rank();
  const Tensor rows = at::arange(queries.of_rank(me), at::kLong);
  Tensor seen;
  if (queries.jagged()) {
    const Tensor& offsets = queries.offsets[static_cast<size_t>(me)];
    const auto by_row = [&](const Tensor& of_sequence) { return of_sequence.repeat_interleave(at::diff(offsets)); };
    const int64_t sequences = offsets.numel() - 1;
    seen = options.causal ? rows - by_row(offsets.narrow(0, 0, sequences)) + by_row(tokens_of_sequences(queries, me)) + 1
                          : by_row(tokens_of_sequences(keys, ranks.count()));
  } else {
    const int64_t all = tokens_before(keys, ranks.count());
    seen = options.causal ? rows + tokens_before(queries, me) + 1 : at::full_like(rows, all);
    if (options.key_lengths.defined()) return at::minimum(seen.unsqueeze(0), options.key_lengths.unsqueeze(1)).unsqueeze(1).to(at::kDouble);
  }
  return seen.view({1, 1, -1}).to(at::kDouble);
}

TravelCost travel_cost(Travel travel, const AttentionOptions& options, bool statistics, int64_t B, int64_t Hq, int64_t Hkv, int64_t Lq,
                       int64_t Lk, int64_t D, int64_t Dv) {
  const int64_t softmax = options.h == Activation::softmax, two = statistics ? 2 : 0;
  switch (travel) {
    case Travel::queries:
      return {B * Lq * Hq * (D + Dv + softmax + two), B * Lq * Hq * (2 * D + Dv + softmax * (statistics ? 3 : 2) + two)};
    case Travel::keys: return {B * Lk * Hkv * (D + Dv), 2 * B * Lk * Hkv * (D + Dv)};
    case Travel::sums: break;
  }
  return {B * Hkv * (D + 1) * Dv, B * Hkv * (D + 1) * Dv};
}

Travel cheapest_travel(const AttentionOptions& options, bool statistics, int64_t B, int64_t Hq, int64_t Hkv, int64_t D, int64_t Dv,
                       const TokenShares& queries, const TokenShares& keys) {
  // Every rank sends its queries to those that have keys for them, or its keys to those that have queries for them: the sums over all
  // ranks have the same shares.
  const int64_t Lq = queries.tokens(), Lk = keys.tokens();
  const int64_t count = queries.ranks();
  const auto bytes = [&](Travel travel) {
    const int64_t each = travel == Travel::sums ? count : 1;  // every rank has a whole one
    const TravelCost cost = travel_cost(travel, options, statistics, B, Hq, Hkv, Lq, Lk, D, Dv);
    return each * (cost.forward + cost.backward);
  };
  Travel best = bytes(Travel::keys) < bytes(Travel::queries) ? Travel::keys : Travel::queries;
  if (options.h == Activation::identity && !queries.jagged() && !statistics && bytes(Travel::sums) < bytes(best)) best = Travel::sums;
  return best;
}

SequenceAttentionResult sequence_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& given,
                                           bool statistics, SequenceRanks& ranks, const TokenShares& queries, const TokenShares& keys,
                                           Travel travel) {
  check(q, k, v, given, statistics, ranks, queries, keys, travel);
  AttentionOptions options = given;
  const auto plan = c10::make_intrusive<Plan>();
  plan->ranks = &ranks, plan->queries = queries, plan->keys = keys, plan->travel = travel, plan->statistics = statistics;
  Tensor n = lengths_apart(options, ranks, queries, keys);
  SequenceAttentionResult result;
  if (travel == Travel::sums) {
    const double constant = options.length_rule == LengthRule::fixed ? options.length_n : 1;
    if (!n.defined() && constant != 1) n = at::full({1, 1, 1}, constant, at::kDouble);
    if (options.bias_log_n) options.bias = PerHead(of_heads(options.bias, 0, q).flatten() - std::log(constant));
    options.length_rule = LengthRule::none, options.length_n = 1, options.bias_log_n = false;
    result.out = read_from_sums(q, k, v, options, *plan);
  } else {
    const variable_list r = SequenceAttention::apply(q, k, v, optional_of(options.gain.values), optional_of(options.bias.values),
                                                     optional_of(options.alpha.values), options, plan);
    result.out = r[0];
    if (statistics) result.weight_sum = r[1], result.weight_log = r[2];
  }
  if (!n.defined()) return result;
  // Weights that were computed with N = 1, times s = N^-alpha: sum s w log |s w| = s (sum w log |w| + log s sum w).
  const Tensor log_scale = log_of_scale(given, n, q), scale = log_scale.exp();
  result.out = result.out * scale.unsqueeze(3);
  if (statistics) {
    result.weight_log = scale * (result.weight_log + log_scale * result.weight_sum);
    result.weight_sum = result.weight_sum * scale;
  }
  return result;
}

Tensor read_by_all(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& given, SequenceRanks& ranks,
                   const Tensor& q_offsets, const TokenShares& keys) {
  const at::NoGradGuard guard;
  const auto count = static_cast<size_t>(ranks.count()), me = static_cast<size_t>(ranks.rank());
  Plan plan;
  plan.ranks = &ranks, plan.keys = keys, plan.queries.offsets.assign(count, q_offsets);
  check(q, k, v, given, /*statistics=*/false, ranks, plan.queries, keys, Travel::queries);
  HINGE_CHECK(keys.jagged() && !given.causal, "queries that all ranks have are those of jagged sequences, and not causal");
  AttentionOptions options = given;
  const Tensor n = lengths_apart(options, ranks, plan.queries, keys);
  const bool softmax = options.h == Activation::softmax;
  std::vector<Parcel> to(count);
  std::vector<Shapes> from(count);
  Partial own;
  if (plan.meet(options, ranks.rank(), ranks.rank())) {
    own = plan.read(q, k, v, options, ranks.rank(), ranks.rank());
    Parcel parcel = {own.out};
    if (softmax) parcel.push_back(own.lse);
    to.assign(count, parcel);
    to[me].clear();
  }
  for (size_t other = 0; other < count; ++other) {
    if (other == me || !plan.meet(options, ranks.rank(), static_cast<int>(other))) continue;
    from[other] = {{q.size(0), q.size(1), q.size(2), v.size(3)}};
    if (softmax) from[other].push_back(q.sizes().slice(0, 3).vec());
  }
  const std::vector<Parcel> results = exchanged(ranks, to, from, q.options());
  std::vector<Partial> partials;  // in the order of the ranks, on all of them
  for (size_t rank = 0; rank < count; ++rank) {
    if (rank == me && own.out.defined()) partials.push_back(own);
    if (const Parcel& result = results[rank]; !result.empty()) partials.push_back({result[0], {}, {}, softmax ? result[1] : Tensor()});
  }
  if (partials.empty()) return empty_in_order_of(q, v.size(3)).zero_();
  const Tensor out = merged(partials, softmax, /*statistics=*/false).out;
  return n.defined() ? out * log_of_scale(given, n, q).exp().unsqueeze(3) : out;
}

}  // namespace hinge::nn
