#include "tasks/translation/run_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/nearest.h"
#include "tasks/task.h"

namespace hinge::translation {

text::Part parse_part(const std::string& option, const std::string& name) {
  if (const std::optional<text::Part> part = text::part_of(name)) return *part;
  const std::optional<std::string> meant = support::nearest(name, text::part_names());
  throw tasks::RequestError(fmt::format("{} '{}' is unknown.{} Allowed: {}", option, name,
                                        meant ? fmt::format(" Did you mean '{}'?", *meant) : "", fmt::join(text::part_names(), ", ")));
}

text::ParallelText read_part_or_files(const std::string& option, const std::string& given, const Config& config) {
  const text::TextSource& source = config.data.source;
  if (const std::optional<text::Part> part = text::part_of(given)) return text::read_text(source, *part);
  const size_t comma = given.find(',');
  if (comma == std::string::npos)
    throw tasks::RequestError(
        fmt::format("{} '{}' is not known: give train, valid or test of the run's text, or two files: SOURCE,TARGET", option, given));
  return text::read_parallel(given.substr(0, comma), given.substr(comma + 1), {source.on_error, source.longest});
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
