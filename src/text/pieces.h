// SentencePiece as the vocabulary sees it, without its headers and without linking to it. Debian's libsentencepiece carries a protobuf of
// its own whose symbols clash with the libprotobuf of LibTorch: a program linked with both crashes before main(). So it is reached through
// a module, loaded when first needed into a name space of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hinge::text {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual int size() const = 0;
  virtual int unk() const = 0;
  virtual int bos() const = 0;
  virtual int eos() const = 0;
  virtual int pad() const = 0;
  virtual const std::string& piece(int id) const = 0;
  virtual std::vector<int> encode(std::string_view text) const = 0;  // these throw std::runtime_error with SentencePiece's reason
  virtual std::string decode(const std::vector<int>& ids) const = 0;
};

class PieceLibrary {
 public:
  virtual ~PieceLibrary() = default;
  virtual std::unique_ptr<PieceModel> load(const std::string& bytes) const = 0;  // nothing if the bytes are no model
  // A model's bytes. `sentence(i)` is asked for i = 0, 1, ... below `count`. Throws std::runtime_error with SentencePiece's reason.
  virtual std::string train(const std::unordered_map<std::string, std::string>& arguments, size_t count,
                            const std::function<std::string(size_t)>& sentence, unsigned seed) const = 0;
};

// The library; loads the module at the first call. Throws std::runtime_error if it is not there.
const PieceLibrary& piece_library();

}  // namespace hinge::text

// What the module exports.
extern "C" const hinge::text::PieceLibrary* hinge_piece_library();
