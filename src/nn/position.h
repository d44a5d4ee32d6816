// Position embeddings: which ones a model has, and those that are fixed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace hinge::nn {

enum class Position { learned, sinusoidal };
inline std::vector<std::pair<std::string, Position>> config_words(Position) {
  return {{"learned", Position::learned}, {"sinusoidal", Position::sinusoidal}};
}

// sin and cos of position / 10000^(2 i / width) in the columns 2 i and 2 i + 1: [length, width], for an even width.
at::Tensor sinusoidal_positions(int64_t length, int64_t width);

// The same idea for a square of `side` x `side` tokens: sines and cosines of x, then of y: [1, side^2, width], for a multiple of 4.
at::Tensor sinusoidal_positions_2d(int64_t side, int64_t width);

}  // namespace hinge::nn
