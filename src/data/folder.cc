// Image folders: one folder a class.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "data/codec.h"
#include "data/error.h"
#include "data/files.h"
#include "data/image_set.h"

namespace hinge::data {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

class FolderSet : public ImageSet {
 public:
  struct Item {
    std::string path;
    int64_t label = 0;
  };

  FolderSet(std::vector<std::string> classes, std::vector<Item> items) : ImageSet(std::move(classes)), items_(std::move(items)) {}
  using ImageSet::load;
  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int64_t label(int64_t i) const override { return items_[static_cast<size_t>(i)].label; }
  std::string name(int64_t i) const override { return items_[static_cast<size_t>(i)].path; }
  void load(int64_t i, Image& image) const override {
    const std::string& path = items_[static_cast<size_t>(i)].path;
    decode_image(read_bytes(path), path, image);
  }

 private:
  std::vector<Item> items_;
};

}  // namespace

std::unique_ptr<ImageSet> open_folder(const std::string& path) {
  std::vector<std::string> classes;
  std::vector<FolderSet::Item> items;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      if (entry.is_directory() && !is_hidden(entry.path())) classes.push_back(entry.path().filename().string());
    std::sort(classes.begin(), classes.end());
    for (size_t label = 0; label < classes.size(); ++label) {
      const size_t first = items.size();
      for (const fs::directory_entry& entry :
           fs::recursive_directory_iterator(fs::path(path) / classes[label], fs::directory_options::follow_directory_symlink))
        if (!entry.is_directory() && !is_hidden(entry.path()) && is_image_name(entry.path()))
          items.push_back({entry.path().string(), static_cast<int64_t>(label)});
      std::sort(items.begin() + static_cast<std::ptrdiff_t>(first), items.end(),
                [](const auto& a, const auto& b) { return a.path < b.path; });
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(error.path1().string(), fmt::format("cannot be listed: {}", error.code().message()));
  }
  if (classes.empty()) throw DataError(path, "holds no folders; expected one folder per class, with JPEG or PNG files in it");
  if (items.empty()) throw DataError(path, fmt::format("has {} class folders, but no .jpg, .jpeg or .png file in them", classes.size()));
  return std::make_unique<FolderSet>(std::move(classes), std::move(items));
}

}  // namespace hinge::data
