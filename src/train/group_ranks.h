// A group of processes as the layers of a model see it, whose tokens it shares.
#pragma once

#include "distributed/process_group.h"
#include "nn/sequence_ranks.h"

namespace hinge::train {

class GroupRanks final : public nn::SequenceRanks {
 public:
  explicit GroupRanks(distributed::ProcessGroup& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int count() const override { return group_.world(); }
  void all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_sizes, at::Tensor& out,
                  const std::vector<int64_t>& out_sizes) override {
    group_.all_to_all(in, in_sizes, out, out_sizes);
  }

 private:
  distributed::ProcessGroup& group_;
};

}  // namespace hinge::train
