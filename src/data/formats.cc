// How each format is opened, and the table of them.
#include "data/formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "data/error.h"
#include "data/files.h"
#include "data/source.h"
#include "support/nearest.h"

namespace hinge::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> train_and_test() { return {"train", "test"}; }

// The first of `names` that is a file in `folder`, as it is or with .gz at its end.
std::string find_file(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const char* ending : {"", ".gz"})
      if (fs::is_regular_file(folder / (name + ending))) return (folder / (name + ending)).string();
  throw DataError(folder.string(),
                  fmt::format("has none of the files {} (each also with .gz); give the folder that holds them", fmt::join(names, ", ")));
}

constexpr const char* kIdxImages[] = {"-images-idx3-ubyte", "-images.idx3-ubyte", "-images-idx4-ubyte"};  // after the name of a split
constexpr const char* kMnistTest = "t10k";                                                                // stands for test

std::unique_ptr<ImageSet> open_idx_folder(const DataSource& source, const std::string& split, std::vector<std::string> classes) {
  const std::vector<std::string> prefixes =
      split == "test" ? std::vector<std::string>{kMnistTest, "test"} : std::vector<std::string>{split};
  std::vector<std::string> images, labels;
  for (const std::string& prefix : prefixes) {
    for (const char* ending : kIdxImages) images.push_back(prefix + ending);
    for (const char* rank : {"-idx1-ubyte", ".idx1-ubyte"}) labels.push_back(prefix + "-labels" + rank);
  }
  const std::string images_file = find_file(source.path, images), labels_file = find_file(source.path, labels);
  return open_idx(images_file, labels_file, std::move(classes));
}

// The splits that have a file of images, in the order of their names. Where there is none, those that one would look for.
std::vector<std::string> idx_splits(const std::string& folder) {
  std::set<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path file = entry.path().filename();
    const std::string name = (file.extension() == ".gz" ? file.stem() : file).string();
    for (const std::string_view ending : kIdxImages) {
      if (name.size() <= ending.size() || !name.ends_with(ending)) continue;
      const std::string split = name.substr(0, name.size() - ending.size());
      found.insert(split == kMnistTest ? "test" : split);
    }
  }
  return found.empty() ? train_and_test() : std::vector<std::string>(found.begin(), found.end());
}

// The names in `file`, one per line; numbers if there is no such file.
std::vector<std::string> class_names(const fs::path& file, int count) {
  if (!fs::exists(file)) return numbered_classes(count);
  std::vector<std::string> names = read_lines(file.string());
  if (names.size() != static_cast<size_t>(count))
    throw DataError(file.string(), fmt::format("names {} classes; {} are expected, one per line", names.size(), count));
  return names;
}

// The folder itself, or the one of CIFAR's archive in it.
fs::path cifar_folder(const DataSource& source, const char* of_archive) {
  const fs::path folder = source.path;
  return fs::is_directory(folder / of_archive) ? folder / of_archive : folder;
}

std::unique_ptr<ImageSet> open_mnist(const DataSource& source, const std::string& split) {
  return open_idx_folder(source, split, numbered_classes(10));
}

std::unique_ptr<ImageSet> open_fashion_mnist(const DataSource& source, const std::string& split) {
  return open_idx_folder(source, split,
                         {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"});
}

std::unique_ptr<ImageSet> open_kmnist(const DataSource& source, const std::string& split) {
  return open_idx_folder(source, split, {"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"});
}

std::unique_ptr<ImageSet> open_any_idx(const DataSource& source, const std::string& split) { return open_idx_folder(source, split, {}); }

std::unique_ptr<ImageSet> open_cifar10(const DataSource& source, const std::string& split) {
  const fs::path folder = cifar_folder(source, "cifar-10-batches-bin");
  std::vector<std::string> files;
  if (split == "test") files.push_back((folder / "test_batch.bin").string());
  for (int batch = 1; split == "train" && batch <= 5; ++batch) files.push_back((folder / fmt::format("data_batch_{}.bin", batch)).string());
  return open_cifar(files, 1, class_names(folder / "batches.meta.txt", 10));
}

std::unique_ptr<ImageSet> open_cifar100(const DataSource& source, const std::string& split) {
  const fs::path folder = cifar_folder(source, "cifar-100-binary");
  return open_cifar({(folder / (split + ".bin")).string()}, 2, class_names(folder / "fine_label_names.txt", 100));
}

std::unique_ptr<ImageSet> open_image_folder(const DataSource& source, const std::string& split) {
  if (split == "all") return open_folder(source.path);
  const fs::path folder = fs::path(source.path) / split;
  if (!fs::is_directory(folder))
    throw DataError(
        source.path,
        fmt::format("has no folder '{}' for the split; give the name of one, or 'all' if the classes are directly in it", split));
  return open_folder(folder.string());
}

// The parts of a folder that is split; else the folder itself holds the classes.
std::vector<std::string> folder_splits(const std::string& folder) {
  std::vector<std::string> found;
  for (const char* name : {"train", "val", "validation", "test"})
    if (fs::is_directory(fs::path(folder) / name)) found.emplace_back(name);
  return found.empty() ? std::vector<std::string>{"all"} : found;
}

// Each split has other images of the same classes.
std::unique_ptr<ImageSet> open_synthetic(const DataSource& source, const std::string& split) {
  Synthetic what = source.synthetic;
  what.stream = split == "train" ? 0 : split == "test" ? 1 : 2;
  return make_synthetic(what);
}

}  // namespace

const std::vector<Format>& format_table() {
  static const std::vector<Format> table = {
      {.name = "fashion-mnist",
       .help = "Fashion-MNIST: 28x28 grey pictures of clothes, in IDX files",
       .open = open_fashion_mnist,
       .splits = train_and_test(),
       .default_path = "/usr/share/datasets/fashion-mnist",
       .install = "sudo apt-get install dataset-fashion-mnist"},
      {.name = "mnist", .help = "MNIST: 28x28 grey digits, in IDX files", .open = open_mnist, .splits = train_and_test()},
      {.name = "kmnist", .help = "Kuzushiji-MNIST: 28x28 grey characters, in IDX files", .open = open_kmnist, .splits = train_and_test()},
      {.name = "idx",
       .help = "any IDX files NAME-images-..., NAME-labels-...",
       .open = open_any_idx,
       .find_splits = idx_splits,
       .many_sets = true},
      {.name = "cifar10", .help = "CIFAR-10, the binary version", .open = open_cifar10, .splits = train_and_test()},
      {.name = "cifar100", .help = "CIFAR-100, the binary version", .open = open_cifar100, .splits = train_and_test()},
      {.name = "folder",
       .help = "JPEG and PNG files, one folder per class, in a folder per split",
       .open = open_image_folder,
       .find_splits = folder_splits,
       .many_sets = true,
       .sorted_by_class = true},
      {.name = "synthetic",
       .help = "made-up images that a model can learn",
       .open = open_synthetic,
       .splits = {"train", "val", "test"},
       .takes_path = false},
  };
  return table;
}

const Format& find_format(const std::string& name) {
  const auto found = std::find_if(format_table().begin(), format_table().end(), [&](const Format& format) { return format.name == name; });
  if (found != format_table().end()) return *found;
  const std::optional<std::string> meant = support::nearest(name, formats());
  throw std::runtime_error(fmt::format("data format '{}' is unknown.{} Allowed: {}", name,
                                       meant ? fmt::format(" Did you mean '{}'?", *meant) : "", fmt::join(formats(), ", ")));
}

}  // namespace hinge::data
