// hinge watch as a user runs it: as text, in a terminal (that of tmux), and as a server that a browser would ask.
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"
#include "data/codec.h"
#include "data/image.h"
#include "small_vision.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kWatchedConfig = std::string(kSmallVision) + R"(steps = 12
[train]
threads = 1
log_steps = 1
)";

// Looks again and again for as long as a slow machine may need.
bool wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    ::usleep(20'000);
  }
  return false;
}

class WatchCommand : public testing::Test {
 protected:
  // Two trainings for all tests.
  static void SetUpTestSuite() {
    temporary_.emplace();
    folder_ = temporary_->path();
    std::ofstream(folder_ / "config.toml") << kWatchedConfig;
    for (const char* preset : {"relu-vit", "softmax"}) {
      const hinge_command::Result result = hinge_command::run(
          folder_, "train " + path("config.toml") + " --set model.attention.preset=" + preset + " --out " + path("runs/") + preset);
      ASSERT_EQ(result.code, 0) << result.err;
    }
  }
  static void TearDownTestSuite() { temporary_.reset(); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static hinge_command::Result hinge(const std::string& arguments) { return hinge_command::run(folder_, arguments); }

  static inline std::optional<hinge::support::TemporaryFolder> temporary_;
  static inline fs::path folder_;
};

TEST_F(WatchCommand, OncePrintsText) {
  hinge_command::Result result = hinge("watch --once " + path("runs"));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"relu-vit", "softmax", "done", "12/12", "images/s", "model.attention.preset"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  EXPECT_EQ(result.err, "");
  result = hinge("watch --once " + path("runs/softmax"));
  EXPECT_EQ(result.out.find("relu-vit"), std::string::npos) << result.out;
  EXPECT_EQ(hinge("watch --once --web " + path("runs")).code, 2);
  EXPECT_EQ(hinge("watch --once --port 80 " + path("runs")).code, 2);
  EXPECT_EQ(hinge("watch --once " + path("none")).code, 1);
  result = hinge("watch " + path("runs"));  // no terminal
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("--once"), std::string::npos) << result.err;
}

TEST_F(WatchCommand, ARunKeepsWhatItSaid) {
  const std::string log = hinge_command::read_file(path("runs/softmax/log"));
  EXPECT_NE(log.find("Z training from step 0 to 12, "), std::string::npos) << log;
  EXPECT_NE(log.find("Z step 12: "), std::string::npos) << log;
  EXPECT_NE(log.find("Z done at step 12\n"), std::string::npos) << log;
  const json status = json::parse(hinge_command::read_file(path("runs/softmax/status.json")));
  EXPECT_GT(status["values"]["peak_flops"].get<double>(),
            status["values"]["flops"].get<double>() / status["values"]["train_seconds"].get<double>());
}

// A file that no process before has written.
std::string fresh(const std::string& file) {
  fs::remove(file);
  return file;
}

// A started server and the address that it says.
class WatchServer {
 public:
  WatchServer(const std::string& folder, std::vector<std::string> arguments)
      : out_(fresh(folder + "/served")),
        process_(out_, folder + "/served-err", (arguments.insert(arguments.begin(), {"watch", "--web"}), arguments)) {
    const bool said = wait_until([&] { return process_.ended() || text().find("Ctrl-C") != std::string::npos; });
    if (!said || process_.ended()) return;
    const std::string said_text = text(), scheme = "http://";
    const size_t begin = said_text.find(scheme) + scheme.size(), end = said_text.find('/', begin);
    const std::string host_and_port = said_text.substr(begin, end - begin);
    port_ = std::stoi(host_and_port.substr(host_and_port.rfind(':') + 1));
    path_ = said_text.substr(end, said_text.find('\n', end) - end);
  }
  std::string text() const { return hinge_command::read_file(out_); }
  int port() const { return port_; }
  const std::string& page() const { return path_; }
  int stop() {
    process_.send(SIGINT);
    return process_.wait().code;
  }

 private:
  std::string out_;
  hinge_command::Process process_;
  int port_ = 0;
  std::string path_;
};

TEST_F(WatchCommand, ServesThePage) {
  WatchServer server(folder_.string(), {"--port", "0", path("runs")});
  ASSERT_GT(server.port(), 0) << server.text();
  EXPECT_EQ(server.page(), "/");
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(60);
  auto answer = client.Get("/");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->get_header_value("Content-Security-Policy").starts_with("default-src 'none'"));
  answer = client.Get("/api/runs");
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::parse(answer->body)["ids"], json({"relu-vit", "softmax"}));

  hinge::data::Image image;
  image.reshape(20, 30, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{90});
  const std::vector<uint8_t> png = hinge::data::encode_png(image);
  const httplib::Headers own = {{"X-Hinge-Watch", "1"}};
  const auto ask = [&](const std::string& body) { return client.Post("/api/example?run=softmax", own, body, "application/octet-stream"); };
  answer = ask({png.begin(), png.end()});
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->status, 200) << answer->body;
  const json example = json::parse(answer->body);
  EXPECT_EQ(example["classes"].size(), 4u);
  EXPECT_EQ(example["pictures"].size(), 4u);  // the image, two layers, the rollout
  EXPECT_TRUE(example["pictures"][0]["src"].get<std::string>().starts_with("data:image/png;base64,iVBOR"));
  EXPECT_EQ(ask("not a picture")->status, 422);
  EXPECT_EQ(ask(std::string(17 << 20, 'x'))->status, 413);
  EXPECT_EQ(client.Get("/../../etc/passwd")->status, 404);
  EXPECT_EQ(client.Put("/api/note", "x", "text/plain")->status, 404);
  const auto report = client.Get("/api/report?run=relu-vit&run=softmax");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->status, 200);
  EXPECT_NE(report->body.find("Attention maps"), std::string::npos);

  // Its port is taken now.
  const hinge_command::Result second = hinge("watch --web --port " + std::to_string(server.port()) + " " + path("runs"));
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find("--port"), std::string::npos) << second.err;
  EXPECT_EQ(server.stop(), 0);
}

