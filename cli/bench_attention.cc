// hinge bench attention: checks the attention kernels, then measures them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/attention.h"
#include "cli/arguments.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "experiment/svg_plot.h"
#include "support/atomic_file.h"

namespace hinge::cli {
namespace {

struct BenchAttentionOptions {
  std::string h = "relu,softmax";
  std::string shapes = "8x6x50,8x6x197,8x6x785,1x6x4096";
  std::string dim = "64";
  std::string pass = "forward,backward";
  std::string zeros = "off";
  std::string causal = "off";
  std::string dropout = "0";
  std::string threads;
  std::string rounds;
  bool quick = false;
  std::string json;
  std::string plot;
};

std::vector<kernels::Activation> parse_activations(const std::string& option, const std::string& text) {
  const std::vector<std::string> names(kernels::kActivationNames.begin(), kernels::kActivationNames.end());
  std::vector<kernels::Activation> list;
  for (const std::string& item : parse_list(option, text == "all" ? fmt::format("{}", fmt::join(names, ",")) : text)) {
    const auto h = kernels::parse_activation(item);
    if (!h)
      throw UsageError(
          fmt::format("{} '{}' is unknown.{} Allowed: {} or all", option, item, suggestion(item, names), fmt::join(names, ", ")));
    list.push_back(*h);
  }
  return list;
}

// parse_list refuses the same text twice; this one what is written in two ways, as 0.1 and 0.10.
template <typename T> void refuse_twice(const std::string& option, const std::string& item, const T& value, const std::vector<T>& list) {
  if (std::find(list.begin(), list.end(), value) != list.end())
    throw UsageError(fmt::format("{} has '{}' twice: give each item once", option, item));
}

std::vector<bench::Shape> parse_shapes(const std::string& option, const std::string& text) {
  constexpr int64_t kLargest = 1 << 24;
  std::vector<bench::Shape> list;
  for (const std::string& item : parse_list(option, text)) {
    std::vector<int64_t> sizes;
    std::istringstream stream(item + "x");
    for (std::string part; std::getline(stream, part, 'x');) sizes.push_back(number<int64_t>(part).value_or(0));
    if (sizes.size() != 3 || std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1 || size > kLargest; }))
      throw UsageError(
          fmt::format("{} '{}' is not a shape: write batch x heads x length, each 1 to {}, for example 8x6x197", option, item, kLargest));
    const bench::Shape shape{sizes[0], sizes[1], sizes[2]};
    refuse_twice(option, item, shape, list);
    list.push_back(shape);
  }
  return list;
}

std::vector<bench::Pass> parse_passes(const std::string& option, const std::string& text) {
  std::vector<bench::Pass> list;
  for (const std::string& item : parse_words(option, text, {"forward", "backward"}))
    list.push_back(item == "forward" ? bench::Pass::forward : bench::Pass::backward);
  return list;
}

std::vector<std::optional<bench::ZeroShares>> parse_zeros(const std::string& option, const std::string& text) {
  std::vector<std::optional<bench::ZeroShares>> list;
  for (const std::string& item : parse_list(option, text)) {
    if (item == "off") {
      list.emplace_back();
      continue;
    }
    const size_t colon = item.find(':');
    const std::optional<double> weights = number<double>(item.substr(0, colon));
    const std::optional<double> groups = colon == std::string::npos ? std::nullopt : number<double>(item.substr(colon + 1));
    if (!weights || !groups)
      throw UsageError(
          fmt::format("{} '{}' is not understood: write off, or the share of zero weights and of zero 6x1 groups, for example 0.65:0.40",
                      option, item));
    try {
      bench::find_zero_recipe({*weights, *groups});
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{} '{}' cannot be made: {}", option, item, error.what()));
    }
    const std::optional<bench::ZeroShares> shares = bench::ZeroShares{*weights, *groups};
    refuse_twice(option, item, shares, list);
    list.push_back(shares);
  }
  return list;
}

std::vector<double> parse_dropouts(const std::string& option, const std::string& text) {
  std::vector<double> list;
  for (const std::string& item : parse_list(option, text)) {
    const std::optional<double> value = number<double>(item);
    if (!value || !(*value >= 0 && *value < 1))
      throw UsageError(fmt::format("{} '{}' is not a probability: give a number from 0 up to, but not, 1", option, item));
    refuse_twice(option, item, *value, list);
    list.push_back(*value);
  }
  return list;
}

