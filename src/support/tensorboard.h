// Scalars as TensorBoard event files. Each writer begins a file of its own; TensorBoard reads all files of a folder together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::support {

class EventWriter {
 public:
  // `last_step`: the step of the checkpoint that the run goes on from, 0 without one. If there are older files, TensorBoard forgets what
  // they say about later steps.
  EventWriter(const std::string& folder, int64_t last_step);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // In the file when this returns. TensorBoard groups tags by what stands before a slash: "train/loss".
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  const std::string& path() const { return path_; }

 private:
  void record(std::string_view event);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace hinge::support
