// The folder of one training run, and what is safe in it: at any moment, also after kill -9 or a full disk, it holds the last whole set of
// everything, and a bit that has changed since is found. No torch here: what goes into a checkpoint is written by functions that the caller
// gives.
//
//   RUN/config.toml                     the resolved config
//   RUN/vocabulary.model                of a translation run
//   RUN/imported                        of a run that began with weights from elsewhere: the name of their file
//   RUN/checksums.json                  CRC-32C of the two files above
//   RUN/metrics.jsonl                   support/jsonl.h
//   RUN/events.out.tfevents.*           support/tensorboard.h
//   RUN/status.json                     what the run is doing
//   RUN/log                             what it has said, a time and a line of text each
//   RUN/note.txt, RUN/archived          what a user says of it; that it is done with (hinge watch)
//   RUN/checkpoints/step-00001200/      weights.safetensors, state.safetensors, checkpoint.json; each tensor has its checksum, and
//                                       checkpoint.json that of its other keys
//   RUN/lock                            held by the process that trains
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::train {

struct RunStatus {
  std::string state = "running";  // running, done, stopped (by the user), diverged or failed
  int64_t step = 0, steps = 0;
  std::optional<double> best = {};  // best score so far, higher is better
  std::optional<int64_t> best_step = {};
  std::string message = {};                   // why it diverged or failed, how to go on
  std::map<std::string, double> values = {};  // the last numbers worth a column: "images_per_second"
  std::string started = {}, updated = {};     // UTC, ISO 8601; write_status sets them
  int64_t pid = 0;                            // as do they the process
};

struct Checkpoint {
  std::string folder;
  int64_t step = 0;
  std::optional<double> score;  // higher is better
  nlohmann::json state;         // what the caller gave to save_checkpoint

  std::string file(const std::string& name) const { return folder + "/" + name; }
  [[noreturn]] void throw_damaged(const std::string& problem) const;  // of checkpoint.json; says what to do

  // What `read` makes of the state. A value that is missing or of the wrong type is an error with the name of the file.
  template <class Read> auto read_state(const Read& read) const {
    try {
      return read(state);
    } catch (const nlohmann::json::exception& error) {
      throw_damaged(error.what());
    }
  }
};

struct CheckpointSearch {
  std::optional<Checkpoint> found;
  std::vector<std::string> skipped;  // the unusable ones that were passed over, each with its reason
};

struct CheckpointFile {
  std::string name;                                    // "weights.safetensors"
  std::function<void(const std::string& path)> write;  // writes the file at `path`
};

struct CheckpointContent {
  int64_t step = 0;
  std::optional<double> score = {};
  std::vector<CheckpointFile> files = {};
  nlohmann::json state = {};         // small things: epoch, seeds, the length rule
  std::vector<int64_t> needed = {};  // steps whose checkpoints must stay, too
};

// Which weights of a run to use.
enum class Which {
  best,      // of the highest score: a checkpoint's, or the mean that a finished run has made of several
  latest,    // of the last checkpoint
  averaged,  // that mean
};
inline std::vector<std::pair<std::string, Which>> config_words(Which) {
  return {{"best", Which::best}, {"latest", Which::latest}, {"averaged", Which::averaged}};
}

// Looking at a run, also while another process trains into it. All throw std::runtime_error with the path and the reason.
RunStatus read_status(const std::string& run);
RunStatus parse_status(std::string_view text, const std::string& path);  // path: for the message
bool is_run(const std::string& folder);                                  // holds a config.toml
void require_run(const std::string& folder);                             // throws unless it is one
bool is_training(const std::string& run);                                // some process holds its lock

// How much of a checkpoint is compared with its checksums before it is called usable. Sizes, the JSON and the headers of safetensors files
// always are.
enum class Check { headers, weights, everything };
CheckpointSearch latest_checkpoint(const std::string& run, Check check = Check::everything);
// Of the highest score; the latest if none has a score.
CheckpointSearch best_checkpoint(const std::string& run, Check check = Check::everything);
Checkpoint checkpoint_of(const std::string& run, int64_t step);  // checks the headers: who loads a tensor checks that

// The content of a file that the run was made with, "vocabulary.model". Throws if it is not what it was.
std::string read_run_file(const std::string& run, const std::string& name);

// Compares all of a run with its checksums.
struct Verification {
  int64_t checkpoints = 0, bytes = 0;  // that were read
  std::vector<std::string> damaged;    // each file that is not what was saved, with the reason
  std::vector<std::string> unchecked;  // files without checksums: an earlier version has written them
};
Verification verify_run(const std::string& run);

// The names of a checkpoint's files.
inline constexpr const char *kWeights = "weights.safetensors", *kState = "state.safetensors", *kAveraged = "averaged.safetensors";

struct ChosenWeights {
  Checkpoint checkpoint;
  bool averaged = false;             // the mean of several checkpoints, which this one holds
  std::vector<std::string> skipped;  // unusable checkpoints that were passed over, each with its reason

  std::string path() const { return checkpoint.file(averaged ? kAveraged : kWeights); }
};
// Removes all checkpoints but the last usable one, of a run that no process trains any more.
void keep_latest_checkpoint(const std::string& run);

// Says on the standard error which checkpoints were passed over.
ChosenWeights choose_weights(const std::string& run, Which which);

std::string config_path(const std::string& run);
std::string metrics_path(const std::string& run);
std::string status_path(const std::string& run);
std::string log_path(const std::string& run);
std::string note_path(const std::string& run);
std::string archived_path(const std::string& run);  // a file that need not say anything
inline constexpr const char* kImported = "imported";
std::optional<std::string> imported_from(const std::string& run);  // what its file of that name says

// Throws unless a run can be made in this folder: it holds none yet, and can be written to or made.
void require_new_run(const std::string& folder);

// Training into a run: holds its lock as long as it lives.
class RunFolder {
 public:
  // A new run, with further files (name and content) that are there from its beginning. Refuses a folder that holds one already and says
  // how to go on with it.
  static RunFolder create(const std::string& folder, std::string_view config, const std::map<std::string, std::string>& files = {});
  // An old one, to go on with. Removes what a crash has left.
  static RunFolder open(const std::string& folder);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& folder() const { return folder_; }

  void write_status(RunStatus status);
  // Adds to what the run has said. It is for people alone: that a full disk cannot take it is no reason to end a training.
  void log(std::string_view text) const noexcept;
  void write_config(std::string_view config);  // in place of the one there is
  // Saves under a temporary name, brings it to the disk, renames it; then removes all but the last `keep`, the best and the needed ones.
  // If anything fails, the checkpoints there were are still there.
  void save_checkpoint(const CheckpointContent& content, int64_t keep);

 private:
  explicit RunFolder(std::string folder);
  void remove_old(int64_t keep, const std::vector<int64_t>& needed);

  std::string folder_;
  std::string started_;
  int lock_ = -1;
};

}  // namespace hinge::train
