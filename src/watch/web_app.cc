#include "watch/web_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "experiment/svg_plot.h"
#include "experiment/sweep_figures.h"
#include "experiment/sweep_report.h"
#include "experiment/watch_text.h"
#include "support/utf8.h"

namespace hinge::watch {
namespace {

using experiment::WatchedRun;
using experiment::WatchedSweep;
using nlohmann::json;

constexpr size_t kMostNote = 64 << 10, kMostSentence = 4 << 10;
constexpr size_t kMostRuns = 64, kMostPoints = 2000, kPoints = 600, kLogLines = 200;
constexpr int kMostAsking = 4;  // requests that wait for a model
constexpr std::chrono::milliseconds kLookAgain{400};
constexpr const char *kHtml = "text/html; charset=utf-8", *kSvg = "image/svg+xml";

// Nothing is loaded from elsewhere, nothing inside the page is run but its own script, and no other page can hold it in a frame.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";
// A report is one file with its style inside.
constexpr const char* kReportPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";

// What the asker did wrong.
struct RequestFailure : std::runtime_error {
  RequestFailure(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

std::string dump(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

Response json_response(const json& object) { return {.body = dump(object)}; }

Response failure(int status, const std::string& text) { return {.status = status, .body = dump({{"error", text}})}; }

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Of "name:8080", "[::1]:8080": the name.
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return lower(host.substr(0, host.find(':')));
}

bool is_address(const std::string& name) {
  if (name.starts_with('[')) return name.ends_with(']');
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string::npos;
}

// Takes as long wherever they differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string cookie_of(const std::string& cookies, const std::string& name) {
  for (size_t begin = 0; begin < cookies.size();) {
    const size_t end = std::min(cookies.find(';', begin), cookies.size());
    std::string_view pair = std::string_view(cookies).substr(begin, end - begin);
    begin = end + 1;
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) return std::string(pair.substr(name.size() + 1));
  }
  return "";
}

uint64_t whole(const std::string& text, uint64_t otherwise) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

json points_json(const experiment::CurvePoints& points) {
  json list = json::array();
  for (const auto& [step, value] : points) {
    // Six digits are more than can be drawn.
    const double digits = value == 0 ? 1 : std::pow(10, std::min(300.0, 5 - std::floor(std::log10(std::abs(value)))));
    list.push_back({step, std::round(value * digits) / digits});
  }
  return list;
}

void require_utf8(const std::string& text) {
  if (support::find_invalid_utf8(text)) throw RequestFailure(400, "the text is not UTF-8");
}

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) {
    if (++count_ > kMostAsking) {
      --count_;
      throw RequestFailure(503, "the models are busy with other requests: try again");
    }
  }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

std::string Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string Request::parameter(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::vector<std::string> Request::parameters(const std::string& name) const {
  std::vector<std::string> values;
  const auto [begin, end] = query.equal_range(name);
  for (auto entry = begin; entry != end; ++entry) values.push_back(entry->second);
  return values;
}

WebApp::WebApp(experiment::WatchedFolder& folder, Services services, WebOptions options)
    : folder_(folder), services_(std::move(services)), options_(std::move(options)) {}

const std::vector<WebApp::Route>& WebApp::routes() {
  static const std::vector<Route> kRoutes = {{"/api/runs", &WebApp::runs, false},     {"/api/run", &WebApp::run, false},
                                             {"/api/curves", &WebApp::curves, false}, {"/api/figure", &WebApp::figure, false},
                                             {"/api/report", &WebApp::report, false}, {"/api/example", &WebApp::example, true},
                                             {"/api/note", &WebApp::note, true},      {"/api/archive", &WebApp::archive, true}};
  return kRoutes;
}

bool WebApp::knows_host(const std::string& host) const {
  const std::string name = host_name(host);
  return name == "localhost" || is_address(name) || std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end();
}

bool WebApp::has_token(const Request& request) const {
  if (options_.token.empty()) return true;
  const std::string bearer = request.header("authorization");
  return same_secret(cookie_of(request.header("cookie"), options_.cookie), options_.token) ||
         same_secret(bearer, "Bearer " + options_.token);
}

Response WebApp::respond(const Request& request) {
  Response response;
  try {
    response = answer(request);
  } catch (const RequestFailure& error) {
    response = failure(error.status, error.what());
  } catch (const std::bad_alloc&) {
    response = failure(500, "not enough memory");
  } catch (const std::exception& error) {
    response = failure(422, error.what());
  }
  const bool has_policy = std::any_of(response.headers.begin(), response.headers.end(),
                                      [](const auto& header) { return header.first == "Content-Security-Policy"; });
  if (!has_policy) response.headers.emplace_back("Content-Security-Policy", kContentSecurityPolicy);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"X-Content-Type-Options", "nosniff"},
                                                                  {"Referrer-Policy", "no-referrer"},
                                                                  {"Cross-Origin-Resource-Policy", "same-origin"},
                                                                  {"Cross-Origin-Opener-Policy", "same-origin"},
                                                                  {"Cache-Control", "no-store"}})
    response.headers.emplace_back(name, value);
  return response;
}

