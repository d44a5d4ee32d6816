#include "tasks/vision/config.h"

#include <algorithm>
#include <cmath>

namespace hinge::vision {

data::DataSource source_of(const DataConfig& config, const std::string& split) {
  data::DataSource source;
  source.format = config.format;
  source.path = config.path;
  source.split = split;
  source.label_map = config.label_map;
  const auto size = static_cast<int>(config.synthetic_size);
  source.synthetic.shape = {size, size, static_cast<int>(config.synthetic_channels)};
  source.synthetic.classes = config.synthetic_classes;
  source.synthetic.count = config.synthetic_count;
  return source;
}

int64_t steps_of(const OptimConfig& config, int64_t images, double epochs, int64_t most) {
  const double steps = epochs * static_cast<double>(images) / static_cast<double>(config.batch);
  return steps < static_cast<double>(most) ? std::llround(steps) : most;
}

}  // namespace hinge::vision
