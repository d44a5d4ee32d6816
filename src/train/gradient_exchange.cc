#include "train/gradient_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "support/threads.h"

namespace hinge::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kAligned = 16;  // elements: parameters begin at multiples of 64 bytes
int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace

GradientExchange::GradientExchange(const nn::Parameters& parameters, distributed::ProcessGroup& group, int64_t first, int64_t others)
    : parameters_(parameters), group_(group), places_(parameters.all().size()) {
  int64_t size = 0;
  for (size_t p = parameters.all().size(); p-- > 0;) {
    const int64_t limit = buckets_.size() <= 1 ? first : others;
    if (buckets_.empty() || size * static_cast<int64_t>(sizeof(float)) >= limit) buckets_.emplace_back(), size = 0;
    Bucket& bucket = buckets_.back();
    places_[p] = {buckets_.size() - 1, bucket.parameters.size()};
    bucket.parameters.push_back(p);
    bucket.begins.push_back(size);
    size += round_up(parameters.all()[p].value.numel(), kAligned);
    bucket.part = round_up((size + group.world() - 1) / group.world(), kAligned);
  }
  for (Bucket& bucket : buckets_) {
    bucket.flat = at::zeros({group.world() * bucket.part});
    bucket.defined.resize(bucket.parameters.size());
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const at::Tensor& value = parameters.all()[bucket.parameters[i]].value;
      bucket.views.push_back(bucket.flat.narrow(0, bucket.begins[i], value.numel()).view(value.sizes()));
    }
  }
  sums_.resize(parameters.all().size());
  next_ = buckets_.size();
  std::vector<std::jthread> threads = support::start_threads(
      1, [this](int) { work(); }, [] {}, "end other programs");
  thread_ = std::move(threads.front());
}

GradientExchange::~GradientExchange() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void GradientExchange::begin() {
  std::fill(sums_.begin(), sums_.end(), at::Tensor());
  {
    const std::scoped_lock lock(mutex_);
    for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
    next_ = 0, stepping_ = true;
  }
  changed_.notify_all();
}

void GradientExchange::ready(size_t parameter, const at::Tensor& sum) {
  const auto [number, place] = places_[parameter];
  Bucket& bucket = buckets_[number];
  bucket.defined[place] = sum.defined();
  if (sum.defined()) bucket.views[place].copy_(sum);
  bool whole = false;
  {
    const std::scoped_lock lock(mutex_);
    whole = --bucket.missing == 0;
  }
  if (whole) changed_.notify_all();
}

const std::vector<at::Tensor>& GradientExchange::finish() {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || next_ == buckets_.size(); });
  stepping_ = false;
  times_.waited += seconds_since(start);
  if (error_) std::rethrow_exception(error_);
  return sums_;
}

size_t GradientExchange::travelled() {
  const std::scoped_lock lock(mutex_);
  return next_;
}

// Buckets travel in their order, which is the same on all processes.
void GradientExchange::work() {
  const at::NoGradGuard guard;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || (stepping_ && next_ < buckets_.size() && buckets_[next_].missing == 0); });
    if (stop_) return;
    Bucket& bucket = buckets_[next_];
    lock.unlock();
    std::exception_ptr error;
    const auto start = Clock::now();
    try {
      exchange(bucket);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    times_.busy += seconds_since(start);
    ++next_;
    if (error) error_ = error, stop_ = true;
    changed_.notify_all();
  }
}

void GradientExchange::exchange(Bucket& bucket) {
  // A row for each process: its part of the sums, and which parameters have one.
  const int64_t world = group_.world(), count = std::ssize(bucket.parameters), row = bucket.part + round_up(count, kAligned);
  at::Tensor sent = at::empty({world, row}), received = at::empty({world, row}), sum = at::zeros({bucket.part});
  std::vector<float> flags(static_cast<size_t>(row - bucket.part));
  std::copy(bucket.defined.begin(), bucket.defined.end(), flags.begin());
  const float* flat = bucket.flat.data_ptr<float>();
  for (int64_t to = 0; to < world; ++to) {
    float* begin = sent.data_ptr<float>() + to * row;
    std::memcpy(begin, flat + to * bucket.part, static_cast<size_t>(bucket.part) * sizeof(float));
    std::memcpy(begin + bucket.part, flags.data(), flags.size() * sizeof(float));
  }
  group_.all_to_all(sent, received);
  add_up(bucket, received.data_ptr<float>(), row, sum.data_ptr<float>());
  group_.all_gather(sum, bucket.flat);
  for (int64_t i = 0; i < count; ++i) {
    bool any = false;
    for (int64_t from = 0; from < world; ++from) any = any || received.data_ptr<float>()[from * row + bucket.part + i] != 0;
    if (any) sums_[bucket.parameters[static_cast<size_t>(i)]] = bucket.views[static_cast<size_t>(i)];
  }
}

// The upper levels of the tree, over the processes, for this process's part of the bucket.
void GradientExchange::add_up(const Bucket& bucket, float* received, int64_t row, float* sum) const {
  const auto world = static_cast<size_t>(group_.world());
  const int64_t first = group_.rank() * bucket.part, last = first + bucket.part;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const int64_t begin = std::max(first, bucket.begins[i]);
    const int64_t end = std::min(last, bucket.begins[i] + parameters_.all()[bucket.parameters[i]].value.numel());
    if (begin >= end) continue;
    std::vector<float*> rows(world);  // null: no gradient, which is not the same as zeros where zeros have signs
    for (size_t from = 0; from < world; ++from) {
      float* of_rank = received + static_cast<int64_t>(from) * row;
      if (of_rank[bucket.part + static_cast<int64_t>(i)] != 0) rows[from] = of_rank + begin - first;
    }
    for (size_t stride = 1; stride < world; stride *= 2)
      for (size_t left = 0; left + stride < world; left += 2 * stride) {
        float* __restrict to = rows[left], * __restrict from = rows[left + stride];
        if (to == nullptr) rows[left] = from;
        if (to == nullptr || from == nullptr) continue;
        for (int64_t k = 0; k < end - begin; ++k) to[k] += from[k];
      }
    if (rows[0] != nullptr) std::memcpy(sum + begin - first, rows[0], static_cast<size_t>(end - begin) * sizeof(float));
  }
}

}  // namespace hinge::train
