// Metric records as lines of JSON, appended with one write() each.
#include "support/jsonl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "support/atomic_file.h"
#include "support/json.h"

namespace hinge::support {
namespace {

constexpr const char* kStep = "step";

std::string line_of(const MetricRecord& record) {
  nlohmann::ordered_json line = {{kStep, record.step}};
  for (const auto& [name, value] : record.values) std::visit([&, &name = name](const auto& held) { line[name] = held; }, value);
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

MetricRecord record_of(std::string_view line) {
  const nlohmann::ordered_json object = parse_json<nlohmann::ordered_json>(line);
  MetricRecord record;
  record.step = whole_number(object.at(kStep));
  for (const auto& [name, value] : object.items()) {
    if (name == kStep) continue;
    if (value.is_string())
      record.values.emplace_back(name, value.get<std::string>());
    else
      record.values.emplace_back(name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return record;
}

// Calls `use` with each record and its line. A last line without its end, or one that cannot be read, was torn by a crash and is left out.
template <class Use> void for_each_record(const std::string& path, std::string_view text, const Use& use) {
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return;
    const std::string_view line = text.substr(begin, end + 1 - begin);
    begin = end + 1;
    MetricRecord record;
    try {
      record = record_of(line);
    } catch (const nlohmann::json::exception& error) {
      if (begin == text.size()) return;
      throw std::runtime_error(fmt::format("{}:{}: not a record of metrics ({}); remove the line to continue", path, number, error.what()));
    }
    use(record, line);
  }
}

}  // namespace

double MetricRecord::number(const std::string& name) const {
  for (const auto& [key, value] : values)
    if (key == name && std::holds_alternative<double>(value)) return std::get<double>(value);
  return std::numeric_limits<double>::quiet_NaN();
}

MetricsWriter::MetricsWriter(std::string path, int64_t last_step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    const std::string text = read_file(path_);
    std::string kept;
    for_each_record(path_, text, [&](const MetricRecord& record, std::string_view line) {
      if (record.step <= last_step) kept += line;
    });
    if (kept != text) AtomicFile(path_).commit(kept);
  }
  descriptor_ = uninterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) throw_file_error("open", path_);
}

MetricsWriter::~MetricsWriter() { ::close(descriptor_); }

void MetricsWriter::append(const MetricRecord& record) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  try {
    write_all(descriptor_, line_of(record), path_);
  } catch (...) {
    // Half a line may be there; without it the next record begins a line of its own.
    if (end >= 0 && ::ftruncate(descriptor_, end) != 0) throw_file_error("shorten", path_);
    throw;
  }
}

void MetricsWriter::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) throw_file_error("flush", path_);
}

std::optional<MetricRecord> parse_metrics_line(std::string_view line) {
  try {
    return record_of(line);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<MetricRecord> read_metrics(const std::string& path) {
  std::vector<MetricRecord> records;
  for_each_record(path, read_file(path), [&](MetricRecord& record, std::string_view) { records.push_back(std::move(record)); });
  return records;
}

}  // namespace hinge::support
