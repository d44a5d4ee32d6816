// hinge bench translate: checks translation models, then measures training steps and beam search.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/translate.h"
#include "cli/arguments.h"
#include "cli/bench_output.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

struct BenchTranslateOptions {
  std::string cases = "25,256,2048,uneven,decode", attention = "softmax,reluformer", ffn = "relu", ffn_width = "1024";
  std::string threads, rounds = "5", json;
};

int bench_translate(const BenchTranslateOptions& options) {
  bench::TranslatePlan plan;
  plan.cases = parse_words("--cases", options.cases, bench::translate_case_names());
  plan.attentions = parse_words("--attention", options.attention, bench::translate_attention_names());
  plan.ffns = parse_words("--ffn", options.ffn, bench::translate_ffn_names());
  plan.ffn_width = parse_whole("--ffn-width", options.ffn_width, 1, 1 << 20);
  plan.threads = parse_threads(options.threads);
  plan.rounds = static_cast<int>(parse_whole("--rounds", options.rounds, 1, 10000));
  BenchOutput output(options.json);
  const bench::TranslateReport report = bench::run(plan, show_progress);
  show_progress("");
  output.write(bench::table(report), bench::to_json(report));
  return 0;
}

}  // namespace

void add_bench_translate(Command parent) {
  Command command = parent.subcommand("translate", "Whole translation models: a training step and beam search");
  auto options = std::make_shared<BenchTranslateOptions>();
  const auto choose = [&](const char* name, std::string& value, const char* type, const std::string& meaning) {
    command.option(name, value, type, value.empty() ? meaning : fmt::format("{} (default: {})", meaning, value));
  };
  choose("--cases", options->cases, "LIST", "Tokens of the sequences that are trained on, and decoding");
  choose("--attention", options->attention, "LIST", "Attentions; relu-vit, reluformer and relu2 train with the regulariser");
  choose("--ffn", options->ffn, "LIST", "Activations of the feed-forward layers");
  choose("--ffn-width", options->ffn_width, "N", "Hidden units of the feed-forward layers");
  choose("--threads", options->threads, "N", kThreadsMeaning);
  choose("--rounds", options->rounds, "N", "Samples of every case");
  choose("--json", options->json, "FILE", "Write the numbers to FILE, or to standard output for -");
  command.footer(
      fmt::format(
          "LIST items are separated by commas; every combination is measured.\nAttentions: {}.\nActivations of feed-forward layers: {}.\n",
          fmt::join(bench::translate_attention_names(), ", "), fmt::join(bench::translate_ffn_names(), ", ")) +
      "6+6 layers, width 512, 4 heads, vocabulary 10,000, dropout 0.1; about 4,000 target tokens a batch.\n"
      "uneven: 280 sentences as long as those of Europarl, in 9 batches of similar lengths.\n"
      "decode: beam 4, 16 sentences, 25 tokens. The memory of a case is that of all its models together.");
  command.run([options] { return bench_translate(*options); });
}

}  // namespace hinge::cli
