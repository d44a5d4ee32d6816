// The run folder on POSIX calls. The order of the steps is the point: everything new is complete and on the disk before it gets its name,
// and everything old loses its name in one rename before its files go.
#include "train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "support/atomic_file.h"
#include "support/crc32c.h"
#include "support/json.h"
#include "support/safetensors.h"
#include "support/utc_time.h"

namespace hinge::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Names that begin so are unfinished or given up.
constexpr std::string_view kNew = ".new-", kReplaced = ".replaced-", kRemoved = ".removed-";
constexpr std::string_view kStepPrefix = "step-";
constexpr const char *kDescription = "checkpoint.json", *kChecksum = "crc32c";

std::string lock_path(const std::string& run) { return run + "/lock"; }
std::string checksums_path(const std::string& run) { return run + "/checksums.json"; }
std::string checkpoints_folder(const std::string& run) { return run + "/checkpoints"; }
std::string step_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

void rename_or_throw(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) support::throw_file_error("rename to", to);
}

template <class T> std::optional<T> optional_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if constexpr (std::integral<T>)
    return support::whole_number<T>(*found);
  else
    return found->template get<T>();
}

template <class T> json json_of(const std::optional<T>& value) { return value ? json(*value) : json(nullptr); }

json parse_text(std::string_view text, const std::string& path) {
  try {
    return support::parse_json(text);
  } catch (const json::exception& error) {
    throw std::runtime_error(fmt::format("'{}' is damaged: {}", path, error.what()));
  }
}

json parse_file(const std::string& path) { return parse_text(support::read_file(path), path); }

// Steps that have a folder, the latest first.
std::vector<int64_t> steps_in(const std::string& run) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_folder(run), error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with(kStepPrefix)) continue;
    std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
    if (step_name(step) == name) steps.push_back(step);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    support::throw_file_error("read the folder", checkpoints_folder(run), error.value());
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string checkpoint_folder(const std::string& run, int64_t step) { return checkpoints_folder(run) + "/" + step_name(step); }

// The checksum is that of the compact text of all other keys. Descriptions of earlier versions have none, and no keys but these.
json read_description(const std::string& path) {
  json description = parse_file(path);
  if (!description.is_object()) throw std::runtime_error(fmt::format("'{}' is damaged: it is no JSON object", path));
  const auto given = description.find(kChecksum);
  if (given == description.end()) {
    for (const auto& [key, value] : description.items())
      if (key != "step" && key != "score" && key != "files" && key != "state" && key != "saved")
        throw std::runtime_error(fmt::format("'{}' is damaged: it has the unknown key '{}'", path, key));
    return description;
  }
  const json expected = *given;
  description.erase(given);
  if (const std::string found = support::crc32c_text(description.dump()); expected != found)
    throw std::runtime_error(fmt::format("'{}' is damaged: it has the checksum {}, not {}", path, found, expected.dump()));
  return description;
}

bool holds_weights(const std::string& name) { return name == kWeights || name == kAveraged; }

// Reads and checks the checkpoint of a step: every file that was saved is there, with its size, and a safetensors file has a sound header
// and, as far as `check` asks for it, sound data.
Checkpoint read_checkpoint(const std::string& run, int64_t step, Check check) {
  Checkpoint checkpoint;
  checkpoint.folder = checkpoint_folder(run, step);
  const std::string path = checkpoint.file(kDescription);
  const json description = read_description(path);
  try {
    checkpoint.step = support::whole_number(description.at("step"));
    checkpoint.score = optional_of<double>(description, "score");
    checkpoint.state = description.at("state");
    if (checkpoint.step != step) throw std::runtime_error(fmt::format("'{}' says step {}", path, checkpoint.step));
    for (const auto& [name, size] : description.at("files").items()) {
      if (name.find('/') != std::string::npos)
        throw std::runtime_error(fmt::format("'{}' is damaged: '{}' is not a file name", path, name));
      const std::string file = checkpoint.file(name);
      std::error_code error;
      const uintmax_t found = fs::file_size(file, error);
      if (error) support::throw_file_error("read", file, error.value());
      if (found != support::whole_number<uintmax_t>(size))
        throw std::runtime_error(fmt::format("'{}' has {} bytes, not {}", file, found, size.dump()));
      const bool data = check == Check::everything || (check == Check::weights && holds_weights(name));
      if (name.ends_with(".safetensors")) support::SafetensorsFile(file, data ? support::Verify::data : support::Verify::header);
    }
  } catch (const json::exception& error) {
    throw std::runtime_error(fmt::format("'{}' is damaged: {}", path, error.what()));
  }
  return checkpoint;
}

