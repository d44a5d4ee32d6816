#include "train/processes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hinge/kernels/cpu.h"
#include "support/config.h"

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

WorkersPlan Processes::plan(const RunConfig& run, int64_t parts, int64_t parameters) const {
  if (group_ == nullptr) return plan_workers(run, parts, parameters);
  const Machine machine = Machine::present(std::max(1, group_->environment().local_world));
  const WorkersPlan own = plan_workers(run, parts, parameters, machine, count());
  at::Tensor numbers = at::tensor({own.workers, own.threads}, at::kLong);
  group_->broadcast(numbers, 0);
  return {static_cast<int>(numbers[0].item<int64_t>()), static_cast<int>(numbers[1].item<int64_t>())};
}

std::pair<int64_t, int64_t> Processes::own_part(int64_t items) const {
  const int64_t rank = group_ != nullptr ? group_->rank() : 0;
  return {rank * items / count(), (rank + 1) * items / count()};
}

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
  return group_ != nullptr ? group_->all_gather_bytes(own) : std::vector<std::string>{std::string(own)};
}

bool Processes::any(bool own) const {
  const std::vector<std::string> all = gather(own ? "yes" : "");
  return std::any_of(all.begin(), all.end(), [](const std::string& answer) { return !answer.empty(); });
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
