// The processes of a run and what they exchange: collectives of c10d/Gloo behind one class. Every process calls the same functions in the
// same order, from one thread at a time. Each returns when this process has its part of the result. It throws PeerError, which names the
// process, when another has been lost, and Error when the others do not answer within the timeout.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/environment.h"
#include "distributed/error.h"

namespace hinge::distributed {

// What this process has sent to others: payload alone. A message is what goes to one other process in one collective.
struct Traffic {
  int64_t bytes = 0, messages = 0;
};

class ProcessGroup {
 public:
  // Meets the others. `version`: of the program; all must have the same. Throws Error.
  ProcessGroup(const Environment& environment, const std::string& version);
  ~ProcessGroup();  // without leave() before, the others take this process for lost
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return environment_.rank; }
  int world() const { return environment_.world; }
  const Environment& environment() const { return environment_; }
  std::string description() const;  // "rank 0 of 2 at 10.0.0.1 (eth0), rendezvous at ..."

  // The `size` consecutive ranks that this one is among, as a group of their own; their ranks in it begin at 0. Its exchanges may run
  // beside those of this group, on another thread. All ranks call it, with the same number, which divides world(). This group must outlive
  // it.
  std::unique_ptr<ProcessGroup> split(int size);

  // Waits for all.
  void barrier();

  // Tensors are contiguous, of one type on all ranks, and seen as [world] parts of equal size, or of the sizes given in elements.
  // Part i of `in` goes to rank i; part i of `out` has come from rank i.
  void all_to_all(const at::Tensor& in, at::Tensor& out);
  void all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_sizes, at::Tensor& out, const std::vector<int64_t>& out_sizes);
  // Part i of `all` has come from rank i, where it was `own`.
  void all_gather(const at::Tensor& own, at::Tensor& all);
  // From the rank `root` to all.
  void broadcast(at::Tensor& tensor, int root);

  // The same for bytes of any length, which need not be the same everywhere.
  std::vector<std::string> all_gather_bytes(std::string_view own);
  std::string broadcast_bytes(std::string_view bytes, int root);

  // With that of the groups that were split from this one.
  Traffic traffic() const { return {bytes_, messages_}; }

  // Tells the others that this process ends, and why: theirs is a PeerError that says so. From any thread; ends what waits in a collective.
  void fail(const std::string& reason);
  // The run is over, in good order: waits for all.
  void leave();

 private:
  class Impl;
  ProcessGroup(const Environment& environment, std::unique_ptr<Impl> impl);
  template <class Start> void run(const char* what, const Start& start);
  void count(int64_t bytes, int64_t messages);

  const Environment environment_;
  std::unique_ptr<Impl> impl_;
  std::atomic<int64_t> bytes_{0}, messages_{0};
  ProcessGroup* whole_ = nullptr;  // that this one was split from
};

}  // namespace hinge::distributed
