// How processes find each other, and how they learn that one is gone.
#include "distributed/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>

#include "../support/errors.h"
#include "distributed/error.h"
#include "ranks.h"

namespace hinge::distributed {
namespace {

using support::error_of;
using support::mentions;

constexpr double kLong = 60;

// ---- the environment

std::optional<Environment> read(const std::map<std::string, std::string>& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, IsThatOfTheLaunchers) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"WORLD_SIZE", "1"}, {"RANK", "0"}}));
  const auto torchrun = read({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "node1"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "study"},
                              {"GLOO_SOCKET_IFNAME", "eth1"}});
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->rank, 3);
  EXPECT_EQ(torchrun->world, 4);
  EXPECT_EQ(torchrun->local_rank, 1);
  EXPECT_EQ(torchrun->master_address, "node1");
  EXPECT_EQ(torchrun->master_port, 29500);
  EXPECT_EQ(torchrun->token, "study");
  EXPECT_EQ(torchrun->interface, "eth1");
  EXPECT_TRUE(torchrun->on_several_machines());
  EXPECT_FALSE(torchrun->on_first_machine());
}

TEST(Environment, AMistakeIsNamed) {
  EXPECT_TRUE(mentions(error_of([] { read({{"RANK", "1"}}); }), {"RANK", "WORLD_SIZE"}));
  EXPECT_TRUE(mentions(error_of([] { read({{"WORLD_SIZE", "two"}}); }), {"WORLD_SIZE", "'two'"}));
  EXPECT_TRUE(mentions(error_of([] {
                         read({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}});
                       }),
                       {"MASTER_PORT", "hinge launch"}));
  const std::map<std::string, std::string> wrong = {{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_TRUE(mentions(error_of([&] { read(wrong); }), {"RANK", "0 to 1", "'2'"}));
}

// ---- meeting

TEST(Rendezvous, EveryRankReadsWhatAnyHasSet) {
  const HeldPort port;
  const auto errors = run_ranks(4, [&](int rank) {
    Rendezvous rendezvous(environment_of(rank, 4, port), "test");
    rendezvous.set("of " + std::to_string(rank), std::string("value\0of ", 9) + std::to_string(rank));
    for (int other = 0; other < 4; ++other)
      EXPECT_EQ(rendezvous.get("of " + std::to_string(other), kLong), std::string("value\0of ", 9) + std::to_string(other));
    EXPECT_EQ(rendezvous.own_address(), "127.0.0.1");
    EXPECT_GT(rendezvous.port(), port.number());
    // Nobody leaves before the others have read.
    rendezvous.set("read by " + std::to_string(rank), "");
    for (int other = 0; other < 4; ++other) rendezvous.get("read by " + std::to_string(other), kLong);
    rendezvous.leave();
    EXPECT_FALSE(rendezvous.loss(0));
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

TEST(Rendezvous, RunsWithOtherTokensDoNotMeet) {
  // Both look behind the same port; each finds its own rank 0.
  const HeldPort port;
  const auto errors = run_ranks(4, [&](int thread) {
    Environment environment = environment_of(thread % 2, 2, port);
    environment.token = thread < 2 ? "one" : "another";
    Rendezvous rendezvous(environment, "test");
    if (environment.rank == 0) rendezvous.set("run", environment.token);
    EXPECT_EQ(rendezvous.get("run", kLong), environment.token);
    rendezvous.set("read by " + std::to_string(environment.rank), "");
    for (int rank = 0; rank < 2; ++rank) rendezvous.get("read by " + std::to_string(rank), kLong);
    rendezvous.leave();
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

TEST(Rendezvous, RefusesWhoDoesNotBelong) {
  const HeldPort port;
  Rendezvous first(environment_of(0, 2, port), "hinge 1");
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment_of(1, 2, port), "hinge 2"); }), {"rank 1 is hinge 2", "rank 0 is hinge 1"}));
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment_of(1, 4, port), "hinge 1"); }), {"WORLD_SIZE 4", "rank 0 has 2"}));
  Rendezvous second(environment_of(1, 2, port), "hinge 1");
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment_of(1, 2, port), "hinge 1"); }), {"RANK 1", "two processes"}));
  Environment stranger = environment_of(1, 2, port);
  stranger.token = "guessed", stranger.timeout_seconds = 0.2;
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(stranger, "hinge 1"); }), {"rank 1 has not met rank 0", "127.0.0.1"}));
  second.leave(), first.leave();
}

