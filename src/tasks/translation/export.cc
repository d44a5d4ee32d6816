#include "tasks/translation/export.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/atomic_file.h"
#include "tasks/translation/run_text.h"
#include "tasks/translation/trained_model.h"
#include "text/corpus.h"
#include "text/vocabulary.h"
#include "train/run_folder.h"

namespace hinge::translation {
namespace {

void require_absent(const std::string& path) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    throw std::runtime_error(fmt::format("'{}' already exists: remove it, or choose another name with --out", path));
}

// Catalogues are split anew each time. The parts are those of the training if the messages and the config are; if not, it is said.
void compare_with_training(const std::string& run, const Config& config, bool changed, const text::Vocabulary& vocabulary) {
  if (config.data.source.kind != text::SourceKind::catalogues) return;
  if (changed) {
    fmt::print(stderr, "with --set the split may be another than that of the training: {} may have been trained on some of these pairs\n",
               run);
    return;
  }
  const train::CheckpointSearch search = train::latest_checkpoint(run, train::Check::headers);
  if (!search.found || !search.found->state.contains("text")) return;
  if (search.found->state.contains("text_has_changed")) {
    fmt::print(stderr, "the catalogues have changed while {} was trained: it may have been trained on some of these pairs\n", run);
    return;
  }
  const text::Corpus now(text::read_text(config.data.source, text::Part::train), vocabulary, config.data.corpus);
  if (search.found->state["text"] == nlohmann::json({now.size(), now.source_tokens(), now.target_tokens()})) return;
  fmt::print(stderr,
             "the catalogues that are there now are not those that {} was trained on: it may have been trained on some of these pairs\n",
             run);
}

}  // namespace

std::string export_text(const tasks::ExportRequest& request) {
  const text::Part part = parse_part("--split", request.split);
  const bool of_run = train::is_run(request.from);
  const Config config = tasks::read_config<Config>({of_run ? train::config_path(request.from) : request.from, request.changes});
  const text::LanguagePair languages = text::parse_language_pair(config.data.source.pair);
  const std::string source = request.out + "." + languages.source, target = request.out + "." + languages.target;
  if (!std::filesystem::path(request.out).has_filename())
    throw tasks::RequestError(fmt::format("--out '{}' cannot begin a file name", request.out));
  require_absent(source), require_absent(target);
  for (const std::string& path : {source, target}) support::AtomicFile{path};  // one that cannot be written fails here, before the work
  text::ParallelText pairs = text::read_text(config.data.source, part);
  if (!pairs.skipped.empty())
    fmt::print(stderr, "left out of {}: {}\n", config.data.source.kind == text::SourceKind::catalogues ? "all splits" : request.split,
               text::describe(pairs.skipped));
  if (of_run) {
    const text::Vocabulary vocabulary = load_vocabulary(request.from);
    compare_with_training(request.from, config, !request.changes.empty(), vocabulary);
    const int64_t longer = text::leave_out_long_sources(pairs, vocabulary, config.model.max_length);
    if (longer > 0) fmt::print(stderr, "left out of {}: {} longer than the model reads\n", request.split, longer);
  }
  if (pairs.documents.empty()) throw std::runtime_error("no pair is left to write");
  text::write_parallel(pairs, source, target, config.data.corpus.document_tokens > 0);
  return fmt::format("{} pairs of {} documents: {} {}", pairs.pairs(), pairs.documents.size(), source, target);
}

}  // namespace hinge::translation
