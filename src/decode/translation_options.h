// How texts are translated. No torch here: commands and tasks pass it on.
#pragma once

#include <cstdint>

#include "decode/beam_search.h"

namespace hinge::decode {

struct TranslationOptions {
  SearchOptions search = {};
  double length_factor = 1.5;   // a translation has at most length_factor * (tokens of the source) + length_extra tokens,
  int64_t length_extra = 20;    // and never more than the model can write
  int64_t batch_tokens = 1024;  // source tokens that are translated at once
};

}  // namespace hinge::decode
