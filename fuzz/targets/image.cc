// A picture, JPEG or PNG.
#include "../target.h"
#include "data/codec.h"

namespace hinge::fuzz {

void image_target(Input input) {
  data::Image image;
  data::decode_image(input, "picture", image);
}

}  // namespace hinge::fuzz
