// Workers, and the gradient that they compute together.
#include "train/workers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../support/errors.h"
#include "train/config.h"
#include "train/sharded_gradient.h"

namespace hinge::train {
namespace {

using support::error_of;
using support::mentions;

TEST(Workers, EachIsCalledOnce) {
  for (const int count : {1, 2, 3, 8}) {
    Workers workers(count, 1);
    std::vector<int> calls(static_cast<size_t>(count));
    WorkersParallel parallel(workers);
    for (int round = 0; round < 20000; ++round) {
      workers.run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
      std::atomic<int> tasks = 0;  // in between, rounds that some may miss
      if (round % 3 == 0) parallel.run(5, [&](int64_t, int) { ++tasks; });
      ASSERT_EQ(tasks, round % 3 == 0 ? 5 : 0);
    }
    for (const int of_worker : calls) EXPECT_EQ(of_worker, 20000);
  }
}

TEST(Workers, HaveThreadsOfTheirOwn) {
  const int before = at::get_num_threads();
  Workers workers(2, 3);
  for (int round = 0; round < 2; ++round) {
    std::vector<int> aten(2), team(2);
    workers.run([&](int worker) {
      aten[static_cast<size_t>(worker)] = at::get_num_threads();
      std::atomic<int> met = 0;
#pragma omp parallel
      ++met;
      team[static_cast<size_t>(worker)] = met;
    });
    EXPECT_EQ(aten, (std::vector<int>{3, 3}));
    EXPECT_EQ(team, (std::vector<int>{3, 3}));
    EXPECT_EQ(at::get_num_threads(), before);
  }
}

TEST(Workers, TheErrorOfTheLowestIsTold) {
  Workers workers(4, 1);
  const std::string message = error_of([&] {
    workers.run([](int worker) {
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (worker > 0) throw std::runtime_error("worker " + std::to_string(worker));
    });
  });
  EXPECT_EQ(message, "worker 1");
  std::atomic<int> calls = 0;
  workers.run([&](int) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST(Workers, LendAllTheirThreadsToTheKernels) {
  Workers workers(2, 2);
  WorkersParallel parallel(workers);
  ASSERT_EQ(parallel.workers(), 4);
  for (const int64_t tasks : {0, 1, 7, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(tasks)), busy(4);
    parallel.run(tasks, [&](int64_t task, int worker) {
      EXPECT_EQ(++busy[static_cast<size_t>(worker)], 1) << "two calls at a time have one number";
      ++done[static_cast<size_t>(task)];
      --busy[static_cast<size_t>(worker)];
    });
    for (const std::atomic<int>& calls : done) EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(error_of([&] {
              parallel.run(100, [](int64_t task, int) {
                if (task == 50) throw std::runtime_error("task 50");
              });
            }),
            "task 50");
}

struct Model {
  nn::Parameters parameters;
  at::Tensor w1, w2, unused;
  Model() {
    w1 = parameters.add("w1", at::randn({300, 40}), true);
    w2 = parameters.add("w2", at::randn({300}), true);
    unused = parameters.add("unused", at::randn({3}), true);
  }
  at::Tensor loss(const at::Tensor& x) const { return at::relu(at::mm(x, w1.t())).matmul(w2).square().sum(); }
};

TEST(ShardedGradient, HasTheSameBitsForEveryNumberOfWorkers) {
  at::manual_seed(3);
  const Model model;
  const at::Tensor x = at::randn({64, 40});
  const auto sum_over = [&](int workers_count, int64_t shards) {
    Workers workers(workers_count, 1);
    ShardedGradient gradient(model.parameters, workers, shards);
    Gradients result;
    for (int round = 0; round < 2; ++round)
      result = gradient.compute([&](int64_t shard) {
        if (shard == 5) return Gradients();  // nothing in it
        return gradients_of(model.parameters, {model.loss(x.narrow(0, shard * 64 / shards, 64 / shards))}, {0.5});
      });
    return result;
  };
  const Gradients expected = sum_over(1, 16);
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_FALSE(expected[2].defined());
  for (const int workers : {2, 4, 8, 16}) {
    const Gradients got = sum_over(workers, 16);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << workers << " workers, parameter " << i;
  }
  // The gradient of all but the fifth part.
  at::Tensor rest = at::cat({x.narrow(0, 0, 20), x.narrow(0, 24, 40)});
  const Gradients plain = gradients_of(model.parameters, {model.loss(rest)}, {0.5});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(plain[i], expected[i], 1e-4, 1e-3 * plain[i].abs().max().item<double>()));
}

TEST(ShardedGradient, AnErrorEndsTheStepAndNoMore) {
  const Model model;
  Workers workers(2, 1);
  ShardedGradient gradient(model.parameters, workers, 4);
  const at::Tensor x = at::ones({1, 40});
  EXPECT_EQ(error_of([&] {
              gradient.compute([&](int64_t shard) -> Gradients {
                if (shard == 3) throw std::runtime_error("shard 3");
                return gradients_of(model.parameters, {model.loss(x)}, {1});
              });
            }),
            "shard 3");
  EXPECT_TRUE(gradient.compute([&](int64_t) { return gradients_of(model.parameters, {model.loss(x)}, {1}); })[0].defined());
}

// ---- the plan

TEST(PlanWorkers, FillsTheMachine) {
  constexpr int64_t kGigabyte = int64_t{1} << 30;
  const auto plan = [](const RunConfig& run, int64_t parts, int64_t parameters, int cores, int64_t memory) {
    const WorkersPlan found = plan_workers(run, parts, parameters, {cores, memory});
    return std::pair(found.workers, found.threads);
  };
  using Pair = std::pair<int, int>;
  const auto free = [&](int64_t parts, int64_t parameters, int cores) { return plan({}, parts, parameters, cores, 24 * kGigabyte); };
  EXPECT_EQ(free(64, 1000000, 1), Pair(1, 1));
  EXPECT_EQ(free(64, 1000000, 2), Pair(2, 1));
  EXPECT_EQ(free(64, 1000000, 8), Pair(8, 1));
  EXPECT_EQ(free(64, 1000000, 6), Pair(2, 3));  // 4 workers would leave two cores idle
  EXPECT_EQ(free(64, 1000000, 12), Pair(4, 3));
  EXPECT_EQ(free(1, 1000000, 8), Pair(1, 8));  // one sequence cannot be cut
  EXPECT_EQ(free(3, 1000000, 8), Pair(2, 4));
  EXPECT_EQ(free(64, 300000000, 32), Pair(4, 8));  // gradients of 1.2 GB each
  RunConfig run;
  run.shards = 2;
  EXPECT_EQ(plan(run, 64, 1000000, 8, kGigabyte), Pair(2, 4));
  run.shards = 1024;  // eleven gradients
  EXPECT_EQ(plan(run, 4096, 304000000, 2, 24 * kGigabyte), Pair(1, 2));
  run = {.threads = 1};
  EXPECT_EQ(plan(run, 64, 1000000, 6, kGigabyte), Pair(4, 1));
  run = {.workers = 4};
  EXPECT_EQ(plan(run, 64, 1000000, 2, kGigabyte), Pair(4, 1));
  run = {.workers = 1};
  EXPECT_EQ(plan(run, 64, 1000000, 2, kGigabyte), Pair(1, 2));
  run = {.workers = 2, .threads = 5};
  EXPECT_EQ(plan(run, 64, 1000000, 2, kGigabyte), Pair(2, 5));
  run = {.workers = 4096, .threads = 4096};
  EXPECT_TRUE(mentions(error_of([&] { plan(run, 64, 1, 2, kGigabyte); }), {"train.workers 4096", "train.threads 4096"}));
}

}  // namespace
}  // namespace hinge::train
