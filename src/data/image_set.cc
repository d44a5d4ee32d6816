// The sets that hold or choose images, whatever format they came in.
#include "data/image_set.h"

#include <fmt/format.h>

#include <cstring>

namespace hinge::data {

std::vector<std::string> numbered_classes(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

MemorySet::MemorySet(std::vector<std::string> classes, Shape shape, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
                     std::vector<Part> parts)
    : ImageSet(std::move(classes)), shape_(shape), pixels_(std::move(pixels)), labels_(std::move(labels)), parts_(std::move(parts)) {}

std::string MemorySet::name(int64_t i) const {
  size_t part = 0;
  while (part + 1 < parts_.size() && i >= parts_[part].count) i -= parts_[part++].count;
  return fmt::format("{} #{}", parts_[part].file, i);
}

void MemorySet::load(int64_t i, Image& image) const {
  image.reshape(shape_.height, shape_.width, shape_.channels);
  std::memcpy(image.pixels.data(), pixels_.data() + static_cast<size_t>(i) * shape_.count(), shape_.count());
}

SubSet::SubSet(std::shared_ptr<const ImageSet> whole, std::vector<uint32_t> chosen)
    : ImageSet(whole->classes()), whole_(std::move(whole)), chosen_(std::move(chosen)) {}

SubSet::SubSet(std::shared_ptr<const ImageSet> whole, std::vector<uint32_t> chosen, std::vector<std::string> classes,
               std::vector<int64_t> new_labels)
    : ImageSet(std::move(classes)), whole_(std::move(whole)), chosen_(std::move(chosen)), new_labels_(std::move(new_labels)) {}

int64_t SubSet::label(int64_t i) const {
  const int64_t label = whole_->label(chosen_[static_cast<size_t>(i)]);
  return new_labels_.empty() ? label : new_labels_[static_cast<size_t>(label)];
}

}  // namespace hinge::data
