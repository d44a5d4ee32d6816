// Scratch memory of a kernel call, lent by the calling thread and kept for its next call: fresh pages cost more than small problems.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "hwy/aligned_allocator.h"

namespace hinge::kernels {

class Workspace {
 public:
  // At least `bytes` bytes, aligned for every SIMD target; contents undefined; valid until the next call on this thread. Throws
  // std::bad_alloc.
  static uint8_t* get(size_t bytes) {
    Workspace& w = of_this_thread();
    if (w.size_ < bytes) {
      w.memory_.reset();
      w.size_ = 0;
      w.memory_ = hwy::AllocateAligned<uint8_t>(bytes);
      if (!w.memory_) throw std::bad_alloc();
      w.size_ = bytes;
    }
    size_t peak = peak_.load();
    while (peak < bytes && !peak_.compare_exchange_weak(peak, bytes)) {
    }
    return w.memory_.get();
  }

  // The most that any call asked for since the last time this was asked.
  static size_t take_peak() { return peak_.exchange(0); }

  // Gives large buffers back to the system.
  static void release_large() {
    Workspace& w = of_this_thread();
    if (w.size_ > kKeptBytes) {
      w.memory_.reset();
      w.size_ = 0;
    }
  }

 private:
  inline static std::atomic<size_t> peak_{0};
  static constexpr size_t kKeptBytes = size_t{32} << 20;

  static Workspace& of_this_thread() {
    thread_local Workspace workspace;
    return workspace;
  }

  hwy::AlignedFreeUniquePtr<uint8_t[]> memory_;
  size_t size_ = 0;
};

// Cuts a buffer into aligned pieces; with a null start it only counts.
class Carver {
 public:
  explicit Carver(uint8_t* start) : start_(start) {}

  template <typename T> T* take(int64_t count) {
    uint8_t* piece = start_ ? start_ + used_ : nullptr;
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<T*>(piece);
  }

  size_t used() const { return used_; }

 private:
  static constexpr size_t kAlign = 128;
  uint8_t* start_;
  size_t used_ = 0;
};

}  // namespace hinge::kernels
