// Formats, splits and label maps.
#include "data/source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "data/error.h"
#include "data/files.h"
#include "data/random.h"

namespace hinge::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";  // Debian's package dataset-fashion-mnist

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

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

// The splits that have a file of images, in the order of their names.
std::vector<std::string> idx_splits(const fs::path& folder) {
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
  return {found.begin(), found.end()};
}

std::vector<std::string> numbers(int count) {
  std::vector<std::string> names(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names[static_cast<size_t>(i)] = std::to_string(i);
  return names;
}

// The names in `file`, one a line; numbers if there is no such file.
std::vector<std::string> class_names(const fs::path& file, int count) {
  if (!fs::exists(file)) return numbers(count);
  std::vector<std::string> names = read_lines(file.string());
  if (names.size() != static_cast<size_t>(count))
    throw DataError(file.string(), fmt::format("names {} classes; {} are expected, one a line", names.size(), count));
  return names;
}

// The folder itself, or the one of CIFAR's archive in it.
fs::path cifar_folder(const DataSource& source, const char* of_archive) {
  const fs::path folder = source.path;
  return fs::is_directory(folder / of_archive) ? folder / of_archive : folder;
}

void require_split(const DataSource& source, const std::string& split) {
  if (split != "train" && split != "test")
    throw std::runtime_error(fmt::format("{} has no split '{}'; there are train and test", source.format, split));
}

std::unique_ptr<ImageSet> open_mnist(const DataSource& source, const std::string& split) {
  require_split(source, split);
  return open_idx_folder(source, split, numbers(10));
}

std::unique_ptr<ImageSet> open_fashion_mnist(const DataSource& source, const std::string& split) {
  require_split(source, split);
  return open_idx_folder(source, split,
                         {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"});
}

std::unique_ptr<ImageSet> open_kmnist(const DataSource& source, const std::string& split) {
  require_split(source, split);
  return open_idx_folder(source, split, {"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"});
}

std::unique_ptr<ImageSet> open_any_idx(const DataSource& source, const std::string& split) { return open_idx_folder(source, split, {}); }

std::unique_ptr<ImageSet> open_cifar10(const DataSource& source, const std::string& split) {
  require_split(source, split);
  const fs::path folder = cifar_folder(source, "cifar-10-batches-bin");
  std::vector<std::string> files;
  if (split == "test") files.push_back((folder / "test_batch.bin").string());
  for (int batch = 1; split == "train" && batch <= 5; ++batch) files.push_back((folder / fmt::format("data_batch_{}.bin", batch)).string());
  return open_cifar(files, 1, class_names(folder / "batches.meta.txt", 10));
}

std::unique_ptr<ImageSet> open_cifar100(const DataSource& source, const std::string& split) {
  require_split(source, split);
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

std::unique_ptr<ImageSet> open_synthetic(const DataSource& source, const std::string& split) {
  const std::vector<std::string> splits = {"train", "test", "val"};
  const auto at = std::find(splits.begin(), splits.end(), split);
  if (at == splits.end()) throw std::runtime_error(fmt::format("synthetic has no split '{}'; there are train, val and test", split));
  Synthetic what = source.synthetic;
  what.stream = static_cast<uint64_t>(at - splits.begin());
  return make_synthetic(what);
}

struct Format {
  std::string name;
  std::unique_ptr<ImageSet> (*open)(const DataSource&, const std::string& split);
};

const std::vector<Format>& table() {
  static const std::vector<Format> table = {{"fashion-mnist", open_fashion_mnist},
                                            {"mnist", open_mnist},
                                            {"kmnist", open_kmnist},
                                            {"idx", open_any_idx},
                                            {"cifar10", open_cifar10},
                                            {"cifar100", open_cifar100},
                                            {"folder", open_image_folder},
                                            {"synthetic", open_synthetic}};
  return table;
}

const Format& find_format(const std::string& name) {
  const auto found = std::find_if(table().begin(), table().end(), [&](const Format& format) { return format.name == name; });
  if (found == table().end())
    throw std::runtime_error(fmt::format("unknown data format '{}'; known: {}", name, fmt::join(formats(), ", ")));
  return *found;
}

// With its default path, and the path looked at.
DataSource resolved(DataSource source) {
  if (source.format == "synthetic") {
    if (!source.path.empty())
      throw std::runtime_error(fmt::format("synthetic data have no path, but '{}' was given; leave it out", source.path));
    return source;
  }
  if (source.path.empty() && source.format == "fashion-mnist") {
    source.path = kFashionMnist;
    if (!fs::is_directory(source.path))
      throw DataError(source.path, "is not there; install the images with: sudo apt-get install dataset-fashion-mnist");
    return source;
  }
  if (source.path.empty())
    throw std::runtime_error(fmt::format("data of format '{}' need a path: give the folder of the set", source.format));
  if (!fs::is_directory(source.path)) throw DataError(source.path, fs::exists(source.path) ? "is not a folder" : "does not exist");
  return source;
}

std::unique_ptr<ImageSet> take_part(std::unique_ptr<ImageSet> set, const Split& split, bool sorted_by_class) {
  const auto [from, to] = split.range(set->size());
  std::vector<uint32_t> order(static_cast<size_t>(set->size()));
  std::iota(order.begin(), order.end(), 0u);
  if (sorted_by_class) {
    // A part must be a sample of all classes, the same on every machine and in every run.
    Random random(0, Purpose::split, 0, 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  std::vector<uint32_t> chosen(order.begin() + from, order.begin() + to);
  std::sort(chosen.begin(), chosen.end());
  return std::make_unique<SubSet>(std::move(set), std::move(chosen));
}

std::unique_ptr<ImageSet> map_labels(std::unique_ptr<ImageSet> opened, const std::string& path) {
  const std::shared_ptr<const ImageSet> set = std::move(opened);
  std::unordered_map<std::string, std::string> map;
  std::vector<std::string> lines = read_lines(path), targets;
  bool all_numbers = true;
  for (size_t line = 0; line < lines.size(); ++line) {
    const std::string& text = lines[line];
    if (text.empty() || text[0] == '#') continue;
    const std::string where = fmt::format("{}:{}", path, line + 1);
    const size_t tab = text.find('\t');
    if (tab == std::string::npos || tab == 0 || tab + 1 == text.size())
      throw DataError(where, fmt::format("'{}' is not understood: write class, tab, new class", text));
    const std::string from = text.substr(0, tab), to = text.substr(tab + 1);
    if (!map.emplace(from, to).second) throw DataError(where, fmt::format("class '{}' is mapped a second time", from));
    targets.push_back(to);
    all_numbers = all_numbers && whole_number(to).value_or(-1) >= 0;
  }

  // New classes: the numbers up to the highest, or the names in their order.
  std::vector<std::string> classes;
  std::unordered_map<std::string, int64_t> label_of;
  if (all_numbers) {
    int64_t highest = -1;
    for (const std::string& target : targets) highest = std::max(highest, label_of[target] = *whole_number(target));
    constexpr int64_t kMostClasses = 1000000;
    if (highest >= kMostClasses) throw DataError(path, fmt::format("class number {} is too high: at most {}", highest, kMostClasses - 1));
    classes = numbers(static_cast<int>(highest + 1));
  } else {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    classes = targets;
    for (size_t label = 0; label < classes.size(); ++label) label_of[classes[label]] = static_cast<int64_t>(label);
  }

  std::vector<int64_t> new_labels;
  for (const std::string& name : set->classes()) {
    const auto found = map.find(name);
    new_labels.push_back(found == map.end() ? -1 : label_of[found->second]);
  }
  std::vector<uint32_t> chosen;
  for (int64_t i = 0; i < set->size(); ++i)
    if (new_labels[static_cast<size_t>(set->label(i))] >= 0) chosen.push_back(static_cast<uint32_t>(i));
  if (chosen.empty())
    throw DataError(path, fmt::format("maps none of the set's classes that have images; they are named like '{}'", set->classes().front()));
  return std::make_unique<SubSet>(set, std::move(chosen), std::move(classes), std::move(new_labels));
}

}  // namespace

const std::vector<std::string>& formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Format& format : table()) list.push_back(format.name);
    return list;
  }();
  return names;
}

std::unique_ptr<ImageSet> open_images(const DataSource& given) {
  const Format& format = find_format(given.format);
  const Split split = parse_split(given.split);
  const DataSource source = resolved(given);
  std::unique_ptr<ImageSet> set = format.open(source, split.name);
  if (set->size() > int64_t{UINT32_MAX}) throw std::runtime_error(fmt::format("{}: more than 2^32 images", source.path));
  if (!source.label_map.empty()) set = map_labels(std::move(set), source.label_map);
  if (!split.whole()) set = take_part(std::move(set), split, source.format == "folder");
  return set;
}

std::vector<std::string> splits(const DataSource& given) {
  find_format(given.format);
  const DataSource source = resolved(given);
  if (source.format == "synthetic") return {"train", "val", "test"};
  std::vector<std::string> found;
  if (source.format == "idx") found = idx_splits(source.path);
  if (source.format == "folder") {
    for (const char* name : {"train", "val", "validation", "test"})
      if (fs::is_directory(fs::path(source.path) / name)) found.emplace_back(name);
    if (found.empty()) return {"all"};
  }
  return found.empty() ? std::vector<std::string>{"train", "test"} : found;
}

Split parse_split(const std::string& text) {
  const auto wrong = [&] {
    return std::runtime_error(fmt::format(
        "split '{}' is not understood: write a name such as train or test, or a part such as train[:90%], train[90%:], train[:1000]",
        text));
  };
  const size_t bracket = text.find('[');
  Split split;
  split.text = text;
  split.name = text.substr(0, bracket);
  if (split.name.empty()) throw wrong();
  if (bracket == std::string::npos) return split;
  const size_t colon = text.find(':', bracket);
  if (colon == std::string::npos || text.back() != ']') throw wrong();
  const auto bound = [&](std::string_view part) {
    Split::Bound bound;
    if (part.empty()) return bound;
    bound.percent = part.back() == '%';
    if (bound.percent) part.remove_suffix(1);
    const std::optional<int64_t> value = whole_number(part);
    if (!value || (bound.percent && (*value < -100 || *value > 100))) throw wrong();
    bound.given = true;
    bound.value = *value;
    return bound;
  };
  const std::string_view view = text;
  split.from = bound(view.substr(bracket + 1, colon - bracket - 1));
  split.to = bound(view.substr(colon + 1, view.size() - colon - 2));
  return split;
}

std::pair<int64_t, int64_t> Split::range(int64_t size) const {
  const auto place = [&](const Bound& bound, int64_t otherwise) {
    if (!bound.given) return otherwise;
    const int64_t forward = bound.percent && bound.value < 0 ? bound.value + 100 : bound.value;
    if (bound.percent) return (size * forward + 50) / 100;
    return forward < 0 ? size + forward : forward;
  };
  const int64_t first = place(from, 0), last = place(to, size);
  if (first < 0 || last > size || first >= last)
    throw std::runtime_error(
        fmt::format("split '{}' is images {} to {} of {}: there must be at least one, and none past the end", text, first, last, size));
  return {first, last};
}

}  // namespace hinge::data
