// Which process of a run this is, as launchers tell it: `hinge launch`, torchrun, or a user by hand. No torch here.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace hinge::distributed {

struct Environment {
  int rank = 0, world = 1;              // RANK, WORLD_SIZE: this process among all of the run
  int local_rank = 0, local_world = 0;  // LOCAL_RANK, LOCAL_WORLD_SIZE: among those of this machine; local_world 0: not told
  std::string master_address;           // MASTER_ADDR: of the machine of rank 0
  int master_port = 0;                  // MASTER_PORT; torchrun's agent listens there, so that rank 0 takes one of the next
  std::string token;                    // HINGE_TOKEN or TORCHELASTIC_RUN_ID: only ranks that have it belong to the run; may be empty
  std::string interface;                // GLOO_SOCKET_IFNAME; empty: that which leads to rank 0
  double timeout_seconds = 600;         // HINGE_TIMEOUT: how long a process waits for the others, at the start and in each exchange

  bool on_first_machine() const { return rank == local_rank; }
  bool on_several_machines() const { return local_world > 0 && local_world < world; }
};

using Variables = std::function<const char*(const char* name)>;  // getenv

// Nothing if this process is the only one of its run. Throws std::runtime_error with the variable that is missing or wrong.
std::optional<Environment> read_environment(const Variables& variables);
std::optional<Environment> read_environment();

}  // namespace hinge::distributed
