// A set of labelled images, and the sets that come in one format each. Files are read when a set is opened, except those of an image
// folder, which are decoded on load.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/image.h"

namespace hinge::data {

// "0", "1", ...: the classes of a set without names.
std::vector<std::string> numbered_classes(int64_t count);

class ImageSet {
 public:
  explicit ImageSet(std::vector<std::string> classes) : classes_(std::move(classes)) {}
  virtual ~ImageSet() = default;
  ImageSet(const ImageSet&) = delete;
  ImageSet& operator=(const ImageSet&) = delete;

  const std::vector<std::string>& classes() const { return classes_; }  // the name of each label
  virtual int64_t size() const = 0;
  virtual int64_t label(int64_t i) const = 0;     // in [0, classes().size())
  virtual std::string name(int64_t i) const = 0;  // a path, or "path #index"; for messages

  // Decodes image i; `image` lends its memory. May be called from several threads at once. Throws DataError.
  virtual void load(int64_t i, Image& image) const = 0;
  Image load(int64_t i) const {
    Image image;
    load(i, image);
    return image;
  }

 private:
  std::vector<std::string> classes_;
};

// Images of one shape, decoded, in memory.
class MemorySet : public ImageSet {
 public:
  // A file and the number of images in it; the files' images follow each other in `pixels`.
  struct Part {
    std::string file;
    int64_t count = 0;
  };

  MemorySet(std::vector<std::string> classes, Shape shape, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
            std::vector<Part> parts);
  using ImageSet::load;
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t i) const override { return labels_[static_cast<size_t>(i)]; }
  std::string name(int64_t i) const override;
  void load(int64_t i, Image& image) const override;

 private:
  Shape shape_;
  std::vector<uint8_t> pixels_, labels_;
  std::vector<Part> parts_;
};

// Chosen images of another set, by their numbers there.
class SubSet : public ImageSet {
 public:
  SubSet(std::shared_ptr<const ImageSet> whole, std::vector<uint32_t> chosen);
  // `new_labels`: for each class of `whole` its new label.
  SubSet(std::shared_ptr<const ImageSet> whole, std::vector<uint32_t> chosen, std::vector<std::string> classes,
         std::vector<int64_t> new_labels);
  using ImageSet::load;
  int64_t size() const override { return static_cast<int64_t>(chosen_.size()); }
  int64_t label(int64_t i) const override;
  std::string name(int64_t i) const override { return whole_->name(chosen_[static_cast<size_t>(i)]); }
  void load(int64_t i, Image& image) const override { whole_->load(chosen_[static_cast<size_t>(i)], image); }

 private:
  std::shared_ptr<const ImageSet> whole_;
  std::vector<uint32_t> chosen_;
  std::vector<int64_t> new_labels_;
};

// A pair of IDX files, each .gz or not: unsigned bytes (N, H, W) or (N, H, W, C), and N labels. With `classes` empty, the classes are
// the numbers up to the highest label.
std::unique_ptr<ImageSet> open_idx(const std::string& images, const std::string& labels, std::vector<std::string> classes);

// CIFAR's binary records: `label_bytes` labels of which the last counts (1: CIFAR-10, 2: CIFAR-100), then 32x32 pixels as three planes.
std::unique_ptr<ImageSet> open_cifar(const std::vector<std::string>& files, int label_bytes, std::vector<std::string> classes);

// One folder per class, sorted by name; JPEG and PNG files in it and below it, sorted by path. All images become RGB.
std::unique_ptr<ImageSet> open_folder(const std::string& path);

// Made-up images: each class has its own smooth random pattern, each image shows it with its own contrast and noise.
struct Synthetic {
  Shape shape{32, 32, 3};
  int64_t classes = 10;
  int64_t count = 1024;
  uint64_t seed = 0;    // of the patterns
  uint64_t stream = 0;  // other images of the same classes
};
std::unique_ptr<ImageSet> make_synthetic(const Synthetic& what);

}  // namespace hinge::data
