#include "train/workers.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <chrono>

#include "ops/parallel.h"
#include "support/threads.h"

namespace hinge::train {
namespace {

// How long a thread looks before it sleeps: workers meet several times a step, and waking a sleeping one takes longer than most of these
// waits. Between looks it offers its core to whoever else can run.
constexpr std::chrono::microseconds kLooking{30};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once `value` is no longer `old`.
template <class T> void wait_while(const std::atomic<T>& value, T old) {
  const auto until = std::chrono::steady_clock::now() + kLooking;
  do {
    for (int look = 0; look < 32; ++look) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until);
  value.wait(old, std::memory_order_acquire);
}

// The parts of Workers::round_.
constexpr uint32_t kOneInside = 1, kOpen = 1 << 13, kNextRound = 1 << 14;
uint32_t number_of(uint32_t round) { return round / kNextRound * kNextRound; }

// The number of OpenMP threads that this thread asks for. ATen sets its own number when a thread uses it for the first time, hence the
// question before.
class TeamSize {
 public:
  explicit TeamSize(int threads) {
    at::get_num_threads();
    before_ = omp_get_max_threads();
    omp_set_num_threads(threads);
  }
  ~TeamSize() { omp_set_num_threads(before_); }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_ = 1;
};

}  // namespace

Workers::Workers(int count, int threads) : count_(count), threads_(threads), errors_(static_cast<size_t>(count)) {
  others_ = support::start_threads(
      count - 1, [this](int i) { work(i + 1); }, [this] { end(); }, "set train.workers lower");
}

Workers::~Workers() { end(); }

void Workers::end() {
  stop_ = true;
  round_.fetch_add(kNextRound, std::memory_order_release);
  round_.notify_all();
}

void Workers::call(int worker) {
  try {
    (*body_)(worker);
  } catch (...) {
    errors_[static_cast<size_t>(worker)] = std::current_exception();
  }
}

void Workers::work(int worker) {
  const TeamSize team(threads_);
  for (uint32_t seen = 0;;) {
    uint32_t round = round_.load(std::memory_order_acquire);
    if (stop_) return;
    if (number_of(round) == seen) {
      wait_while(round_, round);
      continue;
    }
    if (!(round & kOpen)) {
      seen = number_of(round);  // too late
      continue;
    }
    if (!round_.compare_exchange_weak(round, round + kOneInside, std::memory_order_acq_rel)) continue;
    seen = number_of(round);
    call(worker);
    left_.fetch_add(1, std::memory_order_release);
    left_.notify_one();
    round_.fetch_sub(kOneInside, std::memory_order_release);
    round_.notify_all();
  }
}

void Workers::begin(const std::function<void(int)>& body) {
  body_ = &body;
  left_.store(0, std::memory_order_relaxed);
  // Sequentially consistent: it must be seen before notify_all() looks whether somebody sleeps.
  round_.store((number_of(round_.load(std::memory_order_relaxed)) + kNextRound) | kOpen);
  round_.notify_all();
  call(0);
}

void Workers::finish() {
  // Nobody joins from here on; those inside leave.
  for (uint32_t round = round_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; round % kOpen > 0;
       round = round_.load(std::memory_order_acquire))
    wait_while(round_, round);
  std::exception_ptr first;
  for (std::exception_ptr& error : errors_) {
    if (error && !first) first = error;
    error = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

void Workers::run(const std::function<void(int)>& body) {
  const TeamSize team(threads_);
  begin(body);
  const auto others = static_cast<uint32_t>(count_ - 1);
  for (uint32_t left; (left = left_.load(std::memory_order_acquire)) < others;) wait_while(left_, left);
  finish();
}

void Workers::run_with_who_comes(const std::function<void(int)>& body) {
  const TeamSize team(threads_);
  begin(body);
  finish();
}

void WorkersParallel::run(int64_t tasks, const std::function<void(int64_t, int)>& body) {
  std::atomic<int64_t> next{0};
  workers_.run_with_who_comes([&](int worker) {
    AtenParallel own;
    const int threads = own.workers();
    own.run(threads, [&](int64_t, int thread) {
      try {
        for (int64_t task = next++; task < tasks; task = next++) body(task, worker * workers_.threads() + thread);
      } catch (...) {
        next = tasks;  // an error ends the work: nobody begins more
        throw;
      }
    });
  });
}

}  // namespace hinge::train
