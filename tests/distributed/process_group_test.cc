// The collectives, with ranks as threads.
#include "distributed/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "../support/errors.h"
#include "ranks.h"

namespace hinge::distributed {
namespace {

using support::mentions;

// Calls body(group) on every rank.
std::vector<std::string> with_groups(int world, const std::function<void(ProcessGroup&)>& body) {
  const HeldPort port;
  return run_ranks(world, [&](int rank) {
    ProcessGroup group(environment_of(rank, world, port), "test");
    body(group);
    group.leave();
  });
}

class Worlds : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<std::string> no_errors() { return std::vector<std::string>(static_cast<size_t>(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(ProcessGroup, Worlds, ::testing::Values(2, 3, 8));

TEST_P(Worlds, AllToAll) {
  EXPECT_EQ(with_groups(GetParam(),
                        [](ProcessGroup& group) {
                          const int64_t world = group.world(), rank = group.rank();
                          const at::Tensor in = at::arange(2 * world, at::kFloat) + 100.0 * static_cast<double>(rank);
                          at::Tensor out = at::empty({2 * world});
                          group.all_to_all(in, out);
                          for (int64_t from = 0; from < world; ++from)
                            EXPECT_TRUE(at::equal(out.narrow(0, 2 * from, 2),
                                                  at::arange(2 * rank, 2 * rank + 2, at::kFloat) + 100.0 * static_cast<double>(from)));
                          EXPECT_EQ(group.traffic().bytes, 8 * (world - 1));
                          EXPECT_EQ(group.traffic().messages, world - 1);
                        }),
            no_errors());
}

TEST_P(Worlds, AllToAllOfOtherSizes) {
  // Rank r sends i + r elements to rank i.
  EXPECT_EQ(with_groups(GetParam(),
                        [](ProcessGroup& group) {
                          const int64_t world = group.world(), rank = group.rank();
                          std::vector<int64_t> out_sizes, in_sizes;
                          std::vector<at::Tensor> parts;
                          for (int64_t other = 0; other < world; ++other) {
                            in_sizes.push_back(other + rank), out_sizes.push_back(other + rank);
                            parts.push_back(at::full({other + rank}, 10 * rank + other, at::kLong));
                          }
                          const at::Tensor in = at::cat(parts);
                          at::Tensor out = at::empty_like(in);
                          group.all_to_all(in, in_sizes, out, out_sizes);
                          int64_t at = 0;
                          for (int64_t from = 0; from < world; at += from + rank, ++from)
                            EXPECT_TRUE((out.narrow(0, at, from + rank) == 10 * from + rank).all().item<bool>());
                        }),
            no_errors());
}

TEST_P(Worlds, AllGatherAndBroadcast) {
  EXPECT_EQ(with_groups(GetParam(),
                        [](ProcessGroup& group) {
                          at::Tensor all = at::empty({group.world(), 3}, at::kDouble);
                          group.all_gather(at::full({3}, group.rank(), at::kDouble), all);
                          for (int64_t from = 0; from < group.world(); ++from) EXPECT_TRUE((all[from] == from).all().item<bool>());
                          EXPECT_EQ(group.traffic().bytes, 24 * (group.world() - 1));
                          at::Tensor value = at::full({1000}, group.rank());
                          group.broadcast(value, 1);
                          EXPECT_TRUE((value == 1).all().item<bool>());
                        }),
            no_errors());
}

TEST_P(Worlds, BytesOfAnyLength) {
  EXPECT_EQ(with_groups(GetParam(),
                        [](ProcessGroup& group) {
                          for (const size_t unit : {0, 1, 1015, 1016, 1017, 100000}) {
                            const auto text = [&](int rank) {
                              return std::string(unit * static_cast<size_t>(rank), static_cast<char>('a' + rank));
                            };
                            const std::vector<std::string> all = group.all_gather_bytes(text(group.rank()));
                            ASSERT_EQ(std::ssize(all), group.world());
                            for (int rank = 0; rank < group.world(); ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)], text(rank));
                            EXPECT_EQ(group.broadcast_bytes(group.rank() == 1 ? text(1) : "mine", 1), text(1));
                          }
                        }),
            no_errors());
}

// Groups of two of four ranks exchange beside the whole, on another thread.
TEST(ProcessGroup, GroupsOfRanksExchangeBesideTheWhole) {
  EXPECT_EQ(with_groups(4,
                        [](ProcessGroup& whole) {
                          const std::unique_ptr<ProcessGroup> pair = whole.split(2);
                          EXPECT_EQ(pair->rank(), whole.rank() % 2);
                          EXPECT_EQ(pair->world(), 2);
                          std::exception_ptr error;
                          std::thread other([&] {
                            try {
                              for (int i = 0; i < 20; ++i) {
                                at::Tensor all = at::empty({4});
                                whole.all_gather(at::full({1}, whole.rank(), at::kFloat), all);
                                EXPECT_TRUE(at::equal(all, at::arange(4, at::kFloat)));
                              }
                            } catch (...) {
                              error = std::current_exception();
                            }
                          });
                          const int64_t first = whole.rank() / 2 * 2;
                          for (int i = 0; i < 20; ++i) {
                            at::Tensor all = at::empty({2});
                            pair->all_to_all(at::full({2}, whole.rank(), at::kFloat), all);
                            EXPECT_TRUE(at::equal(all, at::arange(first, first + 2, at::kFloat)));
                          }
                          other.join();
                          if (error) std::rethrow_exception(error);
                          EXPECT_EQ(pair->traffic().bytes, 20 * 4);
                          EXPECT_EQ(whole.traffic().bytes, 20 * (3 + 1) * 4);
                        }),
            std::vector<std::string>(4));
}

// Nobody in the group is lost, but the run is over.
TEST(ProcessGroup, ALossElsewhereEndsTheWaitInAGroup) {
  const auto errors = with_groups(4, [](ProcessGroup& whole) {
    const std::unique_ptr<ProcessGroup> pair = whole.split(2);
    whole.barrier();
    if (whole.rank() == 3) throw Error("mine");
    for (;;) pair->barrier();
  });
  for (const size_t rank : {0, 1, 2}) EXPECT_TRUE(mentions(errors[rank], {"rank 3", "was lost"})) << errors[rank];
}

TEST(ProcessGroup, TheOthersSayWhichRankHasFailedAndWhy) {
  const auto errors = with_groups(3, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) {
      group.fail("disk full");
      throw Error("disk full");
    }
    at::Tensor in = at::zeros({3000000}), out = at::zeros({3000000});
    for (;;) group.all_to_all(in, out);
  });
  for (const size_t rank : {0, 1}) EXPECT_TRUE(mentions(errors[rank], {"rank 2", "disk full"})) << errors[rank];
}

TEST(ProcessGroup, ALostRankEndsTheWaitOfAllOthers) {
  for (const int lost : {0, 1, 2}) {
    const auto errors = with_groups(3, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == lost) throw Error("mine");
      group.barrier();
    });
    for (const int rank : {(lost + 1) % 3, (lost + 2) % 3})
      EXPECT_TRUE(mentions(errors[static_cast<size_t>(rank)], {"rank " + std::to_string(lost), "was lost"}));
  }
}

