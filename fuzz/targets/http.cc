// A request to the server of `hinge watch --web`: the bytes of a connection. The folder holds two runs and a sweep. Without the token
// nothing is answered, and what lies outside of the folder is never.
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "../target.h"
#include "data/codec.h"
#include "experiment/watch.h"
#include "support/jsonl.h"
#include "train/run_folder.h"
#include "watch/server.h"
#include "watch/web_app.h"

namespace hinge::fuzz {
namespace {

constexpr const char *kToken = "5ec4e7", *kOutside = "q7zOutsider";  // begins with what is in no escape of JSON

class Site {
 public:
  // What a request has noted is gone before the next one.
  std::string answer(Input bytes) {
    std::string answer = server_.answer(text_of(bytes));
    for (const std::string& note : notes_) ::unlink(note.c_str());
    return answer;
  }

 private:
  void make_run(const std::string& name) const {
    train::RunFolder run = train::RunFolder::create(folder_.path(name), "task = \"vision\"\nname = \"" + name + "\"\n");
    support::MetricsWriter metrics(train::metrics_path(folder_.path(name)), 0);
    for (int64_t i = 1; i <= 10; ++i) metrics.append({i, {{"train/loss", 1.0 / static_cast<double>(i)}}});
    run.log("step 10");
    run.write_status({.state = "done", .step = 10, .steps = 10, .best = 0.9, .best_step = 9, .values = {{"accuracy", 0.9}}});
  }
  const std::string& watched() const {
    make_run("runs/relu");
    make_run("runs/deep/softmax");
    make_run(kOutside);
    folder_.put(std::string("secret-") + kOutside, kOutside);
    folder_.put("runs/sweep/sweep.toml",
                "title = \"S\"\nbase = \"base.toml\"\n[axes.seed]\nkey = \"train.seed\"\nvalues = [0, 1]\n[measure]\ntest = \"eval\"\n"
                "[[grid]]\naxes = [\"seed\"]\n[[figure]]\nname = \"f\"\nx = \"seed\"\ny = \"test.accuracy\"\n");
    static const std::string path = folder_.path("runs");
    return path;
  }
  static watch::Services services() {
    static const experiment::ScoreFormat format = {[](double score) { return std::to_string(score); },
                                                   {{"accuracy", "accuracy", [](double value) { return std::to_string(value); }}}};
    return {.format_of = [](const auto&) -> const experiment::ScoreFormat& { return format; },
            .task = [](const auto&) { return "vision"; },
            .example_kind = [](const auto& run) { return run.name == "relu" ? "picture" : "sentence"; },
            .example = [](const std::string& run, const std::string& input) -> nlohmann::json {
              if (!run.ends_with("relu")) return {{"letters", input.size()}};
              data::Image image;
              data::decode_image({reinterpret_cast<const uint8_t*>(input.data()), input.size()}, "the picture", image);
              return {{"pixels", image.pixels.size()}};
            },
            .curves =
                [](const auto&) {
                  return std::vector<experiment::ReportCurve>{{"train/loss", "Loss", "nats"}};
                },
            .report = [](const auto& runs) { return std::to_string(runs.size()); }};
  }

  const MemoryFolder folder_;
  const std::array<std::string, 2> notes_ = {train::note_path(folder_.path("runs/relu")),
                                             train::note_path(folder_.path("runs/deep/softmax"))};
  experiment::WatchedFolder watched_{watched()};
  watch::WebApp app_{watched_, services(), {.token = kToken, .cookie = "c"}};
  watch::OfflineServer server_{app_};
};

}  // namespace

static void http_target(Input input) {
  static Site site;
  const std::string_view request = text_of(input);
  const auto asks_for = [&](const char* text) {
    return request.find(text) != std::string_view::npos || request.find('%') != std::string_view::npos;
  };
  const std::string answer = site.answer(input);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) throw std::logic_error("no answer of HTTP");
  if (answer.starts_with("HTTP/1.1 200") && !asks_for(kToken)) throw std::logic_error("answered without the token");
  if (answer.find(kOutside) != std::string::npos && !asks_for(kOutside)) throw std::logic_error("shows what is outside of the folder");
}

const Target target_http{"http", &http_target};

}  // namespace hinge::fuzz
