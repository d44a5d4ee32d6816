// Training, loading, encoding; SentencePiece itself is behind text/pieces.h.
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "support/atomic_file.h"
#include "support/config.h"
#include "support/hash.h"
#include "text/pieces.h"
#include "text/unicode.h"

namespace hinge::text {

namespace {

constexpr size_t kLongestSentence = 16384;  // bytes; longer ones are not trained on
constexpr unsigned kSeed = 1;               // of the choice of sentences

void require_options(const VocabularyOptions& options) {
  const int64_t least = options.byte_fallback ? 300 : 16;
  if (options.size < least || options.size > 1'000'000)
    throw std::runtime_error(fmt::format("vocabulary size {} is not allowed: give {} to 1000000", options.size, least));
  if (!(options.coverage >= 0.9 && options.coverage <= 1))
    throw std::runtime_error(fmt::format("vocabulary coverage {} is not allowed: give 0.9 to 1", options.coverage));
  if (options.sentences < 1)
    throw std::runtime_error(fmt::format("vocabulary sentences {} is not allowed: give at least 1", options.sentences));
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const PieceModel> model, std::string bytes, std::string name)
    : model_(std::move(model)), bytes_(std::move(bytes)), name_(std::move(name)), hash_(support::fnv1a(bytes_)) {}

Vocabulary Vocabulary::train(const std::vector<std::string_view>& sentences, const VocabularyOptions& options) {
  require_options(options);
  if (std::all_of(sentences.begin(), sentences.end(), [](std::string_view s) { return strip(s).empty(); }))
    throw std::runtime_error("vocabulary: there is no text to train it on");
  // Text goes in and comes out as it is, so no Unicode normalization: it would turn the ellipsis of menus into three dots, and a
  // translation would not be found equal to its reference.
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", support::config_word(options.type)},
      {"vocab_size", std::to_string(options.size)},
      {"character_coverage", fmt::format("{}", options.coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"normalization_rule_name", "identity"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "3"},
      {"num_threads", "1"},
      {"input_sentence_size", std::to_string(options.sentences)},
      {"shuffle_input_sentence", "true"},
      {"max_sentence_length", std::to_string(kLongestSentence)},
      {"minloglevel", "2"},
  };
  std::string bytes;
  try {
    bytes = piece_library().train(
        arguments, sentences.size(), [&](size_t i) { return collapse_spaces(sentences[i]); }, kSeed);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("a {} vocabulary of {} pieces cannot be trained on these {} sentences: {}",
                                         support::config_word(options.type), options.size, sentences.size(), error.what()));
  }
  return from_bytes(std::move(bytes), "the trained vocabulary");
}

Vocabulary Vocabulary::from_bytes(std::string bytes, const std::string& name) {
  std::shared_ptr<const PieceModel> model = piece_library().load(bytes);
  if (!model)
    throw std::runtime_error(fmt::format("{}: is no SentencePiece model; give the .model file that spm_train or hinge train wrote", name));
  for (const auto& [special, id] : {std::pair("unk", model->unk()), {"bos", model->bos()}, {"eos", model->eos()}})
    if (id < 0) throw std::runtime_error(fmt::format("{}: has no id for {}; train the model with --{}_id", name, special, special));
  return {std::move(model), std::move(bytes), name};
}

Vocabulary Vocabulary::load(const std::string& path) { return from_bytes(support::read_file(path), path); }

void Vocabulary::save(const std::string& path) const { support::AtomicFile(path).commit(bytes_); }

int64_t Vocabulary::size() const { return model_->size(); }
int32_t Vocabulary::unk() const { return model_->unk(); }
int32_t Vocabulary::bos() const { return model_->bos(); }
int32_t Vocabulary::eos() const { return model_->eos(); }
int32_t Vocabulary::pad() const { return model_->pad(); }

const std::string& Vocabulary::piece(int32_t id) const {
  if (id < 0 || id >= size()) throw std::runtime_error(fmt::format("{}: has no piece {}; it has {}", name_, id, size()));
  return model_->piece(id);
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  const std::vector<int> ids = model_->encode(collapse_spaces(text));
  return {ids.begin(), ids.end()};
}

std::string Vocabulary::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) piece(id);  // complains about what is none
  return model_->decode(std::vector<int>(ids.begin(), ids.end()));
}

void Vocabulary::require_fit(int64_t expected_size, uint64_t expected_hash, const std::string& run) const {
  if (size() == expected_size && hash() == expected_hash) return;
  throw std::runtime_error(
      fmt::format("{}: does not fit {}: it has {} pieces (hash {:016x}), the run was trained with {} (hash {:016x}); use "
                  "the vocabulary that is stored with the run",
                  name_, run, size(), hash(), expected_size, expected_hash));
}

}  // namespace hinge::text
