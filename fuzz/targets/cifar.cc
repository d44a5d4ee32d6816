// CIFAR's binary records, with one or two labels.
#include "../target.h"
#include "data/image_set.h"

namespace hinge::fuzz {

static void cifar_target(Input input) {
  static MemoryFile file;
  if (input.empty()) return;
  const int label_bytes = input[0] % 2 + 1;
  const std::unique_ptr<data::ImageSet> set = data::open_cifar({file.holding(input.subspan(1))}, label_bytes, data::numbered_classes(10));
  data::Image image;
  for (int64_t i = 0; i < set->size(); ++i) set->load(i, image);
}

const Target target_cifar{"cifar", &cifar_target};

}  // namespace hinge::fuzz
