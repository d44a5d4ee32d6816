#include "nn/sequence_ranks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace hinge::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// share_of for many numbers of tokens at once.
Tensor end_of_share(const Tensor& tokens, int rank, int count) { return (tokens * (rank + 1)).div(count, "floor"); }

bool adds(Summands which, int to, int from) { return which == Summands::all || (which == Summands::others ? from != to : from < to); }

// What the ranks give of which `takes(from)` holds, where this rank gives x to those of which `gives(to)` holds.
template <class Gives, class Takes> Tensor sum_of(const Tensor& x, SequenceRanks& ranks, const Gives& gives, const Takes& takes) {
  const int rank = ranks.rank(), count = ranks.count();
  std::vector<int64_t> in_sizes, out_sizes;
  std::vector<Tensor> parts;
  const Tensor own = x.contiguous();
  int64_t received = 0;
  for (int other = 0; other < count; ++other) {
    const bool sent = other != rank && gives(other), comes = other != rank && takes(other);
    if (sent) parts.push_back(own.view(-1));
    in_sizes.push_back(sent ? own.numel() : 0), out_sizes.push_back(comes ? own.numel() : 0);
    received += out_sizes.back();
  }
  const Tensor in = parts.empty() ? at::empty({0}, own.options()) : at::cat(parts);
  Tensor out = at::empty({received}, own.options());
  if (count > 1) ranks.all_to_all(in, in_sizes, out, out_sizes);
  Tensor sum = at::zeros(own.sizes(), own.options());
  int64_t at = 0;
  for (int from = 0; from < count; ++from) {
    if (!takes(from)) continue;
    sum.add_(from == rank ? own : out.narrow(0, at, own.numel()).view(own.sizes()));
    if (from != rank) at += own.numel();
  }
  return sum;
}

class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, SequenceRanks* ranks, Summands which) {
    ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(ranks);
    ctx->saved_data["which"] = static_cast<int64_t>(which);
    const int rank = ranks->rank();
    return sum_of(
        x, *ranks, [&](int to) { return adds(which, to, rank); }, [&](int from) { return adds(which, rank, from); });
  }

  // x is in the sums of other ranks: its gradient is the sum of theirs.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto* ranks = reinterpret_cast<SequenceRanks*>(ctx->saved_data["ranks"].toInt());
    const auto which = static_cast<Summands>(ctx->saved_data["which"].toInt());
    const int rank = ranks->rank();
    const Tensor gradient = sum_of(
        grads[0], *ranks, [&](int to) { return adds(which, rank, to); }, [&](int from) { return adds(which, from, rank); });
    return {gradient, Tensor(), Tensor()};
  }
};

}  // namespace

int64_t TokenShares::of_rank(int rank) const {
  const auto at = static_cast<size_t>(rank);
  return jagged() ? offsets[at][-1].item<int64_t>() : lengths[at];
}

int64_t TokenShares::tokens() const {
  int64_t sum = 0;
  for (int rank = 0; rank < ranks(); ++rank) sum += of_rank(rank);
  return sum;
}

TokenShares TokenShares::of_batch(int64_t tokens, int count) {
  TokenShares shares;
  for (int rank = 0; rank < count; ++rank) {
    const auto [first, end] = share_of(tokens, rank, count);
    shares.lengths.push_back(end - first);
  }
  return shares;
}

TokenShares TokenShares::of_sequences(const Tensor& offsets, int count) {
  const Tensor lengths = at::diff(offsets), zero = at::zeros({1}, at::kLong);
  TokenShares shares;
  for (int rank = 0; rank < count; ++rank) {
    const Tensor own = end_of_share(lengths, rank, count) - end_of_share(lengths, rank - 1, count);
    shares.offsets.push_back(at::cat({zero, own.cumsum(0)}));
  }
  return shares;
}

Tensor rows_of_rank(const Tensor& offsets, int rank, int count) {
  const Tensor lengths = at::diff(offsets), first = end_of_share(lengths, rank - 1, count);
  const Tensor own = end_of_share(lengths, rank, count) - first, before = own.cumsum(0) - own;
  const Tensor begins = offsets.narrow(0, 0, lengths.numel()) + first - before;
  return at::arange(own.sum().item<int64_t>(), at::kLong) + begins.repeat_interleave(own);
}

Tensor sum_over_ranks(const Tensor& x, SequenceRanks& ranks, Summands which) { return SumOverRanks::apply(x, &ranks, which); }

}  // namespace hinge::nn
