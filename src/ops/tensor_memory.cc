#include "ops/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace hinge {
namespace {

constexpr size_t kAlignment = 64;         // of tensors; also the size of the header before them, which holds the block's size
constexpr size_t kSmall = 64 << 10;       // smaller blocks are glibc's: it keeps them itself
constexpr size_t kAlwaysKept = 64 << 20;  // in use and kept together may be this and a quarter more than the most that was in use at once

// The size of the block for `bytes`: at most an eighth more, so that jagged batches, each of another size, find blocks to use again.
size_t block_size(size_t bytes) {
  if (bytes < kSmall) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

class KeptMemory final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &release, at::Device(at::DeviceType::CPU)};
    void* data = const_cast<KeptMemory*>(this)->take(block_size(bytes));
    return {data, data, &release, at::Device(at::DeviceType::CPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }

  TensorMemory count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  void drop_kept() {
    const std::lock_guard lock(mutex_);
    drop_down_to(0);
    most_live_ = count_.live_bytes;
  }

  static KeptMemory& only() {
    static auto* memory = new KeptMemory;  // never destroyed: tensors of static storage may outlive it
    return *memory;
  }

 private:
  static size_t& size_of(void* data) { return *reinterpret_cast<size_t*>(static_cast<char*>(data) - kAlignment); }
  static void release(void* data) {
    if (data) only().give_back(data);
  }

  void* take(size_t size) {
    {
      const std::lock_guard lock(mutex_);
      // Up to twice as large: once the largest of the jagged batches has been seen, its blocks serve them all.
      if (const auto kept = free_.lower_bound(size); kept != free_.end() && kept->first <= 2 * size) {
        void* data = kept->second.back();
        count_.live_bytes += kept->first;
        count_.kept_bytes -= kept->first;
        kept->second.pop_back();
        if (kept->second.empty()) free_.erase(kept);
        return data;
      }
      // New memory is needed: what lies unused must not grow without end.
      count_.live_bytes += size;
      most_live_ = std::max(most_live_, count_.live_bytes);
      drop_down_to(most_live_ + most_live_ / 4 + kAlwaysKept - count_.live_bytes);
    }
    void* block = new_block(size + kAlignment);
    if (!block) {
      const std::lock_guard lock(mutex_);
      drop_down_to(0);
      block = new_block(size + kAlignment);
      if (!block) {
        count_.live_bytes -= size;
        throw std::bad_alloc();
      }
    }
    void* data = static_cast<char*>(block) + kAlignment;
    size_of(data) = size;
    return data;
  }

  void give_back(void* data) {
    const size_t size = size_of(data);
    const std::lock_guard lock(mutex_);
    count_.live_bytes -= size;
    if (size < kSmall) {
      drop(data);
      return;
    }
    free_[size].push_back(data);
    count_.kept_bytes += size;
  }

  // The largest first. Called with the lock held.
  void drop_down_to(size_t most) {
    while (count_.kept_bytes > most && !free_.empty()) {
      const auto largest = std::prev(free_.end());
      drop(largest->second.back());
      count_.kept_bytes -= largest->first;
      largest->second.pop_back();
      if (largest->second.empty()) free_.erase(largest);
    }
  }

  // Large blocks come from the system and go back to it: in glibc's heap, small ones that live on would keep their pages.
  static void* new_block(size_t size) {
    if (size < kSmall) return std::aligned_alloc(kAlignment, size);
    void* block = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }
  static void drop(void* data) {
    char* block = static_cast<char*>(data) - kAlignment;
    const size_t size = size_of(data) + kAlignment;
    if (size < kSmall)
      std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    else
      ::munmap(block, size);
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;  // by size
  TensorMemory count_;
  size_t most_live_ = 0;
};

}  // namespace

void keep_tensor_memory() { c10::SetCPUAllocator(&KeptMemory::only(), /*priority=*/1); }

TensorMemory tensor_memory() { return KeptMemory::only().count(); }

void drop_kept_tensor_memory() { KeptMemory::only().drop_kept(); }

}  // namespace hinge
