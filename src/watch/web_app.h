// The page of `hinge watch --web` and what it asks for: from a request to its response, without a network. server.h brings both together.
//
// What a request names is looked up among the runs and sweeps that the folder holds; no path is ever made of it. A request must carry the
// name of this machine as its host, so that a page from elsewhere cannot reach it under a name of its own (DNS rebinding), and the token if
// there is one. What changes something must come from the page itself.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiment/html_report.h"
#include "experiment/watch.h"

namespace hinge::watch {

struct Request {
  std::string method, path;
  std::multimap<std::string, std::string> query = {};
  std::map<std::string, std::string> headers = {};  // names in small letters
  std::string body = {};

  std::string header(const std::string& name) const;  // "" if there is none
  std::string parameter(const std::string& name) const;
  std::vector<std::string> parameters(const std::string& name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json", body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// What the page shows beside the folder; each may throw std::runtime_error, whose text the user gets.
struct Services {
  experiment::ScoreFormatOf format_of;
  std::function<std::string(const experiment::RunSummary& run)> task;          // its name; "" if it is none of ours
  std::function<std::string(const experiment::RunSummary& run)> example_kind;  // "picture", "sentence" or ""
  std::function<nlohmann::json(const std::string& run, const std::string& input)> example;
  std::function<std::vector<experiment::ReportCurve>(const experiment::RunSummary& run)> curves;
  std::function<std::string(std::vector<experiment::RunSummary> runs)> report;  // an HTML page
};

struct WebOptions {
  std::vector<std::string> hosts = {};  // names under which it may be asked, beside localhost and addresses in numbers
  std::string token = {};               // empty: none is needed
  std::string cookie = "hinge-watch";   // the cookie that keeps it
  std::string version = {};
};

inline constexpr size_t kMostUpload = 16 << 20;  // bytes of a picture

class WebApp {
 public:
  WebApp(experiment::WatchedFolder& folder, Services services, WebOptions options);

  // May be called by several threads at once.
  Response respond(const Request& request);

 private:
  using Handler = Response (WebApp::*)(const Request&);
  struct Route {
    const char* path;
    Handler handler;
    bool changes;  // something: by POST, from the page
  };
  static const std::vector<Route>& routes();

  bool knows_host(const std::string& host) const;
  bool has_token(const Request& request) const;
  Response answer(const Request& request);

  Response runs(const Request& request);
  Response run(const Request& request);
  Response curves(const Request& request);
  Response figure(const Request& request);
  Response report(const Request& request);
  Response example(const Request& request);
  Response note(const Request& request);
  Response archive(const Request& request);

  // Under mutex_.
  void refresh();
  const experiment::WatchedRun& require_run(const std::string& id) const;
  const experiment::WatchedSweep& require_sweep(const std::string& id) const;
  nlohmann::json run_json(const experiment::WatchedRun& run) const;

  experiment::WatchedFolder& folder_;
  const Services services_;
  const WebOptions options_;
  std::mutex mutex_;         // of the folder
  std::mutex models_mutex_;  // one model is asked at a time
  std::atomic<int> asking_{0};
  std::chrono::steady_clock::time_point looked_{};
  std::vector<std::string> differing_;                                // config keys
  uint64_t differing_since_ = 0;                                      // revision
  std::map<std::string, std::map<std::string, std::string>> values_;  // of those keys, by run
  uint64_t values_of_ = 0;                                            // the revision they are of
};

// The files of the page, built into the program: nothing if there is no such file.
struct PageFile {
  std::string_view path, type, content;
};
const PageFile* find_page_file(std::string_view path);

}  // namespace hinge::watch
