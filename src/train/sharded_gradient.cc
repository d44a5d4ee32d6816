#include "train/sharded_gradient.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

namespace hinge::train {
namespace {

// A tensor that nobody else has: it will be added to in place.
void make_own(at::Tensor& grad) {
  if (!grad.defined()) return;
  const bool own = grad.use_count() == 1 && grad.storage().use_count() == 1 && grad.is_contiguous();
  if (!own) grad = grad.clone(at::MemoryFormat::Contiguous);
}

// left += right.
void add(Gradients& left, Gradients&& right) {
  if (left.empty()) {
    left = std::move(right);
    return;
  }
  for (size_t i = 0; i < right.size(); ++i) {
    if (!left[i].defined())
      left[i] = std::move(right[i]);
    else if (right[i].defined())
      left[i].add_(right[i]);
  }
}

// The sum over consecutive shards, as they come: subtrees of equal size are added as soon as both are there.
class TreeSum {
 public:
  void take(Gradients&& gradients) {
    int level = 0;
    while (!waiting_.empty() && waiting_.back().level == level) {
      add(waiting_.back().sum, std::move(gradients));
      gradients = std::move(waiting_.back().sum);
      waiting_.pop_back();
      ++level;
    }
    waiting_.push_back({level, std::move(gradients)});
  }

  // Of a power of two of shards.
  Gradients finish() { return waiting_.empty() ? Gradients() : std::move(waiting_.front().sum); }

  // The same sum for one parameter, with `last`, that of the last shard, which take() has not had. Once for each parameter.
  at::Tensor finish(size_t parameter, const at::Tensor& last) {
    at::Tensor sum = last;
    for (size_t i = waiting_.size(); i-- > 0;) {
      if (waiting_[i].sum.empty()) continue;
      at::Tensor& left = waiting_[i].sum[parameter];
      if (!left.defined()) continue;
      if (sum.defined()) left.add_(sum);
      sum = left;
    }
    return sum;
  }