// The connections to a peer that only hangs stay open: the news of a loss must break them.
TEST(ProcessGroup, ALossEndsTheWaitForARankThatHangs) {
  std::atomic<int> ended = 0;
  const auto errors = with_groups(3, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) throw Error("mine");
    if (group.rank() == 2)  // never answers
      for (int now = ended; now < 1; now = ended) ended.wait(now);
    try {
      at::Tensor in = at::zeros({1}), all = at::zeros({3});
      group.all_gather(in, all);
    } catch (...) {
      ++ended, ended.notify_all();
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[0], {"rank 1", "was lost"})) << errors[0];
}

TEST(ProcessGroup, NoAnswerIsAnErrorThatSaysSo) {
  const HeldPort port;
  std::atomic<bool> ended = false;
  const auto errors = run_ranks(2, [&](int rank) {
    Environment environment = environment_of(rank, 2, port);
    environment.timeout_seconds = 1;
    ProcessGroup group(environment, "test");
    if (rank == 1) return ended.wait(false);
    try {
      group.barrier();
    } catch (...) {
      ended = true, ended.notify_all();
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[0], {"no answer", "1 s", "HINGE_TIMEOUT"})) << errors[0];
}

TEST(ProcessGroup, AnInterfaceThatIsNotThereIsNamed) {
  const HeldPort port;
  const auto errors = run_ranks(2, [&](int rank) {
    Environment environment = environment_of(rank, 2, port);
    environment.interface = "nothere0";
    ProcessGroup group(environment, "test");
  });
  EXPECT_TRUE(mentions(errors[0], {"GLOO_SOCKET_IFNAME", "nothere0", "lo"})) << errors[0];
  const auto shown = run_ranks(2, [&](int rank) {
    Environment environment = environment_of(rank, 2, port);
    environment.interface = "lo";
    ProcessGroup group(environment, "test");
    EXPECT_NE(group.description().find("lo (GLOO_SOCKET_IFNAME)"), std::string::npos) << group.description();
    group.leave();
  });
  EXPECT_EQ(shown, std::vector<std::string>(2));
}

}  // namespace
}  // namespace hinge::distributed
