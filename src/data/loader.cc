// The loader's plan (which image at which step), its queue and its threads.
#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "data/error.h"
#include "support/threads.h"

namespace hinge::data {
namespace {

constexpr size_t kQueueBytes = size_t{256} << 20;  // what batches in all queues may take; but a queue has at least two and at most eight

}  // namespace

Loader::Loader(std::shared_ptr<const ImageSet> set, Pipeline pipeline, const LoaderOptions& options)
    : set_(std::move(set)), pipeline_(std::move(pipeline)), options_(options) {
  if (options_.batch_size < 1 || options_.threads < 1 || options_.first_step < 0)
    throw std::runtime_error(
        fmt::format("loader: batch size {}, {} threads, first step {}: the first two must be at least 1, the last at least 0",
                    options_.batch_size, options_.threads, options_.first_step));
  if (!(options_.mixup >= 0 && options_.mixup <= 1000))
    throw std::runtime_error(fmt::format("loader: mixup {} is not allowed: give 0 for none, or a number up to 1000", options_.mixup));
  const int64_t own_parts = options_.own_parts > 0 ? options_.own_parts : options_.parts;
  if (options_.parts < 1 || options_.parts > options_.batch_size || options_.first_part < 0 ||
      options_.first_part + own_parts > options_.parts || options_.readers < 1 || own_parts % options_.readers != 0)
    throw std::runtime_error(
        fmt::format("loader: {} images of a step cannot be handed out in {} parts, {} of them from part {} on to {} readers",
                    options_.batch_size, options_.parts, own_parts, options_.first_part, options_.readers));
  const int64_t size = set_->size(), full = size / options_.batch_size;
  epoch_size_ = options_.drop_last ? full * options_.batch_size : size;
  if (epoch_size_ == 0)
    throw std::runtime_error(fmt::format("loader: {} images do not fill one batch of {}; choose a smaller batch or drop_last = false", size,
                                         options_.batch_size));
  epoch_steps_ = (epoch_size_ + options_.batch_size - 1) / options_.batch_size;
  end_step_ = std::min(epoch_steps_, options_.end_step.value_or(epoch_steps_));
  find_shape();

  reader_parts_ = own_parts / options_.readers;
  queues_ = std::vector<Queue>(static_cast<size_t>(options_.readers));
  for (Queue& queue : queues_) queue.next = options_.first_step * reader_parts_;
  const int64_t images = (options_.batch_size + options_.parts - 1) / options_.parts;
  const size_t bytes = static_cast<size_t>(images) * shape_.count() * sizeof(float);
  most_slots_ = std::clamp<size_t>(kQueueBytes / bytes / queues_.size(), 2, 8);
  run_ = static_cast<size_t>(std::clamp<int64_t>(images / (4 * options_.threads), 1, 64));
  threads_ = support::start_threads(
      options_.threads, [this](int) { work(); }, [this] { stop(); }, "set data.threads lower");
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_or_stop_.notify_all();
}

int64_t Loader::steps_per_epoch() const {
  return options_.endless ? std::max<int64_t>(1, epoch_size_ / options_.batch_size) : epoch_steps_;
}

int64_t Loader::steps() const { return std::max<int64_t>(0, end_step_ - options_.first_step); }

// The shape of the first image that can be read; that of all others is compared with it.
void Loader::find_shape() {
  Scratch scratch;
  for (int64_t i = 0; i < set_->size(); ++i) {
    int64_t index = i;
    if (!load({i, 0}, index, scratch)) continue;
    try {
      std::vector<float> out(scratch.image.pixels.size());
      pipeline_.to_float(scratch.image, out.data());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}: {}", set_->name(index), error.what()));
    }
    shape_ = scratch.image.shape();
    return;
  }
  throw std::runtime_error(fmt::format("loader: none of the {} images can be read; '{}' is the first", set_->size(), set_->name(0)));
}

double Loader::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_seconds_ / static_cast<double>(queues_.size());
}

bool Loader::is_over(const Queue& queue) const { return !options_.endless && queue.next >= end_step_ * reader_parts_; }

bool Loader::next(Batch& batch, int64_t reader) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_.at(static_cast<size_t>(reader));
  std::deque<std::unique_ptr<Slot>>& slots = queue.slots;
  for (;;) {
    const auto ready = [&] { return failure_ || (slots.empty() ? is_over(queue) : slots.front()->ready); };
    if (!ready()) {
      const auto start = std::chrono::steady_clock::now();
      batch_ready_.wait(lock, ready);
      waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (failure_) std::rethrow_exception(failure_);
    if (slots.empty()) return false;
    if (slots.front()->error) std::rethrow_exception(slots.front()->error);
    const std::unique_ptr<Slot> slot = std::move(slots.front());
    slots.pop_front();
    const bool found = slot->batch.size > 0;  // a batch of bad files only is none
    if (found) std::swap(batch, slot->batch);
    spare_.push_back(std::move(slot->batch));
    work_or_stop_.notify_all();
    if (found) return true;
  }
}

