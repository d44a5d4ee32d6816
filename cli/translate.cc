// hinge translate: translates lines, documents or message catalogues by a trained model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/translation_model.h"
#include "decode/documents.h"
#include "decode/po_translation.h"
#include "decode/translator.h"
#include "support/atomic_file.h"
#include "support/progress.h"
#include "text/error.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::cli {
namespace {

struct TranslateOptions {
  TranslationModelOptions model;
  std::vector<std::string> files;
  std::string beam = "4", n_best, length_penalty = "0.6", patience = "1", max_length = "1.5,20", batch = "1024";
  std::string po, out;
  bool document = false, in_place = false;
};

double parse_number(const std::string& option, const std::string& text) {
  const std::optional<double> value = number<double>(text);
  if (!value) throw UsageError(fmt::format("{} '{}' is not a number", option, text));
  return *value;
}

decode::TranslationOptions translation_options(const TranslateOptions& given) {
  decode::TranslationOptions options;
  options.search.beam = parse_whole("--beam", given.beam, 1, 1000);
  options.search.n_best = given.n_best.empty() ? 1 : parse_whole("--n-best", given.n_best, 1, options.search.beam);
  options.search.length_penalty = parse_number("--length-penalty", given.length_penalty);
  options.search.patience = given.patience == "none" ? std::numeric_limits<double>::infinity() : parse_number("--patience", given.patience);
  options.batch_tokens = parse_whole("--batch", given.batch, 1, 1 << 24);
  const size_t comma = given.max_length.find(',');
  if (comma == std::string::npos) {
    options.length_factor = 0;
    options.length_extra = parse_whole("--max-length", given.max_length, 1, 1 << 20);
  } else {
    options.length_factor = parse_number("--max-length", given.max_length.substr(0, comma));
    options.length_extra = parse_whole("--max-length", given.max_length.substr(comma + 1), 0, 1 << 20);
  }
  return options;
}

// Where translations go: to the standard output, or to a file that appears whole.
class Output {
 public:
  explicit Output(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }

  void write(std::string_view text) {
    if (file_)
      file_->write(text);
    else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      support::throw_file_error("write to", "standard output");
  }
  void finish() {
    if (file_)
      file_->commit();
    else if (std::fflush(stdout) != 0)
      support::throw_file_error("write to", "standard output");
  }

 private:
  std::optional<support::AtomicFile> file_;
};

// The lines of all files, one file behind the other.
class Input {
 public:
  explicit Input(const std::vector<std::string>& files) {
    for (const std::string& path : files) {
      const std::string name = path == "-" ? "standard input" : path;
      contents_.push_back(std::make_unique<const std::string>(text::read_text_file(path)));
      const std::vector<std::string_view> lines = text::split_lines(*contents_.back());
      text::require_utf8(lines, name);
      parts_.push_back({name, lines_.size()});
      lines_.insert(lines_.end(), lines.begin(), lines.end());
    }
  }

  const std::vector<std::string_view>& lines() const { return lines_; }

  // What is wrong with line i of all.
  text::TextError error(size_t i, const std::string& problem) const {
    const auto part = std::prev(std::upper_bound(parts_.begin(), parts_.end(), i, [](size_t at, const Part& p) { return at < p.first; }));
    return {part->name, static_cast<int64_t>(i - part->first) + 1, problem};
  }

