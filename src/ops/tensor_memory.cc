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

constexpr size_t kAlignment = 64;         // of tensors; also the size of the header before them
constexpr size_t kSmall = 64 << 10;       // smaller blocks are glibc's: it keeps them itself
constexpr size_t kAlwaysKept = 64 << 20;  // in use and kept together may be this and a quarter more than the most that was in use at once

// The size of the block for `bytes`: at most an eighth more, so that jagged batches, each of another size, find blocks to use again.
size_t block_size(size_t bytes) {
  if (bytes < kSmall) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

// Before each tensor.
struct Header {
  size_t size;  // of the block, without the header
  size_t lane;  // of the thread that had it last
};
static_assert(sizeof(Header) <= kAlignment);

// Each thread has a lane, and gets back the blocks that it had before: they may still be in its core's cache, and those of another worker
// in that of another core. Memory that one thread takes and another gives back, as gradients, goes to the lane it came from.
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
  using Blocks = std::map<size_t, std::vector<void*>>;  // by size

  // The lane of the calling thread; that of a thread that has ended is used again.
  class Lane {
   public:
    Lane() : number_(only().open_lane()) {}
    ~Lane() { only().close_lane(number_); }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    static size_t of_this_thread() {
      thread_local const Lane lane;
      return lane.number_;
    }

   private:
    size_t number_;
  };

  size_t open_lane() {
    const std::lock_guard lock(mutex_);
    if (closed_lanes_.empty()) {
      free_.emplace_back();
      return free_.size() - 1;
    }
    const size_t lane = closed_lanes_.back();
    closed_lanes_.pop_back();
    return lane;
  }
  void close_lane(size_t lane) {
    const std::lock_guard lock(mutex_);
    closed_lanes_.push_back(lane);
  }

  static Header& header_of(void* data) { return *reinterpret_cast<Header*>(static_cast<char*>(data) - kAlignment); }
  static void release(void* data) {
    if (data) only().give_back(data);
  }

  void* take(size_t size) {
    const size_t lane = Lane::of_this_thread();
    {
      const std::lock_guard lock(mutex_);
      if (void* data = take_kept(free_[lane], size)) return data;
      const size_t most = std::max(most_live_, count_.live_bytes + size);
      const size_t bound = most + most / 4 + kAlwaysKept;
      if (count_.live_bytes + count_.kept_bytes + size > bound)
        for (Blocks& others : free_)
          if (void* data = take_kept(others, size)) {
            header_of(data).lane = lane;
            return data;
          }
      // New memory is needed: what lies unused must not grow without end.
      count_.live_bytes += size;
      most_live_ = most;
      drop_down_to(bound - count_.live_bytes);
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
    header_of(data) = {size, lane};
    return data;
  }

  // Null if there is none. Up to twice as large: once the largest of the jagged batches has been seen, its blocks serve them all.
  void* take_kept(Blocks& blocks, size_t size) {
    const auto kept = blocks.lower_bound(size);
    if (kept == blocks.end() || kept->first > 2 * size) return nullptr;
    void* data = kept->second.back();
    count_.live_bytes += kept->first;
    count_.kept_bytes -= kept->first;
    kept->second.pop_back();
    if (kept->second.empty()) blocks.erase(kept);
    most_live_ = std::max(most_live_, count_.live_bytes);
    return data;
  }

  void give_back(void* data) {
    const Header header = header_of(data);
    const std::lock_guard lock(mutex_);
    count_.live_bytes -= header.size;
    if (header.size < kSmall) {
      drop(data);
      return;
    }
    free_[header.lane][header.size].push_back(data);
    count_.kept_bytes += header.size;
  }

  // The largest first. Called with the lock held.
  void drop_down_to(size_t most) {
    while (count_.kept_bytes > most) {
      Blocks* with_largest = nullptr;
      for (Blocks& blocks : free_)
        if (!blocks.empty() && (!with_largest || blocks.rbegin()->first > with_largest->rbegin()->first)) with_largest = &blocks;
      if (!with_largest) return;
      const auto largest = std::prev(with_largest->end());
      drop(largest->second.back());
      count_.kept_bytes -= largest->first;
      largest->second.pop_back();
      if (largest->second.empty()) with_largest->erase(largest);
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
    const size_t size = header_of(data).size + kAlignment;
    if (size < kSmall)
      std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    else
      ::munmap(block, size);
  }

  std::mutex mutex_;
  std::vector<Blocks> free_;  // by lane
  std::vector<size_t> closed_lanes_;
  TensorMemory count_;
  size_t most_live_ = 0;
};

}  // namespace

void keep_tensor_memory() { c10::SetCPUAllocator(&KeptMemory::only(), /*priority=*/1); }

TensorMemory tensor_memory() { return KeptMemory::only().count(); }

void drop_kept_tensor_memory() { KeptMemory::only().drop_kept(); }

}  // namespace hinge
