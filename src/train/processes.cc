#include "train/processes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hinge/kernels/cpu.h"
#include "support/config.h"
#include "train/group_ranks.h"

namespace hinge::train {
namespace {

// Data may be at other places on other machines, as long as they are the same.
support::FlatConfig without_places(const std::string& config, const std::string& name) {
  support::FlatConfig keys = support::flatten_config(config, name);
  std::erase_if(keys, [](const auto& key) {
    return key.first == "data.path" || key.first == "data.label_map" || key.first == "data.vocabulary_file";
  });
  return keys;
}

}  // namespace

void Processes::form_teams(int64_t size) {
  if (size == 1) return;
  if (count() % size != 0)
    throw std::runtime_error(fmt::format(
        "train.sequence_parallel {0} needs {0} processes, or a multiple, got {1}: hinge launch -n {0} -- train", size, count()));
  team_size_ = static_cast<int>(size);
  team_group_ = group_->split(team_size_);
  sequence_ = std::make_shared<GroupRanks>(*team_group_);
}

WorkersPlan Processes::plan(const RunConfig& run, int64_t parts, int64_t parameters) const {
  if (group_ == nullptr) return plan_workers(run, parts, parameters);
  const Machine machine = Machine::present(std::max(1, group_->environment().local_world));
  RunConfig of_team = run;
  if (sequence_) of_team.workers = 1;  // their exchanges follow one another
  const WorkersPlan own = plan_workers(of_team, parts, parameters, machine, teams());
  at::Tensor numbers = at::tensor({own.workers, own.threads}, at::kLong);
  group_->broadcast(numbers, 0);
  return {static_cast<int>(numbers[0].item<int64_t>()), static_cast<int>(numbers[1].item<int64_t>())};
}

std::pair<int64_t, int64_t> Processes::own_part(int64_t items) const { return {team() * items / teams(), (team() + 1) * items / teams()}; }

std::string Processes::from_first(const std::function<std::string()>& make) const {
  if (group_ == nullptr) return make();
  return group_->broadcast_bytes(first() ? make() : "", 0);
}

std::optional<Checkpoint> Processes::from_first(const std::optional<Checkpoint>& own) const {
  if (group_ == nullptr) return own;
  const std::string text = from_first([&]() -> std::string {
    if (!own) return "";
    nlohmann::json stored = {{"folder", own->folder}, {"step", own->step}, {"state", own->state}};
    if (own->score) stored["score"] = *own->score;
    return stored.dump();
  });
  if (first() || text.empty()) return own;
  const nlohmann::json stored = nlohmann::json::parse(text);
  Checkpoint checkpoint{stored.at("folder"), stored.at("step"), std::nullopt, stored.at("state")};
  if (stored.contains("score")) checkpoint.score = stored["score"].get<double>();
  return checkpoint;
}

std::vector<std::string> Processes::gather(std::string_view own) const {
  if (group_ == nullptr) return {std::string(own)};
  const std::vector<std::string> all = group_->all_gather_bytes(own);
  std::vector<std::string> of_teams;
  for (size_t rank = 0; rank < all.size(); rank += static_cast<size_t>(team_size_)) of_teams.push_back(all[rank]);
  return of_teams;
}

bool Processes::any(bool own) const {
  if (group_ == nullptr) return own;
  const std::vector<std::string> all = group_->all_gather_bytes(own ? "yes" : "");
  return std::any_of(all.begin(), all.end(), [](const std::string& answer) { return !answer.empty(); });
}

bool Processes::any_of_team(bool own) const {
  return sequence_ ? nn::sum_over_ranks(at::full({1}, own, at::kFloat), *sequence_).item<float>() > 0 : own;
}

std::vector<double> Processes::sums_of_team(const std::vector<double>& own) const {
  if (!sequence_) return own;
  const at::Tensor sums = nn::sum_over_ranks(at::tensor(own, at::kDouble), *sequence_);
  return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
}

void Processes::require_same(const std::string& config, const std::string& data) const {
  if (group_ == nullptr) return;
  const std::vector<std::string> configs = group_->all_gather_bytes(config), all_data = group_->all_gather_bytes(data);
  for (size_t rank = 1; rank < configs.size(); ++rank) {
    const auto differences =
        support::config_differences(std::vector{without_places(configs[0], "rank 0"), without_places(configs[rank], "another rank")});
    if (!differences.empty())
      throw std::runtime_error(
          fmt::format("the config of rank {} has {} = {}, that of rank 0 has {}: start all processes with the same config", rank,
                      differences[0].key, differences[0].values[1], differences[0].values[0]));
    if (all_data[rank] != all_data[0])
      throw std::runtime_error(
          fmt::format("the data of rank {} are not those of rank 0: {} instead of {}", rank, all_data[rank], all_data[0]));
  }
}

std::string Processes::agree_on_simd_target() const {
  if (group_ == nullptr) return kernels::simd_target();
  const auto list = [](const std::string& text) { return nlohmann::json::parse(text).get<std::vector<std::string>>(); };
  const std::vector<std::string> all = gather(nlohmann::json(kernels::usable_simd_targets()).dump());
  const auto everywhere = [&](const std::string& target) {
    return std::all_of(all.begin(), all.end(), [&](const std::string& text) {
      const std::vector<std::string> usable = list(text);
      return std::find(usable.begin(), usable.end(), target) != usable.end();
    });
  };
  for (const std::string& target : list(all[0]))
    if (everywhere(target)) {
      if (target != kernels::simd_target()) kernels::force_simd_target(target);
      return target;
    }
  throw std::runtime_error("the machines of this run have no SIMD target in common: train on machines of one kind");
}

}  // namespace hinge::train
