#include "watch/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace hinge::watch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kThreads = 8;
constexpr size_t kMostHead = 64 << 10;                          // bytes of a request before its body
constexpr size_t kMostBytes = kMostHead + 2 * kMostUpload;      // of a whole request; chunks come with their sizes
constexpr milliseconds kReadTime{60'000}, kWriteTime{120'000};  // for a whole request, for a part of a response
constexpr milliseconds kSilence{10'000};                        // without a byte of a request
constexpr milliseconds kLookAgain{100};                         // whether the server stops

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

// The bytes of one request, and the response. httplib keeps a head of any length, so it is bounded here.
class Connection : public httplib::Stream {
 public:
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* buffer, size_t size) final {
    if (taken_ >= kMostBytes || (in_head_ && taken_ >= kMostHead)) return -1;
    const ssize_t got = receive(buffer, in_head_ ? 1 : size);
    if (got <= 0) return got;
    taken_ += static_cast<size_t>(got);
    if (in_head_) {
      end_ = (end_ << 8 | static_cast<unsigned char>(*buffer)) & 0xFFFFFF;
      in_head_ = end_ != ('\n' << 16 | '\r' << 8 | '\n');
    }
    return got;
  }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}

 protected:
  virtual ssize_t receive(char* buffer, size_t size) = 0;  // up to `size` bytes; 0 at the end, -1 on an error

 private:
  size_t taken_ = 0;
  bool in_head_ = true;
  uint32_t end_ = 0;  // the last three bytes
};

// A connection whose bytes are all there from the beginning.
class Bytes : public Connection {
 public:
  explicit Bytes(std::string_view given) : given_(given) {}
  ssize_t receive(char* buffer, size_t size) override {
    const size_t got = given_.copy(buffer, size);
    given_.remove_prefix(got);
    return static_cast<ssize_t>(got);
  }
  ssize_t write(const char* bytes, size_t size) override {
    written.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  socket_t socket() const override { return 0; }

  std::string written;

 private:
  std::string_view given_;
};

// A connection of the network, which this closes.
class Socket : public Connection {
 public:
  Socket(socket_t socket, const std::atomic<bool>& stop) : socket_(socket), stop_(stop) {}
  // Bytes that nobody has read would break the connection before the response has arrived.
  ~Socket() override {
    ::shutdown(socket_, SHUT_WR);
    size_t unread = 0;
    for (ssize_t got = 1; got > 0 && unread < kMostBytes && wait(POLLIN, steady_clock::now() + milliseconds(1000));
         unread += static_cast<size_t>(std::max<ssize_t>(got, 0)))
      got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    ::close(socket_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  ssize_t receive(char* buffer, size_t size) override {
    if (begin_ == end_) {
      const auto now = steady_clock::now();
      if (!wait(POLLIN, std::min(now + kSilence, begun_ + kReadTime))) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      begin_ = 0, end_ = static_cast<size_t>(got);
    }
    const size_t got = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, got, buffer);
    begin_ += got;
    return static_cast<ssize_t>(got);
  }
  ssize_t write(const char* bytes, size_t size) override {
    const auto end = steady_clock::now() + kWriteTime;
    for (size_t sent = 0; sent < size;) {
      if (!wait(POLLOUT, end)) return -1;
      const ssize_t more = ::send(socket_, bytes + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (more < 0 && errno != EINTR && errno != EAGAIN) return -1;
      sent += static_cast<size_t>(std::max<ssize_t>(more, 0));
    }
    return static_cast<ssize_t>(size);
  }
  socket_t socket() const override { return socket_; }

 private:
  // Until something can be read or written; false: there was nothing in time, or the server stops.
  bool wait(short event, steady_clock::time_point end) const {
    while (!stop_) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
      if (left <= milliseconds(0)) return false;
      pollfd ready{socket_, event, 0};
      const int count = ::poll(&ready, 1, static_cast<int>(std::min(left, kLookAgain).count()));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) return false;
    }
    return false;
  }

  const socket_t socket_;
  const std::atomic<bool>& stop_;
  const steady_clock::time_point begun_ = steady_clock::now();
  std::array<char, 16 << 10> buffer_{};
  size_t begin_ = 0, end_ = 0;  // what is in the buffer and not read yet
};

// One request for each connection: of a request that is refused before its body is read, the body would be taken for the next one, and any
// page could send it.
class Server : public httplib::Server {
 public:
  Server(WebApp& app, const std::atomic<bool>& stop) : stop_(stop) { set_up(*this, app); }

  void answer(httplib::Stream& stream) {
    bool closed = false;
    // Ranges are not asked for by the page; a thousand of them make a response a thousand times as long.
    process_request(stream, /*close_connection=*/true, closed, [](httplib::Request& request) { request.ranges.clear(); });
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    Socket stream(socket, stop_);
    answer(stream);
    return true;
  }

  const std::atomic<bool>& stop_;
};

}  // namespace

class OfflineServer::Http : public Server {
 public:
  explicit Http(WebApp& app) : Server(app, stop_) {}

 private:
  const std::atomic<bool> stop_{false};
};

OfflineServer::OfflineServer(WebApp& app) : http_(std::make_unique<Http>(app)) {}
OfflineServer::~OfflineServer() = default;

std::string OfflineServer::answer(std::string_view bytes) {
  Bytes stream(bytes);
  http_->answer(stream);
  return std::move(stream.written);
}

void serve(WebApp& app, const ServerOptions& options, const std::atomic<bool>& stop, const std::function<void(int port)>& ready) {
  Server server(app, stop);
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // Not SO_REUSEPORT, httplib's choice: two programs would share a port without a word.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });

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
