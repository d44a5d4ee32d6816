// The loop that every training run goes through, whatever it trains: steps of Adam, lines of metrics, evaluations, checkpoints, progress,
// stopping and going on bit for bit. What is trained, on what and how well it does is a Task's part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/parameters.h"
#include "support/config.h"
#include "support/progress.h"
#include "train/adam.h"
#include "train/run_folder.h"

namespace hinge::train {

using Values = std::vector<std::pair<std::string, double>>;
using Sums = std::map<std::string, double>;

// What a step says of itself.
struct StepOutcome {
  double loss = 0;      // of the whole step, for the progress line
  double accuracy = 0;  // share of the items that were predicted right, for the same
  double items = 0;     // examples worked through, in the task's unit
  Sums sums = {};       // added up over the steps of a line of metrics
};

struct EvaluationOutcome {
  double score = 0;     // higher is better: the best checkpoint is the one that had the highest
  Values metrics = {};  // "accuracy", "loss", ...; in the metrics as eval/accuracy
  std::string text;     // the same for a person
};

// What an evaluation does just now, and how much of it is done: ("evaluating", 3, 40).
using EvaluationProgress = std::function<void(std::string_view doing, int64_t done, int64_t total)>;

// What a run trains. The loop calls it from one thread. `stop` may be set at any time: what takes long looks at it now and then and returns
// nothing once it is set; the loop drops what was begun.
class Task {
 public:
  virtual ~Task() = default;

  virtual const nn::Parameters& parameters() const = 0;
  virtual std::string items() const = 0;       // what is counted for the speed: "images"
  virtual std::string score_name() const = 0;  // "accuracy"
  virtual std::string score_text(double score) const = 0;

  // Once, before all others: the first step of this process, from 0.
  virtual void begin(int64_t first_step) = 0;
  // Adds the gradients of the next step to the parameters, whose gradients are empty before it. The default generator is seeded by the
  // loop. Returns at once with a loss that is not finite.
  virtual std::optional<StepOutcome> step(const std::atomic<bool>& stop) = 0;
  // What was the first in the last step that was not finite, when its loss was not: "block 0", "the head". All parameters are finite.
  virtual std::string first_not_finite() = 0;
  // A line of metrics from the sums of `steps` steps, names with "train/" before them.
  virtual Values metrics(const Sums& sums, int64_t steps) const = 0;
  // Says now and then how far it is.
  virtual std::optional<EvaluationOutcome> evaluate(const std::atomic<bool>& stop, const EvaluationProgress& progress) = 0;
  // What a checkpoint says beside the weights to those who will use them.
  virtual nlohmann::json checkpoint_state() const = 0;
  // Time that step() has spent waiting for data.
  virtual double waited_seconds() const = 0;
  // Files of the data that could not be read and were passed over.
  virtual std::vector<std::string> skipped() const { return {}; }
};

struct LoopSettings {
  uint64_t seed = 0;
  int64_t steps = 1, eval_steps = 1, checkpoint_steps = 1, log_steps = 1, keep = 1;
  int64_t average = 0;  // at the end, also save the mean of the weights of that many last checkpoints; below 2: do not
  AdamOptions adam = {};
  double lr = 1e-3, weight_decay = 0;
  std::optional<double> clip = {};
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
};

struct TrainResult {
  bool finished = false;  // false: stopped by the user, a checkpoint is saved
  int64_t step = 0, steps = 0;
  double score = 0;  // of the last evaluation
  double best = 0;
  std::string outcome;          // score and best for a person
  std::string items;            // as the task has it
  double items_per_second = 0;  // of all training steps of the run
  double waiting_share = 0;     // share of their time in which no batch was ready
  int64_t parameters = 0;
  int64_t memory_bytes = 0;  // largest resident size of the process
  int64_t skipped = 0;       // files of the data that could not be read
};

// A run that failed for a reason that the run itself found: its status says so, too.
struct TrainError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a task's config says of them; the numbers of steps are the task's part.
template <class Config> LoopSettings settings_of(const Config& config) {
  const auto& optim = config.optim;
  LoopSettings settings;
  settings.seed = static_cast<uint64_t>(config.train.seed);
  settings.log_steps = config.train.log_steps, settings.keep = config.train.keep;
  settings.adam = {optim.beta1, optim.beta2, optim.eps};
  settings.lr = optim.lr, settings.weight_decay = optim.weight_decay, settings.clip = optim.clip;
  settings.schedule = optim.schedule, settings.warmup_steps = optim.warmup_steps;
  return settings;
}
// Throws std::runtime_error with the key, for numbers that nothing can be trained with.
void check(const LoopSettings& settings);

// Throws std::runtime_error if more steps are done than are to be done.
void require_steps(const LoopSettings& settings, const std::optional<Checkpoint>& from);

// The key of "optim.lr=1e-4".
std::string key_of(const std::string& change);
// Changes a config by such texts, one after the other. A run's config has also what follows from other keys; what followed from a key that
// changes is taken back before (take_back_derived, beside each config).
template <class Config> void change_config(Config& config, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) take_back_derived(config, key_of(change));
  for (const std::string& change : changes) support::override_config(config, change);
}
// Throws support::ConfigError unless a run may go on with such changes.
void require_changeable(const std::vector<std::string>& changes);

// Trains from the checkpoint `from`, or from the start. `stop` may be set at any time, by a signal handler for example: the run saves a
// checkpoint and returns. An error that leaves good weights (a file that cannot be read, say) saves them, too. Throws std::runtime_error.
TrainResult run_task(Task& task, const LoopSettings& settings, RunFolder folder, const std::optional<Checkpoint>& from,
                     const std::atomic<bool>& stop, support::ProgressOutput output);

// The last usable checkpoint of a run to go on with; says on `output` which were passed over. Nothing for a run that was ended before its
// first; throws std::runtime_error if there was one and it is lost.
std::optional<Checkpoint> checkpoint_to_resume(const std::string& folder, const support::ProgressOutput& output);

// Seeds of the parts of a run (weights, order of the data, each step) must differ.
enum class Stream : uint64_t { weights = 1, data = 2, first_step = 3 };
uint64_t stream_seed(uint64_t seed, Stream stream, int64_t step = 0);

// A path as it reads from every folder; "" stays.
std::string absolute_path(const std::string& path);

// 0: one for every core, or as many as OMP_NUM_THREADS says.
void use_threads(int64_t threads);

double steady_seconds();  // by a clock that never goes back

}  // namespace hinge::train
