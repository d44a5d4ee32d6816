// The sum of the processes' gradients, in the tree of sharded_gradient.h, on every process. Gradients travel in buckets, while the backward
// pass still computes those of the layers before.
//
// Each process adds up an equal part of a bucket: all-to-all, sums in the tree's order, all-gather. That sends 2 (P - 1) / P of a gradient
// from each of P processes, as little as any all-reduce, and fixes the order of the additions.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "distributed/process_group.h"
#include "nn/parameters.h"

namespace hinge::train {

struct ExchangeTimes {
  double busy = 0;    // seconds in which gradients travelled or were added up
  double waited = 0;  // of these, after the backward pass had ended: what is not hidden
};

class GradientExchange {
 public:
  // Buckets hold whole parameters, from the last to the first: about `first` bytes, then `others`.
  static constexpr int64_t kFirstBucket = int64_t{1} << 20, kOtherBuckets = 25 * (int64_t{1} << 20);
  GradientExchange(const nn::Parameters& parameters, distributed::ProcessGroup& group, int64_t first = kFirstBucket,
                   int64_t others = kOtherBuckets);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // A step: begin(); ready() once for each parameter, from any thread, with the sum of this process's shards (undefined: none, which counts
  // as zero); finish(), which waits and gives the sums, undefined where no process had any. They are valid until the next begin(). No other
  // collective may run in between.
  void begin();
  void ready(size_t parameter, const at::Tensor& sum);
  const std::vector<at::Tensor>& finish();

  size_t buckets() const { return buckets_.size(); }
  size_t travelled();  // buckets of this step that are added up
  ExchangeTimes times() const { return times_; }

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    std::vector<int64_t> begins;    // of the parameters, in elements
    int64_t part = 0;               // elements of the part that a process adds up
    at::Tensor flat;                // [world * part]: this process's sums, then those of all
    std::vector<char> defined;      // which of the parameters have a gradient here
    size_t missing = 0;             // parameters that are not ready
    std::vector<at::Tensor> views;  // of `flat`, in the parameters' shapes
  };

  void work();
  void exchange(Bucket& bucket);
  void add_up(const Bucket& bucket, float* received, int64_t row, float* sum) const;

  const nn::Parameters& parameters_;
  distributed::ProcessGroup& group_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> places_;  // bucket of each parameter, and its place there
  std::vector<at::Tensor> sums_;
  ExchangeTimes times_;

  std::mutex mutex_;  // guards what follows, and Bucket::missing
  std::condition_variable changed_;
  size_t next_ = 0;        // bucket to travel
  bool stepping_ = false;  // between begin() and finish()
  bool stop_ = false;
  std::exception_ptr error_;

  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hinge::train
