// hinge translate: translates lines, documents or message catalogues by a trained model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "cli/interrupt.h"
#include "cli/trained_model.h"
#include "decode/documents.h"
#include "decode/po_translation.h"
#include "decode/translator.h"
#include "support/atomic_file.h"
#include "support/progress.h"
#include "text/catalogues.h"
#include "text/error.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::cli {
namespace {

struct TranslateOptions {
  RunOptions model;
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
    else if (!reader_gone_ && std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      complain();
  }
  // What is written can be read from here on, but for a file, which appears at the end.
  void flush() {
    if (!file_ && !reader_gone_ && std::fflush(stdout) != 0) complain();
  }
  void finish() {
    if (file_)
      file_->commit();
    else
      flush();
  }
  // Text goes to the terminal that shows the progress.
  bool shares_terminal() const { return !file_ && ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0; }

 private:
  // A Ctrl-C also ends the program that reads through a pipe: no mistake, as this one ends, too.
  void complain() {
    reader_gone_ = errno == EPIPE && stop_asked();
    if (!reader_gone_) support::throw_file_error("write to", "standard output");
  }

  bool reader_gone_ = false;
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

  // The first line of each file.
  std::vector<size_t> file_begins() const {
    std::vector<size_t> begins;
    for (const Part& part : parts_) begins.push_back(part.first);
    return begins;
  }

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

constexpr const char* kStopping = "stopping after the batches at hand";  // what Ctrl-C does

// Ctrl-C came before all was done: "3 of 5 lines were translated".
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Translates with a progress bar and hands over what is done; says at the end how much it was. The bar makes room for what `take` writes to
// its terminal. Throws Stopped.
void translate_all(const decode::Translator& translator, const std::vector<decode::Source>& sources, const char* unit, bool shares_terminal,
                   const decode::Translator::Take& take) {
  const auto started = std::chrono::steady_clock::now();
  const auto all = static_cast<int64_t>(sources.size());
  int64_t tokens = 0;
  std::optional<support::Progress> progress;
  progress.emplace("translate", all);
  const auto take_group = [&](size_t first, const decode::Translator::Translations& group) {
    for (const auto& best : group) tokens += static_cast<int64_t>(best.at(0).ids.size()) + 1;
    if (shares_terminal) progress.reset();
    take(first, group);
    if (shares_terminal) progress.emplace("translate", all, static_cast<int64_t>(first + group.size()));
  };
  const int64_t done = translator.translate_in_groups(sources, take_group, [&](int64_t so_far, int64_t) {
    progress->update(so_far, {});
    return !stop_asked();
  });
  progress.reset();
  if (done < all) throw Stopped(fmt::format("{} of {} {} were translated", done, all, unit));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  fmt::print(stderr, "{} {}, {} tokens in {:.1f} s: {:.0f} tokens/s\n", all, unit, tokens, seconds,
             static_cast<double>(tokens) / std::max(seconds, 1e-9));
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
  translate_all(translator, sources, "lines", output.shares_terminal(), [&](size_t first, const auto& translations) {
    for (size_t i = 0; i < translations.size(); ++i) output.write(lines_of(first + i, translations[i], several));
    output.flush();
  });
}

// A part of a document is translated as one: its translation stands in the place of its first line, the other lines are empty.
void translate_documents(const decode::Translator& translator, const translation::TrainedModel& loaded, const Input& input, bool several,
                         Output& output) {
  const std::vector<std::string_view>& lines = input.lines();
  std::vector<int64_t> tokens;
  for (const std::string_view line : lines) tokens.push_back(static_cast<int64_t>(loaded.vocabulary.encode(line).size()));
  const int64_t most = decode::longest_source(loaded.config.data.corpus.document_tokens, loaded.source_tokens, loaded.target_tokens);
  const std::vector<decode::DocumentPart> parts = decode::cut_documents(lines, input.file_begins(), tokens, most);
  std::vector<decode::Source> sources;
  for (const decode::DocumentPart& part : parts) {
    try {
      sources.push_back(translator.encode(std::span(lines).subspan(part.first, part.lines)));
    } catch (const std::runtime_error& error) {
      throw input.error(part.first, error.what());
    }
  }
  size_t line = 0;  // the next to write
  const auto write_empty_until = [&](size_t end) {
    for (; line < end; ++line)
      if (!several) output.write("\n");
  };
  translate_all(translator, sources, "parts of documents", output.shares_terminal(), [&](size_t first, const auto& translations) {
    for (size_t i = 0; i < translations.size(); ++i, ++line) {
      const size_t head = parts[first + i].first;
      write_empty_until(head);
      output.write(lines_of(head, translations[i], several));
    }
    output.flush();
  });
  write_empty_until(lines.size());
}

// What was typed, as the model reads it. A mistake in it is said, and another line may come.
std::optional<decode::Source> typed_source(const decode::Translator& translator, const std::string& line) {
  if (const std::optional<size_t> bad = text::find_invalid_utf8(line)) {
    fmt::print(stderr, "your line is not UTF-8: its byte {} is 0x{:02x}; set the terminal to UTF-8\n", *bad + 1,
               static_cast<unsigned char>(line[*bad]));
    return {};
  }
  try {
    return translator.encode(line);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "your line {}\n", error.what());
    return {};
  }
}

void translate_prompt(const decode::Translator& translator, const translation::TrainedModel& loaded, const std::string& run, bool several) {
  fmt::print(stderr, "{} ({}), step {}. A line is translated when it ends; Ctrl-D leaves.\n", run, loaded.config.data.source.pair,
             loaded.weights.checkpoint.step);
  const bool prompts = ::isatty(STDERR_FILENO) != 0;
  const auto ask = [&] {
    if (prompts) fmt::print(stderr, "> ");
  };
  ask();
  size_t number = 0;
  Output output("");
  for (std::string line; std::getline(std::cin, line); ask(), ++number) {
    const std::optional<decode::Source> source = typed_source(translator, line);
    if (!source) continue;
    output.write(lines_of(number, translator.translate({*source}).at(0), several));
    output.flush();
  }
  if (prompts) fmt::print(stderr, "\n");
}

std::string lines_text(const std::vector<int64_t>& lines) {
  constexpr size_t kMost = 20;
  const std::vector<int64_t> first(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, lines.size())));
  return fmt::format("line{} {}{}", lines.size() == 1 ? "" : "s", fmt::join(first, ", "), lines.size() > kMost ? ", ..." : "");
}