 private:
  struct Subtree {
    int level;
    Gradients sum;
  };
  std::vector<Subtree> waiting_;  // the largest first
};

}  // namespace

Gradients gradients_of(const nn::Parameters& parameters, const std::vector<at::Tensor>& losses, const std::vector<double>& weights) {
  std::vector<at::Tensor> values, factors;
  for (const nn::Parameter& parameter : parameters.all()) values.push_back(parameter.value);
  for (const double weight : weights) factors.push_back(at::scalar_tensor(weight, at::kFloat));
  if (GradientTaps::listener() != nullptr) {
    torch::autograd::backward(losses, factors);
    return {};
  }
  Gradients gradients =
      torch::autograd::grad(losses, values, factors, /*retain_graph=*/c10::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
  for (at::Tensor& grad : gradients) make_own(grad);
  return gradients;
}

ShardedGradient::ShardedGradient(const nn::Parameters& parameters, Workers& workers, int64_t shards, distributed::ProcessGroup* group,
                                 int64_t team)
    : parameters_(parameters),
      workers_(workers),
      team_(group != nullptr ? group->rank() / team : 0),
      own_shards_(group != nullptr ? shards / (group->world() / team) : shards) {
  const int64_t processes = group != nullptr ? group->world() / team : 1;
  TORCH_CHECK(shards > 0 && std::has_single_bit(static_cast<uint64_t>(shards)) && shards % (processes * workers.count()) == 0,
              "hinge: the shards must be a power of two, and the workers as well and no more: got ", shards, " and ", processes, " times ",
              workers.count());
  if (group == nullptr) return;
  taps_ = std::make_unique<GradientTaps>(parameters);
  exchange_ = std::make_unique<GradientExchange>(parameters, *group);
}

const Gradients& ShardedGradient::compute(const Shard& shard) { return exchange_ ? compute_with_others(shard) : compute_alone(shard); }

const Gradients& ShardedGradient::compute_alone(const Shard& shard) {
  sum_.clear();
  std::vector<Gradients> sums(static_cast<size_t>(workers_.count()));
  const int64_t each = own_shards_ / workers_.count();
  std::atomic<bool> failed = false;
  workers_.run([&](int worker) {
    TreeSum sum;
    try {
      for (int64_t i = worker * each; i < (worker + 1) * each && !failed; ++i) sum.take(shard(i));
    } catch (...) {
      failed = true;  // nobody begins another shard
      throw;
    }
    sums[static_cast<size_t>(worker)] = sum.finish();
  });
  add_up(sums);
  sum_ = std::move(sums.front());
  if (sum_.empty()) sum_.resize(parameters_.all().size());
  return sum_;
}

// In the backward pass of a worker's last shard, each gradient goes its way through the tree as soon as it is there: through the worker's
// own sums, those of the process's workers, and with its bucket those of the processes.
const Gradients& ShardedGradient::compute_with_others(const Shard& shard) {
  const size_t parameters = parameters_.all().size(), workers = static_cast<size_t>(workers_.count());
  const int64_t each = own_shards_ / workers_.count();
  std::vector<Gradients> sums(workers, Gradients(parameters));
  std::vector<std::atomic<int>> missing(parameters);
  for (std::atomic<int>& count : missing) count = workers_.count();
  std::atomic<bool> failed = false;

  const auto give = [&](size_t worker, size_t parameter, at::Tensor&& sum) {
    const at::NoGradGuard guard;
    sums[worker][parameter] = std::move(sum);
    if (--missing[parameter] > 0) return;
    for (size_t stride = 1; stride < workers; stride *= 2)
      for (size_t i = 0; i + stride < workers; i += 2 * stride) {
        at::Tensor &left = sums[i][parameter], &right = sums[i + stride][parameter];
        if (!left.defined())
          left = right;
        else if (right.defined())
          left = left.add(right);
        right.reset();
      }
    exchange_->ready(parameter, sums[0][parameter]);
    sums[0][parameter].reset();
  };

  exchange_->begin();
  workers_.run([&](int number) {
    const auto worker = static_cast<size_t>(number);
    TreeSum sum;
    try {
      const int64_t first = first_shard() + number * each, last = first + each - 1;
      for (int64_t i = first; i < last && !failed; ++i) {
        Gradients gradients(parameters);
        const GradientTaps::Listening listening([&](size_t parameter, const at::Tensor& gradient) { gradients[parameter] = gradient; });
        shard(i);
        for (at::Tensor& gradient : gradients) make_own(gradient);
        sum.take(std::move(gradients));
      }
      if (failed) return;
      std::vector<char> given(parameters);
      const GradientTaps::Listening listening([&](size_t parameter, const at::Tensor& gradient) {
        given[parameter] = 1;
        const at::NoGradGuard guard;
        give(worker, parameter, sum.finish(parameter, gradient));
      });
      shard(last);
      for (size_t parameter = parameters; parameter-- > 0;)
        if (!given[parameter]) {
          const at::NoGradGuard guard;
          give(worker, parameter, sum.finish(parameter, at::Tensor()));
        }
    } catch (...) {
      failed = true;  // nobody begins another shard
      throw;
    }
  });
  return exchange_->finish();
}

// The upper levels of the tree, over the workers' sums, into the first of them. All workers share the elements.
void ShardedGradient::add_up(std::vector<Gradients>& sums) {
  constexpr int64_t kPiece = 16384;
  struct Piece {
    size_t parameter;
    int64_t first, size;
  };
  for (size_t stride = 1; stride < sums.size(); stride *= 2) {
    // Whole tensors change hands first, where there is nothing to add.
    std::vector<std::pair<float*, const float*>> pairs;
    std::vector<int64_t> sizes;
    for (size_t i = 0; i + stride < sums.size(); i += 2 * stride) {
      Gradients &left = sums[i], &right = sums[i + stride];
      if (left.empty()) std::swap(left, right);
      for (size_t p = 0; p < right.size(); ++p) {
        if (!left[p].defined()) std::swap(left[p], right[p]);
        if (!right[p].defined()) continue;
        pairs.emplace_back(left[p].data_ptr<float>(), right[p].data_ptr<float>());
        sizes.push_back(left[p].numel());
      }
    }
    std::vector<Piece> pieces;
    for (size_t p = 0; p < pairs.size(); ++p)
      for (int64_t first = 0; first < sizes[p]; first += kPiece) pieces.push_back({p, first, std::min(kPiece, sizes[p] - first)});
    WorkersParallel parallel(workers_);
    parallel.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
      const Piece& piece = pieces[static_cast<size_t>(task)];
      float* __restrict left = pairs[piece.parameter].first + piece.first;
      const float* __restrict right = pairs[piece.parameter].second + piece.first;
      for (int64_t i = 0; i < piece.size; ++i) left[i] += right[i];
    });
  }
}

}  // namespace hinge::train
