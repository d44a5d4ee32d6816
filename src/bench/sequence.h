// Measures attention whose tokens are split over processes (nn/sequence_attention.h): bytes, messages and rounds as the process group
// counts them, and the time, with the network and without it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/rounds.h"
#include "distributed/process_group.h"

namespace hinge::bench {

struct SequencePlan {
  std::vector<std::string> kinds = {"relu", "softmax"};  // activations; keys: relu whose keys travel instead of the queries
  int64_t batch = 1, tokens = 4096, heads = 6, kv_heads = 6, width = 64;
  bool causal = false;
  int threads = 1;
  int warm_up = 1;
  int rounds = 7;
};

// A layer's attention, forward or backward, on one rank; times are those of the slowest rank.
struct SequenceRow {
  std::string kind, travels, pass;
  int64_t bytes = 0, messages = 0, rounds = 0;  // sent by rank 0
  Timing timing;
  double alone_ms = 0;  // the same without sending anything: median
};

struct SequenceReport {
  SequencePlan plan;
  int ranks = 1;
  std::string cpu, simd;
  std::vector<SequenceRow> rows;  // the last is a round of one number for each row and head
};

// On every rank of the group; all have the same report.
SequenceReport run(const SequencePlan& plan, distributed::ProcessGroup& group, const ShowProgress& progress);
nlohmann::ordered_json to_json(const SequenceReport& report);
std::string table(const SequenceReport& report);

}  // namespace hinge::bench
