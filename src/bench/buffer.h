// Memory for a benchmark: aligned to cache lines, allocated once.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace hinge::bench {

template <typename T> class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    const size_t bytes = (static_cast<size_t>(size) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes ? bytes : kAlignment)));
    if (!data_) throw std::bad_alloc();
  }

  T* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
  int64_t size_ = 0;
};

}  // namespace hinge::bench
