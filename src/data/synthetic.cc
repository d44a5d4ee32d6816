// Made-up images that a model can learn: for smoke tests of configs whose data are not at hand.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/error.h"
#include "data/image_set.h"
#include "data/random.h"

namespace hinge::data {
namespace {

constexpr int kGrid = 4;  // a class is kGrid x kGrid random levels a channel, drawn out smoothly over the image

class SyntheticSet : public ImageSet {
 public:
  explicit SyntheticSet(const Synthetic& what) : ImageSet(names(what.classes)), what_(what) {}
  using ImageSet::load;
  int64_t size() const override { return what_.count; }
  int64_t label(int64_t i) const override { return i % what_.classes; }
  std::string name(int64_t i) const override { return fmt::format("synthetic #{}", i); }

  void load(int64_t i, Image& image) const override {
    const Shape shape = what_.shape;
    image.reshape(shape.height, shape.width, shape.channels);
    Random noise(what_.seed, Purpose::synthetic_image, what_.stream, static_cast<uint64_t>(i));
    const double contrast = noise.uniform(0.6, 1);
    for (int channel = 0; channel < shape.channels; ++channel) {
      std::array<std::array<double, kGrid>, kGrid> levels;
      Random pattern(what_.seed, Purpose::synthetic_class, static_cast<uint64_t>(channel), static_cast<uint64_t>(label(i)));
      for (auto& line : levels)
        for (double& level : line) level = pattern.uniform(-80, 80);
      for (int y = 0; y < shape.height; ++y) {
        const Place row = place(y, shape.height);
        for (int x = 0; x < shape.width; ++x) {
          const Place column = place(x, shape.width);
          const auto across = [&](size_t r) { return std::lerp(levels[r][column.first], levels[r][column.second], column.share); };
          const double level = 128 + contrast * std::lerp(across(row.first), across(row.second), row.share) + noise.uniform(-32, 32);
          image.row(y)[x * shape.channels + channel] = static_cast<uint8_t>(std::clamp(level, 0.0, 255.0));
        }
      }
    }
  }

 private:
  // The two grid cells around pixel `at` of `size`, and how far it is towards the second.
  struct Place {
    size_t first = 0, second = 0;
    double share = 0;
  };
  static Place place(int at, int size) {
    const double where = std::clamp((at + 0.5) / size * kGrid - 0.5, 0.0, kGrid - 1.0);
    const size_t first = static_cast<size_t>(where);
    return {first, std::min<size_t>(first + 1, kGrid - 1), where - static_cast<double>(first)};
  }

  static std::vector<std::string> names(int64_t classes) {
    std::vector<std::string> names;
    for (int64_t label = 0; label < classes; ++label) names.push_back(fmt::format("class {}", label));
    return names;
  }

  Synthetic what_;
};

}  // namespace

std::unique_ptr<ImageSet> make_synthetic(const Synthetic& what) {
  if (what.shape.height < 1 || what.shape.width < 1 || (what.shape.channels != 1 && what.shape.channels != 3) || what.classes < 1 ||
      what.count < 1)
    throw std::runtime_error(
        fmt::format("synthetic images of {}x{} pixels, {} channels, {} classes, {} images cannot be made: all must be at "
                    "least 1, and the channels 1 or 3",
                    what.shape.height, what.shape.width, what.shape.channels, what.classes, what.count));
  return std::make_unique<SyntheticSet>(what);
}

}  // namespace hinge::data
