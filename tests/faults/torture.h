// How long the tests here go on, and what they did. HINGE_TEST_QUICK=1 takes a sample; `make torture` gives a time, which a kind of
// accident may exceed until there were enough of it, and gets a row for each kind in the file that HINGE_TORTURE_RESULTS names: what, how
// often (of how many there are), how often something was lost.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "../support/quick.h"

namespace hinge::torture {

// Counts the accidents of one kind and says when there were enough.
class Accidents {
 public:
  struct Wanted {
    int64_t quick = 0, full = 0;  // in a quick test and in a full one
    int64_t torture = full;       // even if that takes longer than was asked for
    int64_t all = INT64_MAX;      // how many there are: then there is no more to do
  };

  Accidents(std::string what, const Wanted& wanted)
      : what_(std::move(what)), all_(wanted.all), wanted_(std::min(all_, support::quick() ? wanted.quick : wanted.full)) {
    if (const char* seconds = std::getenv("HINGE_TORTURE_SECONDS")) seconds_ = std::atof(seconds), wanted_ = std::min(all_, wanted.torture);
  }
  ~Accidents() {
    if (const char* file = std::getenv("HINGE_TORTURE_RESULTS"))
      std::ofstream(file, std::ios::app) << what_ << '\t' << count_ << (all_ == INT64_MAX ? "" : " of " + std::to_string(all_)) << '\t'
                                         << lost_ << '\n';
  }
  Accidents(const Accidents&) = delete;
  Accidents& operator=(const Accidents&) = delete;

  bool go_on() const {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begun_;
    return (count_ < wanted_ || (count_ < all_ && gone.count() < seconds_)) && !testing::Test::HasFatalFailure();
  }
  // One more, after which everything was there, or was not.
  void add() {
    ++count_;
    const int failed = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    lost_ += failed > failed_before_ ? 1 : 0;
    failed_before_ = failed;
  }
  int64_t count() const { return count_; }

 private:
  std::string what_;
  int64_t all_, wanted_, count_ = 0, lost_ = 0;
  double seconds_ = 0;
  int failed_before_ = 0;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace hinge::torture
