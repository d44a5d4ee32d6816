// A vocabulary from elsewhere, and a text in its pieces.
#include "../target.h"
#include "text/vocabulary.h"

namespace hinge::fuzz {

static void sentencepiece_target(Input input) {
  const text::Vocabulary vocabulary = text::Vocabulary::from_bytes(std::string(text_of(input)), "vocabulary.model");
  const std::vector<int32_t> pieces = vocabulary.encode("Das Haus ist 1 a\xC3\xA4 \xE2\x80\xA6 house\xF0\x9F\x98\x80.");
  vocabulary.decode(pieces);
  for (int32_t id = 0; id < vocabulary.size(); ++id) vocabulary.piece(id);
}

const Target target_sentencepiece{"sentencepiece", &sentencepiece_target};

}  // namespace hinge::fuzz
