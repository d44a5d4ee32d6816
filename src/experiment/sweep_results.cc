// Results as lines of JSON. A change of the file is a new file in its place, made under a lock on the file itself.
#include "experiment/sweep_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "support/atomic_file.h"
#include "support/json.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// JSON has no word for what is not finite, and stores it as null.
double number(const Json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

PointResult result_of(std::string_view line) {
  const Json object = support::parse_json<Json>(line);
  PointResult result;
  for (const auto& [axis, value] : object.at("point").items()) result.point.emplace_back(axis, AxisValue(value));
  result.config = object.at("config").get<std::string>();
  result.state = object.at("state").get<std::string>();
  result.message = object.at("message").get<std::string>();
  result.steps = support::whole_number(object.at("steps"));
  result.parameters = support::whole_number(object.at("parameters"));
  result.flops = number(object.at("flops")), result.seconds = number(object.at("seconds"));
  result.core_hours = number(object.at("core_hours"));
  for (const auto& [name, curve] : object.at("scores").items()) {
    auto& points = result.scores[name];
    for (const Json& entry : curve) points.emplace_back(support::whole_number(entry.at(0)), number(entry.at(1)));
  }
  for (const auto& [name, value] : object.at("measures").items()) result.measures[name] = number(value);
  result.version = object.at("version").get<std::string>(), result.machine = object.at("machine").get<std::string>();
  result.finished = object.at("finished").get<std::string>();
  return result;
}

// Whether `left` and `right` are of one point and, if both are finished, of one config. A failed one gives way to every other.
bool alike(const PointResult& left, const PointResult& right) {
  return same_point(left.point, right.point) && (left.config == right.config || !left.is_finished() || !right.is_finished());
}

std::vector<PointResult> parse(const std::string& file, std::string_view text) {
  std::vector<PointResult> results;
  size_t line_number = 1;
  for (size_t begin = 0; begin < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    PointResult result;
    try {
      result = result_of(line);
    } catch (const nlohmann::json::exception& error) {
      if (begin > text.size()) break;  // without its end: torn
      throw std::runtime_error(
          fmt::format("{}:{}: not a result of a sweep ({}); remove the line to measure its point again", file, line_number, error.what()));
    }
    const auto same = std::find_if(results.begin(), results.end(), [&](const PointResult& other) { return alike(other, result); });
    if (same == results.end())
      results.push_back(std::move(result));
    else if (!same->is_finished())
      *same = std::move(result);
  }
  return results;
}

// Holds the lock of a file that is replaced by renaming: a lock on a file that has lost its name meanwhile is worth nothing.
class FileLock {
 public:
  explicit FileLock(const std::string& file) {
    for (;;) {
      descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (descriptor_ < 0) support::throw_file_error("open", file);
      while (::flock(descriptor_, LOCK_EX) != 0)
        if (errno != EINTR) {
          const int reason = errno;
          ::close(descriptor_);
          support::throw_file_error("lock", file, reason);
        }
      struct stat held {
      }, named{};
      if (::fstat(descriptor_, &held) == 0 && ::stat(file.c_str(), &named) == 0 && held.st_ino == named.st_ino) return;
      ::close(descriptor_);
    }
  }
  ~FileLock() { ::close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace

std::vector<PointResult> read_all_results(const std::string& file) {
  return fs::exists(file) ? parse(file, support::read_file(file)) : std::vector<PointResult>();
}

std::vector<PointResult> read_results(const std::string& file) {
  std::vector<PointResult> results = read_all_results(file);
  for (size_t i = 0; i < results.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (same_point(results[i].point, results[j].point))
        throw std::runtime_error(
            fmt::format("{}: the point {} was measured with two configs, {} and {}; hinge sweep --drop-stale removes those that are no "
                        "longer the sweep's",
                        file, point_text(results[i].point), results[j].config, results[i].config));
  return results;
}

std::string result_line(const PointResult& result) {
  Json point = Json::object(), scores = Json::object(), measures = Json::object();
  for (const auto& [axis, value] : result.point) point[axis] = value;
  for (const auto& [name, curve] : result.scores) scores[name] = curve;
  for (const auto& [name, value] : result.measures) measures[name] = value;
  const Json object = {{"point", point},
                       {"config", result.config},
                       {"state", result.state},
                       {"message", result.message},
                       {"steps", result.steps},
                       {"parameters", result.parameters},
                       {"flops", result.flops},
                       {"seconds", result.seconds},
                       {"core_hours", result.core_hours},
                       {"scores", scores},
                       {"measures", measures},
                       {"version", result.version},
                       {"machine", result.machine},
                       {"finished", result.finished}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void change_results(const std::string& file, const std::function<void(std::vector<PointResult>& results)>& change) {
  if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) support::make_folders(folder.string());
  const FileLock lock(file);
  const std::string before = support::read_file(file);
  std::vector<PointResult> results = parse(file, before);
  change(results);
  std::string text;
  for (const PointResult& result : results) text += result_line(result) + "\n";
  if (text != before) support::AtomicFile(file).commit(text);
}

}  // namespace hinge::experiment
