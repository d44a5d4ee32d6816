// Ranks of a run as threads of a test.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/environment.h"

namespace hinge::distributed {

// A port of the loopback address that is held as long as this lives, as torchrun's agent holds MASTER_PORT.
class HeldPort {
 public:
  HeldPort() {
    sockaddr_in address = {};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The next 16 must be port numbers, too.
    do {
      if (descriptor_ >= 0) ::close(descriptor_);
      descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      address.sin_port = 0;
      socklen_t size = sizeof address;
      ::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address);
      ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
    } while (ntohs(address.sin_port) > 65000);
    ::listen(descriptor_, 16);
    number_ = ntohs(address.sin_port);
  }
  ~HeldPort() { ::close(descriptor_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int number() const { return number_; }

 private:
  int descriptor_ = -1, number_ = 0;
};

inline Environment environment_of(int rank, int world, const HeldPort& port) {
  Environment environment;
  environment.rank = environment.local_rank = rank, environment.world = environment.local_world = world;
  environment.master_address = "127.0.0.1", environment.master_port = port.number();
  environment.token = "the token", environment.timeout_seconds = 60;
  return environment;
}

// Calls body(rank) on a thread for each; returns what each has thrown, "" for nothing.
inline std::vector<std::string> run_ranks(int world, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  threads.clear();
  return errors;
}

}  // namespace hinge::distributed
