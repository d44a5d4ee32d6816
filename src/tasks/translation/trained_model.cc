#include "tasks/translation/trained_model.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "support/json.h"
#include "train/weights.h"

namespace hinge::translation {
namespace {

nlohmann::json length_rules(const models::Seq2SeqConfig& model) {
  nlohmann::json rules = nlohmann::json::object();
  for (const auto& [name, options] : models::attention_options(model)) rules[name] = length_rule_name(options.attention.length_rule);
  return rules;
}

}  // namespace

text::Vocabulary load_vocabulary(const std::string& run) {
  return text::Vocabulary::from_bytes(train::read_run_file(run, kVocabularyFile), run + "/" + kVocabularyFile);
}

nlohmann::json checkpoint_state(const Config& config, const text::Vocabulary& vocabulary) {
  return {{"vocabulary", {{"size", vocabulary.size()}, {"hash", vocabulary.hash()}}},
          {"pair", config.data.source.pair},
          {"length_rules", length_rules(config.model)}};
}

void require_vocabulary(const text::Vocabulary& vocabulary, const train::Checkpoint& checkpoint, const std::string& run) {
  checkpoint.read_state([&](const nlohmann::json& state) {
    const nlohmann::json& stored = state.at("vocabulary");
    vocabulary.require_fit(support::whole_number(stored.at("size")), support::whole_number<uint64_t>(stored.at("hash")), run);
  });
}

void require_length_rules(const models::Seq2SeqConfig& model, const train::Checkpoint& checkpoint, const std::string& run) {
  const nlohmann::json now = length_rules(model);
  const auto trained =
      checkpoint.read_state([](const nlohmann::json& state) { return state.at("length_rules").get<std::map<std::string, std::string>>(); });
  for (const auto& [name, rule] : trained)
    if (now.value(name, rule) != rule)
      throw std::runtime_error(
          fmt::format("'{}' was trained with the length rule {} in its {}, but the config now gives {}: put model.attention "
                      "and model.{}.attention back as they were",
                      run, rule, name, now.value(name, rule), name));
}

TrainedModel load(const std::string& run, train::Which which, const std::vector<std::string>& changes) {
  const Config config = train::read_run_config<Config>(run, changes);
  TrainedModel trained{config, load_vocabulary(run), nullptr, train::choose_weights(run, which)};
  const train::Checkpoint& checkpoint = trained.weights.checkpoint;
  require_vocabulary(trained.vocabulary, checkpoint, run);
  require_length_rules(config.model, checkpoint, run);
  checkpoint.read_state([&](const nlohmann::json& state) {
    if (const auto text = state.find("text"); text != state.end())
      trained.source_tokens = support::whole_number(text->at(1)), trained.target_tokens = support::whole_number(text->at(2));
  });
  trained.model = std::make_unique<models::Seq2Seq>(config.model, 0);
  train::load_weights(trained.weights.path(), trained.model->parameters());
  return trained;
}

}  // namespace hinge::translation
