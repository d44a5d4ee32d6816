// Batches of preprocessed images, made by threads in the background. What is in a batch depends on the options and on its step alone,
// not on the number of threads or on the step the loader began with.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/image_set.h"
#include "data/pipeline.h"
#include "support/on_error.h"

namespace hinge::data {

using support::OnError;

struct LoaderOptions {
  int64_t batch_size = 1;
  uint64_t seed = 0;
  int threads = 1;
  double mixup = 0;        // p of Beta(p, p); 0 for none
  int64_t parts = 1;       // so many batches make one step, and are mixed with one weight
  bool shuffle = true;     // every epoch in its own random order
  bool endless = true;     // epoch after epoch; else one pass
  bool drop_last = false;  // leave out what does not fill a batch at an epoch's end; else the next epoch follows at once, or, in a single
                           // pass, the last batch is short
  // Of a file that cannot be decoded or resized. skip: a training stream shows the next readable image of the set in its place, a single
  // pass goes without it.
  OnError on_error = OnError::stop;
  int64_t first_step = 0;  // the step of the first batch
};

struct Batch {
  int64_t step = 0;
  int64_t size = 0;  // N
  Shape shape;
  std::vector<float> pixels;          // (N, H, W, C)
  std::vector<int64_t> labels;        // N
  std::vector<int64_t> indices;       // N; which images of the set these are
  std::vector<int64_t> other_labels;  // with mixup N, else none: example i is lambda of itself and 1 - lambda of example i - 1
  float lambda = 1;
};

class Loader {
 public:
  // Decodes one image to learn the shape of a batch. Throws std::runtime_error for wrong options, DataError for a bad file.
  Loader(std::shared_ptr<const ImageSet> set, Pipeline pipeline, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch into `batch`, whose memory is used again later. False when a single pass is over. An error met while the batch was
  // made is thrown here, again at each call.
  bool next(Batch& batch);

  const Shape& shape() const { return shape_; }
  int64_t steps_per_epoch() const;  // rounded down for an endless stream whose batches reach over the end of an epoch
  double waited_seconds() const { return waited_seconds_; }  // spent in next() for batches that were not ready
  std::vector<std::string> skipped() const;                  // the bad files met so far

 private:
  struct Example {
    int64_t index = 0;
    uint32_t epoch = 0;
  };

  // A batch in the making. Threads take runs of its examples; who finishes the last one completes it.
  struct Slot {
    Batch batch;
    std::vector<Example> examples;
    std::vector<char> missing;  // of each example, whether it was left out
    size_t taken = 0, done = 0;
    bool ready = false;
    std::exception_ptr error;
    size_t error_at = 0;
  };

  void work();
  void stop();  // ends the threads' work
  void make_batches();
  Slot* slot_with_work();
  void open_slot();
  Example example_at(int64_t position);
  void make(Slot& slot, size_t i, Scratch& scratch);
  bool load(const Example& example, int64_t& index, Scratch& scratch);
  void preprocess(const Example& example, int64_t index, Scratch& scratch) const;
  void complete(Slot& slot) const;
  void mix(Batch& batch) const;
  void find_shape();
  bool is_bad(int64_t index) const;
  void mark_bad(int64_t index, const std::string& name);

  const std::shared_ptr<const ImageSet> set_;
  const Pipeline pipeline_;
  const LoaderOptions options_;
  Shape shape_;
  int64_t epoch_size_ = 0;  // images of an epoch that are used
  int64_t end_step_ = 0;    // of a single pass
  size_t most_slots_ = 0, run_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_or_stop_, batch_ready_;
  std::deque<std::unique_ptr<Slot>> slots_;  // consecutive steps
  std::vector<Batch> spare_;
  int64_t next_step_ = 0;
  std::vector<uint32_t> order_;  // the permutation of order_epoch_
  int64_t order_epoch_ = -1;
  bool stop_ = false;
  std::exception_ptr failure_;  // of a thread, outside of an example

  mutable std::mutex bad_mutex_;
  std::map<int64_t, std::string> bad_;

  double waited_seconds_ = 0;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace hinge::data
