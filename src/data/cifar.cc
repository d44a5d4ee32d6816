// CIFAR's binary records.
#include "data/error.h"
#include "data/files.h"
#include "data/image_set.h"

namespace hinge::data {
namespace {

constexpr Shape kShape{32, 32, 3};
constexpr size_t kPlane = 32 * 32;

}  // namespace

std::unique_ptr<ImageSet> open_cifar(const std::vector<std::string>& files, int label_bytes, std::vector<std::string> classes) {
  const size_t record = static_cast<size_t>(label_bytes) + 3 * kPlane;
  std::vector<uint8_t> pixels, labels;
  std::vector<MemorySet::Part> parts;
  for (const std::string& file : files) {
    const std::vector<uint8_t> bytes = read_bytes(file);
    if (bytes.size() % record != 0)
      throw DataError(
          file, fmt::format("is cut short or not CIFAR's binary version: {} bytes are not a multiple of a record's {}; fetch it again",
                            bytes.size(), record));
    const size_t count = bytes.size() / record, first = labels.size();
    pixels.resize((first + count) * kShape.count());
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* from = bytes.data() + i * record + label_bytes;
      uint8_t* to = pixels.data() + (first + i) * kShape.count();
      labels.push_back(from[-1]);
      if (labels.back() >= classes.size())
        throw DataError(fmt::format("{} #{}", file, i),
                        fmt::format("label {}, but there are {} classes; fetch the file again", labels.back(), classes.size()));
      for (size_t pixel = 0; pixel < kPlane; ++pixel)
        for (size_t channel = 0; channel < 3; ++channel) to[3 * pixel + channel] = from[channel * kPlane + pixel];
    }
    parts.push_back({file, static_cast<int64_t>(count)});
  }
  return std::make_unique<MemorySet>(std::move(classes), kShape, std::move(pixels), std::move(labels), std::move(parts));
}

}  // namespace hinge::data