std::vector<std::string> Loader::skipped() const {
  const std::lock_guard lock(bad_mutex_);
  std::vector<std::string> names;
  for (const auto& [index, name] : bad_) names.push_back(name);
  return names;
}

void Loader::work() {
  try {
    make_batches();
  } catch (...) {  // no memory for a batch
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    batch_ready_.notify_all();
  }
}

void Loader::make_batches() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    Slot* slot = nullptr;
    work_or_stop_.wait(lock, [&] { return stop_ || (slot = slot_with_work()) != nullptr; });
    if (stop_) return;
    const size_t first = slot->taken, last = std::min(first + run_, slot->examples.size());
    slot->taken = last;
    lock.unlock();

    std::exception_ptr error;
    size_t i = first;
    try {
      for (; i < last; ++i) make(*slot, i, scratch);
    } catch (...) {
      error = std::current_exception();
    }

    lock.lock();
    if (error && (!slot->error || i < slot->error_at)) {  // of several, the first by place
      slot->error = error;
      slot->error_at = i;
    }
    slot->done += last - first;
    if (slot->done < slot->examples.size()) continue;
    if (!slot->error) {
      lock.unlock();
      complete(*slot);
      lock.lock();
    }
    slot->ready = true;
    batch_ready_.notify_all();
  }
}

// A slot with examples nobody has taken; a new one if there is room, for the reader who is furthest behind.
Loader::Slot* Loader::slot_with_work() {
  for (const Queue& queue : queues_)
    for (const auto& slot : queue.slots)
      if (slot->taken < slot->examples.size()) return slot.get();
  const Queue* behind = nullptr;
  for (const Queue& queue : queues_)
    if (!is_over(queue) && queue.slots.size() < most_slots_ && (!behind || queue.next < behind->next)) behind = &queue;
  if (!behind) return nullptr;
  open_slot(static_cast<size_t>(behind - queues_.data()));
  work_or_stop_.notify_all();
  return behind->slots.back().get();
}

void Loader::open_slot(size_t reader) {
  Queue& queue = queues_[reader];
  const int64_t step = queue.next / reader_parts_;
  const int64_t part = options_.first_part + static_cast<int64_t>(reader) * reader_parts_ + queue.next % reader_parts_;
  auto slot = std::make_unique<Slot>();
  if (!spare_.empty()) {
    slot->batch = std::move(spare_.back());
    spare_.pop_back();
  }
  const auto begin_of = [&](int64_t number) { return step * options_.batch_size + number * options_.batch_size / options_.parts; };
  const int64_t first = begin_of(part), end = begin_of(part + 1), last = options_.endless ? end : std::min(end, epoch_size_);
  for (int64_t position = first; position < last; ++position) slot->examples.push_back(example_at(position));
  const size_t n = slot->examples.size();
  Batch& batch = slot->batch;
  batch.step = step, batch.part = part;
  batch.size = static_cast<int64_t>(n);
  batch.shape = shape_;
  batch.lambda = 1;
  batch.pixels.resize(n * shape_.count());
  batch.labels.resize(n);
  batch.indices.resize(n);
  batch.other_labels.clear();
  slot->missing.assign(n, 0);
  queue.slots.push_back(std::move(slot));
  ++queue.next;
}

Loader::Example Loader::example_at(int64_t position) {
  const int64_t epoch = position / epoch_size_, place = position % epoch_size_;
  if (!options_.shuffle) return {place, static_cast<uint32_t>(epoch)};
  Order& order = orders_[static_cast<size_t>(epoch % 2)];
  if (epoch != order.epoch) {
    order.permutation.resize(static_cast<size_t>(set_->size()));
    std::iota(order.permutation.begin(), order.permutation.end(), 0u);
    Random random(options_.seed, Purpose::shuffle, static_cast<uint64_t>(epoch), 0);
    for (size_t i = order.permutation.size(); i > 1; --i) std::swap(order.permutation[i - 1], order.permutation[random.below(i)]);
    order.epoch = epoch;
  }
  return {order.permutation[static_cast<size_t>(place)], static_cast<uint32_t>(epoch)};
}

