#include "distributed/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "support/require.h"

namespace hinge::distributed {
namespace {

using support::require;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  std::string text(const char* name) const {
    const char* value = variables_(name);
    return value == nullptr ? "" : value;
  }

  // Of a variable that is there; `least` to `most` is allowed.
  int number(const char* name, int least, int most) const {
    const std::string given = text(name);
    int value = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    require(!given.empty() && error == std::errc() && end == given.data() + given.size() && value >= least && value <= most,
            fmt::format("the environment variable {} must be a number from {} to {}, got '{}'", name, least, most, given));
    return value;
  }
  int number_or(const char* name, int least, int most, int otherwise) const {
    return text(name).empty() ? otherwise : number(name, least, most);
  }

 private:
  const Variables& variables_;
};

}  // namespace

std::optional<Environment> read_environment(const Variables& variables) {
  const Reader read(variables);
  constexpr int kMost = 65536;
  if (read.text("WORLD_SIZE").empty()) {
    require(read.text("RANK").empty(),
            "the environment variable RANK is set, but WORLD_SIZE, the number of processes of the run, is not: set both or none");
    return {};
  }
  Environment environment;
  environment.world = read.number("WORLD_SIZE", 1, kMost);
  if (environment.world == 1) return {};
  for (const char* name : {"RANK", "MASTER_ADDR", "MASTER_PORT"})
    require(!read.text(name).empty(),
            fmt::format("the environment variable WORLD_SIZE is {}, but {} is not set: start the processes by hinge launch or torchrun",
                        environment.world, name));
  environment.rank = read.number("RANK", 0, environment.world - 1);
  environment.local_rank = read.number_or("LOCAL_RANK", 0, environment.rank, environment.rank);
  environment.local_world = read.number_or("LOCAL_WORLD_SIZE", 1, environment.world, 0);
  environment.master_address = read.text("MASTER_ADDR");
  environment.master_port = read.number("MASTER_PORT", 1, 65535);
  environment.token = read.text("HINGE_TOKEN");
  if (environment.token.empty()) environment.token = read.text("TORCHELASTIC_RUN_ID");
  environment.interface = read.text("GLOO_SOCKET_IFNAME");
  environment.timeout_seconds = read.number_or("HINGE_TIMEOUT", 1, 1000000, 600);
  return environment;
}

std::optional<Environment> read_environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace hinge::distributed
