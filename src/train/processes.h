// The processes that train one model together, as tasks see them: this one alone, or those of a group. Teams of them may share the tokens
// of each sequence: all members of a team work on the same examples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "nn/sequence_ranks.h"
#include "train/config.h"
#include "train/run_folder.h"

namespace hinge::train {

class Processes {
 public:
  explicit Processes(distributed::ProcessGroup* group) : group_(group) {}

  distributed::ProcessGroup* group() const { return group_; }
  int count() const { return group_ != nullptr ? group_->world() : 1; }
  bool first() const { return group_ == nullptr || group_->rank() == 0; }

  // Forms teams of `size` consecutive ranks; all processes call it, with the same number. Throws std::runtime_error if there are too few.
  void form_teams(int64_t size);
  int teams() const { return count() / team_size_; }
  int team() const { return group_ != nullptr ? group_->rank() / team_size_ : 0; }
  // The members of this process's team; null if it works alone.
  nn::SequenceRanks* sequence() const { return sequence_.get(); }

  // The workers of each process: rank 0's plan, so that all have the same.
  WorkersPlan plan(const RunConfig& run, int64_t parts, int64_t parameters) const;
  // This team's part of `items` things, [first, second): consecutive ones, as many as others have or one more.
  std::pair<int64_t, int64_t> own_part(int64_t items) const;

  // What rank 0 makes; the others receive it.
  std::string from_first(const std::function<std::string()>& make) const;
  std::optional<Checkpoint> from_first(const std::optional<Checkpoint>& own) const;
  // What the first of each team gives, in the order of the ranks.
  std::vector<std::string> gather(std::string_view own) const;
  // Whether any of all processes says yes; of this team.
  bool any(bool own) const;
  bool any_of_team(bool own) const;
  // As many numbers of each member of this team, added up.
  std::vector<double> sums_of_team(const std::vector<double>& own) const;

  // Throws std::runtime_error, on all, unless all have the same config (as TOML text; where the data are may differ) and data (a
  // description, with a number that depends on all of them): says which rank differs, with both values.
  void require_same(const std::string& config, const std::string& data) const;
  // All compute with the best SIMD target that every machine has: weights that each updates by itself stay the same everywhere. The target.
  std::string agree_on_simd_target() const;

 private:
  distributed::ProcessGroup* group_;
  int team_size_ = 1;
  std::shared_ptr<distributed::ProcessGroup> team_group_;
  std::shared_ptr<nn::SequenceRanks> sequence_;
};

// The config of a run to go on with, for all processes: rank 0 has the run.
template <class Config>
Config config_to_resume(const std::string& run, const std::vector<std::string>& changes, const Processes& processes) {
  if (processes.count() == 1) return config_to_resume<Config>(run, changes);
  Config config;
  const std::string text = processes.from_first([&] { return support::write_config(config_to_resume<Config>(run, changes)); });
  support::read_config_text(config, text, "the config of rank 0");
  return config;
}

}  // namespace hinge::train
