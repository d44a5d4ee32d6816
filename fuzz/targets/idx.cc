// An IDX pair: images and labels.
#include "../target.h"
#include "data/image_set.h"

namespace hinge::fuzz {

static void idx_target(Input input) {
  static MemoryFile images, labels;
  const auto [first, second] = split(input);
  const std::unique_ptr<data::ImageSet> set = data::open_idx(images.holding(first), labels.holding(second), {});
  data::Image image;
  for (int64_t i = 0; i < set->size(); ++i) set->load(i, image);
}

const Target target_idx{"idx", &idx_target};

}  // namespace hinge::fuzz
