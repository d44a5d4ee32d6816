// What the server takes from a connection, whatever is sent there.
#include "watch/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "watched_runs.h"

namespace hinge::watch {
namespace {

class ServerTest : public WatchedRunsTest {
 protected:
  ServerTest() {
    make("runs/relu", "done", 0.93);
    watched_.emplace(path("runs"));
    app_.emplace(*watched_,
                 Services{.format_of = percent,
                          .task = [](const auto&) { return "vision"; },
                          .example_kind = [](const auto&) { return "picture"; },
                          .example = [](const auto&, const std::string& input) -> nlohmann::json {
                            return {{"bytes", input.size()}};
                          },
                          .curves = [](const auto&) { return std::vector<experiment::ReportCurve>(); },
                          .report = [](const auto&) { return "<html>"; }},
                 WebOptions());
  }
  static std::string request(const std::string& line, const std::string& headers = "", const std::string& body = "") {
    return line + " HTTP/1.1\r\nHost: localhost\r\nX-Hinge-Watch: 1\r\n" + headers + "\r\n" + body;
  }
  std::string answer(const std::string& bytes) { return OfflineServer(*app_).answer(bytes); }
  // The same over a network: all that comes until the connection is closed.
  std::string served(const std::string& bytes) {
    std::promise<int> port;
    std::atomic<bool> stop{false};
    std::thread thread([&] { serve(*app_, {}, stop, [&](int given) { port.set_value(given); }); });
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port.get_future().get()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string got;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      for (size_t sent = 0; sent < bytes.size();) {
        const ssize_t more = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += static_cast<size_t>(more);
      }
      char buffer[4096];
      for (ssize_t more = 1; (more = ::recv(socket, buffer, sizeof buffer, 0)) > 0;) got.append(buffer, static_cast<size_t>(more));
    }
    ::close(socket);
    stop = true;
    thread.join();
    return got;
  }

  std::optional<experiment::WatchedFolder> watched_;
  std::optional<WebApp> app_;
};

TEST_F(ServerTest, Answers) {
  EXPECT_TRUE(answer(request("GET /api/runs")).starts_with("HTTP/1.1 200 "));
  const std::string got = served(request("POST /api/example?run=relu", "Content-Length: 5\r\n", "12345"));
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 ")) << got;
  EXPECT_TRUE(got.ends_with("\r\n\r\n{\"bytes\":5}")) << got;
}

TEST_F(ServerTest, AHeadHasAnEnd) {
  std::string headers;
  while (headers.size() < 60'000) headers += "a: b\r\n";
  EXPECT_TRUE(answer(request("GET /api/runs", headers)).starts_with("HTTP/1.1 200 "));
  while (headers.size() < 70'000) headers += "a: b\r\n";
  EXPECT_FALSE(answer(request("GET /api/runs", headers)).starts_with("HTTP/1.1 200 "));
  EXPECT_FALSE(served(request("GET /api/runs", headers)).starts_with("HTTP/1.1 200 "));
  EXPECT_FALSE(answer("GET /" + std::string(70'000, 'a')).starts_with("HTTP/1.1 200 "));
  EXPECT_FALSE(answer(request("GET /api/runs", "a: " + std::string(70'000, 'b') + "\r\n")).starts_with("HTTP/1.1 200 "));
}

TEST_F(ServerTest, ASizeOfAChunkHasAnEnd) {
  std::string body = "5\r\n12345\r\n0\r\n\r\n";
  body.insert(0, 40 << 20, '0');
  EXPECT_FALSE(answer(request("POST /api/example?run=relu", "Transfer-Encoding: chunked\r\n", body)).starts_with("HTTP/1.1 200 "));
}

TEST_F(ServerTest, WhatIsTooLongIsAnswered) {
  const std::string got = served(request("POST /api/example?run=relu", "Content-Length: 20000000\r\n", std::string(20'000'000, 'x')));
  EXPECT_TRUE(got.starts_with("HTTP/1.1 413 ")) << got.substr(0, 100);
}

TEST_F(ServerTest, RangesMakeNoLongResponse) {
  const std::string whole = answer(request("GET /api/runs"));
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 1000; ++i) ranges += ",0-";
  EXPECT_EQ(answer(request("GET /api/runs", ranges + "\r\n")), whole);
}

// A form is refused before it is read. Any page may send one, and what is in it must not be taken for a request.
TEST_F(ServerTest, ABodyIsNeverARequest) {
  std::string form = "--x\r\n\r\n";
  for (int i = 0; i < 1000; ++i) form += request("POST /api/note?run=relu", "Content-Length: 5\r\n", "PWNED");
  const std::string got = served(
      request("POST /x", "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: " + std::to_string(form.size()) + "\r\n", form));
  EXPECT_TRUE(got.starts_with("HTTP/1.1 415 ")) << got;
  EXPECT_NE(got.find("\r\nConnection: close\r\n"), std::string::npos) << got;
  EXPECT_EQ(got.find("HTTP/1.1", 1), std::string::npos) << got;
  EXPECT_EQ(content("runs/relu/note.txt"), "");
}

}  // namespace
}  // namespace hinge::watch
