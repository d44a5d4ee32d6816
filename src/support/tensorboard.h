// Scalars as TensorBoard event files. Each writer begins a file of its own; TensorBoard reads all files of a folder together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::support {

// CRC-32C (Castagnoli) of some bytes.
uint32_t crc32c(std::string_view bytes);

class EventWriter {
 public:
  // `last_step`: after a resume, the step of the checkpoint; TensorBoard then forgets what older files say about later steps.
  explicit EventWriter(const std::string& folder, std::optional<int64_t> last_step = std::nullopt);
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
