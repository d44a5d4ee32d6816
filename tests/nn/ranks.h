// Ranks of a group as threads that hand tensors over in memory.
#pragma once

#include <ATen/ATen.h>

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "nn/sequence_ranks.h"

namespace hinge::nn {

// Calls body(ranks) on a thread for each of `count` ranks.
inline void on_ranks(int count, const std::function<void(SequenceRanks&)>& body) {
  struct Round {
    at::Tensor in;
    std::vector<int64_t> sizes;
  };
  std::vector<Round> rounds(static_cast<size_t>(count));
  std::barrier<> meeting(count);

  class ThreadRanks final : public SequenceRanks {
   public:
    ThreadRanks(int rank, std::vector<Round>& rounds, std::barrier<>& meeting) : rank_(rank), rounds_(rounds), meeting_(meeting) {}
    int rank() const override { return rank_; }
    int count() const override { return static_cast<int>(rounds_.size()); }
    void all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_sizes, at::Tensor& out,
                    const std::vector<int64_t>& out_sizes) override {
      rounds_[static_cast<size_t>(rank_)] = {in, in_sizes};
      meeting_.arrive_and_wait();
      int64_t to = 0;
      for (size_t from = 0; from < rounds_.size(); ++from) {
        int64_t at = 0;
        for (int i = 0; i < rank_; ++i) at += rounds_[from].sizes[static_cast<size_t>(i)];
        // What one sends is what the other expects.
        TORCH_CHECK(rounds_[from].sizes[static_cast<size_t>(rank_)] == out_sizes[from], "rank ", rank_, " expects ", out_sizes[from],
                    " elements of rank ", from, " and gets ", rounds_[from].sizes[static_cast<size_t>(rank_)]);
        out.narrow(0, to, out_sizes[from]).copy_(rounds_[from].in.narrow(0, at, out_sizes[from]));
        to += out_sizes[from];
      }
      meeting_.arrive_and_wait();
    }

   private:
    const int rank_;
    std::vector<Round>& rounds_;
    std::barrier<>& meeting_;
  };

  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      ThreadRanks ranks(rank, rounds, meeting);
      body(ranks);
    });
}

}  // namespace hinge::nn