std::string name_of_po(const TranslateOptions& options) { return options.po == "-" ? "standard input" : options.po; }

// The file that is to appear; "" for the standard output.
std::string target_of(const TranslateOptions& options) { return options.in_place ? options.po : options.out; }

// A catalogue's header may name its language, which must be the one that the run translates into.
void require_language(const text::PoFile& file, const TranslateOptions& options, const std::string& pair) {
  const std::string target = text::parse_language_pair(pair).target;
  const std::string theirs = text::language_of(file.language()), ours = text::language_of(target);
  // Names that are no codes cannot be compared: a file's ending may be "deu", a header's field "German".
  if (theirs.size() != 2 || ours.size() != 2) return;
  if (theirs == ours) {
    const auto [country, script] = text::variant_of(file.language());
    const auto [our_country, our_script] = text::variant_of(target);
    if (script != our_script || (country != our_country && !country.empty() && !our_country.empty()))
      fmt::print(stderr, "{} is a catalogue in '{}', as its header says, and {} translates into '{}': see whether that is near enough\n",
                 name_of_po(options), file.language(), options.model.run, target);
    return;
  }
  throw text::TextError(
      name_of_po(options), 0,
      fmt::format("is a catalogue in '{}', as the field Language of its header says, but {} translates into '{}' ({}): take "
                  "a run that translates into '{}', or correct the field if it is wrong",
                  file.language(), options.model.run, target, pair, file.language()));
}

// Of each text its translations, best first; none of a text that the model cannot read.
std::vector<std::vector<std::string>> translate_texts(const decode::Translator& translator, const std::vector<std::string>& texts) {
  std::vector<decode::Source> sources;
  std::vector<size_t> numbers;  // of their texts
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      sources.push_back(translator.encode(texts[i]));
      numbers.push_back(i);
    } catch (const std::runtime_error&) {
      // longer than the model can read: stays without a translation
    }
  }
  std::vector<std::vector<std::string>> all(texts.size());
  translate_all(translator, sources, "texts", false, [&](size_t first, const auto& translations) {
    for (size_t i = 0; i < translations.size(); ++i)
      for (const decode::Translation& one : translations[i]) all[numbers[first + i]].push_back(one.text);
  });
  return all;
}

// How many of a catalogue's entries were filled, and why the others were not.
void print_report(const decode::PoReport& report, int64_t max_length) {
  fmt::print(stderr, "{} of {} messages were empty: {} filled and marked fuzzy\n", report.empty, report.messages, report.filled);
  const auto left = [](const std::vector<int64_t>& lines, const std::string& reason) {
    if (!lines.empty()) fmt::print(stderr, "{} left empty, {}: {}\n", lines.size(), reason, lines_text(lines));
  };
  left(report.format_codes_differ, "as no translation has the format codes of its message");
  left(report.too_long, fmt::format("as a text of theirs has more tokens than the model reads (model.max_length {})", max_length));
  left(report.untranslated, "as a text of theirs got no translation");
  left(report.names_translators, "as the names of the translators belong there");
  left(report.control_codes, "as there are control codes between their words");
}

