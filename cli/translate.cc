// hinge translate: translates lines, documents or message catalogues with a trained model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/processes.h"
#include "cli/search_options.h"
#include "cli/trained_model.h"
#include "decode/documents.h"
#include "decode/line_translation.h"
#include "decode/po_language.h"
#include "decode/po_translation.h"
#include "decode/team.h"
#include "decode/translator.h"
#include "support/atomic_file.h"
#include "support/config.h"
#include "support/progress.h"
#include "text/files.h"
#include "text/line_reader.h"
#include "text/po.h"
#include "text/unicode.h"
#include "train/group_ranks.h"
#include "train/weights.h"

namespace hinge::cli {
namespace {

struct TranslateOptions {
  RunOptions model;
  std::vector<std::string> files;
  SearchArguments search;
  std::string n_best, po, out;
  bool document = false, in_place = false;
};

decode::TranslationOptions translation_options(const TranslateOptions& given) {
  decode::TranslationOptions options = search_options(given.search);
  if (!given.n_best.empty()) options.search.n_best = parse_whole("--n-best", given.n_best, 1, options.search.beam);
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

constexpr const char* kStopping = "stopping after the batches at hand";  // what Ctrl-C does

// Ctrl-C came before everything was done: "stopped after 3 of 5 lines".
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A progress bar that makes room for what is written to its terminal.
class Bar {
 public:
  explicit Bar(bool shares_terminal) : shares_terminal_(shares_terminal) {}

  void update(int64_t done, int64_t all) {
    if (!progress_ || all != all_) progress_.emplace("translate", all, done);  // a large input comes in parts
    all_ = all;
    progress_->update(done, {});
  }
  void make_room() {
    if (shares_terminal_) progress_.reset();
  }
  void finish() { progress_.reset(); }

 private:
  bool shares_terminal_;
  int64_t all_ = 0;
  std::optional<support::Progress> progress_;
};

std::string counted(int64_t n, const char* unit) { return fmt::format("{} {}{}", n, unit, n == 1 ? "" : "s"); }

// Says how much was translated. Throws Stopped if that is not all.
void print_counts(const decode::TranslationCounts& counts, const char* unit, bool read_all = true) {
  if (!read_all) throw Stopped("stopped after " + counted(counts.done, unit));
  if (counts.done < counts.all) throw Stopped(fmt::format("stopped after {} of {}", counts.done, counted(counts.all, unit)));
  fmt::print(stderr, "{}, {} tokens in {:.1f} s: {:.0f} tokens/s\n", counted(counts.done, unit), counts.tokens, counts.seconds,
             counts.tokens_per_second());
}

// A line for each line, or with --n-best a line for each translation: the number of the line, the score, the text.
std::string text_of(const decode::LineAnswer& answer, bool several) {
  if (!several) return answer.best.empty() ? "\n" : answer.best[0].text + "\n";
  std::string lines;
  for (const decode::Translation& one : answer.best) lines += fmt::format("{}\t{:.4f}\t{}\n", answer.line + 1, one.score, one.text);
  return lines;
}

void write_answers(std::span<const decode::LineAnswer> answers, bool several, Output& output) {
  for (const decode::LineAnswer& answer : answers) output.write(text_of(answer, several));
  output.flush();
}

void translate_files(const decode::Translator& translator, const translation::TrainedModel& loaded, const TranslateOptions& options,
                     bool several) {
  std::optional<int64_t> part_tokens;
  if (options.document)
    part_tokens = decode::longest_source(loaded.config.data.corpus.document_tokens, loaded.source_tokens, loaded.target_tokens);
  stop_when_asked(kStopping);
  text::LineReader reader(options.files.empty() ? std::vector<std::string>{"-"} : options.files);
  Output output(options.out);
  Bar bar(output.shares_terminal());
  const auto write = [&](std::span<const decode::LineAnswer> answers) {
    bar.make_room();
    write_answers(answers, several, output);
  };
  std::function<void(int64_t, int64_t)> progress;  // a live input has no end that it could show
  if (!reader.live()) progress = [&](int64_t done, int64_t all) { bar.update(done, all); };
  const decode::LinesDone done = decode::translate_lines(
      translator, reader, part_tokens, write, [] { return stop_asked().load(); }, progress);
  bar.finish();
  print_counts(done.counts, options.document ? "document part" : "line", done.read_all);
  output.finish();
}

// A mistake in what was typed is said, and another line may come.
bool add_typed(const std::string& line, decode::LineTranslation& lines) {
  if (const std::optional<size_t> bad = text::find_invalid_utf8(line)) {
    fmt::print(stderr, "your line is not UTF-8: byte {} is 0x{:02x}; set the terminal to UTF-8\n", *bad + 1,
               static_cast<unsigned char>(line[*bad]));
    return false;
  }
  try {
    lines.add(line);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "your line {}\n", error.what());
    return false;
  }
  return true;
}

void translate_prompt(const decode::Translator& translator, const translation::TrainedModel& loaded, const std::string& run, bool several) {
  fmt::print(stderr, "{} ({}), step {}. Type a line to translate it; Ctrl-D quits.\n", run, loaded.config.data.source.pair,
             loaded.weights.checkpoint.step);
  const bool prompts = ::isatty(STDERR_FILENO) != 0;
  const auto ask = [&] {
    if (prompts) fmt::print(stderr, "> ");
  };
  ask();
  Output output("");
  decode::LineTranslation lines(translator, std::nullopt);
  const auto write = [&](std::span<const decode::LineAnswer> answers) { write_answers(answers, several, output); };
  for (std::string line; std::getline(std::cin, line); ask())
    if (add_typed(line, lines)) lines.translate(write);
  if (prompts) fmt::print(stderr, "\n");
}

std::string lines_text(const std::vector<int64_t>& lines) {
  constexpr size_t kMost = 20;
  const std::vector<int64_t> first(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, lines.size())));
  return fmt::format("line{} {}{}", lines.size() == 1 ? "" : "s", fmt::join(first, ", "), lines.size() > kMost ? ", ..." : "");
}