Response WebApp::answer(const Request& request) {
  if (!knows_host(request.header("host")))
    return failure(403, "this host name is not known here: use localhost or an address in numbers, or start hinge watch with --host");
  const bool page = request.path == "/";
  if (page && !options_.token.empty() && same_secret(request.parameter("token"), options_.token))
    return {.status = 303,
            .headers = {{"Location", "/"},
                        {"Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", options_.cookie, options_.token)}}};
  if (!has_token(request)) return failure(401, "open the address that hinge watch has printed: it carries the token");
  // A page from elsewhere may lead to ours, and do nothing else.
  const std::string site = request.header("sec-fetch-site");
  if (!page && !site.empty() && site != "same-origin" && site != "none") return failure(403, "this is for the page of hinge watch alone");

  if (const PageFile* file = find_page_file(page ? "/index.html" : request.path)) {
    if (request.method != "GET") return failure(405, "the page can only be read");
    return {.type = std::string(file->type), .body = std::string(file->content)};
  }
  for (const Route& route : routes()) {
    if (request.path != route.path) continue;
    if (request.method != (route.changes ? "POST" : "GET"))
      return failure(405, fmt::format("{} takes {}", route.path, route.changes ? "POST" : "GET"));
    if (route.changes) {
      const std::string origin = request.header("origin");
      const bool own = origin.empty() || origin == "http://" + request.header("host");
      if (!own || request.header("x-hinge-watch").empty()) return failure(403, "this is for the page of hinge watch alone");
    }
    return (this->*route.handler)(request);
  }
  return failure(404, "there is no such page");
}

// ---- the folder

void WebApp::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (looked_ != std::chrono::steady_clock::time_point() && now - looked_ < kLookAgain) return;
  folder_.refresh();
  looked_ = std::chrono::steady_clock::now();
  if (values_of_ == folder_.revision()) return;
  values_of_ = folder_.revision();
  std::vector<const WatchedRun*> runs;
  for (const WatchedRun& run : folder_.runs()) runs.push_back(&run);
  std::vector<std::string> keys;
  std::map<std::string, std::map<std::string, std::string>> values;
  for (const support::ConfigDifference& difference : experiment::watched_differences(runs)) {
    keys.push_back(difference.key);
    for (size_t i = 0; i < runs.size(); ++i)
      if (!difference.values[i].empty()) values[runs[i]->id][difference.key] = experiment::unquoted(difference.values[i]);
  }
  values_ = std::move(values);
  if (keys != differing_ || differing_since_ == 0) differing_ = std::move(keys), differing_since_ = folder_.revision();
}

const WatchedRun& WebApp::require_run(const std::string& id) const {
  if (const WatchedRun* run = folder_.find(id)) return *run;
  throw RequestFailure(404, "there is no such run");
}

const WatchedSweep& WebApp::require_sweep(const std::string& id) const {
  const WatchedSweep* sweep = folder_.find_sweep(id);
  if (sweep == nullptr) throw RequestFailure(404, "there is no such sweep");
  if (!sweep->data) throw std::runtime_error(sweep->problem);
  return *sweep;
}

