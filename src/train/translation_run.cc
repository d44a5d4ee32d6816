#include "train/translation_run.h"

#include <fmt/format.h>

#include <stdexcept>

#include "support/config.h"
#include "train/weights.h"

namespace hinge::train {
namespace {

constexpr const char* kAveraged = "averaged.safetensors";

nlohmann::json length_rules(const models::Seq2SeqConfig& model) {
  nlohmann::json rules = nlohmann::json::object();
  for (const auto& [name, options] : models::attention_options(model)) rules[name] = length_rule_name(options.attention.length_rule);
  return rules;
}

bool has_averaged(const Checkpoint& checkpoint) { return checkpoint.state.contains("averaged_score"); }

}  // namespace

std::string vocabulary_path(const std::string& run) { return run + "/vocabulary.model"; }

nlohmann::json checkpoint_state(const TranslationTrainConfig& config, const text::Vocabulary& vocabulary) {
  return {{"vocabulary", {{"size", vocabulary.size()}, {"hash", vocabulary.hash()}}},
          {"pair", config.data.source.pair},
          {"length_rules", length_rules(config.model)}};
}

void require_vocabulary(const text::Vocabulary& vocabulary, const Checkpoint& checkpoint, const std::string& run) {
  const nlohmann::json& stored = checkpoint.state.at("vocabulary");
  vocabulary.require_fit(stored.at("size").get<int64_t>(), stored.at("hash").get<uint64_t>(), run);
}

void require_length_rules(const models::Seq2SeqConfig& model, const Checkpoint& checkpoint, const std::string& run) {
  const nlohmann::json &trained = checkpoint.state.at("length_rules"), now = length_rules(model);
  for (const auto& [name, rule] : trained.items())
    if (now.at(name) != rule)
      throw std::runtime_error(
          fmt::format("'{}' was trained with the length rule {} in its {}, but the config now gives {}: put model.attention "
                      "and model.{}.attention back as they were",
                      run, rule.get<std::string>(), name, now.at(name).get<std::string>(), name));
}

LoadedTranslation load_translation(const std::string& run, Which which, std::vector<std::string>* notes) {
  if (!is_run(run)) throw std::runtime_error(run + " is not a run: it holds no config.toml (hinge train makes runs)");
  TranslationTrainConfig config;
  support::read_config(config, config_path(run));
  const CheckpointSearch search = which == Which::best ? best_checkpoint(run) : latest_checkpoint(run);
  if (notes) *notes = search.skipped;
  if (!search.found) throw std::runtime_error(run + " holds no checkpoint yet");
  LoadedTranslation loaded{config, text::Vocabulary::load(vocabulary_path(run)), nullptr, *search.found, which == Which::averaged};
  if (which == Which::averaged && !has_averaged(loaded.checkpoint))
    throw std::runtime_error(run + " has no averaged weights: a run makes them at its end, if train.average is at least 2");
  if (which == Which::best) {
    const CheckpointSearch last = latest_checkpoint(run);
    if (last.found && has_averaged(*last.found) && loaded.checkpoint.score &&
        last.found->state["averaged_score"].get<double>() > *loaded.checkpoint.score)
      loaded.checkpoint = *last.found, loaded.averaged = true;
  }
  require_vocabulary(loaded.vocabulary, loaded.checkpoint, run);
  require_length_rules(loaded.config.model, loaded.checkpoint, run);
  if (const auto text = loaded.checkpoint.state.find("text"); text != loaded.checkpoint.state.end())
    loaded.source_tokens = text->at(1).get<int64_t>(), loaded.target_tokens = text->at(2).get<int64_t>();
  loaded.model = std::make_unique<models::Seq2Seq>(loaded.config.model, 0);
  load_weights(loaded.checkpoint.file(loaded.averaged ? kAveraged : "weights.safetensors"), loaded.model->parameters());
  return loaded;
}

}  // namespace hinge::train