// The file that is to appear; "" for the standard output.
std::string target_of(const TranslateOptions& options) { return options.in_place ? options.po : options.out; }

// How many of a catalogue's entries were filled, and why the others were not.
void print_report(const decode::PoReport& report, int64_t max_length) {
  fmt::print(stderr, "{} of {} messages were empty: {} filled and marked fuzzy\n", report.empty, report.messages, report.filled);
  const auto left = [](const std::vector<int64_t>& lines, const std::string& reason) {
    if (!lines.empty()) fmt::print(stderr, "{} left empty because {}: {}\n", lines.size(), reason, lines_text(lines));
  };
  left(report.format_codes_differ, "no translation has the format codes of its message");
  left(report.too_long, fmt::format("a text has more tokens than the model reads (model.max_length {})", max_length));
  left(report.untranslated, "a text got no translation");
  left(report.names_translators, "the names of the translators belong there");
  left(report.control_codes, "there are control codes between the words");
}

// Says what msgfmt will find fault with.
void warn_of_msgfmt(const text::PoFile& file, const std::string& name) {
  if (!file.names_charset())
    fmt::print(stderr,
               "{} does not say in its header that it is UTF-8, so msgfmt -c will reject it: add \"Content-Type: text/plain; "
               "charset=UTF-8\\n\"\n",
               name);
  if (file.has_byte_order_mark()) fmt::print(stderr, "{} begins with a byte order mark, so msgfmt will reject it: remove the mark\n", name);
}

void translate_po(const decode::Translator& translator, const translation::TrainedModel& loaded, const TranslateOptions& options) {
  const std::string text = text::read_text_file(options.po), name = options.po == "-" ? "standard input" : options.po;
  text::PoFile file(text, name);
  if (const auto warning = decode::check_language(file, name, options.model.run, loaded.config.data.source.pair))
    fmt::print(stderr, "{}\n", *warning);
  warn_of_msgfmt(file, name);
  stop_when_asked(kStopping);
  // A link stays one: what it leads to is replaced.
  Output output(options.in_place ? std::filesystem::canonical(options.po).string() : options.out);
  const decode::PoReport report = decode::fill_po(file, [&](const std::vector<std::string>& texts) {
    Bar bar(/*shares_terminal=*/false);
    decode::TranslatedTexts result = decode::translate_texts(translator, texts, [&](int64_t done, int64_t all) {
      bar.update(done, all);
      return !stop_asked();
    });
    bar.finish();
    print_counts(result.counts, "text");
    return result.translations;
  });
  output.write(file.text());
  if (options.in_place && text::read_text_file(options.po) != text)
    throw std::runtime_error(options.po + " was changed by another program in the meantime and stays as it is now; run the command again");
  output.finish();
  print_report(report, loaded.config.model.max_length);
  if (file.partly_translated() > 0)
    fmt::print(stderr, "{} plural messages have translations of some forms only; they stay as they are\n", file.partly_translated());
}

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(one, other, ignored);
}