json WebApp::run_json(const WatchedRun& run) const {
  const experiment::ScoreFormat& format = services_.format_of(run.summary);
  double score = experiment::kUnknown;
  for (const auto& column : format.columns)
    if (const auto value = run.summary.status.values.find(column.value); std::isnan(score) && value != run.summary.status.values.end())
      score = value->second;
  const auto values = values_.find(run.id);
  return {{"id", run.id},
          {"group", run.group},
          {"name", run.summary.name},
          {"task", services_.task(run.summary)},
          {"example", services_.example_kind(run.summary)},
          {"state", run.state()},
          {"live", run.is_live()},
          {"step", run.step},
          {"steps", run.steps()},
          {"left", run.seconds_left},
          {"leftText", experiment::time_left_text(run)},
          {"score", score},
          {"scoreText", experiment::score_text(run, format)},
          {"best", run.summary.status.best ? json(*run.summary.status.best) : json()},
          {"bestText", experiment::best_text(run, format)},
          {"speed", run.items_per_second},
          {"speedText", experiment::speed_text(run)},
          {"peak", run.peak_share},
          {"peakText", experiment::peak_share_text(run)},
          {"loss", run.loss},
          {"losses", points_json(run.losses)},
          {"note", run.note},
          {"archived", run.archived},
          {"updated", run.updated},
          {"values", values == values_.end() ? json::object() : json(values->second)},
          {"revision", run.revision}};
}

// With since=REVISION only what has changed after it; `ids` are always all.
Response WebApp::runs(const Request& request) {
  const std::lock_guard lock(mutex_);
  refresh();
  uint64_t since = whole(request.parameter("since"), 0);
  if (since > folder_.revision() || since < differing_since_) since = 0;
  json ids = json::array(), runs = json::array(), sweeps = json::array();
  for (const WatchedRun& run : folder_.runs()) {
    ids.push_back(run.id);
    if (run.revision > since) runs.push_back(run_json(run));
  }
  for (const WatchedSweep& sweep : folder_.sweeps()) {
    json figures = json::array();
    if (sweep.data)
      for (const experiment::FigureConfig& figure : sweep.data->sweep.figures)
        figures.push_back({{"name", figure.name}, {"title", figure.title.empty() ? sweep.title : figure.title}});
    sweeps.push_back({{"id", sweep.id},
                      {"title", sweep.title},
                      {"state", sweep.state},
                      {"problem", sweep.problem},
                      {"figures", figures},
                      {"revision", sweep.revision}});
  }
  return json_response({{"folder", folder_.folder()},
                        {"version", options_.version},
                        {"revision", folder_.revision()},
                        {"all", since == 0},
                        {"keys", differing_},
                        {"ids", ids},
                        {"runs", runs},
                        {"sweeps", sweeps}});
}

Response WebApp::run(const Request& request) {
  const std::lock_guard lock(mutex_);
  refresh();
  const WatchedRun& run = require_run(request.parameter("run"));
  const train::RunStatus& status = run.summary.status;
  json config = json::array(), curves = json::array();
  for (const auto& [key, value] : run.summary.config) config.push_back({key, experiment::unquoted(value)});
  const std::vector<std::string> metrics = folder_.metrics(run);
  for (const experiment::ReportCurve& curve : services_.curves(run.summary))
    if (std::find(metrics.begin(), metrics.end(), curve.metric) != metrics.end())
      curves.push_back({{"metric", curve.metric}, {"title", curve.title}, {"unit", curve.y_label}});
  json object = run_json(run);
  object.update({{"folder", std::filesystem::absolute(run.summary.folder).lexically_normal().string()},
                 {"message", status.message},
                 {"problems", run.summary.problems},
                 {"started", status.started},
                 {"pid", status.pid},
                 {"resume", experiment::resume_command(run)},
                 {"log", folder_.log(run, kLogLines)},
                 {"config", config},
                 {"metrics", metrics},
                 {"curves", curves},
                 {"numbers", status.values}});
  return json_response(object);
}

