// The gradient that processes compute together, with ranks as threads.
#include "train/gradient_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "../distributed/ranks.h"
#include "../support/errors.h"
#include "train/processes.h"
#include "train/sharded_gradient.h"
#include "train/weights.h"

namespace hinge::train {
namespace {

using distributed::environment_of;
using distributed::HeldPort;
using distributed::ProcessGroup;
using distributed::run_ranks;
using support::mentions;

// Two layers, and a parameter that no shard uses; `sometimes` is used by shard 6 alone.
struct Model {
  nn::Parameters parameters;
  at::Tensor w1, w2, unused, sometimes;
  Model() {
    const at::Tensor all = at::sin(at::arange(300 * 40 + 300, at::kFloat) * 1.7);
    w1 = parameters.add("w1", all.narrow(0, 0, 300 * 40).view({300, 40}).clone(), true);
    w2 = parameters.add("w2", all.narrow(0, 300 * 40, 300).clone(), true);
    unused = parameters.add("unused", at::ones({3}), true);
    sometimes = parameters.add("sometimes", at::ones({5}), true);
  }
  at::Tensor loss(const at::Tensor& x, int64_t shard) const {
    const at::Tensor loss = at::relu(at::mm(x, w1.t())).matmul(w2).square().sum();
    return shard == 6 ? loss + sometimes.sum() : loss;
  }
};

constexpr int64_t kShards = 16;

// Of a process of `workers` workers, or of one of several such processes; the second of two steps.
Gradients gradient(int workers_count, ProcessGroup* group) {
  const Model model;
  const at::Tensor x = at::cos(at::arange(64 * 40, at::kFloat) * 0.37).view({64, 40});
  Workers workers(workers_count, 1);
  ShardedGradient sharded(model.parameters, workers, kShards, group);
  Gradients copies;
  for (int step = 0; step < 2; ++step) {
    copies.clear();
    const Gradients& result = sharded.compute([&](int64_t shard) {
      if (shard == 5) return Gradients();  // nothing in it
      const at::Tensor part = x.narrow(0, shard * 64 / kShards, 64 / kShards) * (step + 1.0);
      return gradients_of(model.parameters, {model.loss(part, shard)}, {0.5});
    });
    for (const at::Tensor& sum : result) copies.push_back(sum.defined() ? sum.clone() : sum);
  }
  return copies;
}

TEST(GradientExchange, HasTheSameBitsForEveryNumberOfProcessesAndWorkers) {
  const Gradients expected = gradient(1, nullptr);
  ASSERT_EQ(expected.size(), 4u);
  ASSERT_FALSE(expected[2].defined());
  for (const auto& [processes, workers] : {std::pair(2, 1), {2, 4}, {4, 2}, {8, 1}, {16, 1}}) {
    const HeldPort port;
    const auto errors = run_ranks(processes, [&, all = processes, each = workers](int rank) {
      ProcessGroup group(environment_of(rank, all, port), "test");
      const Gradients got = gradient(each, &group);
      ASSERT_EQ(got.size(), 4u);
      EXPECT_FALSE(got[2].defined());
      for (const size_t i : {0, 1, 3})
        EXPECT_TRUE(got[i].defined() && at::equal(got[i], expected[i])) << all << " processes of " << each << " workers, parameter " << i;
      group.leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(processes)));
  }
}

// 2 (P - 1) / P of a gradient, but for the padding and which parameters there are.
TEST(GradientExchange, SendsAsLittleAsAnAllReduce) {
  nn::Parameters parameters;
  parameters.add("large", at::zeros({1024, 1024}), true);
  for (const int world : {2, 4}) {
    const HeldPort port;
    run_ranks(world, [&](int rank) {
      ProcessGroup group(environment_of(rank, world, port), "test");
      GradientExchange exchange(parameters, group);
      exchange.begin();
      exchange.ready(0, at::ones({1024, 1024}));
      EXPECT_EQ(exchange.finish()[0].sum().item<double>(), world * 1024.0 * 1024);
      const double least = 2.0 * (world - 1) / world * 4 * 1024 * 1024, sent = static_cast<double>(group.traffic().bytes);
      EXPECT_GE(sent, least);
      EXPECT_LT(sent, least + 1000);
      group.leave();
    });
  }
}

// A bucket that is whole travels while the next one is still being computed.
TEST(GradientExchange, BucketsTravelBeforeAllGradientsAreThere) {
  nn::Parameters parameters;
  for (int i = 0; i < 6; ++i) parameters.add("p" + std::to_string(i), at::zeros({100}), true);
  const HeldPort port;
  const auto errors = run_ranks(2, [&](int rank) {
    ProcessGroup group(environment_of(rank, 2, port), "test");
    GradientExchange exchange(parameters, group, /*first=*/400, /*others=*/800);
    EXPECT_EQ(exchange.buckets(), 4u);  // 1, 2, 2 and 1 parameters, from the last on
    for (int step = 0; step < 3; ++step) {
      exchange.begin();
      for (size_t p = 6; p-- > 0;) {
        if (p == 3 || p == 2)  // the second bucket waits for one more
          while (exchange.travelled() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        exchange.ready(p, at::full({100}, static_cast<double>(10 * step) + static_cast<double>(p) + rank));
      }
      const std::vector<at::Tensor>& sums = exchange.finish();
      for (size_t p = 0; p < 6; ++p)
        EXPECT_TRUE((sums[p] == 20.0 * step + 2.0 * static_cast<double>(p) + 1).all().item<bool>())
            << "step " << step << " parameter " << p;
    }
    group.leave();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(GradientTaps, HearEachGradientBeforeTheLayersBelowAreComputed) {
  const Model model;
  const GradientTaps taps(model.parameters);
  std::vector<size_t> heard;
  bool below = false;
  const at::Tensor x = at::ones({2, 40}), hidden = at::relu(at::mm(x, model.w1.t()));
  hidden.register_hook([&](const at::Tensor&) { below = true; });
  const at::Tensor loss = hidden.matmul(model.w2).sum();
  const GradientTaps::Listening listening([&](size_t parameter, const at::Tensor& gradient) {
    heard.push_back(parameter);
    EXPECT_EQ(gradient.sizes(), model.parameters.all()[parameter].value.sizes());
    if (parameter == 1) {
      EXPECT_FALSE(below);
    }
  });
  EXPECT_TRUE(gradients_of(model.parameters, {loss}, {1}).empty());
  EXPECT_EQ(heard, (std::vector<size_t>{1, 0}));
  EXPECT_FALSE(model.w1.grad().defined());
}

TEST(Processes, MustHaveTheSameConfigAndData) {
  const auto errors_with = [](const std::string& config, const std::string& data) {
    const HeldPort port;
    std::atomic<int> done = 0;  // nobody ends before both know
    return run_ranks(2, [&](int rank) {
      ProcessGroup group(environment_of(rank, 2, port), "test");
      std::string error = support::error_of([&] {
        Processes(&group).require_same(rank == 0 ? "[optim]\nlr = 1\n[data]\npath = \"a\"\n" : config, rank == 0 ? "3 images" : data);
      });
      ++done, done.notify_all();
      for (int now = done; now < 2; now = done) done.wait(now);
      if (!error.empty()) throw std::runtime_error(error);
    });
  };
  EXPECT_EQ(errors_with("[optim]\nlr = 1\n[data]\npath = \"b\"\n", "3 images"), std::vector<std::string>(2));
  for (const std::string& error : errors_with("[optim]\nlr = 2\n[data]\npath = \"a\"\n", "3 images"))
    EXPECT_TRUE(mentions(error, {"rank 1 has optim.lr = 2", "rank 0 has 1"}));
  for (const std::string& error : errors_with("[optim]\nlr = 1\n[data]\npath = \"a\"\n", "4 images"))
    EXPECT_TRUE(mentions(error, {"data of rank 1", "4 images instead of 3 images"}));
}

TEST(PlanWorkers, IsThatOfEachProcess) {
  constexpr int64_t kMemory = int64_t{24} << 30;
  const auto plan = [](const RunConfig& run, int cores, int processes) {
    const WorkersPlan found = plan_workers(run, 64, 1000000, {cores, kMemory}, processes);
    return std::pair(found.workers, found.threads);
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(plan({}, 4, 2), Pair(4, 1));
  EXPECT_EQ(plan({}, 8, 64), Pair(1, 8));  // one part of the batch for each
  EXPECT_EQ(shards_of({}, {4, 1}, 2), 8);
  RunConfig run;
  run.shards = 4, run.workers = 4;
  EXPECT_EQ(plan(run, 4, 1), Pair(4, 1));
  EXPECT_EQ(plan(run, 4, 4), Pair(1, 4));  // as many as there are shards
  EXPECT_TRUE(mentions(support::error_of([&] { plan(run, 4, 8); }), {"8 processes", "train.shards 4"}));
  EXPECT_TRUE(mentions(support::error_of([&] { plan({}, 4, 3); }), {"power of two", "got 3"}));
}

// One bit of one weight: of rank 0 as well, which is no better than the others.
TEST(RequireSameWeights, NamesTheRanksAndTheParameterThatDiffer) {
  const auto errors_if = [](const std::vector<int>& wrong) {
    const HeldPort port;
    return run_ranks(3, [&](int rank) {
      ProcessGroup group(environment_of(rank, 3, port), "test");
      const Model model;
      if (std::count(wrong.begin(), wrong.end(), rank) > 0) {
        float* weight = model.w2.data_ptr<float>() + 7 + rank;
        *weight = std::nextafter(*weight, 9.0F);
      }
      try {
        require_same_weights(model.parameters, group);
      } catch (const DifferentWeightsError& error) {
        group.fail(error.what());  // who is not as far yet ends with the same message
        throw;
      }
      group.leave();
    });
  };
  EXPECT_EQ(errors_if({}), std::vector<std::string>(3));
  for (const int wrong : {0, 2})
    for (const std::string& error : errors_if({wrong}))
      EXPECT_TRUE(mentions(error, {fmt::format("weights of rank {} are not those of the other ranks: w2", wrong)})) << error;
  for (const std::string& error : errors_if({1, 2})) EXPECT_TRUE(mentions(error, {"weights of rank 1, 2 are not", "w2"})) << error;
}

}  // namespace
}  // namespace hinge::train
