// Resizing of a rectangle of an image.
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

// How input pixels are weighted for an output pixel. At the border the weights inside the box are made to add up to 1.
enum class ResizeMethod {
  antialias,  // a triangle whose half width is one pixel of the coarser of the two grids: interpolation when growing, a mean when shrinking
  bilinear,   // a triangle whose half width is one input pixel: interpolation, also when shrinking (TensorFlow's bilinear)
  area,       // by the area of the input pixel that the output pixel covers (TensorFlow's area)
};

// The box becomes height x width pixels.
void resize(const Image& from, const Box& box, int height, int width, ResizeMethod method, Image& to, ResizeScratch& scratch);

}  // namespace hinge::data