 private:
  struct Part {
    std::string name;
    size_t first = 0;  // its first line
  };
  std::vector<std::unique_ptr<const std::string>> contents_;
  std::vector<Part> parts_;
  std::vector<std::string_view> lines_;
};

// Translates with a progress bar; says at the end how much it was.
std::vector<std::vector<decode::Translation>> translate_all(const decode::Translator& translator,
                                                            const std::vector<decode::Source>& sources, const char* unit) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::vector<decode::Translation>> translations;
  {
    support::Progress progress("translate", static_cast<int64_t>(sources.size()));
    translations = translator.translate(sources, [&](int64_t done, int64_t) { progress.update(done, {}); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  int64_t tokens = 0;
  for (const auto& best : translations) tokens += static_cast<int64_t>(best.at(0).ids.size()) + 1;
  fmt::print(stderr, "{} {}, {} tokens in {:.1f} s: {:.0f} tokens/s\n", sources.size(), unit, tokens, seconds,
             static_cast<double>(tokens) / std::max(seconds, 1e-9));
  return translations;
}

// One line for each of the best if several are asked for: the line of the source, the score, the text.
std::string lines_of(size_t source, const std::vector<decode::Translation>& best, bool several) {
  if (!several) return best.at(0).text + "\n";
  std::string lines;
  for (const decode::Translation& one : best) lines += fmt::format("{}\t{:.4f}\t{}\n", source + 1, one.score, one.text);
  return lines;
}

void translate_lines(const decode::Translator& translator, const Input& input, bool several, Output& output) {
  std::vector<decode::Source> sources;
  for (size_t i = 0; i < input.lines().size(); ++i) {
    try {
      sources.push_back(translator.encode(input.lines()[i]));
    } catch (const std::runtime_error& error) {
      throw input.error(i, error.what());
    }
  }
  const auto translations = translate_all(translator, sources, "lines");
  for (size_t i = 0; i < translations.size(); ++i) output.write(lines_of(i, translations[i], several));
}

// A part of a document is translated as one: its translation stands in the place of its first line, the other lines are empty.
void translate_documents(const decode::Translator& translator, const train::LoadedTranslation& loaded, const Input& input, bool several,
                         Output& output) {
  const std::vector<std::string_view>& lines = input.lines();
  std::vector<int64_t> tokens;
  for (const std::string_view line : lines) tokens.push_back(static_cast<int64_t>(loaded.vocabulary.encode(line).size()));
  const int64_t most = decode::longest_source(loaded.config.data.corpus.document_tokens, loaded.source_tokens, loaded.target_tokens);
  const std::vector<decode::DocumentPart> parts = decode::cut_documents(lines, tokens, most);
  std::vector<decode::Source> sources;
  for (const decode::DocumentPart& part : parts) {
    try {
      sources.push_back(translator.encode(std::span(lines).subspan(part.first, part.lines)));
    } catch (const std::runtime_error& error) {
      throw input.error(part.first, error.what());
    }
  }
  const auto translations = translate_all(translator, sources, "parts of documents");
  size_t next = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool begins = next < parts.size() && parts[next].first == i;
    if (begins)
      output.write(lines_of(i, translations[next++], several));
    else if (!several)
      output.write("\n");
  }
}

void translate_prompt(const decode::Translator& translator, const train::LoadedTranslation& loaded, const std::string& run, bool several) {
  fmt::print(stderr, "{} ({}), step {}. A line is translated when it ends; Ctrl-D leaves.\n", run, loaded.config.data.source.pair,
             loaded.checkpoint.step);
  const bool prompts = ::isatty(STDERR_FILENO) != 0;
  const auto ask = [&] {
    if (prompts) fmt::print(stderr, "> ");
  };
  ask();
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line); ask(), ++number) {
    try {
      text::require_utf8({line}, "your line");
      fmt::print("{}", lines_of(number, translator.translate({translator.encode(line)}).at(0), several));
      std::fflush(stdout);
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
  }
  if (prompts) fmt::print(stderr, "\n");
}

std::string lines_text(const std::vector<int64_t>& lines) {
  constexpr size_t kMost = 20;
  const std::vector<int64_t> first(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, lines.size())));
  return fmt::format("line{} {}{}", lines.size() == 1 ? "" : "s", fmt::join(first, ", "), lines.size() > kMost ? ", ..." : "");
}

void translate_po(const decode::Translator& translator, const TranslateOptions& options) {
  text::PoFile file(text::read_text_file(options.po), options.po == "-" ? "standard input" : options.po);
  if (!file.names_charset())
    fmt::print(stderr,
               "{} does not say in its header that it is UTF-8, and msgfmt -c will not accept it: add \"Content-Type: text/plain; "
               "charset=UTF-8\\n\"\n",
               options.po == "-" ? "standard input" : options.po);
  // A link stays one: what it leads to is replaced.
  Output output(options.in_place ? std::filesystem::canonical(options.po).string() : options.out);
  const decode::PoReport report = decode::fill_po(file, [&](const std::vector<std::string>& texts) {
    std::vector<decode::Source> sources;
    for (const std::string& text : texts) {
      try {
        sources.push_back(translator.encode(text));
      } catch (const std::runtime_error&) {
        sources.emplace_back();  // longer than the model can read: stays empty
      }
    }
    std::vector<std::vector<std::string>> all;
    for (const auto& best : translate_all(translator, sources, "texts")) {
      all.emplace_back();
      for (const decode::Translation& one : best) all.back().push_back(one.text);
    }
    return all;
  });
  output.write(file.text());
  output.finish();
  fmt::print(stderr, "{} of {} messages were empty: {} filled and marked fuzzy\n", report.empty, report.messages, report.filled);
  if (!report.format_codes_differ.empty())
    fmt::print(stderr, "{} left empty, as no translation has the format codes of its message: {}\n", report.format_codes_differ.size(),
               lines_text(report.format_codes_differ));
  if (!report.untranslated.empty())
    fmt::print(stderr, "{} left empty without a translation: {}\n", report.untranslated.size(), lines_text(report.untranslated));
}

