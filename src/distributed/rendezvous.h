// Where the processes of a run meet: rank 0 listens, the others come to it, and all stay connected until the run ends. It stores what they
// must know of each other to connect directly, and tells all of them when one is lost. No torch here.
//
// It is not c10d's TCPStore, because LibTorch's listens on every address of the machine, knows no token and tells nobody about a loss.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "distributed/environment.h"
#include "distributed/socket.h"

namespace hinge::distributed {

class RendezvousServer;

class Rendezvous {
 public:
  // Rank 0 opens it at MASTER_ADDR, at the first free port behind MASTER_PORT; the others look for it there. Throws Error if they do not
  // meet within the timeout, or if rank 0 refuses this process: for another token (it then goes on looking), world, version, or for a rank
  // that is there already.
  Rendezvous(const Environment& environment, const std::string& version);
  ~Rendezvous();  // without leave() before, it counts as lost
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void set(const std::string& key, const std::string& value);
  // Waits until some process has set it. Throws Error after `seconds`, PeerError if a process is lost meanwhile.
  std::string get(const std::string& key, double seconds);

  std::string own_address() const { return own_address_; }  // of this machine, on the way to rank 0
  int port() const { return port_; }

  // From here on `lost` is called, once and on another thread, when a process of the run is lost or has failed.
  void watch(std::function<void()> lost);
  // Which process was the first to be lost, and why. Waits for the news for at most `seconds`.
  std::optional<std::string> loss(double seconds);

  void fail(const std::string& reason);  // tells all others that this process ends, and why
  void leave();                          // the run is over for this process, in good order

 private:
  void meet();
  bool knock(const Address& address, int port, std::string& problem);
  void read_messages();
  void note_loss(const std::string& what);

  const Environment environment_;
  const std::string version_;
  std::unique_ptr<RendezvousServer> server_;  // of rank 0
  Socket socket_;
  std::string own_address_, first_host_;
  int port_ = 0;

  std::mutex requests_, sending_;  // one request at a time; one message at a time
  std::mutex mutex_;               // guards what follows
  std::condition_variable changed_;
  std::optional<std::string> value_;  // the answer to a request
  std::optional<std::string> loss_;
  std::function<void()> lost_;
  bool leaving_ = false, closed_ = false;

  std::jthread reader_;
};

}  // namespace hinge::distributed