Response WebApp::curves(const Request& request) {
  const std::string metric = request.parameter("metric");
  const std::vector<std::string> ids = request.parameters("run");
  if (ids.size() > kMostRuns) return failure(400, fmt::format("at most {} runs can be drawn at once", kMostRuns));
  const size_t most = std::clamp<size_t>(whole(request.parameter("points"), kPoints), 2, kMostPoints);
  const std::lock_guard lock(mutex_);
  refresh();
  json curves = json::array();
  for (const std::string& id : ids)
    if (const WatchedRun* run = folder_.find(id))
      curves.push_back({{"run", id}, {"points", points_json(folder_.curve(*run, metric, most))}});
  return json_response({{"metric", metric}, {"curves", curves}});
}

Response WebApp::figure(const Request& request) {
  const std::lock_guard lock(mutex_);
  refresh();
  const experiment::SweepData& data = *require_sweep(request.parameter("sweep")).data;
  const std::string name = request.parameter("name");
  for (const experiment::FigureConfig& figure : data.sweep.figures) {
    if (figure.name != name) continue;
    const experiment::LineChart chart = experiment::draw(data, figure);
    if (!experiment::has_points(chart)) return failure(404, "there is nothing to draw yet");
    return {.type = kSvg, .body = render(chart)};
  }
  return failure(404, "there is no such figure");
}

// ---- what takes longer

Response WebApp::report(const Request& request) {
  Response response{
      .type = kHtml,
      .headers = {{"Content-Disposition", "attachment; filename=\"report.html\""}, {"Content-Security-Policy", kReportPolicy}}};
  std::vector<experiment::RunSummary> runs;
  {
    const std::lock_guard lock(mutex_);
    refresh();
    if (const std::string sweep = request.parameter("sweep"); !sweep.empty()) {
      response.body = experiment::render_html(*require_sweep(sweep).data);
      return response;
    }
    for (const std::string& id : request.parameters("run")) {
      const WatchedRun& run = require_run(id);
      folder_.require_plain_files(run);
      runs.push_back(run.summary);
    }
  }
  if (runs.empty() || runs.size() > kMostRuns) return failure(400, fmt::format("choose 1 to {} runs", kMostRuns));
  const Counted counted(asking_);
  const std::lock_guard lock(models_mutex_);
  for (experiment::RunSummary& run : runs) run = experiment::read_run(run.folder);
  response.body = services_.report(std::move(runs));
  return response;
}

Response WebApp::example(const Request& request) {
  std::string folder, kind;
  {
    const std::lock_guard lock(mutex_);
    refresh();
    const WatchedRun& run = require_run(request.parameter("run"));
    folder_.require_plain_files(run);
    folder = run.summary.folder, kind = services_.example_kind(run.summary);
  }
  if (kind.empty()) return failure(422, "runs of this task have no examples");
  if (request.body.empty()) return failure(400, fmt::format("give a {}", kind));
  if (request.body.size() > (kind == "picture" ? kMostUpload : kMostSentence)) return failure(413, fmt::format("the {} is too long", kind));
  const Counted counted(asking_);
  const std::lock_guard lock(models_mutex_);
  return json_response(services_.example(folder, request.body));
}

Response WebApp::note(const Request& request) {
  if (request.body.size() > kMostNote) return failure(413, "the note is too long");
  require_utf8(request.body);
  const std::lock_guard lock(mutex_);
  refresh();
  folder_.write_note(require_run(request.parameter("run")), request.body);
  looked_ = {};
  return json_response(json::object());
}

Response WebApp::archive(const Request& request) {
  const std::string archived = request.parameter("archived");
  if (archived != "0" && archived != "1") return failure(400, "archived is 0 or 1");
  const std::lock_guard lock(mutex_);
  refresh();
  folder_.archive(require_run(request.parameter("run")), archived == "1");
  looked_ = {};
  return json_response(json::object());
}

}  // namespace hinge::watch
