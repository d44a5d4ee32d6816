// Memory of tensors is used again for the next tensor of about its size, and what lies unused stays bounded.
#include "ops/tensor_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace hinge {
namespace {

at::Tensor bytes(int64_t n) { return at::empty({n}, at::kByte); }

TEST(TensorMemory, IsUsedAgain) {
  keep_tensor_memory();
  const TensorMemory before = tensor_memory();
  const void* first = nullptr;
  {
    const at::Tensor tensor = bytes(10 << 20);
    first = tensor.data_ptr();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_GE(tensor_memory().live_bytes, before.live_bytes + (10 << 20));
  }
  EXPECT_EQ(tensor_memory().live_bytes, before.live_bytes);
  EXPECT_GE(tensor_memory().kept_bytes, static_cast<size_t>(10 << 20));
  EXPECT_EQ(bytes((10 << 20) - 1000).data_ptr(), first) << "a little smaller: the same block";
  EXPECT_NE(bytes(4 << 20).data_ptr(), first) << "much smaller: another one";
}

TEST(TensorMemory, WhatIsKeptCanBeDropped) {
  keep_tensor_memory();
  const at::Tensor used = bytes(3 << 20);
  { const at::Tensor unused = bytes(5 << 20); }
  const size_t live = tensor_memory().live_bytes;
  drop_kept_tensor_memory();
  EXPECT_EQ(tensor_memory().kept_bytes, 0u);
  EXPECT_EQ(tensor_memory().live_bytes, live);
}

TEST(TensorMemory, SmallAndEmptyTensorsAreNotKept) {
  keep_tensor_memory();
  const TensorMemory before = tensor_memory();
  { const at::Tensor small = bytes(100), empty = bytes(0); }
  EXPECT_EQ(tensor_memory().kept_bytes, before.kept_bytes);
  EXPECT_EQ(tensor_memory().live_bytes, before.live_bytes);
}

TEST(TensorMemory, WhatLiesUnusedStaysBounded) {
  keep_tensor_memory();
  // Ever new sizes, each larger than those before: never touched, so that they take no real memory.
  for (int64_t n = 100 << 20; n < (900LL << 20); n += n / 2) bytes(n);
  const size_t bound = (900U << 20) / 4 * 5 + (64U << 20);
  EXPECT_LE(tensor_memory().kept_bytes, bound);
  for (int64_t n = 11 << 20; n < (600LL << 20); n += n / 3) bytes(n);
  EXPECT_LE(tensor_memory().kept_bytes, bound);
}

TEST(TensorMemory, ABlockOfUpToTwiceTheSizeServesToo) {
  keep_tensor_memory();
  const void* first = bytes(2000LL << 20).data_ptr();
  const size_t kept = tensor_memory().kept_bytes;
  const at::Tensor again = bytes(1100LL << 20);
  EXPECT_EQ(again.data_ptr(), first);
  EXPECT_LT(tensor_memory().kept_bytes, kept);
}

TEST(TensorMemory, AThreadGetsItsOwnBack) {
  keep_tensor_memory();
  constexpr int64_t kBytes = 7 << 20;
  const void* mine = bytes(kBytes).data_ptr();
  std::thread([&] {
    at::Tensor other = bytes(kBytes);
    const void* theirs = other.data_ptr();
    EXPECT_NE(theirs, mine) << "it may be in another core's cache";
    std::thread([&] { other.reset(); }).join();
    EXPECT_EQ(bytes(kBytes).data_ptr(), theirs) << "given back by another thread";
  }).join();
  EXPECT_EQ(bytes(kBytes).data_ptr(), mine);
}

TEST(TensorMemory, ThreadsShareIt) {
  keep_tensor_memory();
  const TensorMemory before = tensor_memory();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const at::Tensor a = bytes((64 << 10) * (1 + (i + t) % 7));
        a.fill_(t);
        ASSERT_EQ(a[-1].item<uint8_t>(), t) << "two tensors in one block";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tensor_memory().live_bytes, before.live_bytes);
}

}  // namespace
}  // namespace hinge
