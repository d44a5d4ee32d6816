// Metrics of a run, one JSON object a line: {"step": 12, "loss": 0.5, "phase": "train"}. Lines survive a crash of their writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hinge::support {

using MetricValue = std::variant<double, std::string>;

struct MetricRecord {
  int64_t step = 0;
  std::vector<std::pair<std::string, MetricValue>> values;  // numbers that are not finite are stored as null and come back as NaN

  // The number of that name; NaN if there is none.
  double number(const std::string& name) const;
};

class MetricsWriter {
 public:
  // Goes on with the file at `path`, or begins it. Records of steps after `last_step` are dropped, as is a last line that a crash has torn.
  // Throws std::runtime_error with the file, the line and what to do.
  MetricsWriter(std::string path, int64_t last_step);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // The record is in the file when this returns; if the disk is full it throws and the file ends with the record before.
  void append(const MetricRecord& record);
  // Brings all records to the disk, so that they also survive a power cut: before a checkpoint that counts on them.
  void sync();

 private:
  std::string path_;
  int descriptor_ = -1;
};

// The record of a line; nothing if it is none.
std::optional<MetricRecord> parse_metrics_line(std::string_view line);

// All whole records of a file, also of one that is being written.
std::vector<MetricRecord> read_metrics(const std::string& path);

}  // namespace hinge::support
