// Preprocessing as a string: "inception_crop(224)|flip_lr|randaug(2,15)|value_range(-1,1)". The steps are described in docs/data.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/image.h"
#include "data/random.h"
#include "data/resize.h"

namespace hinge::data {

// What one thread needs for its work; keeps its memory from image to image.
struct Scratch {
  Image image, other;
  ResizeScratch resize;
};

// One step on bytes: changes scratch.image.
class Step {
 public:
  virtual ~Step() = default;
  virtual void apply(Scratch& scratch, Random& random) const = 0;
};

class Pipeline {
 public:
  // Throws std::runtime_error that names the step and the steps there are.
  explicit Pipeline(const std::string& text);

  const std::string& text() const { return text_; }

  // The steps on scratch.image, as bytes. Throws std::runtime_error if the image is too small for one of them, ImageError if it is so long
  // and thin that a step would make too large a picture of it.
  void apply(Scratch& scratch, Random& random) const;

  // The bytes as numbers, H W C, into `out`: 0 to 255, or as value_range or standardize say.
  void to_float(const Image& image, float* out) const;

  // Both, for one image.
  struct Result {
    Shape shape;
    std::vector<float> pixels;
  };
  Result run(const Image& image, Random random) const;

 private:
  std::string text_;
  std::vector<std::shared_ptr<const Step>> steps_;
  std::vector<std::vector<float>> value_of_byte_;  // 256 numbers for all channels, or for each
};

}  // namespace hinge::data