void check_usage(const TranslateOptions& options) {
  if (options.po.empty()) {
    if (options.in_place) throw UsageError("--in-place belongs to --po");
    return;
  }
  if (!options.files.empty() || options.document) throw UsageError("--po takes one catalogue: no other files and no --document");
  if (!options.n_best.empty()) throw UsageError("--po fills in one translation a message: it takes no --n-best");
  if (options.in_place && !options.out.empty())
    throw UsageError("--po writes the filled catalogue to --out FILE, or with --in-place over the old one: give one of them");
  if (options.in_place && options.po == "-") throw UsageError("--in-place cannot replace the standard input: give --out FILE");
  if (options.in_place && text::is_packed(options.po))
    throw UsageError(fmt::format("--in-place does not pack: unpack '{}' first, or give --out FILE", options.po));
  std::error_code ignored;
  if (!options.out.empty() && std::filesystem::equivalent(options.po, options.out, ignored))
    throw UsageError("--out names the catalogue itself: say --in-place to replace it");
}

int run_translate(const TranslateOptions& options) {
  check_usage(options);
  decode::TranslationOptions how = translation_options(options);
  const bool several = how.search.n_best > 1;
  if (!options.po.empty()) how.search.n_best = how.search.beam;  // to choose one with the right format codes
  const train::LoadedTranslation loaded = open_translation(options.model);
  const decode::Translator translator(*loaded.model, loaded.vocabulary, how);
  if (!options.po.empty()) {
    translate_po(translator, options);
    return 0;
  }
  if (options.document && loaded.config.data.corpus.document_tokens == 0)
    throw UsageError(options.model.run + " was trained on single sentences (data.document_tokens is 0): it takes no --document");
  if (options.files.empty() && ::isatty(STDIN_FILENO) != 0) {
    if (options.document || !options.out.empty()) throw UsageError("--document and --out need files, or text through a pipe");
    translate_prompt(translator, loaded, options.model.run, several);
    return 0;
  }
  const Input input(options.files.empty() ? std::vector<std::string>{"-"} : options.files);
  Output output(options.out);
  if (options.document)
    translate_documents(translator, loaded, input, several, output);
  else
    translate_lines(translator, input, several, output);
  output.finish();
  return 0;
}

}  // namespace

void add_translate(Command parent) {
  auto options = std::make_shared<TranslateOptions>();
  Command command = parent.subcommand("translate", "Translate lines, documents or message catalogues by a trained model");
  add_translation_model(command, options->model);
  command.option("files", options->files, "FILE",
                 "Text files, one sentence a line, also .gz or .xz (default: the standard input, with a prompt if it is a terminal)");
  const char *input = "Input", *how = "Search", *output = "Output";
  command
      .flag("--document", options->document,
            "Blank lines end documents, which are translated in parts of several sentences, as the run was trained; the translation of a "
            "part stands in its first line, the others are empty")
      .group(input);
  command.option("--po", options->po, "FILE", "Fill the empty entries of a message catalogue (.po) and mark them fuzzy").group(input);
  command.option("--beam", options->beam, "N", "Hypotheses that are followed; 1: greedy (default: 4)").group(how);
  command
      .option("--length-penalty", options->length_penalty, "A",
              "Scores are log p / ((5 + tokens) / 6)^A: larger prefers longer translations (default: 0.6)")
      .group(how);
  command
      .option("--max-length", options->max_length, "A,B",
              "A translation has at most A times the source's tokens and B more; or one number of tokens (default: 1.5,20)")
      .group(how);
  command
      .option(
          "--patience", options->patience, "X",
          "End a search when X times the beam's hypotheses have ended; none: when it is certain that no better one will come (default: 1)")
      .group(how);
  command.option("--batch", options->batch, "TOKENS", "Source tokens that are translated at once (default: 1024)").group(how);
  command
      .option("--n-best", options->n_best, "N",
              "The N best of each line, each as: line, tab, score, tab, text (default: 1, the text alone)")
      .group(output);
  command
      .option("--out", options->out, "FILE", "Write to FILE, which appears when all is done (default: the standard output, also with --po)")
      .group(output);
  command.flag("--in-place", options->in_place, "With --po: replace the catalogue itself").group(output);
  command.footer("Lines stay in their order, and empty lines stay empty.");
  command.run([options] { return run_translate(*options); });
}

}  // namespace hinge::cli
