// Serves the page of `hinge watch --web` over HTTP, by cpp-httplib.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "watch/web_app.h"

namespace hinge::watch {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;             // 0: any that is free
  bool or_another = false;  // where the port is taken, any that is free
};

// Serves until `stop` is set. `ready` is called with the port before the first request is taken. Throws std::runtime_error if the port
// cannot be had.
void serve(WebApp& app, const ServerOptions& options, const std::atomic<bool>& stop, const std::function<void(int port)>& ready);

// The same without a network, for tests and fuzzing.
class OfflineServer {
 public:
  explicit OfflineServer(WebApp& app);
  ~OfflineServer();
  OfflineServer(const OfflineServer&) = delete;
  OfflineServer& operator=(const OfflineServer&) = delete;

  std::string answer(std::string_view bytes);  // to the first request on a connection

 private:
  class Http;
  std::unique_ptr<Http> http_;
};

// A token that nobody guesses.
std::string random_token();

// Whether only this machine can reach what listens there.
bool is_loopback(const std::string& host);

}  // namespace hinge::watch
