// hinge score: BLEU and chrF of translations, as sacreBLEU computes them.
#include "text/score.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "text/error.h"
#include "text/files.h"

namespace hinge::cli {
namespace {

struct ScoreOptions {
  std::string hypotheses, references;
  std::string metrics = "bleu,chrf";
  bool document = false, lowercase = false, json = false;
};

// A file and its lines, checked.
struct Lines {
  explicit Lines(const std::string& path)
      : path(path == "-" ? "standard input" : path), content(text::read_text_file(path)), lines(text::split_lines(content)) {
    text::require_utf8(lines, this->path);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  std::string path, content;
  std::vector<std::string_view> lines;  // of content
};

void require_equal(const Lines& hypotheses, const Lines& references) {
  if (hypotheses.lines.size() != references.lines.size())
    throw text::TextError(hypotheses.path, 0,
                          fmt::format("has {} lines, {} has {}; give one translation for each line of the references, in the same order",
                                      hypotheses.lines.size(), references.path, references.lines.size()));
  if (hypotheses.lines.empty()) throw text::TextError(hypotheses.path, 0, "is empty: there is nothing to score");
}

std::vector<std::string_view> views(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

nlohmann::json score(const std::string& metric, const std::vector<std::string_view>& hypotheses,
                     const std::vector<std::string_view>& references, const ScoreOptions& options) {
  if (metric == "bleu") {
    const text::BleuOptions how{options.lowercase};
    const text::Bleu bleu = text::bleu(hypotheses, references, how);
    return {{"name", "BLEU"},
            {"score", bleu.score},
            {"signature", text::signature(how, options.document)},
            {"details", bleu.details()},
            {"precisions", bleu.precisions},
            {"matches", bleu.matches},
            {"totals", bleu.totals},
            {"brevity_penalty", bleu.brevity_penalty},
            {"hypothesis_length", bleu.hypothesis_length},
            {"reference_length", bleu.reference_length}};
  }
  text::ChrfOptions how;
  how.lowercase = options.lowercase;
  how.words = metric == "chrf++" ? 2 : 0;
  const text::Chrf chrf = text::chrf(hypotheses, references, how);
  return {{"name", chrf.name()}, {"score", chrf.score}, {"signature", text::signature(how, options.document)}};
}

int run_score(const ScoreOptions& options) {
  const std::vector<std::string> metrics = parse_words("--metric", options.metrics, {"bleu", "chrf", "chrf++"});
  if (options.hypotheses == "-" && options.references == "-")
    throw UsageError("only one of HYP and REF can be - (the standard input); give the other as a file");
  const Lines hypotheses(options.hypotheses), references(options.references);
  require_equal(hypotheses, references);
  std::vector<std::string_view> left = hypotheses.lines, right = references.lines;
  text::Documents documents;
  if (options.document) {
    documents = text::join_documents(left, right);
    left = views(documents.hypotheses);
    right = views(documents.references);
  }
  nlohmann::json scores = nlohmann::json::array();
  for (const std::string& metric : metrics) scores.push_back(score(metric, left, right, options));
  if (options.json) {
    fmt::print("{}\n", scores.dump(2));
    return 0;
  }
  for (const nlohmann::json& one : scores)
    fmt::print("{}|{} = {:.2f}{}\n", one["name"].get<std::string>(), one["signature"].get<std::string>(), one["score"].get<double>(),
               one.contains("details") ? " " + one["details"].get<std::string>() : "");
  return 0;
}

}  // namespace

void add_score(Command parent) {
  auto options = std::make_shared<ScoreOptions>();
  Command command = parent.subcommand("score", "Score translations against references: BLEU and chrF, equal to sacreBLEU's");
  command.option("hypotheses", options->hypotheses, "HYP", "Translations, one per line, also .gz or .xz; - reads standard input")
      .required();
  command.option("references", options->references, "REF", "File of references, line by line").required();
  const char *how = "How to score", *output = "Output";
  command.option("--metric", options->metrics, "NAMES", "Metrics: bleu, chrf, chrf++ (default: bleu,chrf)").group(how);
  command.flag("--document", options->document, "Join the lines of each document first; blank lines of REF end documents").group(how);
  command.flag("--lowercase", options->lowercase, "Ignore case").group(how);
  command.flag("--json", options->json, "Print JSON instead of text, with all digits").group(output);
  command.run([options] { return run_score(*options); });
}

}  // namespace hinge::cli