TEST(Rendezvous, ListensOnlyWhereItIsAskedTo) {
  const HeldPort port;
  Environment environment = environment_of(0, 2, port);
  environment.master_address = "127.0.0.2";
  Rendezvous first(environment, "test");
  std::string problem;
  EXPECT_TRUE(Socket::connect(resolve("127.0.0.2").front(), first.port(), 5, problem));
  EXPECT_FALSE(Socket::connect(resolve("127.0.0.1").front(), first.port(), 5, problem));
  first.leave();
}

TEST(Rendezvous, ALoopbackAddressIsNamedAsTheMistakeOnSeveralMachines) {
  const HeldPort port;
  for (const int rank : {0, 1}) {
    Environment environment = environment_of(rank, 2, port);
    environment.local_world = 1, environment.local_rank = 0;
    environment.master_address = "127.1";  // a name for 127.0.0.1 on every machine
    EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment, "test"); }), {"MASTER_ADDR '127.1'", "loopback", "/etc/hosts"}));
  }
  Environment alone = environment_of(1, 2, port);
  alone.local_world = 1, alone.local_rank = 0, alone.timeout_seconds = 0.2;
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(alone, "test"); }), {"has not met rank 0", "loopback"}));
}

TEST(Rendezvous, AnAddressThatIsNotHereIsNamed) {
  const HeldPort port;
  Environment environment = environment_of(0, 2, port);
  environment.master_address = "192.0.2.1";
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment, "test"); }), {"192.0.2.1", "rank 0 cannot listen"}));
  environment.master_address = "no.such.host.invalid";
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment, "test"); }), {"no.such.host.invalid"}));
}

// ---- losing one

TEST(Rendezvous, AllLearnWhichRankWasLost) {
  for (const int lost : {0, 2}) {
    const HeldPort port;
    std::vector<std::string> losses(3);
    std::atomic<int> called = 0, met = 0;
    const auto errors = run_ranks(3, [&](int rank) {
      auto rendezvous = std::make_unique<Rendezvous>(environment_of(rank, 3, port), "test");
      std::promise<void> told;
      rendezvous->watch([&] { ++called, told.set_value(); });
      ++met, met.notify_all();
      for (int now = met; now < 3; now = met) met.wait(now);
      if (rank == lost) return;  // without a word
      told.get_future().wait();
      losses[static_cast<size_t>(rank)] = rendezvous->loss(0).value_or("");
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
    EXPECT_EQ(called, 2);
    for (const int rank : {(lost + 1) % 3, (lost + 2) % 3})
      EXPECT_TRUE(mentions(losses[static_cast<size_t>(rank)], {"rank " + std::to_string(lost), "was lost"}));
  }
}

TEST(Rendezvous, AllLearnWhyARankHasFailed) {
  const HeldPort port;
  const auto errors = run_ranks(3, [&](int rank) {
    Rendezvous rendezvous(environment_of(rank, 3, port), "test");
    if (rank == 1) return rendezvous.fail("no space left"), void(rendezvous.loss(kLong));
    rendezvous.get("never set", kLong);
  });
  for (const size_t rank : {0, 2}) EXPECT_TRUE(mentions(errors[rank], {"rank 1", "no space left"}));
}

TEST(Rendezvous, WhoComesLateIsToldWhyThereIsNobody) {
  const HeldPort port;
  auto first = std::make_unique<Rendezvous>(environment_of(0, 2, port), "test");
  first->fail("no such config");
  std::jthread leaving([&] { first.reset(); });
  EXPECT_TRUE(mentions(error_of([&] { Rendezvous(environment_of(1, 2, port), "test"); }), {"rank 0", "no such config"}));
}

}  // namespace
}  // namespace hinge::distributed
