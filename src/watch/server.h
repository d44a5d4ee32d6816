// Serves the page of `hinge watch --web` over HTTP, by cpp-httplib.
#pragma once

#include <atomic>
#include <functional>
#include <string>

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

// A token that nobody guesses.
std::string random_token();

// Whether only this machine can reach what listens there.
bool is_loopback(const std::string& host);

}  // namespace hinge::watch
