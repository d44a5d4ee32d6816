// IDX, the format of MNIST: 0, 0, element type, number of dimensions, each dimension as four bytes (big end first), elements.
#include <algorithm>
#include <span>

#include "data/error.h"
#include "data/files.h"
#include "data/image_set.h"

namespace hinge::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

struct IdxArray {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> elements;
};

IdxArray read_idx(const std::string& path) {
  MaybeGzipped file(path);
  const std::vector<uint8_t> head = file.read(4);
  if (head.size() < 4 || head[0] != 0 || head[1] != 0)
    throw DataError(path, "is not an IDX file: it does not begin with two zero bytes, a type and a number of dimensions");
  if (head[2] != kUnsignedByte)
    throw DataError(path, fmt::format("has elements of IDX type 0x{:02x}; only unsigned bytes (0x08) are read", head[2]));
  const size_t rank = head[3];
  const std::vector<uint8_t> sizes = file.read(4 * rank);
  if (sizes.size() < 4 * rank) throw DataError(path, "is cut short inside its header; fetch it again");

  IdxArray array;
  uint64_t count = 1;
  for (size_t d = 0; d < rank; ++d) {
    const std::span<const uint8_t> word(sizes.data() + 4 * d, 4);
    array.dimensions.push_back(int64_t{word[0]} << 24 | int64_t{word[1]} << 16 | int64_t{word[2]} << 8 | int64_t{word[3]});
    // Past 2^40 elements the header is wrong, and the product must not wrap round.
    count = std::min<uint64_t>(count * static_cast<uint64_t>(array.dimensions.back()), uint64_t{1} << 40);
  }
  array.elements = file.read(count + 1);  // one more than there must be, so that zlib sees the end
  const auto wrong = [&](const char* how, const std::string& found) {
    throw DataError(path, fmt::format("is {}: its header promises {} elements, {} are there; fetch it again", how, count, found));
  };
  if (array.elements.size() < count) wrong("cut short", fmt::format("{}", array.elements.size()));
  if (array.elements.size() > count) wrong("too long", "more");
  return array;
}

}  // namespace

std::unique_ptr<ImageSet> open_idx(const std::string& images_path, const std::string& labels_path, std::vector<std::string> classes) {
  IdxArray images = read_idx(images_path), labels = read_idx(labels_path);
  const std::vector<int64_t>& dimensions = images.dimensions;
  if (dimensions.size() != 3 && dimensions.size() != 4)
    throw DataError(images_path, fmt::format("has {} dimensions; images have 3 (N, H, W) or 4 (N, H, W, C)", dimensions.size()));
  if (labels.dimensions.size() != 1)
    throw DataError(labels_path, fmt::format("has {} dimensions; labels have 1", labels.dimensions.size()));
  if (dimensions[0] != labels.dimensions[0])
    throw DataError(labels_path, fmt::format("has {} labels for the {} images of {}", labels.dimensions[0], dimensions[0], images_path));
  if (images.elements.empty()) throw DataError(images_path, "holds no images");
  const int64_t channels = dimensions.size() == 4 ? dimensions[3] : 1;
  if (channels != 1 && channels != 3) throw DataError(images_path, fmt::format("has images of {} channels; 1 or 3 are read", channels));

  const auto highest = std::max_element(labels.elements.begin(), labels.elements.end());
  if (classes.empty()) {
    classes = numbered_classes(int64_t{*highest} + 1);
  } else if (*highest >= classes.size()) {
    throw DataError(fmt::format("{} #{}", labels_path, highest - labels.elements.begin()),
                    fmt::format("label {}, but there are {} classes; fetch the file again", *highest, classes.size()));
  }
  const Shape shape{static_cast<int>(dimensions[1]), static_cast<int>(dimensions[2]), static_cast<int>(channels)};
  return std::make_unique<MemorySet>(std::move(classes), shape, std::move(images.elements), std::move(labels.elements),
                                     std::vector<MemorySet::Part>{{images_path, dimensions[0]}});
}

}  // namespace hinge::data
