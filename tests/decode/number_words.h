// A vocabulary of a few pieces, for models with random weights.
#pragma once

#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace hinge::decode {

// Of the words "one" to "eleven".
inline text::Vocabulary number_words() {
  std::vector<std::string_view> sentences;
  for (int i = 0; i < 30; ++i) sentences.insert(sentences.end(), {"one two three four", "five six seven", "eight nine ten eleven"});
  text::VocabularyOptions options;
  options.size = 40;
  return text::Vocabulary::train(sentences, options);
}

}  // namespace hinge::decode
