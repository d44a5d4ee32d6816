// The only file that includes SentencePiece: the module that text/pieces.h describes.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

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

// The fields of a protobuf message, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and if the message is damaged. `bytes` is the content of a field of bytes, and empty for all others.
  bool next(uint64_t& number, std::string_view& bytes) {
    uint64_t tag = 0, length = 0;
    if (rest_.empty() || !varint(tag)) return false;
    number = tag >> 3, bytes = {};
    switch (tag & 7) {
      case 0: return varint(length);
      case 1: length = 8; break;
      case 2:
        if (!varint(length)) return false;
        break;
      case 5: length = 4; break;
      default: return damaged_ = true, false;
    }
    if (length > rest_.size()) return damaged_ = true, false;
    if ((tag & 7) == 2) bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }
  bool damaged() const { return damaged_; }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return !(damaged_ = true);
  }

  std::string_view rest_;
  bool damaged_ = false;
};

// SentencePiece ends the program when it loads a piece that is empty or has a zero byte in it. In a model, field 1 is a piece, and there
// field 1 is its text.
bool has_sound_pieces(std::string_view model) {
  uint64_t number = 0, inner_number = 0;
  std::string_view piece, text;
  Fields fields(model);
  while (fields.next(number, piece)) {
    if (number != 1) continue;
    Fields inner(piece);
    while (inner.next(inner_number, text))
      if (inner_number == 1 && (text.empty() || text.find('\0') != std::string_view::npos)) return false;
    if (inner.damaged()) return false;
  }
  return !fields.damaged();
}

uint32_t word_at(std::string_view bytes, size_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

// SentencePiece follows the table of a normaliser wherever it points. The table: the size of a trie, the trie, and the texts at which its
// leaves point. The trie is an array of units: whoever comes to unit i with the right character (bit 31 is not set) goes on to i ^ offset,
// where the leaf is, if it has one (bit 8), and from there to (i ^ offset) ^ the next character.
bool is_sound_table(std::string_view table) {
  if (table.empty()) return true;
  if (table.size() <= sizeof(uint32_t)) return false;
  const size_t trie_size = word_at(table, 0);
  table.remove_prefix(sizeof(uint32_t));
  if (trie_size >= table.size() || trie_size < sizeof(uint32_t)) return false;
  const std::string_view texts = table.substr(trie_size);
  const size_t units = trie_size / sizeof(uint32_t);
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = word_at(table, i);
    if (i > 0 && unit >> 31 != 0) continue;  // a leaf
    const size_t next = i ^ static_cast<size_t>((unit >> 10) << ((unit & (1u << 9)) >> 6));
    if ((next | 255) >= units) return false;
    if ((unit >> 8 & 1) != 0 && (word_at(table, next) & ~(1u << 31)) >= texts.size()) return false;
  }
  return true;
}

// Fields 3 and 5 of a model are its normaliser and its denormaliser, and there field 2 is the table.
bool has_sound_tables(std::string_view model) {
  uint64_t number = 0, inner_number = 0;
  std::string_view normaliser, table;
  Fields fields(model);
  while (fields.next(number, normaliser)) {
    if (number != 3 && number != 5) continue;
    Fields inner(normaliser);
    while (inner.next(inner_number, table))
      if (inner_number == 2 && !is_sound_table(table)) return false;
    if (inner.damaged()) return false;
  }
  return !fields.damaged();
}

class Model : public PieceModel {
 public:
  bool load(const std::string& bytes) {
    return has_sound_pieces(bytes) && has_sound_tables(bytes) && processor_.LoadFromSerializedProto(bytes).ok() &&
           processor_.GetPieceSize() > 0;
  }

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
