// Bilinear resizing of a rectangle of an image.
#pragma once

#include <vector>

#include "data/image.h"

namespace hinge::data {

struct Box {
  int top = 0, left = 0, height = 0, width = 0;

  bool operator==(const Box&) const = default;
};

// Memory that lives from call to call.
struct ResizeScratch {
  struct Taps {
    std::vector<int> first;      // of each output place, the first input place that counts
    std::vector<float> weights;  // `width` a place, from the first on; their sum is 1
    int width = 0;
  };
  Taps rows, columns;
  std::vector<float> line;
};

// The box becomes height x width pixels. An output pixel is a weighted mean of the input pixels around its centre, by a triangle whose
// half width is one pixel of the coarser of the two grids: interpolation when growing, antialiased when shrinking. At the border the
// weights inside the box are made to add up to 1.
void resize(const Image& from, const Box& box, int height, int width, Image& to, ResizeScratch& scratch);

}  // namespace hinge::data
