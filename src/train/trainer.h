// The loop that every training run goes through, whatever it trains: steps of Adam, lines of metrics, evaluations, checkpoints, progress,
// stopping and going on bit for bit. What is trained, on what and how well it does is a Trainable's part.
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

#include "distributed/process_group.h"
#include "nn/parameters.h"
#include "support/progress.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/sharded_gradient.h"
#include "train/train_result.h"

namespace hinge::train {

class Processes;

using Values = std::vector<std::pair<std::string, double>>;
using Sums = std::map<std::string, double>;

// What a shard of a step's batch gives. All but the gradients are added up over the shards of the step.
struct ShardOutcome {
  double loss = 0;   // its part of the step's loss
  double right = 0;  // items that were predicted right
  double items = 0;  // examples worked through, in the unit of items()
  Sums sums = {};    // added up over the steps of a line of metrics, too
  Gradients gradients = {};
  double flops = 0;  // of its forward pass
};

struct EvaluationOutcome {
  double score = 0;     // higher is better: the best checkpoint is the one that had the highest
  Values metrics = {};  // "accuracy", "loss", ...; in the metrics as eval/accuracy
  std::string text;     // the same for a person
  Values details = {};  // further numbers, for the metrics alone and not for the run's status
};

// Which shards of a step this process computes: [first, first + count), the workers equal numbers of consecutive ones.
struct ShardOwners {
  int64_t first = 0, count = 1;
  int workers = 1;

  int64_t worker_of(int64_t shard) const { return (shard - first) * workers / count; }
};

// What an evaluation does just now, and how much of it is done: ("evaluating", 3, 40).
using EvaluationProgress = std::function<void(std::string_view doing, int64_t done, int64_t total)>;

// What a run trains: a model with its data. The loop calls it from one thread, but for shard(). `stop` may be set at any time: what takes
// long looks at it now and then and returns nothing once it is set; the loop drops what was begun.
class Trainable {
 public:
  virtual ~Trainable() = default;

  virtual const nn::Parameters& parameters() const = 0;
  virtual std::string items() const = 0;       // what is counted for the speed: "images"
  virtual std::string score_name() const = 0;  // "accuracy"
  virtual std::string score_text(double score) const = 0;

  // Once, before all others: the first step of this process, from 0, and who will ask for shards.
  virtual void begin(int64_t first_step, const ShardOwners& owners) = 0;
  // Before the shards of each step, which follow one another.
  virtual void begin_step(int64_t step) = 0;
  // Forward and backward of a part of the step's batch, on the thread of a worker, beside other shards. Each worker asks for the shards it
  // owns in their order. Everything random comes from `seed`. Without gradients if the loss is not finite.
  virtual ShardOutcome shard(int64_t shard, uint64_t seed) = 0;
  // What was the first that was not finite in the shard of the last step whose loss was not: "block 0", "the head". The seed is that which
  // the shard had. All parameters are finite.
  virtual std::string first_not_finite(int64_t shard, uint64_t seed) = 0;
  // A line of metrics from the sums of `steps` steps, names with "train/" before them.
  virtual Values metrics(const Sums& sums, int64_t steps) const = 0;
  // Says now and then how far it is. With several processes, they share the work, and all have the same result.
  virtual std::optional<EvaluationOutcome> evaluate(const std::atomic<bool>& stop, const EvaluationProgress& progress) = 0;
  // What a checkpoint says beside the weights to those who will use them.
  virtual nlohmann::json checkpoint_state() const = 0;
  // Time that the workers have spent waiting for data, for the average worker.
  virtual double waited_seconds() const = 0;
  // Files of the data that could not be read and were passed over.
  virtual std::vector<std::string> skipped() const { return {}; }
};

// The loss, a gradient or a weight is no longer finite. The run's status says so: its state is "diverged".
struct DivergedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws std::runtime_error if more steps are done than are to be done.
void require_steps(const LoopSettings& settings, const std::optional<Checkpoint>& from);

// Trains from the checkpoint `from`, or from the start. With several processes, `group`, rank 0 alone has a folder, reads the checkpoint
// and says how it goes; the others take the weights from it. `stop` may be set at any time, by a signal handler for example: the run saves
// a checkpoint and returns. An error that leaves good weights (a file that cannot be read, say) saves them, too. Throws std::runtime_error.
TrainResult run_loop(Trainable& trainable, const LoopSettings& settings, std::optional<RunFolder> folder,
                     const std::optional<Checkpoint>& from, const std::atomic<bool>& stop, support::ProgressOutput output,
                     distributed::ProcessGroup* group = nullptr);

// A run to go on with: its folder, which rank 0 alone has, and its last usable checkpoint, nothing for a run that was ended before its
// first.
struct RunToResume {
  std::optional<RunFolder> folder;
  std::optional<Checkpoint> from;
};
// Says on `output` which checkpoints were passed over. Throws std::runtime_error if there was one and it is lost.
RunToResume open_to_resume(const std::string& folder, const Processes& processes, const support::ProgressOutput& output);

// Seeds of the parts of a run (weights, order of the data, each step) must differ.
enum class Stream : uint64_t { weights = 1, data = 2, first_step = 3 };
uint64_t stream_seed(uint64_t seed, Stream stream, int64_t step = 0);
// The seed of what is random in a shard of a step.
uint64_t shard_seed(uint64_t seed, int64_t step, int64_t shard);

// A path as it reads from every folder; "" stays.
std::string absolute_path(const std::string& path);

// The threads of what runs outside of the workers. 0: support::default_threads().
void use_threads(int64_t threads);

double steady_seconds();       // by a clock that never goes back
double process_cpu_seconds();  // of all threads of this process

}  // namespace hinge::train
