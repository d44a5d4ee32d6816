// The only file that includes SentencePiece.
#include "text/vocabulary.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "support/atomic_file.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::text {

struct Vocabulary::Model {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

constexpr size_t kLongestSentence = 16384;  // bytes; longer ones are not trained on
constexpr unsigned kSeed = 1;               // of the choice of sentences

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string_view>& sentences) : sentences_(sentences) { read(); }
  bool done() const override { return at_ >= sentences_.size(); }
  void Next() override {
    ++at_;
    read();
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void read() {
    if (!done()) value_ = collapse_spaces(sentences_[at_]);
  }

  const std::vector<std::string_view>& sentences_;
  size_t at_ = 0;
  std::string value_;
};

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

void require_options(const VocabularyOptions& options) {
  if (options.type != "bpe" && options.type != "unigram")
    throw std::runtime_error(fmt::format("vocabulary type '{}' is unknown; allowed: bpe, unigram", options.type));
  const int64_t least = options.byte_fallback ? 300 : 16;
  if (options.size < least || options.size > 1'000'000)
    throw std::runtime_error(fmt::format("vocabulary size {} is not allowed: give {} to 1000000", options.size, least));
  if (!(options.coverage >= 0.9 && options.coverage <= 1))
    throw std::runtime_error(fmt::format("vocabulary coverage {} is not allowed: give 0.9 to 1", options.coverage));
  if (options.sentences < 1) throw std::runtime_error(fmt::format("vocabulary sentences {} is not allowed: give at least 1", options.sentences));
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const Model> model, std::string bytes, std::string name)
    : model_(std::move(model)), bytes_(std::move(bytes)), name_(std::move(name)), hash_(fnv1a(bytes_)) {}

Vocabulary Vocabulary::train(const std::vector<std::string_view>& sentences, const VocabularyOptions& options) {
  require_options(options);
  if (std::all_of(sentences.begin(), sentences.end(), [](std::string_view s) { return strip(s).empty(); }))
    throw std::runtime_error("vocabulary: there is no text to train it on");
  // Text goes in and comes out as it is, so no Unicode normalization: it would turn the ellipsis of menus into three dots, and a translation
  // would not be found equal to its reference.
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.type},
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
  sentencepiece::SetRandomGeneratorSeed(kSeed);
  Sentences iterator(sentences);
  std::string bytes;
  const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &bytes);
  if (!status.ok())
    throw std::runtime_error(fmt::format("a {} vocabulary of {} pieces cannot be trained on these {} sentences: {}", options.type,
                                         options.size, sentences.size(), status.message()));
  return from_bytes(std::move(bytes), "the trained vocabulary");
}

Vocabulary Vocabulary::from_bytes(std::string bytes, const std::string& name) {
  auto model = std::make_shared<Model>();
  const bool loaded = !bytes.empty() && model->processor.LoadFromSerializedProto(bytes).ok();
  if (!loaded || model->processor.GetPieceSize() == 0)
    throw std::runtime_error(fmt::format("{}: is no SentencePiece model; give the .model file that spm_train or hinge train wrote", name));
  for (const auto& [special, id] : {std::pair("unk", model->processor.unk_id()), {"bos", model->processor.bos_id()}, {"eos", model->processor.eos_id()}})
    if (id < 0)
      throw std::runtime_error(fmt::format("{}: has no id for {}; train the model with --{}_id", name, special, special));
  return {std::move(model), std::move(bytes), name};
}

Vocabulary Vocabulary::load(const std::string& path) { return from_bytes(support::read_file(path), path); }

void Vocabulary::save(const std::string& path) const { support::AtomicFile(path).commit(bytes_); }

int64_t Vocabulary::size() const { return model_->processor.GetPieceSize(); }
int32_t Vocabulary::unk() const { return model_->processor.unk_id(); }
int32_t Vocabulary::bos() const { return model_->processor.bos_id(); }
int32_t Vocabulary::eos() const { return model_->processor.eos_id(); }
int32_t Vocabulary::pad() const { return model_->processor.pad_id(); }

const std::string& Vocabulary::piece(int32_t id) const {
  if (id < 0 || id >= size()) throw std::runtime_error(fmt::format("{}: has no piece {}; it has {}", name_, id, size()));
  return model_->processor.IdToPiece(id);
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  std::vector<int> ids;
  const std::string plain = collapse_spaces(text);
  const sentencepiece::util::Status status = model_->processor.Encode(plain, &ids);
  if (!status.ok()) throw std::runtime_error(fmt::format("{}: cannot encode '{}': {}", name_, text, status.message()));
  return {ids.begin(), ids.end()};
}

std::string Vocabulary::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= size()) throw std::runtime_error(fmt::format("{}: has no piece {}; it has {}", name_, id, size()));
  std::string text;
  const sentencepiece::util::Status status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  if (!status.ok()) throw std::runtime_error(fmt::format("{}: cannot decode: {}", name_, status.message()));
  return text;
}

void Vocabulary::require_fit(int64_t expected_size, uint64_t expected_hash, const std::string& run) const {
  if (size() == expected_size && hash() == expected_hash) return;
  throw std::runtime_error(fmt::format("{}: does not fit {}: it has {} pieces (hash {:016x}), the run was trained with {} (hash {:016x}); use "
                                       "the vocabulary that is stored with the run",
                                       name_, run, size(), hash(), expected_size, expected_hash));
}

}  // namespace hinge::text
