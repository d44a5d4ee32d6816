// The pieces of words that models read and write: SentencePiece, trained here or given. A vocabulary is one block of bytes, SentencePiece's
// own model file, stored with the run it belongs to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::text {

class PieceModel;

// How pieces are found, by SentencePiece's names.
enum class PieceType { bpe, unigram };
inline std::vector<std::pair<std::string, PieceType>> config_words(PieceType) {
  return {{"bpe", PieceType::bpe}, {"unigram", PieceType::unigram}};
}

struct VocabularyOptions {
  PieceType type = PieceType::bpe;
  int64_t size = 8000;            // pieces, with the four special ones
  double coverage = 1.0;          // share of the characters of the text that get a piece; the rest is unknown
  bool byte_fallback = false;     // unknown characters as their bytes, which then are 256 of the pieces
  int64_t sentences = 1'000'000;  // a random choice of so many, if there are more

  template <class V> void visit(V& v) {
    v("type", type, "how pieces are found");
    v("size", size, "pieces, with the four special ones");
    v("coverage", coverage, "share of the characters of the text that get a piece");
    v("byte_fallback", byte_fallback, "spell unknown characters by 256 pieces for bytes");
    v("sentences", sentences, "train on a random sample of this many sentences if there are more");
  }
};

class Vocabulary {
 public:
  // Depends on nothing but the arguments: the same sentences give the same bytes. Throws std::runtime_error if the options are wrong or do
  // not go with the text (a size that it cannot fill, or that is below its number of characters).
  static Vocabulary train(const std::vector<std::string_view>& sentences, const VocabularyOptions& options);
  // `name` is for messages. Throws std::runtime_error if it is no SentencePiece model or has no ids for unk, bos and eos.
  static Vocabulary from_bytes(std::string bytes, const std::string& name);
  static Vocabulary load(const std::string& path);

  const std::string& bytes() const { return bytes_; }
  void save(const std::string& path) const;

  int64_t size() const;
  int32_t unk() const;
  int32_t bos() const;
  int32_t eos() const;
  int32_t pad() const;                         // -1 in a given model without one; nothing here pads
  const std::string& piece(int32_t id) const;  // "▁Haus"; ▁ is a space
  uint64_t hash() const { return hash_; }      // of the bytes

  // White space counts as single spaces. Without bos and eos.
  std::vector<int32_t> encode(std::string_view text) const;
  // Special ids give nothing; unk gives " ⁇ ", as SentencePiece writes it. Throws std::runtime_error for an id that is not below size().
  std::string decode(std::span<const int32_t> ids) const;

  // Throws std::runtime_error unless this is the vocabulary that a run of `size` and `hash` was trained with; `run` is for the message.
  void require_fit(int64_t size, uint64_t hash, const std::string& run) const;

 private:
  Vocabulary(std::shared_ptr<const PieceModel> model, std::string bytes, std::string name);

  std::shared_ptr<const PieceModel> model_;
  std::string bytes_, name_;
  uint64_t hash_ = 0;
};

}  // namespace hinge::text