struct FoundCheckpoints {
  std::vector<Checkpoint> usable;  // the latest first
  std::vector<std::string> skipped;
};

FoundCheckpoints all_checkpoints(const std::string& run) {
  FoundCheckpoints all;
  for (const int64_t step : steps_in(run)) try {
      all.usable.push_back(read_checkpoint(run, step, Check::headers));
    } catch (const std::runtime_error& error) {
      all.skipped.emplace_back(error.what());
    }
  return all;
}

// The checkpoint of the highest score, the earlier of equals; nullptr if none has one.
const Checkpoint* best_of(const std::vector<Checkpoint>& checkpoints) {
  const Checkpoint* best = nullptr;
  for (const Checkpoint& checkpoint : checkpoints)
    if (checkpoint.score && (best == nullptr || *checkpoint.score >= *best->score)) best = &checkpoint;
  return best;
}

// The checkpoint itself, if what `check` asks for is sound; else the reason goes to `skipped`.
std::optional<Checkpoint> checked(const std::string& run, int64_t step, Check check, std::vector<std::string>& skipped) {
  try {
    return read_checkpoint(run, step, check);
  } catch (const std::runtime_error& error) {
    skipped.emplace_back(error.what());
    return std::nullopt;
  }
}

void remove_checkpoint(const std::string& run, int64_t step) {
  const std::string checkpoints = checkpoints_folder(run) + "/", name = step_name(step);
  const std::string given_up = checkpoints + std::string(kRemoved) + name;
  rename_or_throw(checkpoints + name, given_up);
  fs::remove_all(given_up);
}

// What a crash left behind. A checkpoint that was being replaced by one of the same step gets its name back if the new one did not get it.
void clean(const std::string& run) {
  const std::string checkpoints = checkpoints_folder(run);
  std::vector<fs::path> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, error)) entries.push_back(entry.path());
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (name.starts_with(kReplaced)) {
      const std::string original = checkpoints + "/" + name.substr(kReplaced.size());
      if (!fs::exists(original)) {
        rename_or_throw(path.string(), original);
        continue;
      }
    }
    if (name.starts_with(kNew) || name.starts_with(kReplaced) || name.starts_with(kRemoved)) fs::remove_all(path);
  }
  entries.clear();
  for (const fs::directory_entry& entry : fs::directory_iterator(run)) entries.push_back(entry.path());
  for (const fs::path& path : entries)
    if (path.string().ends_with(support::kPartialSuffix)) fs::remove(path);
}

}  // namespace

void Checkpoint::throw_damaged(const std::string& problem) const {
  throw std::runtime_error(
      fmt::format("'{}' is damaged: {}; remove {} to go back to the checkpoint before it", file(kDescription), problem, folder));
}

bool is_run(const std::string& folder) { return fs::exists(config_path(folder)); }

void require_run(const std::string& folder) {
  if (is_run(folder)) return;
  const char* why = fs::exists(folder) ? "it holds no config.toml (hinge train makes runs)" : "there is no such folder";
  throw std::runtime_error(fmt::format("'{}' is not a run: {}", folder, why));
}

