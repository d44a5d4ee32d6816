// Paths, splits and label maps: what is the same for all formats.
#include "data/source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "data/error.h"
#include "data/files.h"
#include "data/formats.h"
#include "data/random.h"

namespace hinge::data {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// With its default path, and the path looked at.
DataSource resolved(const Format& format, DataSource source) {
  if (!format.takes_path) {
    if (!source.path.empty())
      throw std::runtime_error(fmt::format("{} data have no path, but '{}' was given; leave it out", format.name, source.path));
    return source;
  }
  if (source.path.empty()) {
    if (format.default_path.empty())
      throw std::runtime_error(fmt::format("data of format '{}' need a path: give the folder of the set", format.name));
    source.path = format.default_path;
    if (!fs::is_directory(source.path)) throw DataError(source.path, "is not there; install the images with: " + format.install);
  }
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
    classes = numbered_classes(highest + 1);
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
    for (const Format& format : format_table()) list.push_back(format.name);
    return list;
  }();
  return names;
}

bool lies_within(const DataSource& source, const std::string& folder) {
  const Format& format = find_format(source.format);
  std::vector<fs::path> paths;
  if (format.takes_path) paths.emplace_back(source.path.empty() ? format.default_path : source.path);
  if (!source.label_map.empty()) paths.emplace_back(source.label_map);
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return false;
  return std::all_of(paths.begin(), paths.end(), [&](const fs::path& path) {
    const fs::path real = fs::canonical(path, error);
    if (error || std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first != root.end()) return false;
    if (!fs::is_directory(real)) return true;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(real, error))
      if (entry.is_symlink()) return false;
    return !error;
  });
}

std::unique_ptr<ImageSet> open_images(const DataSource& given) {
  const Format& format = find_format(given.format);
  const Split split = parse_split(given.split);
  const DataSource source = resolved(format, given);
  if (!format.splits.empty() && std::find(format.splits.begin(), format.splits.end(), split.name) == format.splits.end())
    throw std::runtime_error(fmt::format("{} has no split '{}'; there are {}", format.name, split.name, fmt::join(format.splits, ", ")));
  std::unique_ptr<ImageSet> set = format.open(source, split.name);
  if (set->size() > int64_t{UINT32_MAX}) throw std::runtime_error(fmt::format("{}: more than 2^32 images", source.path));
  if (!source.label_map.empty()) set = map_labels(std::move(set), source.label_map);
  if (!split.whole()) set = take_part(std::move(set), split, format.sorted_by_class);
  return set;
}

std::vector<std::string> splits(const DataSource& given) {
  const Format& format = find_format(given.format);
  const DataSource source = resolved(format, given);
  return format.splits.empty() ? format.find_splits(source.path) : format.splits;
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