TEST_F(WatchCommand, OtherMachinesNeedTheToken) {
  WatchServer server(folder_.string(), {"--port", "0", "--host", "0.0.0.0", path("runs")});
  ASSERT_GT(server.port(), 0) << server.text();
  ASSERT_TRUE(server.page().starts_with("/?token=")) << server.page();
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/api/runs")->status, 401);
  EXPECT_EQ(client.Get("/?token=0")->status, 401);
  const auto first = client.Get(server.page());
  ASSERT_EQ(first->status, 303);
  const std::string cookie = first->get_header_value("Set-Cookie");
  EXPECT_EQ(client.Get("/api/runs", {{"Cookie", cookie.substr(0, cookie.find(';'))}})->status, 200);
  EXPECT_EQ(server.stop(), 0);
}

// hinge in a terminal of 100 columns and 30 lines. What the shell says after it is there to see that the terminal is as before.
class TmuxWatch {
 public:
  explicit TmuxWatch(const std::string& folder, const std::string& watched)
      : socket_(fresh(folder + "/tmux-" + std::to_string(++count_))), screen_(folder + "/screen"), pid_(fresh(folder + "/pid")) {
    std::ofstream(folder + "/session") << "echo before\nsh -c 'echo $$ >" << pid_ << "; exec " << HINGE_COMMAND << " watch " << watched
                                       << "'\necho ended with $?\nstty -a | grep -o ' echo '\nread end\n";
    tmux("-f /dev/null new-session -d -x 100 -y 30 'LC_ALL=C.UTF-8 sh " + folder + "/session'");
  }
  ~TmuxWatch() { tmux("kill-server"); }
  TmuxWatch(const TmuxWatch&) = delete;
  TmuxWatch& operator=(const TmuxWatch&) = delete;

  void keys(const std::string& keys) const { tmux("send-keys " + keys); }
  void resize(int columns, int rows) const { tmux("resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows)); }
  std::string screen() const {
    tmux("capture-pane -p >" + screen_);
    return hinge_command::read_file(screen_);
  }
  testing::AssertionResult shows(const std::string& part) const {
    if (wait_until([&] { return screen().find(part) != std::string::npos; })) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "no '" << part << "' on the screen:\n" << screen();
  }
  bool hides(const std::string& part) const {
    return wait_until([&] { return screen().find(part) == std::string::npos; });
  }
  void send(int signal) const { ::kill(std::stoi(hinge_command::read_file(pid_)), signal); }

 private:
  void tmux(const std::string& arguments) const {
    if (std::system(("tmux -u -S " + socket_ + " " + arguments + " 2>/dev/null").c_str()) != 0) return;
  }
  static inline int count_ = 0;  // a server that ends still has its socket
  std::string socket_, screen_, pid_;
};

bool has_tmux() { return std::system("command -v tmux >/dev/null 2>&1") == 0; }

TEST_F(WatchCommand, InATerminal) {
  if (!has_tmux()) GTEST_SKIP() << "tmux is not installed";
  const TmuxWatch terminal(folder_.string(), path("runs"));
  EXPECT_TRUE(terminal.shows("2 runs, 2 done"));
  EXPECT_TRUE(terminal.shows("q quit"));
  EXPECT_TRUE(terminal.hides("before"));
  terminal.keys("Down Enter");
  EXPECT_TRUE(terminal.shows("last lines of output"));
  EXPECT_TRUE(terminal.shows("done at step 12"));
  EXPECT_TRUE(terminal.shows("█"));
  terminal.keys("Escape");
  EXPECT_TRUE(terminal.shows("q quit"));
  terminal.keys("s");
  EXPECT_TRUE(terminal.shows("state^"));
  terminal.keys("/ r e l u");
  EXPECT_TRUE(terminal.shows("filter: relu_"));
  EXPECT_TRUE(terminal.hides("softmax"));
  terminal.keys("Enter");
  terminal.resize(60, 12);
  EXPECT_TRUE(terminal.shows("relu-vit"));
  EXPECT_TRUE(wait_until([&] {
    const std::string screen = terminal.screen();
    return screen.find("Enter open") > screen.find("relu-vit") && std::count(screen.begin(), screen.end(), '\n') == 12;
  })) << terminal.screen();
  terminal.keys("q");
  EXPECT_TRUE(terminal.shows("ended with 0"));
  EXPECT_TRUE(terminal.shows("before"));  // the screen that was there
  EXPECT_TRUE(terminal.shows("echo"));
}

TEST_F(WatchCommand, SignalsLeaveTheTerminalAsItWas) {
  if (!has_tmux()) GTEST_SKIP() << "tmux is not installed";
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const TmuxWatch terminal(folder_.string(), path("runs"));
    EXPECT_TRUE(terminal.shows("q quit"));
    terminal.send(signal);
    EXPECT_TRUE(terminal.shows("ended with " + std::to_string(128 + signal)));
    EXPECT_TRUE(terminal.shows("before"));
    EXPECT_TRUE(terminal.shows(" echo"));
  }
}

}  // namespace
