// Batches of preprocessed images, made by threads in the background. What is in a batch depends on the options and on its step alone,
// not on the number of threads and readers or on the step the loader began with.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  int64_t batch_size = 1;  // images of a step
  uint64_t seed = 0;
  int threads = 1;
  double mixup = 0;        // p of Beta(p, p); 0 for none
  int64_t parts = 1;       // a step's images are handed out in so many batches, of equal sizes or one more, each mixed within itself
  int64_t first_part = 0;  // of those that are handed out here; the others are other processes'
  int64_t own_parts = 0;   // how many; 0: all
  int64_t readers =
      1;  // threads that take them; a divisor of own_parts. Of these, reader r gets [r, r + 1) * own_parts / readers of each step
  bool shuffle = true;     // every epoch in its own random order
  bool endless = true;     // epoch after epoch; else one pass
  bool drop_last = false;  // leave out what does not fill a batch at an epoch's end; else the next epoch follows at once, or, in a single
                           // pass, the last batch is short
  // Of a file that cannot be decoded or resized. skip: a training stream shows the next readable image of the set in its place, a single
  // pass goes without it.
  OnError on_error = OnError::stop;
  int64_t first_step = 0;                // of the first batch
  std::optional<int64_t> end_step = {};  // a single pass ends before this step, and not after all images
};

struct Batch {
  int64_t step = 0, part = 0;
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

  // The reader's next batch into `batch`, whose memory is used again later. False when a single pass is over. An error met while the batch
  // was made is thrown here, again at each call. Readers do not wait for each other.
  bool next(Batch& batch, int64_t reader = 0);

  const Shape& shape() const { return shape_; }
  int64_t steps_per_epoch() const;           // rounded down for an endless stream whose batches reach over the end of an epoch
  int64_t steps() const;                     // of this single pass, from first_step to its end
  double waited_seconds() const;             // spent in next() for batches that were not ready, by a reader on average
  std::vector<std::string> skipped() const;  // the bad files met so far

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

  // Batches for one reader.
  struct Queue {
    std::deque<std::unique_ptr<Slot>> slots;
    int64_t next = 0;  // of the reader's batches, counted over all steps
  };

  void work();
  void stop();  // ends the threads' work
  void make_batches();
  Slot* slot_with_work();
  bool is_over(const Queue& queue) const;
  void open_slot(size_t reader);
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
  int64_t epoch_size_ = 0;    // images of an epoch that are used
  int64_t epoch_steps_ = 0;   // batches of a single pass over all images
  int64_t end_step_ = 0;      // of a single pass
  int64_t reader_parts_ = 1;  // of a step
  size_t most_slots_ = 0;     // of a queue
  size_t run_ = 0;            // examples that a thread takes at a time

  mutable std::mutex mutex_;  // guards what follows
  double waited_seconds_ = 0;
  std::condition_variable work_or_stop_, batch_ready_;
  std::vector<Queue> queues_;
  std::vector<Batch> spare_;
  struct Order {
    int64_t epoch = -1;
    std::vector<uint32_t> permutation;
  };
  std::array<Order, 2> orders_;  // of even and odd epochs: a step may reach over the end of one
  bool stop_ = false;
  std::exception_ptr failure_;  // of a thread, outside of an example

  mutable std::mutex bad_mutex_;
  std::map<int64_t, std::string> bad_;

  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace hinge::data
