#include "watch/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cctype>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace hinge::watch {
namespace {

constexpr int kThreads = 8;
constexpr time_t kReadSeconds = 10, kWriteSeconds = 30;

Request request_of(const httplib::Request& from) {
  Request request;
  request.method = from.method == "HEAD" ? "GET" : from.method;
  request.path = from.path;
  for (const auto& [name, value] : from.params) request.query.emplace(name, value);
  for (const auto& [name, value] : from.headers) {
    std::string small = name;
    for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers.emplace(std::move(small), value);
  }
  return request;
}

void answer(WebApp& app, const Request& request, httplib::Response& response) {
  Response made = app.respond(request);
  response.status = made.status;
  for (const auto& [name, value] : made.headers) response.set_header(name, value);
  response.set_content(std::move(made.body), made.type);
}

// What is the same with and without a network.
void set_up(httplib::Server& server, WebApp& app) {
  server.set_payload_max_length(kMostUpload);
  server.Get(".*", [&app](const httplib::Request& request, httplib::Response& response) { answer(app, request_of(request), response); });
  // httplib bounds what a request says it sends, but neither what gzip makes of it nor what comes in chunks: so its bytes are counted here.
  server.Post(".*", [&app](const httplib::Request& from, httplib::Response& response, const httplib::ContentReader& read) {
    if (from.is_multipart_form_data()) return void(response.status = 415);
    Request request = request_of(from);
    bool too_large = false;
    const bool whole = read([&](const char* bytes, size_t size) {
      too_large = size > kMostUpload - request.body.size();
      if (!too_large) request.body.append(bytes, size);
      return !too_large;
    });
    if (whole) return answer(app, request, response);
    if (too_large || response.status != 413) response.status = too_large ? 413 : 400;
  });
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    const char* text = response.status == 413   ? "too large"
                       : response.status == 404 ? "not found"
                       : response.status == 415 ? "forms are not taken"
                                                : "bad request";
    response.set_content(fmt::format(R"({{"error": "{}"}})", text), "application/json");
  });
}

// A connection whose bytes are all there from the beginning.
class Bytes : public httplib::Stream {
 public:
  explicit Bytes(std::string_view given) : given_(given) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* buffer, size_t size) override {
    const size_t got = given_.copy(buffer, size);
    given_.remove_prefix(got);
    return static_cast<ssize_t>(got);
  }
  ssize_t write(const char* bytes, size_t size) override {
    written.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return 0; }

  std::string written;

 private:
  std::string_view given_;
};

}  // namespace

class OfflineServer::Http : public httplib::Server {
 public:
  using httplib::Server::process_request;
};

OfflineServer::OfflineServer(WebApp& app) : http_(std::make_unique<Http>()) { set_up(*http_, app); }
OfflineServer::~OfflineServer() = default;

std::string OfflineServer::answer(std::string_view bytes) {
  Bytes stream(bytes);
  bool closed = false;
  http_->process_request(stream, true, closed, nullptr);
  return std::move(stream.written);
}

void serve(WebApp& app, const ServerOptions& options, const std::atomic<bool>& stop, const std::function<void(int port)>& ready) {
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // Not SO_REUSEPORT, httplib's choice: two programs would share a port without a word.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_read_timeout(kReadSeconds);
  server.set_write_timeout(kWriteSeconds);
  set_up(server, app);

  int port = options.port;
  if (port == 0 || !server.bind_to_port(options.host, port)) {
    if (port != 0 && !options.or_another)
      throw std::runtime_error(
          fmt::format("cannot listen at {} port {}: another program may have it; choose another --port", options.host, port));
    port = server.bind_to_any_port(options.host);
    if (port <= 0) throw std::runtime_error(fmt::format("cannot listen at '{}': no such address of this machine", options.host));
  }
  ready(port);
  std::jthread watcher([&](const std::stop_token& ended) {
    for (; !ended.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      if (stop && server.is_running()) return server.stop();
  });
  server.listen_after_bind();
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("the system gives no random numbers for a token");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace hinge::watch
