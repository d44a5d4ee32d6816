// hinge analyze: what the layers of a trained translation model do, as a table, as plots and as maps of attention.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/output_folder.h"
#include "cli/trained_model.h"
#include "decode/translator.h"
#include "eval/seq2seq_analysis.h"
#include "experiment/svg_plot.h"
#include "tasks/translation/run_text.h"
#include "tasks/translation/sentence_maps.h"
#include "text/corpus.h"
#include "text/unicode.h"

namespace hinge::cli {
namespace {

namespace fs = std::filesystem;
using eval::LayerStatistics;

struct AnalyzeOptions {
  RunOptions run;
  std::string data = "valid", sentences = "64", out, json;
  std::vector<std::string> maps;
  bool means = false;

  // A program that wants the numbers alone gets no files.
  bool writes_files() const { return json.empty() || !out.empty() || !maps.empty(); }
};

// One column of the table and one plot.
struct Measure {
  const char *column, *file, *title, *axis;
  double LayerStatistics::*value;
  double factor;  // percent: 100
};
constexpr Measure kMeasures[] = {
    {"out/res", "variance-ratio", "Variance of the output, divided by that of the residual", "ratio", &LayerStatistics::variance_ratio, 1},
    {"sum", "weight-sum", "Sum of a row's weights", "sum", &LayerStatistics::weight_sum, 1},
    {"entropy", "entropy", "Entropy of a row's weights", "nats", &LayerStatistics::entropy, 1},
    {"of max", "relative-entropy", "Entropy of a row's weights, as a share of the largest possible", "percent",
     &LayerStatistics::relative_entropy, 100},
    {"zeros", "zeros", "Weights that are exactly zero", "percent", &LayerStatistics::zero_share, 100},
    {"aniso", "anisotropy", "Mean cosine between values", "cosine", &LayerStatistics::anisotropy, 1},
};

// Of a mean over blocks: its kind alone.
std::string label_of(const LayerStatistics& layer) {
  return layer.name == layer.kind ? layer.kind : fmt::format("{} {}", layer.kind, layer.block);
}

void print_table(const std::vector<LayerStatistics>& layers) {
  const std::vector<double> tops = {0.2, 1, 10};
  fmt::print("{:<26}", "layer");
  for (const Measure& measure : kMeasures) fmt::print(" {:>8}", measure.column);
  for (const double percent : tops) fmt::print(" {:>8}", fmt::format("top {}%", percent));
  fmt::print("\n");
  for (const LayerStatistics& layer : layers) {
    fmt::print("{:<26}", label_of(layer));
    for (const Measure& measure : kMeasures) {
      const double value = layer.*measure.value * measure.factor;
      fmt::print(" {:>8}", measure.factor == 100 ? fmt::format("{:.1f}%", value) : fmt::format("{:.3f}", value));
    }
    for (const double percent : tops) {
      const size_t place =
          static_cast<size_t>(std::find(eval::kTopPercents.begin(), eval::kTopPercents.end(), percent) - eval::kTopPercents.begin());
      fmt::print(" {:>7.1f}%", 100 * layer.top_shares[place]);
    }
    fmt::print("\n");
  }
}

// Attention to the source, and what it would be with even weights.
void print_source_shares(const std::vector<LayerStatistics>& layers, const eval::TokenShares& tokens) {
  const auto row = [](const std::string& label, const eval::TokenShares& shares) {
    fmt::print("{:<26} {:>10.1f}% {:>10.1f}% {:>10.1f}%\n", label, 100 * shares.punctuation, 100 * shares.comma, 100 * shares.end);
  };
  fmt::print("\n{:<26} {:>11} {:>11} {:>11}\n", "weight on the source's", "punctuation", "commas", "end token");
  for (const LayerStatistics& layer : layers)
    if (layer.source_shares) row(label_of(layer), *layer.source_shares);
  row("share of its tokens", tokens);
}

nlohmann::json to_json(const eval::TokenShares& shares) {
  return {{"punctuation", shares.punctuation}, {"comma", shares.comma}, {"end", shares.end}};
}

nlohmann::json to_json(const LayerStatistics& layer) {
  nlohmann::json tops = nlohmann::json::object();
  for (size_t i = 0; i < eval::kTopPercents.size(); ++i) tops[fmt::format("{}", eval::kTopPercents[i])] = layer.top_shares[i];
  nlohmann::json json = {{"rows", layer.rows},
                         {"variance_ratio", layer.variance_ratio},
                         {"weight_sum", layer.weight_sum},
                         {"entropy", layer.entropy},
                         {"relative_entropy", layer.relative_entropy},
                         {"zero_share", layer.zero_share},
                         {"anisotropy", layer.anisotropy},
                         {"top_shares", tops}};
  if (layer.source_shares) json["source_shares"] = to_json(*layer.source_shares);
  return json;
}

nlohmann::json layers_json(const std::vector<LayerStatistics>& layers) {
  nlohmann::json all = nlohmann::json::array();
  for (const LayerStatistics& layer : layers) {
    all.push_back(to_json(layer));
    all.back().update({{"name", layer.name}, {"kind", layer.kind}, {"block", layer.block}});
  }
  return all;
}

nlohmann::json means_json(const std::vector<LayerStatistics>& means) {
  nlohmann::json all = nlohmann::json::object();
  for (const LayerStatistics& mean : means) all[mean.kind] = to_json(mean);
  return all;
}

// Bars by block, a colour for each kind of layer.
std::string measure_plot(const Measure& measure, const std::vector<LayerStatistics>& layers, const std::string& subtitle) {
  experiment::BarChart chart{measure.title, subtitle, "block", measure.axis, {}, {}, {}};
  size_t blocks = 0;
  for (const LayerStatistics& layer : layers) blocks = std::max(blocks, static_cast<size_t>(layer.block) + 1);
  for (size_t i = 0; i < blocks; ++i) chart.groups.push_back(std::to_string(i));
  for (const LayerStatistics& layer : layers) {
    auto series = std::find_if(chart.series.begin(), chart.series.end(), [&](const auto& one) { return one.label == layer.kind; });
    if (series == chart.series.end()) {
      chart.series.push_back({layer.kind, std::vector<double>(blocks, std::numeric_limits<double>::quiet_NaN()), chart.series.size()});
      series = std::prev(chart.series.end());
    }
    series->values[static_cast<size_t>(layer.block)] = layer.*measure.value * measure.factor;
  }
  return render(chart);
}

std::string share_plot(const std::vector<LayerStatistics>& layers, const std::string& subtitle) {
  experiment::LineChart chart{.title = "Share of all weights that the top keys hold",
                              .subtitle = subtitle,
                              .x_label = "percent of the keys",
                              .y_label = "percent of the weights",
                              .log_x = true,
                              .from_zero = true,
                              .panels = {{}},
                              .x_ticks = {eval::kTopPercents.begin(), eval::kTopPercents.end()}};
  std::vector<experiment::LineSeries>& lines = chart.panels[0].series;
  for (const LayerStatistics& shares : eval::means_by_kind(layers)) {
    experiment::LineSeries series{shares.kind, {}, lines.size()};
    for (size_t i = 0; i < eval::kTopPercents.size(); ++i) series.points.emplace_back(eval::kTopPercents[i], 100 * shares.top_shares[i]);
    lines.push_back(std::move(series));
  }
  return render(chart);
}

// A sentence to draw, as the model reads it.
decode::Source encode_map(const decode::Translator& translator, const std::string& sentence) {
  if (text::find_invalid_utf8(sentence)) throw UsageError("--map: the sentence is not UTF-8");
  try {
    return translator.encode(sentence);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format("--map '{}' {}", sentence, error.what()));
  }
}

// The maps of one sentence and its translation by the model.
std::string write_maps(const translation::TrainedModel& trained, const decode::Translator& translator, const decode::Source& source,
                       size_t number, OutputFolder& folder) {
  const translation::SentenceMaps found = translation::sentence_maps(trained, translator, source);
  for (const auto& [name, map] : found.maps) folder.write(fmt::format("map-{}-{}.svg", number, name), render(map));
  return found.translation;
}

int run_analyze(const AnalyzeOptions& options) {
  const int64_t sentences = parse_whole("--sentences", options.sentences, 1, 1000000);
  const translation::TrainedModel trained = open_translation(options.run, "hinge analyze");
  translation::check_lengths(trained.config);
  const decode::Translator translator(*trained.model, trained.vocabulary, {});
  std::vector<decode::Source> maps;
  for (const std::string& sentence : options.maps) maps.push_back(encode_map(translator, sentence));
  const text::Corpus corpus(translation::read_split_or_files("--data", options.data, trained.config), trained.vocabulary,
                            trained.config.data.corpus);
  const std::vector<eval::ModelPair> pairs = eval::sample_pairs(corpus, sentences);

  fs::path run = fs::path(options.run.run).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();
  std::optional<OutputFolder> folder;
  if (options.writes_files()) folder.emplace(options.out.empty() ? fs::path("analysis-" + run.filename().string()) : fs::path(options.out));
  const std::vector<eval::TokenKind> kinds = eval::token_kinds(trained.vocabulary);
  const std::vector<LayerStatistics> layers = eval::analyze_layers(*trained.model, pairs, kinds), means = eval::means_by_kind(layers);
  const eval::TokenShares tokens = eval::source_token_shares(pairs, kinds);
  const std::string subtitle =
      fmt::format("{}, step {}, {} {} of {}", run.filename().string(), trained.weights.checkpoint.step, pairs.size(),
                  trained.config.data.corpus.document_tokens > 0 ? "parts of documents" : "sentences", options.data);
  nlohmann::json json = {{"run", options.run.run},
                         {"step", trained.weights.checkpoint.step},
                         {"averaged", trained.weights.averaged},
                         {"data", options.data},
                         {"sentences", pairs.size()},
                         {"source_tokens", to_json(tokens)},
                         {"means", means_json(means)},
                         {"maps", nlohmann::json::array()}};
  if (!options.means) json["layers"] = layers_json(layers);
  if (folder) {
    for (const Measure& measure : kMeasures) folder->write(std::string(measure.file) + ".svg", measure_plot(measure, layers, subtitle));
    folder->write("top-shares.svg", share_plot(layers, subtitle));
    for (size_t i = 0; i < maps.size(); ++i)
      json["maps"].push_back({{"source", options.maps[i]}, {"translation", write_maps(trained, translator, maps[i], i + 1, *folder)}});
    folder->write("analysis.json", json_text(json));
  }

  if (!options.json.empty()) {
    if (folder) json["files"] = folder->files();
    write_json(options.json, json);
    return 0;
  }
  fmt::print("{}\n\n", subtitle);
  print_table(options.means ? means : layers);
  print_source_shares(options.means ? means : layers, tokens);
  fmt::print("\n");
  for (const nlohmann::json& map : json["maps"])
    fmt::print("map of: {}\n     -> {}\n", map["source"].get<std::string>(), map["translation"].get<std::string>());
  fmt::print("{} files in {}\n", folder->files().size(), fs::path(folder->files().front()).parent_path().string());
  return 0;
}

}  // namespace

