#include "tasks/vision/labels.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "support/nearest.h"

namespace hinge::vision {
namespace {

using Places = std::unordered_map<std::string, int64_t>;

Places places_of(const std::vector<std::string>& names) {
  Places places;
  for (size_t i = 0; i < names.size(); ++i) places.emplace(names[i], static_cast<int64_t>(i));
  return places;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& names) {
  const std::optional<std::string> meant = support::nearest(name, names);
  return meant ? fmt::format("; did you mean '{}'?", *meant) : "";
}

// The set with label new_labels[l] for l; images with a negative one are left out.
std::shared_ptr<const data::ImageSet> relabelled(const std::shared_ptr<const data::ImageSet>& images, std::vector<std::string> classes,
                                                 std::vector<int64_t> new_labels) {
  std::vector<uint32_t> chosen;
  for (int64_t i = 0; i < images->size(); ++i)
    if (new_labels[static_cast<size_t>(images->label(i))] >= 0) chosen.push_back(static_cast<uint32_t>(i));
  return std::make_shared<data::SubSet>(images, std::move(chosen), std::move(classes), std::move(new_labels));
}

}  // namespace

bool are_numbers(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != std::to_string(i)) return false;
  return true;
}

LabelledImages match_labels(const std::shared_ptr<const data::ImageSet>& images, const std::vector<std::string>& model_classes,
                            const std::vector<std::string>& only) {
  // The set's classes by the names that the model has for them.
  std::vector<std::string> names = images->classes();
  if (names.size() == model_classes.size() && (are_numbers(names) || are_numbers(model_classes))) names = model_classes;
  LabelledImages result;
  if (only.empty()) {
    result.images = images;
    if (names == model_classes) return result;
    const Places places = places_of(model_classes);
    std::vector<int64_t> new_labels;
    for (const std::string& name : names) {
      const auto found = places.find(name);
      if (found == places.end())
        throw std::runtime_error(
            fmt::format("the images have a class '{}' that the model does not know{}; the model's {} classes are named "
                        "like '{}' (--classes FILE restricts both to the classes of a file)",
                        name, did_you_mean(name, model_classes), model_classes.size(), model_classes.front()));
      new_labels.push_back(found->second);
    }
    result.images = relabelled(images, model_classes, std::move(new_labels));
    return result;
  }
  const Places places = places_of(model_classes), wanted = places_of(only);
  if (wanted.size() != only.size()) throw std::runtime_error("the file of classes names a class twice: give each once");
  for (const std::string& name : only) {
    const auto found = places.find(name);
    if (found == places.end())
      throw std::runtime_error(fmt::format("the model has no class '{}'{}", name, did_you_mean(name, model_classes)));
    result.among.push_back(found->second);
  }
  std::vector<int64_t> new_labels;
  for (const std::string& name : names) {
    const auto found = wanted.find(name);
    new_labels.push_back(found == wanted.end() ? -1 : found->second);
  }
  result.images = relabelled(images, only, std::move(new_labels));
  result.left_out = images->size() - result.images->size();
  if (result.images->size() == 0)
    throw std::runtime_error(fmt::format("none of the images has a class of the file: theirs are named like '{}'", names.front()));
  return result;
}

}  // namespace hinge::vision
