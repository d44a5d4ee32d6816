#include "tasks/translation/example.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "tasks/translation/sentence_maps.h"
#include "tasks/translation/trained_model.h"
#include "text/unicode.h"
#include "train/trainer.h"

namespace hinge::translation {

tasks::Example example(const std::string& run, const std::string& sentence) {
  const at::NoGradGuard guard;
  train::use_threads(1);
  if (text::find_invalid_utf8(sentence)) throw std::runtime_error("the sentence is not UTF-8");
  const TrainedModel trained = load(run, train::Which::best);
  const decode::Translator translator(*trained.model, trained.vocabulary, {});
  decode::Source source;
  try {
    source = translator.encode(text::collapse_spaces(sentence));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("the sentence {}", error.what()));
  }
  SentenceMaps found = sentence_maps(trained, translator, source);
  // The attention from the translation to the sentence says the most.
  std::stable_partition(found.maps.begin(), found.maps.end(), [](const auto& map) { return map.second.x_label == "source"; });
  tasks::Example made;
  made.step = trained.weights.checkpoint.step;
  made.text = found.translation;
  for (const auto& [name, map] : found.maps) made.pictures.push_back({name, "image/svg+xml", render(map)});
  return made;
}

}  // namespace hinge::translation