void add_analyze(Command parent) {
  auto options = std::make_shared<AnalyzeOptions>();
  Command command =
      parent.subcommand("analyze", "Show what the layers of a trained translation model do: numbers, plots, maps of attention");
  add_run(command, options->run);
  add_changes(command, options->run);
  command.option(
      "--data", options->data, "TEXT",
      "train, valid or test of the run's own text, NAME of other files in its folder, or two files SOURCE,TARGET (default: valid)");
  command.option("--sentences", options->sentences, "N", "Look at N sentences, evenly spread over the text (default: 64)");
  command.option("--map", options->maps, "SENTENCE", "Translate SENTENCE and draw all attentions, tokens on both axes; can be given again")
      .one_at_a_time();
  command.option("--out", options->out, "FOLDER", "Folder for plots, maps and analysis.json (default: analysis-RUN)");
  command.flag("--means", options->means, "One row per kind of layer, the mean over its blocks, instead of one per layer");
  add_json(command, options->json, "a table");
  command.footer(
      "out/res: variance of a layer's output over that of its residual. sum, entropy (nats, and of the largest possible), zeros: of a "
      "row's weights.\n"
      "top p%: share of its weights that the top p% of the keys (or hidden units) hold, at least one. aniso: mean cosine between two "
      "values.\n"
      "With --json and neither --out nor --map, no plots are drawn and no folder is made.");
  command.run([options] { return run_analyze(*options); });
}

}  // namespace hinge::cli
