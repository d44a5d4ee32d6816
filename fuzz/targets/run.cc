// The JSON files of a run that is not one's own: its status, and the description of a checkpoint.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../target.h"
#include "train/run_folder.h"

namespace hinge::fuzz {
namespace {

// A run in a folder of its own, in memory where the system has such a place.
class Run {
 public:
  Run() {
    std::string name = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/hinge-fuzz-XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
    std::filesystem::create_directories(folder_ + "/checkpoints/step-00000001");
    put("config.toml", {});
  }
  ~Run() { std::filesystem::remove_all(folder_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const std::string& folder() const { return folder_; }
  void put(const std::string& name, Input bytes) const { std::ofstream(folder_ + "/" + name, std::ios::binary) << text_of(bytes); }

 private:
  std::string folder_;
};

}  // namespace

void run_target(Input input) {
  static const Run run;
  run.put("checkpoints/step-00000001/checkpoint.json", input);
  train::latest_checkpoint(run.folder());
  train::best_checkpoint(run.folder());
  train::verify_run(run.folder());
  run.put("status.json", input);
  train::read_status(run.folder());
}

}  // namespace hinge::fuzz
