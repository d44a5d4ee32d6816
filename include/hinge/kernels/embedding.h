// Embeddings of tokens with their positions, and sums of gradients over equal tokens. Plain pointers to float or double; the same bits for
// any number of workers. The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/dropout.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// place[i]: number of token i within its sequence; sequence s owns the tokens [offsets[s], offsets[s + 1]).
void places_in_sequences(const int64_t* offsets, int64_t sequences, int64_t* place);

// out[i] = drop(scale * weight[token[i]] + positions[place[i]]), rows of `width` elements.
template <typename T> struct Embedding {
  int64_t tokens = 0, width = 0;
  const int64_t *token = nullptr, *place = nullptr;  // [tokens]
  const T *weight = nullptr, *positions = nullptr;
  double scale = 1;
  Dropout dropout;
  T* out = nullptr;
};
template <typename T> void embedding_forward(const Embedding<T>&, Parallel&);

// sums[k] = scale * sum over i with index[i] == k of drop(grad[i]), in the order of i; k < entries, all of them written.
template <typename T> struct EmbeddingSums {
  int64_t rows = 0, width = 0, entries = 0;
  const int64_t* index = nullptr;  // [rows], each in [0, entries)
  const T* grad = nullptr;         // [rows, width]
  double scale = 1;
  Dropout dropout;
  T* sums = nullptr;  // [entries, width]
};
template <typename T> void embedding_sums(const EmbeddingSums<T>&, Parallel&);

}  // namespace hinge::kernels
