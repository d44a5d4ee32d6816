#include "bench/sequence.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/timing.h"
#include "hinge/kernels/cpu.h"
#include "nn/sequence_attention.h"
#include "train/group_ranks.h"

namespace hinge::bench {
namespace {

using at::Tensor;
using nn::Travel;

// Nothing is sent, and what comes is made up: what is left is the computing.
class NoNetwork final : public nn::SequenceRanks {
 public:
  NoNetwork(int rank, int count) : rank_(rank), count_(count) {}
  int rank() const override { return rank_; }
  int count() const override { return count_; }
  void all_to_all(const Tensor&, const std::vector<int64_t>&, Tensor& out, const std::vector<int64_t>&) override {
    if (noise_.numel() < out.numel()) noise_ = at::randn({out.numel()});
    out.copy_(noise_.narrow(0, 0, out.numel()));
    ++rounds;
  }

  int64_t rounds = 0;

 private:
  const int rank_, count_;
  Tensor noise_ = at::empty({0});
};

struct SequenceCase {
  std::string kind;
  AttentionOptions options;
  Travel travel;
};

// "relu", "softmax", or with "/keys" behind it.
SequenceCase case_of(const std::string& kind) {
  const size_t slash = kind.find('/');
  AttentionOptions options;
  options.h = kernels::parse_activation(kind.substr(0, slash)).value();
  return {kind.substr(0, slash), options, slash == std::string::npos ? Travel::queries : Travel::keys};
}

// One pass of a layer: forward, or backward of a forward pass made before the clock starts.
class SequenceSubject {
 public:
  SequenceSubject(const SequencePlan& plan, const SequenceCase& what, int ranks, int rank)
      : what_(what), shares_(nn::TokenShares::of_batch(plan.tokens, ranks)) {
    what_.options.causal = plan.causal;
    const int64_t own = shares_.lengths[static_cast<size_t>(rank)];
    // As projections have them.
    const auto drawn = [&](int64_t heads) { return at::randn({plan.batch, own, heads, plan.width}).transpose(1, 2).requires_grad_(true); };
    q_ = drawn(plan.heads), k_ = drawn(plan.kv_heads), v_ = drawn(plan.kv_heads);
    grad_ = at::randn({plan.batch, own, plan.heads, plan.width}).transpose(1, 2);
  }

  Tensor forward(nn::SequenceRanks& ranks) const {
    return nn::sequence_attention(q_, k_, v_, what_.options, false, ranks, shares_, shares_, what_.travel).out;
  }
  void backward(const Tensor& out) const { torch::autograd::grad({out}, {q_, k_, v_}, {grad_}); }