bool is_training(const std::string& run) {
  const int lock = support::uninterrupted([&] { return ::open(lock_path(run).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
  if (lock < 0) return false;
  const bool held = ::flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(lock);
  return held;
}

std::string config_path(const std::string& run) { return run + "/config.toml"; }
std::string metrics_path(const std::string& run) { return run + "/metrics.jsonl"; }
std::string status_path(const std::string& run) { return run + "/status.json"; }
std::string log_path(const std::string& run) { return run + "/log"; }
std::string note_path(const std::string& run) { return run + "/note.txt"; }
std::string archived_path(const std::string& run) { return run + "/archived"; }

std::optional<std::string> imported_from(const std::string& run) {
  const std::string path = run + "/" + kImported;
  return fs::exists(path) ? std::optional(support::read_file(path)) : std::nullopt;
}

RunStatus read_status(const std::string& run) {
  require_run(run);
  return parse_status(support::read_file(status_path(run)), status_path(run));
}

RunStatus parse_status(std::string_view text, const std::string& path) {
  const json object = parse_text(text, path);
  try {
    std::map<std::string, double> values;
    for (const auto& [name, value] : object.at("values").items())  // JSON has no NaN: it is null there
      values[name] = value.is_null() ? std::nan("") : value.get<double>();
    return {.state = object.at("state").get<std::string>(),
            .step = support::whole_number(object.at("step")),
            .steps = support::whole_number(object.at("steps")),
            .best = optional_of<double>(object, "best"),
            .best_step = optional_of<int64_t>(object, "best_step"),
            .message = object.at("message").get<std::string>(),
            .values = std::move(values),
            .started = object.at("started").get<std::string>(),
            .updated = object.at("updated").get<std::string>(),
            .pid = support::whole_number(object.at("pid"))};
  } catch (const json::exception& error) {
    throw std::runtime_error(fmt::format("'{}' is damaged: {}", path, error.what()));
  }
}

CheckpointSearch latest_checkpoint(const std::string& run, Check check) {
  require_run(run);
  CheckpointSearch search;
  for (const int64_t step : steps_in(run))
    if ((search.found = checked(run, step, check, search.skipped))) break;
  return search;
}

CheckpointSearch best_checkpoint(const std::string& run, Check check) {
  require_run(run);
  FoundCheckpoints all = all_checkpoints(run);
  CheckpointSearch search{.found = std::nullopt, .skipped = std::move(all.skipped)};
  while (!search.found && !all.usable.empty()) {
    const Checkpoint* best = best_of(all.usable);
    const auto chosen = all.usable.begin() + (best != nullptr ? best - all.usable.data() : 0);
    search.found = checked(run, chosen->step, check, search.skipped);
    all.usable.erase(chosen);
  }
  return search;
}

Checkpoint checkpoint_of(const std::string& run, int64_t step) {
  require_run(run);
  return read_checkpoint(run, step, Check::headers);
}

std::string read_run_file(const std::string& run, const std::string& name) {
  const std::string path = run + "/" + name;
  std::string content = support::read_file(path);
  if (!fs::exists(checksums_path(run))) return content;
  const json checksums = parse_file(checksums_path(run));
  const auto expected = checksums.find(name);
  if (expected == checksums.end()) return content;
  if (const std::string found = support::crc32c_text(content); *expected != found)
    throw std::runtime_error(
        fmt::format("'{}' is damaged: it has the checksum {}, not {}; put a copy of it there", path, found, expected->dump()));
  return content;
}

Verification verify_run(const std::string& run) {
  require_run(run);
  Verification verification;
  const auto attempt = [&](const auto& read) {
    try {
      read();
    } catch (const std::runtime_error& error) {
      verification.damaged.emplace_back(error.what());
    }
  };
  for (const int64_t step : steps_in(run)) {
    const std::string folder = checkpoint_folder(run, step), path = folder + "/" + kDescription;
    std::vector<std::string> damaged, unchecked;
    int64_t bytes = 0;
    std::swap(verification.damaged, damaged);
    attempt([&] {
      if (!parse_file(path).contains(kChecksum)) unchecked.push_back(path);
      const json description = read_description(path);
      read_checkpoint(run, step, Check::headers);
      for (const auto& [name, size] : description.at("files").items())
        attempt([&, &name = name] {
          const support::SafetensorsFile file(folder + "/" + name);
          if (!file.has_checksums() && !file.tensors().empty()) unchecked.push_back(file.path());
          bytes += static_cast<int64_t>(fs::file_size(file.path()));
        });
    });
    std::swap(verification.damaged, damaged);
    if (!fs::exists(folder)) continue;  // its run goes on, and has removed it meanwhile
    ++verification.checkpoints, verification.bytes += bytes;
    for (std::string& one : damaged) verification.damaged.push_back(std::move(one));
    for (std::string& one : unchecked) verification.unchecked.push_back(std::move(one));
  }
  if (fs::exists(checksums_path(run)))
    attempt([&] {
      const json checksums = parse_file(checksums_path(run));
      for (const auto& [name, checksum] : checksums.items())
        attempt([&, &name = name] { verification.bytes += static_cast<int64_t>(read_run_file(run, name).size()); });
    });
  return verification;
}

void keep_latest_checkpoint(const std::string& run) {
  const CheckpointSearch latest = latest_checkpoint(run);
  if (!latest.found) return;
  // A later one that could not be read may be sound.
  for (const int64_t step : steps_in(run))
    if (step < latest.found->step) remove_checkpoint(run, step);
}

ChosenWeights choose_weights(const std::string& run, Which which) {
  const CheckpointSearch search = which == Which::best ? best_checkpoint(run, Check::weights) : latest_checkpoint(run, Check::weights);
  if (!search.found && !search.skipped.empty())
    throw std::runtime_error(fmt::format("none of the checkpoints of '{}' can be used: {}", run, search.skipped.front()));
  if (!search.found) throw std::runtime_error(run + " holds no checkpoint yet");
  for (const std::string& skipped : search.skipped) fmt::print(stderr, "skipping a checkpoint: {}\n", skipped);
  ChosenWeights chosen{*search.found, which == Which::averaged, search.skipped};
  if (which == Which::averaged && !chosen.checkpoint.state.contains("averaged_score"))
    throw std::runtime_error(run + " has no averaged weights: a run makes them at its end, if train.average is at least 2");
  if (which == Which::best && chosen.checkpoint.score) {
    const CheckpointSearch last = latest_checkpoint(run, Check::weights);
    const auto score_of_mean = [](const json& state) { return optional_of<double>(state, "averaged_score"); };
    const std::optional<double> mean = last.found ? last.found->read_state(score_of_mean) : std::nullopt;
    if (mean && *mean > *chosen.checkpoint.score) chosen.checkpoint = *last.found, chosen.averaged = true;
  }
  return chosen;
}

RunFolder::RunFolder(std::string folder) : folder_(std::move(folder)), started_(support::utc_now()) {
  const std::string path = lock_path(folder_);
  lock_ = support::uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (lock_ < 0) support::throw_file_error("create", path);
  // Those who only look hold the lock for a moment; a process that trains holds it all the time.
  int taken = -1;
  for (int attempt = 0; attempt < 20 && taken != 0; ++attempt) {
    taken = ::flock(lock_, LOCK_EX | LOCK_NB);
    if (taken != 0 && errno == EWOULDBLOCK) ::usleep(10'000);
  }
  if (taken == 0) return;
  const int reason = errno;
  ::close(lock_);
  if (reason != EWOULDBLOCK) support::throw_file_error("lock", path, reason);
  throw std::runtime_error(fmt::format("another process is training into '{}': wait for it or stop it, or choose another folder", folder_));
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : folder_(std::move(other.folder_)), started_(std::move(other.started_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void require_new_run(const std::string& folder) {
  if (is_run(folder))
    throw std::runtime_error(
        fmt::format("'{0}' already holds a run: continue it with 'hinge train --resume {0}', or choose another folder", folder));
  fs::path above = fs::absolute(folder);
  while (!fs::exists(above) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above)) support::throw_file_error("make the folder", folder, ENOTDIR);
  if (::access(above.c_str(), W_OK | X_OK) != 0) support::throw_file_error("make the folder", folder);
}

RunFolder RunFolder::create(const std::string& folder, std::string_view config, const std::map<std::string, std::string>& files) {
  require_new_run(folder);
  support::make_folders(checkpoints_folder(folder));
  RunFolder run(folder);
  require_new_run(folder);  // between the look and the lock another process may have made it
  run.write_status({});
  json checksums = json::object();
  for (const auto& [name, content] : files) {
    support::AtomicFile(fmt::format("{}/{}", folder, name)).commit(content);
    checksums[name] = support::crc32c_text(content);
  }
  if (!files.empty()) support::AtomicFile(checksums_path(folder)).commit(checksums.dump(2) + "\n");
  run.write_config(config);  // last: from here on it is a run
  return run;
}

RunFolder RunFolder::open(const std::string& folder) {
  require_run(folder);
  RunFolder run(folder);
  support::make_folders(checkpoints_folder(folder));
  clean(folder);
  if (fs::exists(status_path(folder))) try {
      run.started_ = read_status(folder).started;
    } catch (const std::runtime_error&) {
      // A damaged status is no reason not to go on: the next write_status replaces it.
    }
  return run;
}

void RunFolder::write_status(RunStatus status) {
  const json object = {{"state", status.state},         {"step", status.step},
                       {"steps", status.steps},         {"best", json_of(status.best)},
                       {"message", status.message},     {"best_step", json_of(status.best_step)},
                       {"values", status.values},       {"started", started_},
                       {"updated", support::utc_now()}, {"pid", static_cast<int64_t>(::getpid())}};
  support::AtomicFile(status_path(folder_)).commit(object.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void RunFolder::log(std::string_view text) const noexcept {
  try {
    std::string line = fmt::format("{} {}\n", support::utc_now(), text);
    std::replace(line.begin(), line.end() - 1, '\n', ' ');
    const int file = ::open(log_path(folder_).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
    ::close(file);
  } catch (const std::exception&) {
  }
}

void RunFolder::write_config(std::string_view config) { support::AtomicFile(config_path(folder_)).commit(config); }

void RunFolder::save_checkpoint(const CheckpointContent& content, int64_t keep) {
  const std::string checkpoints = checkpoints_folder(folder_), name = step_name(content.step), target = checkpoints + "/" + name;
  const std::string fresh = checkpoints + "/" + std::string(kNew) + name;
  fs::remove_all(fresh);
  if (::mkdir(fresh.c_str(), 0777) != 0) support::throw_file_error("make the folder", fresh);
  try {
    json files = json::object();
    for (const CheckpointFile& file : content.files) {
      const std::string path = fresh + "/" + file.name;
      file.write(path);
      support::sync_file(path);
      files[file.name] = fs::file_size(path);
    }
    json description = {
        {"step", content.step}, {"score", nullptr}, {"files", files}, {"state", content.state}, {"saved", support::utc_now()}};
    if (content.score && std::isfinite(*content.score)) description["score"] = *content.score;
    description[kChecksum] = support::crc32c_text(description.dump());
    support::AtomicFile(fresh + "/" + kDescription).commit(description.dump(2) + "\n");  // flushes the folder as well
    const std::string old = checkpoints + "/" + std::string(kReplaced) + name;
    const bool replaces = fs::exists(target);
    if (replaces) {
      fs::remove_all(old);
      rename_or_throw(target, old);
    }
    if (std::rename(fresh.c_str(), target.c_str()) != 0) {
      const int reason = errno;
      if (replaces) rename_or_throw(old, target);
      support::throw_file_error("rename to", target, reason);
    }
    support::sync_folder(checkpoints);
    if (replaces) fs::remove_all(old);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    throw;
  }
  remove_old(keep, content.needed);
}

void RunFolder::remove_old(int64_t keep, const std::vector<int64_t>& needed) {
  const FoundCheckpoints all = all_checkpoints(folder_);
  const Checkpoint* best = best_of(all.usable);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(1, keep)); i < all.usable.size(); ++i) {
    if (&all.usable[i] == best || std::find(needed.begin(), needed.end(), all.usable[i].step) != needed.end()) continue;
    remove_checkpoint(folder_, all.usable[i].step);
  }
}

}  // namespace hinge::train
