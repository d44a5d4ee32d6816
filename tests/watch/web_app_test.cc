// What the page may ask for, what it gets, and who gets nothing. No network.
#include "watch/web_app.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "watched_runs.h"

namespace hinge::watch {
namespace {

using nlohmann::json;

class WebAppTest : public WatchedRunsTest {
 protected:
  WebAppTest() {
    make("runs/relu", "stopped", 0.93);
    make("runs/softmax", "done", 0.91, "softmax");
    make("secret", "done", 0.5);
    watched_.emplace(path("runs"));
  }

  WebApp& app(const WebOptions& options = {}) {
    app_.emplace(*watched_,
                 Services{.format_of = percent,
                          .task = [](const auto&) { return "vision"; },
                          .example_kind = [](const auto& run) { return run.name == "relu" ? "picture" : ""; },
                          .example = [](const std::string& run, const std::string& input) -> json {
                            if (input == "bad") throw std::runtime_error("the picture is neither JPEG nor PNG");
                            return {{"run", run}, {"bytes", input.size()}};
                          },
                          .curves =
                              [](const auto&) {
                                return std::vector<experiment::ReportCurve>{{"train/loss", "Loss", "nats"}};
                              },
                          .report =
                              [](const std::vector<experiment::RunSummary>& runs) {
                                std::string names = "<html>";
                                for (const auto& run : runs) names += run.name + std::to_string(run.metrics.size());
                                return names;
                              }},
                 options);
    return *app_;
  }

  static Request get(const std::string& path, std::multimap<std::string, std::string> query = {}) {
    return {"GET", path, std::move(query), {{"host", "localhost:8642"}}, ""};
  }
  static Request post(const std::string& path, std::multimap<std::string, std::string> query, const std::string& body = "") {
    return {
        "POST", path, std::move(query), {{"host", "localhost:8642"}, {"origin", "http://localhost:8642"}, {"x-hinge-watch", "1"}}, body};
  }
  static std::string header(const Response& response, const std::string& name) {
    for (const auto& [key, value] : response.headers)
      if (key == name) return value;
    return "";
  }