void check_usage(const TranslateOptions& options) {
  if (options.out == "-") throw UsageError("--out takes a file; omit it to write to the standard output");
  for (const std::string& file : options.files)
    if (is_same_file(file, options.out)) throw UsageError(fmt::format("--out names '{}', which is to be translated", file));
  if (options.po.empty()) {
    if (options.in_place) throw UsageError("--in-place needs --po");
    return;
  }
  if (!options.files.empty() || options.document) throw UsageError("--po takes one catalogue, no other files and no --document");
  if (!options.n_best.empty()) throw UsageError("--po fills in one translation per message; it does not take --n-best");
  if (options.in_place && !options.out.empty()) throw UsageError("--out and --in-place exclude each other: give one of them");
  if (options.in_place && options.po == "-") throw UsageError("--in-place cannot replace the standard input: give --out FILE");
  if (options.in_place && text::is_packed(options.po))
    throw UsageError(fmt::format("--in-place cannot write a packed file: unpack '{}' first, or give --out FILE", options.po));
  if (is_same_file(options.po, options.out)) throw UsageError("--out names the catalogue itself: use --in-place to replace it");
}

// `ranks`: this is rank 0 of a team.
int translate(const TranslateOptions& options, const translation::TrainedModel& loaded, nn::SequenceRanks* ranks) {
  decode::TranslationOptions how = translation_options(options);
  const bool several = how.search.n_best > 1;
  if (!options.po.empty()) how.search.n_best = how.search.beam;  // to choose one with the right format codes
  const decode::Translator translator(*loaded.model, loaded.vocabulary, how, ranks);
  if (options.document && loaded.config.data.corpus.document_tokens == 0)
    throw UsageError(options.model.run + " was trained on single sentences (data.document_tokens is 0); it does not take --document");
  if (options.po.empty() && options.files.empty() && ::isatty(STDIN_FILENO) != 0) {
    if (options.document || !options.out.empty()) throw UsageError("--document and --out need files or a pipe as input");
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

// As one of several processes, which share the tokens of each text. Rank 0 reads, searches and writes.
int translate_with_others(const TranslateOptions& options, const distributed::Environment& environment) {
  if (options.files.empty() || options.out.empty() || !options.po.empty())
    throw UsageError("with several processes, hinge translate takes files and --out, and not --po");
  return with_processes(environment, [&](distributed::ProcessGroup& group, const std::string&) {
    const translation::TrainedModel loaded = open_translation(options.model, "hinge translate");
    models::require_splittable(loaded.config.model, group.world());
    const train::Processes processes(&group);
    processes.require_same(support::write_config(loaded.config),
                           fmt::format("weights (hash {:016x})", train::hash_of_weights(loaded.model->parameters())));
    train::GroupRanks ranks(group);
    if (!processes.first()) {
      stop_when_asked("rank 0 ends the work");
      return static_cast<int>(decode::follow(*loaded.model, ranks));
    }
    const int code = translate(options, loaded, &ranks);
    decode::end_following(ranks, code);
    return code;
  });
}

int run_translate(const TranslateOptions& options) {
  check_usage(options);
  if (const std::optional<distributed::Environment> environment = distributed::read_environment())
    return translate_with_others(options, *environment);
  return translate(options, open_translation(options.model, "hinge translate"), nullptr);
}

}  // namespace

void add_translate(Command parent) {
  auto options = std::make_shared<TranslateOptions>();
  Command command = parent.subcommand("translate", "Translate lines, documents or message catalogues with a trained model");
  add_run(command, options->model);
  command.option("files", options->files, "FILE",
                 "Text files, one sentence per line, also .gz or .xz (default: the standard input, with a prompt if it is a terminal)");
  const char *input = "Input", *output = "Output";
  command
      .flag("--document", options->document,
            "Translate documents, which end at blank lines, in parts of several sentences, as the run was trained; the translation of a "
            "part stands in its first line, the others are empty")
      .group(input);
  command.option("--po", options->po, "FILE", "Fill the empty entries of a message catalogue (.po) and mark them fuzzy").group(input);
  add_search(command, options->search, "Search");
  command
      .option("--n-best", options->n_best, "N",
              "The N best translations of each line, each as: line, tab, score, tab, text (default: 1, the text alone)")
      .group(output);
  command
      .option("--out", options->out, "FILE",
              "Write to FILE, which appears when everything is done (default: the standard output, also with --po)")
      .group(output);
  command.flag("--in-place", options->in_place, "With --po: replace the catalogue itself").group(output);
  command.footer(
      "Lines stay in their order, and empty lines stay empty. Files are checked first and then written group by group.\n"
      "From a pipe, each line is translated as soon as it is there, together with the lines that are already waiting.\n"
      "Ctrl-C ends after the batches at hand with exit code 130; the file named by --out or --in-place stays as it was.\n"
      "Several processes share the tokens of each text: hinge launch -n 2 -- translate RUN --document FILE --out FILE.");
  command.run([options] { return run_translate(*options); });
}

}  // namespace hinge::cli