std::vector<bool> parse_causal(const std::string& option, const std::string& text) {
  std::vector<bool> list;
  for (const std::string& item : parse_list(option, text)) {
    if (item != "on" && item != "off")
      throw UsageError(fmt::format("{} '{}' is unknown. Allowed: on, off, or both as off,on", option, item));
    list.push_back(item == "on");
  }
  return list;
}

bench::AttentionPlan plan(const BenchAttentionOptions& options) {
  bench::AttentionPlan plan;
  plan.h = parse_activations("--h", options.h);
  plan.shapes = parse_shapes("--shapes", options.shapes);
  plan.passes = parse_passes("--pass", options.pass);
  plan.zeros = parse_zeros("--zeros", options.zeros);
  plan.causal = parse_causal("--causal", options.causal);
  plan.dropout = parse_dropouts("--dropout", options.dropout);
  plan.D = parse_whole("--dim", options.dim, 1, 1024);
  if (plan.D < 2 && std::any_of(plan.zeros.begin(), plan.zeros.end(), [](const auto& zeros) { return zeros.has_value(); }))
    throw UsageError(fmt::format("--dim {} is too small for --zeros {}: with chosen zeros give at least 2", plan.D, options.zeros));
  plan.threads = parse_threads(options.threads);
  plan.rounds = options.rounds.empty() ? (options.quick ? 3 : 15) : static_cast<int>(parse_whole("--rounds", options.rounds, 1, 10000));
  if (options.quick) plan.seconds_per_sample = 0.002;
  return plan;
}

int bench_attention(const BenchAttentionOptions& options) {
  const bench::AttentionPlan what = plan(options);
  BenchOutput output(options.json);
  std::optional<support::AtomicFile> plot;
  if (!options.plot.empty()) plot.emplace(options.plot);
  const bench::AttentionReport report = bench::run(what, show_progress);
  show_progress("");
  output.write(bench::table(report), bench::to_json(report));
  if (plot) plot->commit(experiment::render(bench::chart(report)));
  return 0;
}

}  // namespace

void add_bench_attention(Command parent) {
  Command command = parent.subcommand("attention", "The attention kernels: checked against the reference, then measured");
  auto options = std::make_shared<BenchAttentionOptions>();
  const char *what = "What to measure", *how = "How to measure", *output = "Output";
  const auto with_default = [](const std::string& meaning, const std::string& value) {
    return value.empty() ? meaning : fmt::format("{} (default: {})", meaning, value);
  };
  const auto choose = [&](const char* group, const char* name, std::string& value, const char* type, const std::string& meaning) {
    command.option(name, value, type, with_default(meaning, value)).group(group);
  };
  choose(what, "--h", options->h, "LIST", "Activations, or all; identity also in its linear order");
  choose(what, "--shapes", options->shapes, "LIST", "Batch x heads x length");
  choose(what, "--dim", options->dim, "N", "Head width D");
  choose(what, "--pass", options->pass, "LIST", "Passes");
  choose(what, "--zeros", options->zeros, "LIST",
         "Inputs with W of relu's weights zero and G of its 6x1 groups, as W:G, e.g. off,0.65:0.40");
  const std::string causal = with_default("Causal visibility: off, on, or off,on; alone it means on", options->causal);
  command.option_or_alone("--causal", options->causal, "on", "LIST", causal).group(what);
  choose(what, "--dropout", options->dropout, "LIST", "Probabilities of dropping a weight, e.g. 0,0.1");
  choose(how, "--threads", options->threads, "N", kThreadsMeaning);
  choose(how, "--rounds", options->rounds, "N", "Samples of every case (default: 15, with --quick 3)");
  command.flag("--quick", options->quick, "Fewer and shorter samples, for a first look").group(how);
  choose(output, "--json", options->json, "FILE", "Write the numbers to FILE, or to standard output for -");
  choose(output, "--plot", options->plot, "FILE", "Draw the shares of the FMA peak as SVG into FILE");
  command.footer(
      "LIST items are separated by commas; every combination is measured. A 6x1 group: 6 neighbouring queries, 1 key.\n"
      "Flops counted: 4 B H L^2 D forward, 10 B H L^2 D backward, also where causal or the linear order compute less.");
  command.run([options] { return bench_attention(*options); });
}

}  // namespace hinge::cli
