#include "support/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "support/container_limits.h"

namespace hinge::support {
namespace {

int cores_of_affinity() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));  // more cores than a cpu_set_t has
}

}  // namespace

int usable_cores() {
  const double cores = std::ceil(container_limits().cores);
  return static_cast<int>(std::clamp<double>(cores, 1, cores_of_affinity()));
}

int default_threads() {
  if (const char* given = std::getenv("OMP_NUM_THREADS"); given != nullptr) {
    while (*given == ' ') ++given;
    int threads = 0;
    const auto [end, error] = std::from_chars(given, given + std::strlen(given), threads);
    if (error == std::errc() && threads > 0 && (*end == '\0' || *end == ',' || *end == ' ')) return threads;
  }
  return usable_cores();
}

std::vector<std::jthread> start_threads(int count, const std::function<void(int)>& work, const std::function<void()>& stop,
                                        const std::string& advice) {
  std::vector<std::jthread> threads;
  const auto fail = [&](const std::string& reason) {
    const size_t started = threads.size();
    stop();
    threads.clear();
    throw std::runtime_error(fmt::format("cannot start {} threads, only {}: {}; {}", count, started, reason, advice));
  };
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::system_error& error) {
    fail(error.code().message());
  } catch (const std::bad_alloc&) {
    fail("not enough memory");
  }
  return threads;
}

}  // namespace hinge::support
