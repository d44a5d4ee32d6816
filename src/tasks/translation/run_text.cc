#include "tasks/translation/run_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "support/hash.h"
#include "support/nearest.h"
#include "tasks/task.h"

namespace hinge::translation {

namespace {

// `more`: what else is allowed.
[[noreturn]] void throw_unknown(const std::string& option, const std::string& name, const std::string& more) {
  const std::optional<std::string> meant = support::nearest(name, text::part_names());
  throw tasks::RequestError(fmt::format("{} '{}' is unknown.{} Allowed: {}{}", option, name,
                                        meant ? fmt::format(" Did you mean '{}'?", *meant) : "", fmt::join(text::part_names(), ", "),
                                        more));
}

}  // namespace

text::Part parse_part(const std::string& option, const std::string& name) {
  if (const std::optional<text::Part> part = text::part_of(name)) return *part;
  throw_unknown(option, name, "");
}

text::ParallelText read_split(const std::string& option, const std::string& name, const Config& config) {
  const text::TextSource& source = config.data.source;
  if (std::optional<text::ParallelText> text = text::read_named_text(source, name)) return std::move(*text);
  if (source.kind != text::SourceKind::files) throw_unknown(option, name, "");
  const text::LanguagePair pair = text::parse_language_pair(source.pair);
  throw_unknown(option, name, fmt::format(", or NAME of the files NAME.{} and NAME.{} in {}", pair.source, pair.target, source.path));
}

text::ParallelText read_split_or_files(const std::string& option, const std::string& given, const Config& config) {
  const text::TextSource& source = config.data.source;
  const size_t comma = given.find(',');
  if (comma == std::string::npos) return read_split(option, given, config);
  return text::read_parallel(given.substr(0, comma), given.substr(comma + 1), {source.on_error, source.longest});
}

std::string described(const text::ParallelText& text) {
  uint64_t hash = 0;
  for (const text::Document& document : text.documents) {
    hash = hash * 31 + document.pairs.size();
    for (const text::Pair& pair : document.pairs)
      for (const std::string_view side : {pair.source, pair.target}) hash = hash * 31 + support::fnv1a(side);
  }
  return fmt::format("{} pairs (hash {:016x})", text.pairs(), hash);
}

text::Readers readers_of(const train::Processes& processes) {
  distributed::ProcessGroup* const group = processes.group();
  if (group == nullptr) return {};
  return {group->rank(), group->world(), [group](const std::string& own) { return group->all_gather_bytes(own); }};
}

text::Vocabulary make_vocabulary(const DataConfig& config, const text::ParallelText& train, const support::ProgressOutput& output) {
  if (!config.vocabulary_file.empty()) return text::Vocabulary::load(config.vocabulary_file);
  std::vector<std::string_view> sentences;
  for (const text::Document& document : train.documents)
    for (const text::Pair& pair : document.pairs) sentences.insert(sentences.end(), {pair.source, pair.target});
  output.write(fmt::format("vocabulary: finding {} pieces in {} sentences\n", config.vocabulary.size, sentences.size()));
  return text::Vocabulary::train(sentences, config.vocabulary);
}

}  // namespace hinge::translation
