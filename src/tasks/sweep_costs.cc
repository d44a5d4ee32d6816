#include "tasks/sweep_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "support/config.h"
#include "support/progress.h"

namespace hinge::tasks {
namespace {

// The keys among them that can change what a training costs: not seeds, learning rates and the like.
support::FlatConfig keys_of_cost(support::FlatConfig keys) {
  static const std::set<std::string> kFree = {"optim.lr",
                                              "optim.beta1",
                                              "optim.beta2",
                                              "optim.eps",
                                              "optim.weight_decay",
                                              "optim.clip",
                                              "optim.warmup_steps",
                                              "optim.schedule",
                                              "train.seed",
                                              "train.workers",
                                              "train.threads",
                                              "train.eval_every",
                                              "train.keep",
                                              "train.log_steps",
                                              "train.checkpoint_every",
                                              "model.attention.alpha"};
  std::erase_if(keys, [](const auto& entry) { return kFree.contains(entry.first); });
  return keys;
}

bool is_same_size(const TrainingCost& one, const TrainingCost& other) {
  return one.parameters == other.parameters && one.steps == other.steps && one.flops == other.flops;
}

}  // namespace

double known_seconds(const TrainingCost& cost, const std::vector<TrainingCost>& known) {
  for (const TrainingCost& other : known)
    if (is_same_size(cost, other)) return other.seconds;
  return 0;
}

std::string CostGroup::common() const {
  experiment::Point common;
  for (const auto& [axis, value] : points.front())
    if (std::all_of(points.begin(), points.end(), [&, &axis = axis, &value = value](const experiment::Point& point) {
          return experiment::value_of(point, axis) == value;
        }))
      common.emplace_back(axis, value);
  return common.empty() ? "-" : experiment::point_text(common);
}

std::vector<CostGroup> cost_groups(const experiment::Sweep& sweep, const Task& task, const std::vector<experiment::SweepPoint>& points) {
  for (const auto& [name, value] : sweep.assume)
    if (std::find(task.assumptions.begin(), task.assumptions.end(), name) == task.assumptions.end())
      throw support::ConfigError(fmt::format("{}: unknown key 'assume.{}'; for a {} config there are {}", sweep.file, name, task.name,
                                             fmt::join(task.assumptions, ", ")));
  CostRequest request{{}, sweep.assume};
  std::vector<support::FlatConfig> distinct;
  std::vector<size_t> place;  // of each point among them
  for (const experiment::SweepPoint& point : points) {
    const support::FlatConfig keys = keys_of_cost(task.changed_keys({sweep.base, point.changes}));
    const auto found = std::find(distinct.begin(), distinct.end(), keys);
    place.push_back(static_cast<size_t>(found - distinct.begin()));
    if (found != distinct.end()) continue;
    distinct.push_back(keys);
    request.configs.push_back({sweep.base, point.changes});
  }
  support::Progress progress("measuring", std::ssize(request.configs));
  request.progress = [&](int64_t done) { progress.update(done, {}); };
  const std::vector<TrainingCost> costs = task.costs(request);
  progress.finish();
  std::vector<CostGroup> groups;
  for (size_t i = 0; i < points.size(); ++i) {
    const TrainingCost& cost = costs[place[i]];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const CostGroup& other) { return is_same_size(other.cost, cost); });
    if (group == groups.end()) group = groups.insert(group, {cost, {}});
    group->points.push_back(points[i].point);
  }
  return groups;
}

}  // namespace hinge::tasks
