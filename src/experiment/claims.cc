// A new claim gets its name by link(), which fails if there is one; one that is taken over is replaced by rename(), under a lock, by
// whoever still finds the owner there that was found to be gone.
#include "experiment/claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "support/atomic_file.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "unknown";
  ::gethostname(name, sizeof name);
  return name;
}

// When a process was started, in ticks since the machine was: tells it from a later one with the same number. Empty if there is none.
std::string start_of(int64_t process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  std::istringstream rest(line.substr(std::min(line.rfind(')') + 1, line.size())));  // the name before it may hold anything
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  return rest ? field : "";
}

// Process numbers mean the same to processes that agree in this.
std::string machine_of_processes() {
  std::error_code ignored;
  return first_line("/proc/sys/kernel/random/boot_id") + " " + fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

std::string this_owner() {
  const auto process = static_cast<int64_t>(::getpid());
  return json{{"host", host_name()}, {"machine", machine_of_processes()}, {"pid", process}, {"started", start_of(process)}}.dump() + "\n";
}

double changed_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// What a claim says; empty if it is no longer there.
std::string owner_of(const std::string& claim) {
  std::ostringstream text;
  text << std::ifstream(claim).rdbuf();
  return text.str();
}

class Lock {
 public:
  explicit Lock(const std::string& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) support::throw_file_error("open", path);
    while (::flock(descriptor_, LOCK_EX) != 0)
      if (errno != EINTR) break;
  }
  ~Lock() { ::close(descriptor_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

Claims::Claims(std::string folder, double patience) : folder_(std::move(folder)), patience_(patience), owner_(this_owner()) {
  support::make_folders(folder_);
}

Claims::~Claims() {
  for (const std::string& name : std::set<std::string>(held_)) release(name);
}

std::string Claims::path(const std::string& name) const { return folder_ + "/" + name; }

// Whether the owner's process is there; nothing if this cannot be seen from here.
std::optional<bool> Claims::is_alive(const std::string& owner) const {
  const json named = json::parse(owner, nullptr, false);
  if (!named.is_object() || named.value("machine", "") != machine_of_processes()) return std::nullopt;
  return start_of(named.value("pid", int64_t{0})) == named.value("started", "");
}

bool Claims::take_over(const std::string& claim, const std::string& owner, const std::string& fresh) const {
  const Lock lock(path(".lock"));
  return owner_of(claim) == owner && std::rename(fresh.c_str(), claim.c_str()) == 0;
}

bool Claims::take(const std::string& name) {
  if (held_.contains(name)) return true;
  const std::string claim = path(name), fresh = path(fmt::format(".new-{}-{}", host_name(), ::getpid()));
  const std::string owner = owner_of(claim);
  const std::optional<bool> alive = is_alive(owner);
  if (alive.value_or(false)) return false;
  support::AtomicFile(fresh).commit(owner_);
  bool taken = false;
  if (owner.empty()) {
    taken = ::link(fresh.c_str(), claim.c_str()) == 0;
    if (!taken && errno != EEXIST) support::throw_file_error("create", claim);
  } else {
    // By the clock of the file system: those of the machines may differ.
    const bool gone = alive ? !*alive : changed_at(fresh) - changed_at(claim) > patience_;
    taken = gone && take_over(claim, owner, fresh);
  }
  ::unlink(fresh.c_str());
  if (taken) held_.insert(name);
  return taken;
}

void Claims::release(const std::string& name) {
  if (held_.erase(name) > 0 && owner_of(path(name)) == owner_) ::unlink(path(name).c_str());
}

void Claims::keep() {
  for (const std::string& name : held_) ::utimensat(AT_FDCWD, path(name).c_str(), nullptr, 0);
}

}  // namespace hinge::experiment
