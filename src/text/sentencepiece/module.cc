// The only file that includes SentencePiece: the module that text/pieces.h describes.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <stdexcept>

#include "text/pieces.h"

namespace hinge::text {
namespace {

// Reasons come as "file(line) [condition] reason".
void require(const sentencepiece::util::Status& status) {
  if (status.ok()) return;
  const std::string reason = status.message();
  const size_t end = reason.rfind("] ");
  throw std::runtime_error(end == std::string::npos ? reason : reason.substr(end + 2));
}

class Model : public PieceModel {
 public:
  bool load(const std::string& bytes) { return processor_.LoadFromSerializedProto(bytes).ok() && processor_.GetPieceSize() > 0; }

  int size() const override { return processor_.GetPieceSize(); }
  int unk() const override { return processor_.unk_id(); }
  int bos() const override { return processor_.bos_id(); }
  int eos() const override { return processor_.eos_id(); }
  int pad() const override { return processor_.pad_id(); }
  const std::string& piece(int id) const override { return processor_.IdToPiece(id); }
  std::vector<int> encode(std::string_view text) const override {
    std::vector<int> ids;
    require(processor_.Encode({text.data(), text.size()}, &ids));
    return ids;
  }
  std::string decode(const std::vector<int>& ids) const override {
    std::string text;
    require(processor_.Decode(ids, &text));
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Sentences : public sentencepiece::SentenceIterator {
 public:
  Sentences(size_t count, const std::function<std::string(size_t)>& sentence) : count_(count), sentence_(sentence) { read(); }
  bool done() const override { return at_ >= count_; }
  void Next() override {
    ++at_;
    read();
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void read() {
    if (!done()) value_ = sentence_(at_);
  }

  size_t count_, at_ = 0;
  const std::function<std::string(size_t)>& sentence_;
  std::string value_;
};

class Library : public PieceLibrary {
 public:
  std::unique_ptr<PieceModel> load(const std::string& bytes) const override {
    auto model = std::make_unique<Model>();
    if (bytes.empty() || !model->load(bytes)) return nullptr;
    return model;
  }

  std::string train(const std::unordered_map<std::string, std::string>& arguments, size_t count,
                    const std::function<std::string(size_t)>& sentence, unsigned seed) const override {
    sentencepiece::SetRandomGeneratorSeed(seed);
    Sentences sentences(count, sentence);
    std::string bytes;
    require(sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &bytes));
    return bytes;
  }
};

}  // namespace
}  // namespace hinge::text

extern "C" const hinge::text::PieceLibrary* hinge_piece_library() {
  static const hinge::text::Library library;
  return &library;
}