void Loader::make(Slot& slot, size_t i, Scratch& scratch) {
  const Example example = slot.examples[i];
  int64_t index = example.index;
  if (!load(example, index, scratch)) {
    slot.missing[i] = 1;
    return;
  }
  try {
    if (scratch.image.shape() != shape_)
      throw std::runtime_error(
          fmt::format("is {}x{} with {} channels after preprocessing '{}', the first image of the set {}x{} with {}; make all one size, "
                      "for example by resize(S) or resize_small(S)|central_crop(S)",
                      scratch.image.height, scratch.image.width, scratch.image.channels, pipeline_.text(), shape_.height, shape_.width,
                      shape_.channels));
    pipeline_.to_float(scratch.image, slot.batch.pixels.data() + i * shape_.count());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", set_->name(index), error.what()));
  }
  slot.batch.labels[i] = set_->label(index);
  slot.batch.indices[i] = index;
}

// Decodes and preprocesses the image `index`, or with OnError::skip in an endless stream the next good one, which becomes `index`. False if
// it is to be left out.
bool Loader::load(const Example& example, int64_t& index, Scratch& scratch) {
  for (int64_t tries = 0; tries < set_->size(); ++tries) {
    if (!is_bad(index)) {
      try {
        set_->load(index, scratch.image);
        preprocess(example, index, scratch);
        return true;
      } catch (const DataError&) {
        if (options_.on_error == OnError::stop) throw;
        mark_bad(index, set_->name(index));
      }
    }
    if (!options_.endless) return false;
    index = (index + 1) % set_->size();
  }
  throw std::runtime_error(fmt::format("loader: none of the {} images can be read; '{}' is the first", set_->size(), set_->name(0)));
}

void Loader::preprocess(const Example& example, int64_t index, Scratch& scratch) const {
  Random random(options_.seed, Purpose::augment, example.epoch, static_cast<uint64_t>(example.index));
  try {
    pipeline_.apply(scratch, random);
  } catch (const ImageError& error) {
    throw DataError(set_->name(index), error.what());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", set_->name(index), error.what()));
  }
}

// Closes the gaps of examples left out, then mixes.
void Loader::complete(Slot& slot) const {
  Batch& batch = slot.batch;
  size_t kept = 0;
  for (size_t i = 0; i < slot.examples.size(); ++i) {
    if (slot.missing[i]) continue;
    if (kept != i) {
      std::copy_n(batch.pixels.begin() + static_cast<std::ptrdiff_t>(i * shape_.count()), shape_.count(),
                  batch.pixels.begin() + static_cast<std::ptrdiff_t>(kept * shape_.count()));
      batch.labels[kept] = batch.labels[i];
      batch.indices[kept] = batch.indices[i];
    }
    ++kept;
  }
  batch.size = static_cast<int64_t>(kept);
  batch.pixels.resize(kept * shape_.count());
  batch.labels.resize(kept);
  batch.indices.resize(kept);
  if (options_.mixup > 0 && kept > 0) mix(batch);
}

// x_i := lambda x_i + (1 - lambda) x_(i-1), cyclic. In place from the end, so that each reads its neighbour unmixed.
void Loader::mix(Batch& batch) const {
  const double beta = Random(options_.seed, Purpose::mixup, static_cast<uint64_t>(batch.step), 0).beta(options_.mixup);
  const float lambda = static_cast<float>(std::max(beta, 1 - beta));
  const size_t n = static_cast<size_t>(batch.size), count = shape_.count();
  const auto blend = [&](float* to, const float* other) {
    for (size_t k = 0; k < count; ++k) to[k] = lambda * to[k] + (1 - lambda) * other[k];
  };
  float* pixels = batch.pixels.data();
  const std::vector<float> last(pixels + (n - 1) * count, pixels + n * count);
  for (size_t i = n - 1; i > 0; --i) blend(pixels + i * count, pixels + (i - 1) * count);
  blend(pixels, last.data());
  batch.lambda = lambda;
  batch.other_labels.resize(n);
  for (size_t i = 0; i < n; ++i) batch.other_labels[i] = batch.labels[(i + n - 1) % n];
}

bool Loader::is_bad(int64_t index) const {
  if (options_.on_error == OnError::stop) return false;
  const std::lock_guard lock(bad_mutex_);
  return bad_.contains(index);
}

void Loader::mark_bad(int64_t index, const std::string& name) {
  const std::lock_guard lock(bad_mutex_);
  bad_.emplace(index, name);
}

}  // namespace hinge::data