 private:
  SequenceCase what_;
  nn::TokenShares shares_;
  Tensor q_, k_, v_, grad_;
};

// The largest of the ranks' numbers.
double slowest(distributed::ProcessGroup& group, double seconds) {
  Tensor own = at::full({1}, seconds, at::kDouble), all = at::empty({group.world()}, at::kDouble);
  group.all_gather(own, all);
  return all.max().item<double>();
}

// Beside what happens in `body`: the time until the slowest rank has done it, from a common start.
template <class Body> double seconds_of(distributed::ProcessGroup& group, const Body& body) {
  group.barrier();
  return slowest(group, seconds_per_call(1, body));
}

}  // namespace

SequenceReport run(const SequencePlan& plan, distributed::ProcessGroup& group, const ShowProgress& progress) {
  SequenceReport report{plan, group.world(), probe_cpu().model, kernels::simd_target(), {}};
  train::GroupRanks ranks(group);
  NoNetwork none(group.rank(), group.world());
  std::vector<SequenceCase> cases;
  std::vector<SequenceSubject> subjects;
  at::manual_seed(static_cast<uint64_t>(group.rank()));
  for (const std::string& kind : plan.kinds) {
    cases.push_back(case_of(kind));
    subjects.emplace_back(plan, cases.back(), group.world(), group.rank());
  }
  const int64_t numbers = plan.batch * plan.heads * nn::TokenShares::of_batch(plan.tokens, group.world()).lengths[0];
  const std::vector<int64_t> sizes(static_cast<size_t>(group.world()), numbers);
  const Tensor sent = at::ones({numbers * group.world()});
  Tensor received = at::empty_like(sent);

  // Cases take turns; of each, forward and backward, with the network and without.
  std::vector<std::vector<double>> with(2 * cases.size() + 1), without(2 * cases.size());
  report.rows.resize(2 * cases.size() + 1);
  for (int round = -plan.warm_up; round < plan.rounds; ++round) {
    progress(fmt::format("round {} of {}", std::max(round, -1) + 1, plan.rounds));
    const auto take = [&](std::vector<double>& samples, double seconds) {
      if (round >= 0) samples.push_back(seconds);
    };
    const auto counted = [&](SequenceRow& row, const auto& body) {
      const distributed::Traffic before = group.traffic();
      body();
      row.bytes = group.traffic().bytes - before.bytes, row.messages = group.traffic().messages - before.messages;
    };
    for (size_t i = 0; i < cases.size(); ++i) {
      SequenceRow &forward = report.rows[2 * i], &backward = report.rows[2 * i + 1];
      Tensor out;
      take(with[2 * i], seconds_of(group, [&] { counted(forward, [&] { out = subjects[i].forward(ranks); }); }));
      take(with[2 * i + 1], seconds_of(group, [&] { counted(backward, [&] { subjects[i].backward(out); }); }));
      none.rounds = 0;
      take(without[2 * i], seconds_of(group, [&] { out = subjects[i].forward(none); }));
      forward.rounds = std::exchange(none.rounds, 0);
      take(without[2 * i + 1], seconds_of(group, [&] { subjects[i].backward(out); }));
      backward.rounds = none.rounds;
    }
    SequenceRow& last = report.rows.back();
    take(with.back(), seconds_of(group, [&] { counted(last, [&] { ranks.all_to_all(sent, sizes, received, sizes); }); }));
    last.rounds = 1;
  }
  for (size_t i = 0; i < report.rows.size(); ++i) {
    SequenceRow& row = report.rows[i];
    row.timing = summarise(with[i]);
    if (i + 1 == report.rows.size()) {
      row.kind = "one number per row and head", row.travels = "", row.pass = "a round";
      continue;
    }
    row.kind = cases[i / 2].kind, row.travels = cases[i / 2].travel == Travel::keys ? "keys" : "queries";
    row.pass = i % 2 == 0 ? "forward" : "backward";
    row.alone_ms = summarise(without[i]).median_ms;
  }
  return report;
}

nlohmann::ordered_json to_json(const SequenceReport& report) {
  const SequencePlan& plan = report.plan;
  nlohmann::ordered_json json = {{"ranks", report.ranks},
                                 {"batch", plan.batch},
                                 {"tokens", plan.tokens},
                                 {"heads", plan.heads},
                                 {"kv_heads", plan.kv_heads},
                                 {"width", plan.width},
                                 {"causal", plan.causal},
                                 {"threads", plan.threads},
                                 {"simd", report.simd},
                                 {"cpu", report.cpu},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const SequenceRow& row : report.rows) {
    nlohmann::ordered_json one = {{"kind", row.kind},   {"travels", row.travels},   {"pass", row.pass},
                                  {"bytes", row.bytes}, {"messages", row.messages}, {"rounds", row.rounds}};
    add_timing(one, row.timing);
    one["alone_ms"] = row.alone_ms;
    json["rows"].push_back(one);
  }
  return json;
}

std::string table(const SequenceReport& report) {
  const SequencePlan& plan = report.plan;
  std::string text = fmt::format("{}, {}, {} ranks of {} thread{}, float32; batch {}, {} tokens, {} heads ({} of keys), D {}{}\n",
                                 report.cpu, report.simd, report.ranks, plan.threads, plan.threads == 1 ? "" : "s", plan.batch, plan.tokens,
                                 plan.heads, plan.kv_heads, plan.width, plan.causal ? ", causal" : "");
  text += fmt::format("{:<28} {:<8} {:<9} {:>6} {:>8} {:>12} {:>9} {:>17} {:>10}\n", "", "travel", "pass", "rounds", "messages",
                      "bytes sent", "ms", "quartiles", "computing");
  for (const SequenceRow& row : report.rows)
    text += fmt::format("{:<28} {:<8} {:<9} {:>6} {:>8} {:>12} {:>9.2f} {:>17} {:>10}\n", row.kind, row.travels, row.pass, row.rounds,
                        row.messages, row.bytes, row.timing.median_ms, row.timing.quartiles(2),
                        row.travels.empty() ? "" : fmt::format("{:.2f}", row.alone_ms));
  return text;
}

}  // namespace hinge::bench