// Says what msgfmt will find fault with.
void warn_of_msgfmt(const text::PoFile& file, const std::string& name) {
  if (!file.names_charset())
    fmt::print(stderr,
               "{} does not say in its header that it is UTF-8, and msgfmt -c will not accept it: add \"Content-Type: text/plain; "
               "charset=UTF-8\\n\"\n",
               name);
  if (file.has_byte_order_mark()) fmt::print(stderr, "{} begins with a byte order mark, and msgfmt will not accept it: remove it\n", name);
}

void translate_po(const decode::Translator& translator, const translation::TrainedModel& loaded, const TranslateOptions& options) {
  const std::string text = text::read_text_file(options.po);
  text::PoFile file(text, name_of_po(options));
  require_language(file, options, loaded.config.data.source.pair);
  warn_of_msgfmt(file, name_of_po(options));
  stop_when_asked(kStopping);
  // A link stays one: what it leads to is replaced.
  Output output(options.in_place ? std::filesystem::canonical(options.po).string() : options.out);
  const auto translate = [&](const std::vector<std::string>& texts) { return translate_texts(translator, texts); };
  const decode::PoReport report = decode::fill_po(file, translate);
  output.write(file.text());
  if (options.in_place && text::read_text_file(options.po) != text)
    throw std::runtime_error(options.po + " was changed by another program meanwhile: it stays as it is now; run the command again");
  output.finish();
  print_report(report, loaded.config.model.max_length);
  if (file.partly_translated() > 0)
    fmt::print(stderr, "{} plural messages have a translation of some forms only: left as they are\n", file.partly_translated());
}

void translate_files(const decode::Translator& translator, const translation::TrainedModel& loaded, const TranslateOptions& options,
                     bool several) {
  const Input input(options.files.empty() ? std::vector<std::string>{"-"} : options.files);
  stop_when_asked(kStopping);
  Output output(options.out);
  if (options.document)
    translate_documents(translator, loaded, input, several, output);
  else
    translate_lines(translator, input, several, output);
  output.finish();
}

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(one, other, ignored);
}

void check_usage(const TranslateOptions& options) {
  if (options.out == "-") throw UsageError("--out names a file: leave it away for the standard output");
  for (const std::string& file : options.files)
    if (is_same_file(file, options.out)) throw UsageError(fmt::format("--out names '{}', which is to be translated", file));
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
  if (is_same_file(options.po, options.out)) throw UsageError("--out names the catalogue itself: say --in-place to replace it");
}

int run_translate(const TranslateOptions& options) {
  check_usage(options);
  decode::TranslationOptions how = translation_options(options);
  const bool several = how.search.n_best > 1;
  if (!options.po.empty()) how.search.n_best = how.search.beam;  // to choose one with the right format codes
  const translation::TrainedModel loaded = open_translation(options.model, "hinge translate");
  const decode::Translator translator(*loaded.model, loaded.vocabulary, how);
  if (options.document && loaded.config.data.corpus.document_tokens == 0)
    throw UsageError(options.model.run + " was trained on single sentences (data.document_tokens is 0): it takes no --document");
  if (options.po.empty() && options.files.empty() && ::isatty(STDIN_FILENO) != 0) {
    if (options.document || !options.out.empty()) throw UsageError("--document and --out need files, or text through a pipe");
    translate_prompt(translator, loaded, options.model.run, several);
    return 0;
  }
  try {
    if (options.po.empty())
      translate_files(translator, loaded, options, several);
    else
      translate_po(translator, loaded, options);
  } catch (const Stopped& stopped) {
    const std::string target = target_of(options);
    fmt::print(stderr, "hinge: {}{}\n", stopped.what(), target.empty() ? "" : fmt::format("; {} was not written", target));
    return kStoppedCode;
  }
  return 0;
}

}  // namespace

void add_translate(Command parent) {
  auto options = std::make_shared<TranslateOptions>();
  Command command = parent.subcommand("translate", "Translate lines, documents or message catalogues by a trained model");
  add_run(command, options->model);
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
  command.footer(
      "Lines stay in their order, and empty lines stay empty. They are written group by group, as they are done.\n"
      "Ctrl-C ends after the batches at hand, with exit code 130; what --out or --in-place names stays as it was.");
  command.run([options] { return run_translate(*options); });
}

}  // namespace hinge::cli