  std::optional<experiment::WatchedFolder> watched_;
  std::optional<WebApp> app_;
};

TEST_F(WebAppTest, ThePageIsItsOwn) {
  const Response page = app().respond(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("</html>"), std::string::npos);
  const std::string policy = header(page, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'"));
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(header(page, "X-Content-Type-Options"), "nosniff");
  for (const char* file : {"/watch.css", "/icon.svg"}) EXPECT_EQ(app().respond(get(file)).status, 200) << file;
  // Its script, and all that this imports.
  std::vector<std::string> scripts = {"/watch.js"};
  for (size_t i = 0; i < scripts.size(); ++i) {
    const std::string script = scripts[i], body = app().respond(get(script)).body, from = " from './";
    ASSERT_FALSE(body.empty()) << script;
    for (size_t at = body.find(from); at != std::string::npos; at = body.find(from, at + 1)) {
      const size_t begin = at + from.size() - 1;
      const std::string imported = body.substr(begin, body.find('\'', begin) - begin);
      EXPECT_EQ(app().respond(get(imported)).status, 200) << imported << " for " << script;
      if (std::find(scripts.begin(), scripts.end(), imported) == scripts.end()) scripts.push_back(imported);
    }
  }
  EXPECT_GT(scripts.size(), 5u);
  // It names no other server.
  scripts.insert(scripts.end(), {"/", "/watch.css"});
  for (const std::string& file : scripts) {
    const std::string body = app().respond(get(file)).body;
    for (size_t at = body.find("//"); at != std::string::npos; at = body.find("//", at + 2))
      if (at > 0 && body[at - 1] == ':') {
        EXPECT_EQ(body.substr(at, 12), "//www.w3.org") << file;
      }
  }
}

TEST_F(WebAppTest, RunsAndWhatHasChangedSince) {
  WebApp& web = app();
  const json all = json::parse(web.respond(get("/api/runs")).body);
  ASSERT_EQ(all["runs"].size(), 2u);
  EXPECT_EQ(all["keys"], json({"model.h"}));
  const json& relu = all["runs"][0];
  EXPECT_EQ(relu["id"], "relu");
  EXPECT_EQ(relu["state"], "stopped");
  EXPECT_EQ(relu["values"]["model.h"], "relu");
  EXPECT_EQ(relu["bestText"], "93%");
  EXPECT_EQ(relu["losses"].size(), 10u);
  EXPECT_TRUE(relu["left"].is_null());
  const std::string revision = all["revision"].dump();
  EXPECT_TRUE(json::parse(web.respond(get("/api/runs", {{"since", revision}})).body)["runs"].empty());
  EXPECT_EQ(web.respond(post("/api/note", {{"run", "relu"}}, "mine")).status, 200);
  const json changed = json::parse(web.respond(get("/api/runs", {{"since", revision}})).body);
  ASSERT_EQ(changed["runs"].size(), 1u);
  EXPECT_EQ(changed["runs"][0]["note"], "mine");
  EXPECT_EQ(changed["ids"], json({"relu", "softmax"}));
  EXPECT_EQ(json::parse(web.respond(get("/api/runs", {{"since", "99999999999999999999999"}})).body)["runs"].size(), 2u);
}

TEST_F(WebAppTest, OneRunAndItsCurves) {
  const json run = json::parse(app().respond(get("/api/run", {{"run", "relu"}})).body);
  EXPECT_EQ(run["resume"], "hinge train --resume " + path("runs/relu"));
  EXPECT_EQ(run["log"].size(), 1u);
  EXPECT_EQ(run["metrics"], json({"train/images_per_second", "train/loss"}));
  EXPECT_EQ(run["curves"][0]["title"], "Loss");
  const json curves =
      json::parse(app().respond(get("/api/curves", {{"metric", "train/loss"}, {"run", "relu"}, {"run", "softmax"}, {"run", "none"}})).body);
  ASSERT_EQ(curves["curves"].size(), 2u);
  EXPECT_EQ(curves["curves"][1]["points"][9], json({100, 0.1}));
  const json few = json::parse(app().respond(get("/api/curves", {{"metric", "train/loss"}, {"run", "relu"}, {"points", "4"}})).body);
  EXPECT_EQ(few["curves"][0]["points"].size(), 4u);
}

TEST_F(WebAppTest, NotesAndArchive) {
  WebApp& web = app();
  EXPECT_EQ(web.respond(post("/api/archive", {{"run", "relu"}, {"archived", "1"}})).status, 200);
  EXPECT_EQ(json::parse(web.respond(get("/api/run", {{"run", "relu"}})).body)["archived"], true);
  EXPECT_EQ(web.respond(post("/api/archive", {{"run", "relu"}, {"archived", "yes"}})).status, 400);
  EXPECT_EQ(web.respond(post("/api/note", {{"run", "relu"}}, "\xff")).status, 400);
  EXPECT_EQ(web.respond(post("/api/note", {{"run", "relu"}}, std::string(100'000, 'x'))).status, 413);
}

TEST_F(WebAppTest, ExamplesAndReports) {
  WebApp& web = app();
  const json answer = json::parse(web.respond(post("/api/example", {{"run", "relu"}}, "12345")).body);
  EXPECT_EQ(answer["bytes"], 5);
  EXPECT_EQ(web.respond(post("/api/example", {{"run", "relu"}}, "")).status, 400);
  EXPECT_EQ(web.respond(post("/api/example", {{"run", "relu"}}, std::string(kMostUpload + 1, ' '))).status, 413);
  EXPECT_EQ(web.respond(post("/api/example", {{"run", "softmax"}}, "x")).status, 422);
  const Response bad = web.respond(post("/api/example", {{"run", "relu"}}, "bad"));
  EXPECT_EQ(bad.status, 422);
  EXPECT_EQ(json::parse(bad.body)["error"], "the picture is neither JPEG nor PNG");
  const Response report = web.respond(get("/api/report", {{"run", "relu"}, {"run", "softmax"}}));
  EXPECT_EQ(report.body, "<html>relu10softmax10");
  EXPECT_EQ(header(report, "Content-Disposition"), "attachment; filename=\"report.html\"");
  EXPECT_EQ(web.respond(get("/api/report")).status, 400);
}

// What a service reads follows links: it is not asked then.
TEST_F(WebAppTest, LinksToTheOutsideAreNotFollowed) {
  std::filesystem::create_directory_symlink(path("secret/checkpoints"), path("runs/relu/checkpoints/step-00000009"));
  WebApp& web = app();
  for (const Request& request : {post("/api/example", {{"run", "relu"}}, "12345"), get("/api/report", {{"run", "relu"}})}) {
    const Response response = web.respond(request);
    EXPECT_EQ(response.status, 422) << request.path;
    EXPECT_NE(response.body.find("step-00000009' is a symbolic link"), std::string::npos) << response.body;
  }
  EXPECT_EQ(web.respond(get("/api/report", {{"run", "softmax"}})).status, 200);
}

TEST_F(WebAppTest, TheSmallestLossIsANumber) {
  std::ofstream(path("runs/relu/metrics.jsonl"), std::ios::app) << "{\"step\": 110, \"train/loss\": 5e-324}\n";
  const json curves = json::parse(app().respond(get("/api/curves", {{"metric", "train/loss"}, {"run", "relu"}})).body);
  EXPECT_EQ(curves["curves"][0]["points"].back(), json({110, 0.0}));
}

TEST_F(WebAppTest, NothingOutsideOfTheFolder) {
  for (const std::string id : {"../secret", "secret", "relu/../../secret", "/etc", "", ".", "..", "relu/", "./relu", "relu\\.."}) {
    for (const char* route : {"/api/run", "/api/report"})
      EXPECT_NE(app().respond(get(route, {{"run", id}})).status, 200) << route << " " << id;
    for (const char* route : {"/api/note", "/api/example"})
      EXPECT_EQ(app().respond(post(route, {{"run", id}}, "x")).status, 404) << route << " " << id;
  }
  EXPECT_EQ(app().respond(get("/api/figure", {{"sweep", "../secret"}, {"name", "x"}})).status, 404);
  for (const char* file : {"/etc/passwd", "/../index.html", "/relu/status.json", "//index.html", "", "index.html", "/page/watch.js"})
    EXPECT_EQ(app().respond(get(file)).status, 404) << file;
}

TEST_F(WebAppTest, OnlyUnderTheNamesOfThisMachine) {
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:8642", "[::1]:8642", "192.168.1.7:8642"}) {
    Request request = get("/");
    request.headers["host"] = host;
    EXPECT_EQ(app().respond(request).status, 200) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example:8642", "127.0.0.1.evil.example", "", "[::1", "1.2.3.4.x"}) {
    Request request = get("/api/runs");
    request.headers["host"] = host;
    EXPECT_EQ(app().respond(request).status, 403) << host;
  }
  Request named = get("/");
  named.headers["host"] = "workstation:8642";
  EXPECT_EQ(app({.hosts = {"workstation"}}).respond(named).status, 200);
}

TEST_F(WebAppTest, OtherPagesCanChangeNothing) {
  WebApp& web = app();
  Request plain = post("/api/note", {{"run", "relu"}}, "x");
  plain.headers.erase("x-hinge-watch");
  EXPECT_EQ(web.respond(plain).status, 403);
  Request foreign = post("/api/note", {{"run", "relu"}}, "x");
  foreign.headers["origin"] = "http://evil.example";
  EXPECT_EQ(web.respond(foreign).status, 403);
  Request fetched = get("/api/report", {{"run", "relu"}});
  fetched.headers["sec-fetch-site"] = "cross-site";
  EXPECT_EQ(web.respond(fetched).status, 403);
  fetched.headers["sec-fetch-site"] = "same-origin";
  EXPECT_EQ(web.respond(fetched).status, 200);
  EXPECT_EQ(web.respond(get("/api/note", {{"run", "relu"}})).status, 405);
  EXPECT_EQ(web.respond(post("/api/runs", {})).status, 405);
  EXPECT_EQ(web.respond(post("/", {})).status, 405);
  EXPECT_FALSE(std::filesystem::exists(path("runs/relu/note.txt")));
}

TEST_F(WebAppTest, WithATokenNothingWithoutIt) {
  WebApp& web = app({.token = "0123abcd", .cookie = "c"});
  for (const char* file : {"/", "/watch.js", "/api/runs"}) {
    EXPECT_EQ(web.respond(get(file)).status, 401) << file;
    Request request = get(file);
    for (const char* cookie : {"c=0123abc", "c=0123abcdx", "d=0123abcd", "c", "c=", "xc=0123abcd"}) {
      request.headers["cookie"] = cookie;
      EXPECT_EQ(web.respond(request).status, 401) << cookie;
    }
    for (const char* cookie : {"c=0123abcd", "other=1; c=0123abcd", "a;c=0123abcd;"}) {
      request.headers["cookie"] = cookie;
      EXPECT_EQ(web.respond(request).status, 200) << cookie;
    }
    request.headers = {{"host", "localhost"}, {"authorization", "Bearer 0123abcd"}};
    EXPECT_EQ(web.respond(request).status, 200);
  }
  EXPECT_EQ(web.respond(get("/", {{"token", "wrong"}})).status, 401);
  EXPECT_EQ(web.respond(get("/api/runs", {{"token", "0123abcd"}})).status, 401);
  const Response first = web.respond(get("/", {{"token", "0123abcd"}}));
  EXPECT_EQ(first.status, 303);
  EXPECT_EQ(header(first, "Location"), "/");
  EXPECT_EQ(header(first, "Set-Cookie"), "c=0123abcd; Path=/; HttpOnly; SameSite=Strict");
}

TEST_F(WebAppTest, FiguresOfASweep) {
  put("runs/rates/sweep.toml",
      "title = \"Rates\"\nbase = \"base.toml\"\n[axes.lr]\nkey = \"optim.lr\"\nvalues = [1, 2]\n[[grid]]\naxes = "
      "[\"lr\"]\n[[figure]]\nname = \"rates\"\nx = \"lr\"\ny = "
      "\"eval/accuracy\"\n");
  WebApp& web = app();
  const json all = json::parse(web.respond(get("/api/runs")).body);
  ASSERT_EQ(all["sweeps"].size(), 1u);
  EXPECT_EQ(all["sweeps"][0]["problem"], "");
  EXPECT_EQ(all["sweeps"][0]["figures"][0]["name"], "rates");
  EXPECT_EQ(web.respond(get("/api/figure", {{"sweep", "rates"}, {"name", "rates"}})).status, 404);
  std::string results;
  for (const int lr : {1, 2})
    results +=
        R"({"point": {"lr": )" + std::to_string(lr) +
        R"(}, "config": "c", "state": "done", "message": "", "steps": 1, "parameters": 1, "flops": 1, "seconds": 1, "core_hours": 1,)"
        R"( "scores": {"eval/accuracy": [[1, 0.5]]}, "measures": {}, "version": "", "machine": "", "finished": ""})"
        "\n";
  put("runs/rates/results.jsonl", results);
  WebApp& again = app();
  const Response figure = again.respond(get("/api/figure", {{"sweep", "rates"}, {"name", "rates"}}));
  EXPECT_EQ(figure.status, 200);
  EXPECT_EQ(figure.type, "image/svg+xml");
  EXPECT_TRUE(figure.body.starts_with("<svg"));
  EXPECT_EQ(again.respond(get("/api/figure", {{"sweep", "rates"}, {"name", "../x"}})).status, 404);
  EXPECT_EQ(again.respond(get("/api/report", {{"sweep", "rates"}})).status, 200);
}

}  // namespace
}  // namespace hinge::watch
