// The steps of preprocessing and the table that makes them from text.
#include "data/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>

#include "data/error.h"
#include "data/randaug.h"

namespace hinge::data {
namespace {

// Keeps `box` of scratch.image, which lies inside it.
void crop(Scratch& scratch, const Box& box) {
  const Image& from = scratch.image;
  Image& to = scratch.other;
  to.reshape(box.height, box.width, from.channels);
  for (int y = 0; y < box.height; ++y) std::memcpy(to.row(y), from.row(box.top + y) + box.left * from.channels, to.row_bytes());
  std::swap(scratch.image, scratch.other);
}

void resize_box(Scratch& scratch, const Box& box, int height, int width, ResizeMethod method) {
  if (box == Box{0, 0, height, width} && scratch.image.height == height && scratch.image.width == width) return;
  resize(scratch.image, box, height, width, method, scratch.other, scratch.resize);
  std::swap(scratch.image, scratch.other);
}

Box whole(const Image& image) { return {0, 0, image.height, image.width}; }

void require_at_least(const Image& image, int size, const char* step) {
  if (image.height < size || image.width < size)
    throw std::runtime_error(fmt::format("{0}({1}) needs at least {1}x{1} pixels, the image has {2}x{3}; put resize_small({1}) before it",
                                         step, size, image.height, image.width));
}

class Resize : public Step {
 public:
  Resize(int size, ResizeMethod method) : size_(size), method_(method) {}
  void apply(Scratch& scratch, Random&) const override { resize_box(scratch, whole(scratch.image), size_, size_, method_); }

 private:
  int size_;
  ResizeMethod method_;
};

class ResizeSmall : public Step {
 public:
  ResizeSmall(int size, ResizeMethod method) : size_(size), method_(method) {}
  void apply(Scratch& scratch, Random&) const override {
    const Image& image = scratch.image;
    const double ratio = static_cast<double>(size_) / std::min(image.height, image.width);
    const auto scaled = [&](int side) { return std::max<int64_t>(size_, std::llround(side * ratio)); };
    const int64_t height = scaled(image.height), width = scaled(image.width);
    if (!is_sane_size(height, width))
      throw ImageError(
          fmt::format("has {}x{} pixels, which resize_small({}) would make {}x{}: at most {} pixels are allowed, {} along a side",
                      image.height, image.width, size_, height, width, kMaxPixels, kMaxSide));
    resize_box(scratch, whole(image), static_cast<int>(height), static_cast<int>(width), method_);
  }

 private:
  int size_;
  ResizeMethod method_;
};

class CentralCrop : public Step {
 public:
  explicit CentralCrop(int size) : size_(size) {}
  void apply(Scratch& scratch, Random&) const override {
    require_at_least(scratch.image, size_, "central_crop");
    crop(scratch, {(scratch.image.height - size_) / 2, (scratch.image.width - size_) / 2, size_, size_});
  }

 private:
  int size_;
};

int random_offset(int space, Random& random) { return static_cast<int>(random.below(static_cast<uint64_t>(space) + 1)); }

class RandomCrop : public Step {
 public:
  explicit RandomCrop(int size) : size_(size) {}
  void apply(Scratch& scratch, Random& random) const override {
    require_at_least(scratch.image, size_, "random_crop");
    const int top = random_offset(scratch.image.height - size_, random), left = random_offset(scratch.image.width - size_, random);
    crop(scratch, {top, left, size_, size_});
  }

 private:
  int size_;
};

// A box drawn as TensorFlow's sample_distorted_bounding_box does: an aspect, then a height between that of the smallest area and the
// largest that fits, each as likely (so that small areas are likelier than large ones), then a place. After many that do not fit, the whole
// image.
class InceptionCrop : public Step {
 public:
  InceptionCrop(int size, double area_min, double area_max, ResizeMethod method)
      : size_(size), area_min_(area_min / 100), area_max_(area_max / 100), method_(method) {}
  void apply(Scratch& scratch, Random& random) const override { resize_box(scratch, choose(scratch.image, random), size_, size_, method_); }

 private:
  Box choose(const Image& image, Random& random) const {
    const double pixels = static_cast<double>(image.height) * image.width, least = area_min_ * pixels, most = area_max_ * pixels;
    const auto rounded = [](double value) { return static_cast<int>(std::lround(value)); };
    for (int attempt = 0; attempt < 100; ++attempt) {
      const double aspect = random.uniform(0.75, 1.33);
      const auto width_of = [&](int height) { return rounded(height * aspect); };
      const auto area_of = [&](int height) { return static_cast<double>(height) * width_of(height); };
      int highest = std::min({rounded(std::sqrt(most / aspect)), static_cast<int>((image.width + 0.5) / aspect), image.height});
      if (width_of(highest) > image.width) --highest;
      const int lowest = std::min(rounded(std::sqrt(least / aspect)), highest);
      int height = lowest + random_offset(highest - lowest, random);
      if (area_of(height) < least) ++height;  // rounding alone should not rule a box out
      if (area_of(height) > most) --height;
      const int width = width_of(height);
      if (height < 1 || width < 1 || height > image.height || width > image.width || area_of(height) < least || area_of(height) > most)
        continue;
      const int top = random_offset(image.height - height, random), left = random_offset(image.width - width, random);
      return {top, left, height, width};
    }
    return whole(image);
  }

  int size_;
  double area_min_, area_max_;
  ResizeMethod method_;
};

// A window as large as the image, moved by up to `pad` pixels each way; what comes in from outside is `fill`.
class PadCrop : public Step {
 public:
  PadCrop(int pad, int fill) : pad_(pad), fill_(static_cast<uint8_t>(fill)) {}
  void apply(Scratch& scratch, Random& random) const override {
    const Image& from = scratch.image;
    Image& to = scratch.other;
    to.reshape(from.height, from.width, from.channels);
    const int down = random_offset(2 * pad_, random) - pad_, right = random_offset(2 * pad_, random) - pad_;
    const int first = std::clamp(-right, 0, from.width),
              last = std::clamp(from.width - right, 0, from.width);  // columns that show the image
    const size_t channels = static_cast<size_t>(from.channels);
    const size_t before = static_cast<size_t>(first) * channels, inside = static_cast<size_t>(last - first) * channels;
    for (int y = 0; y < to.height; ++y) {
      uint8_t* row = to.row(y);
      if (y + down < 0 || y + down >= from.height) {
        std::memset(row, fill_, to.row_bytes());
        continue;
      }
      std::memset(row, fill_, before);
      if (inside > 0) std::memcpy(row + before, from.row(y + down) + (first + right) * from.channels, inside);
      std::memset(row + before + inside, fill_, to.row_bytes() - before - inside);
    }
    std::swap(scratch.image, scratch.other);
  }

 private:
  int pad_;
  uint8_t fill_;
};

class FlipLeftRight : public Step {
 public:
  void apply(Scratch& scratch, Random& random) const override {
    if (!random.coin()) return;
    Image& image = scratch.image;
    for (int y = 0; y < image.height; ++y) {
      uint8_t *left = image.row(y), *right = image.row(y) + image.row_bytes() - image.channels;
      if (image.channels == 1)
        std::reverse(left, right + 1);
      else
        for (; left < right; left += image.channels, right -= image.channels) std::swap_ranges(left, left + image.channels, right);
    }
  }
};

class RandAug : public Step {
 public:
  RandAug(int n, double m) : n_(n), m_(m) {}
  void apply(Scratch& scratch, Random& random) const override { randaug(scratch.image, scratch.other, n_, m_, random); }

 private:
  int n_;
  double m_;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Parameter {
  std::string_view name;
  double low = 0, high = 0;
  bool whole = true;
  std::optional<double> otherwise = std::nullopt;  // without it, the parameter must be given
  std::span<const std::string_view> words = {};    // of a parameter that is one of these; its value is the word's place

  std::string text(double value) const { return words.empty() ? fmt::format("{}", value) : std::string(words[static_cast<size_t>(value)]); }
};

constexpr Parameter kSize{"size", 1, 16384};
constexpr std::string_view kResizeMethods[] = {"antialias", "bilinear", "area"};  // in the order of ResizeMethod
constexpr Parameter kMethod{.name = "method", .otherwise = 0, .words = kResizeMethods};

// A step of the table has parameters, or takes any number of numbers; it makes a step on bytes, or the numbers the bytes become.
using Values = std::vector<double>;
using ByteValues = std::vector<std::vector<float>>;
struct Kind {
  std::string_view name;
  std::vector<Parameter> parameters;
  std::unique_ptr<const Step> (*make)(const Values&);
  ByteValues (*values)(const Values&);
};

std::vector<float> line(double at_0, double at_255) {
  std::vector<float> values(256);
  for (int i = 0; i < 256; ++i) values[static_cast<size_t>(i)] = static_cast<float>(at_0 + (at_255 - at_0) * i / 255);
  return values;
}

template <typename S, typename... T> std::unique_ptr<const Step> make(T... arguments) { return std::make_unique<S>(arguments...); }

int whole(double value) { return static_cast<int>(value); }
ResizeMethod resize_method(double value) { return static_cast<ResizeMethod>(whole(value)); }

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kinds = {
      {"resize", {kSize, kMethod}, [](const Values& v) { return make<Resize>(whole(v[0]), resize_method(v[1])); }, nullptr},
      {"resize_small", {kSize, kMethod}, [](const Values& v) { return make<ResizeSmall>(whole(v[0]), resize_method(v[1])); }, nullptr},
      {"central_crop", {kSize}, [](const Values& v) { return make<CentralCrop>(whole(v[0])); }, nullptr},
      {"random_crop", {kSize}, [](const Values& v) { return make<RandomCrop>(whole(v[0])); }, nullptr},
      {"inception_crop",
       {kSize, {"area_min", 0.01, 100, false, 5}, {"area_max", 0.01, 100, false, 100}, kMethod},
       [](const Values& v) {
         if (v[1] > v[2]) throw std::runtime_error(fmt::format("area_min {} is larger than area_max {}", v[1], v[2]));
         return make<InceptionCrop>(whole(v[0]), v[1], v[2], resize_method(v[3]));
       },
       nullptr},
      {"pad_crop",
       {{"pad", 0, 16384}, {"fill", 0, 255, true, 0}},
       [](const Values& v) { return make<PadCrop>(whole(v[0]), whole(v[1])); },
       nullptr},
      {"flip_lr", {}, [](const Values&) { return make<FlipLeftRight>(); }, nullptr},
      {"randaug", {{"n", 0, 16}, {"m", 0, 30, false}}, [](const Values& v) { return make<RandAug>(whole(v[0]), v[1]); }, nullptr},
      {"value_range",
       {{"low", -1e6, 1e6, false}, {"high", -1e6, 1e6, false}},
       nullptr,
       [](const Values& v) { return ByteValues{line(v[0], v[1])}; }},
      {"standardize",
       {},
       nullptr,
       [](const Values& v) {
         if (v.size() != 2 && v.size() != 6)
           throw std::runtime_error(fmt::format("{} numbers given; give mean,std or three means and three stds", v.size()));
         ByteValues values;
         const size_t channels = v.size() / 2;
         for (size_t channel = 0; channel < channels; ++channel) {
           const double mean = v[channel], std = v[channels + channel];
           if (!(std > 0)) throw std::runtime_error(fmt::format("std {} must be above 0", std));
           values.push_back(line(-mean / std, (1 - mean) / std));
         }
         return values;
       }},
  };
  return kinds;
}

double number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw std::runtime_error(fmt::format("'{}' is not a number", text));
  return value;
}

// Of a word its place among the parameter's words, of other text the number.
double value_of(const Parameter& parameter, std::string_view text) {
  if (parameter.words.empty()) return number(text);
  const auto word = std::find(parameter.words.begin(), parameter.words.end(), trimmed(text));
  if (word == parameter.words.end())
    throw std::runtime_error(
        fmt::format("{} '{}' is unknown; known are {}", parameter.name, trimmed(text), fmt::join(parameter.words, ", ")));
  return static_cast<double>(word - parameter.words.begin());
}

// "224, area_max=50" by the names and ranges of the parameters; any numbers where there are none to check (standardize).
Values read_values(const Kind& kind, std::span<const std::string_view> items) {
  if (kind.parameters.empty() && kind.values != nullptr) {
    Values values;
    for (const std::string_view item : items) values.push_back(number(item));
    return values;
  }
  std::vector<std::optional<double>> given(kind.parameters.size());
  size_t next = 0;
  for (const std::string_view item : items) {
    size_t at = next;
    std::string_view text = item;
    if (const size_t equals = item.find('='); equals != std::string_view::npos) {
      const std::string_view name = trimmed(item.substr(0, equals));
      at = 0;
      while (at < given.size() && kind.parameters[at].name != name) ++at;
      if (at == given.size()) throw std::runtime_error(fmt::format("has no parameter '{}'", name));
      text = item.substr(equals + 1);
    } else {
      ++next;
    }
    if (at >= given.size()) throw std::runtime_error(fmt::format("takes at most {} parameters", given.size()));
    if (given[at]) throw std::runtime_error(fmt::format("{} is given twice", kind.parameters[at].name));
    given[at] = value_of(kind.parameters[at], text);
  }
  Values values;
  for (size_t i = 0; i < given.size(); ++i) {
    const Parameter& parameter = kind.parameters[i];
    if (!given[i] && !parameter.otherwise) throw std::runtime_error(fmt::format("needs {}", parameter.name));
    const double value = given[i] ? *given[i] : *parameter.otherwise;
    if (parameter.words.empty() && (value < parameter.low || value > parameter.high || (parameter.whole && value != std::floor(value))))
      throw std::runtime_error(fmt::format("{} {} is not allowed: give a {}number from {} to {}", parameter.name, value,
                                           parameter.whole ? "whole " : "", parameter.low, parameter.high));
    values.push_back(value);
  }
  return values;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    const size_t next = text.find(separator, at);
    parts.push_back(trimmed(text.substr(at, next - at)));
    if (next == std::string_view::npos) return parts;
    at = next + 1;
  }
}

std::string usage() {
  std::vector<std::string> list;
  for (const Kind& kind : kinds()) {
    std::vector<std::string> names;
    for (const Parameter& parameter : kind.parameters)
      names.push_back(parameter.otherwise ? fmt::format("{}={}", parameter.name, parameter.text(*parameter.otherwise))
                                          : std::string(parameter.name));
    if (kind.name == "standardize") names = {"mean...", "std..."};
    list.push_back(names.empty() ? std::string(kind.name) : fmt::format("{}({})", kind.name, fmt::join(names, ",")));
  }
  return fmt::format("{}", fmt::join(list, " | "));
}

}  // namespace

Pipeline::Pipeline(const std::string& text) : text_(text), value_of_byte_{line(0, 255)} {
  std::string_view converted;  // the step that made numbers of the bytes
  for (const std::string_view part : trimmed(text).empty() ? std::vector<std::string_view>{} : split(text, '|')) {
    try {
      const size_t bracket = part.find('(');
      const std::string_view name = trimmed(part.substr(0, bracket));
      const auto kind = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& known) { return known.name == name; });
      if (kind == kinds().end()) throw std::runtime_error("there is no such step");
      std::vector<std::string_view> items;
      if (bracket != std::string_view::npos) {
        if (part.back() != ')') throw std::runtime_error("a bracket is not closed");
        const std::string_view inside = trimmed(part.substr(bracket + 1, part.size() - bracket - 2));
        if (!inside.empty()) items = split(inside, ',');
      }
      if (!converted.empty())
        throw std::runtime_error(
            fmt::format("comes after {}, which must be the last step{}", converted, kind->values != nullptr ? ": give one of them" : ""));
      const Values values = read_values(*kind, items);
      if (kind->make != nullptr) {
        steps_.push_back(kind->make(values));
      } else {
        value_of_byte_ = kind->values(values);
        converted = kind->name;
      }
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("preprocessing '{}': step '{}': {}. Steps: {}", text, part, error.what(), usage()));
    }
  }
}

void Pipeline::apply(Scratch& scratch, Random& random) const {
  for (const auto& step : steps_) step->apply(scratch, random);
}

void Pipeline::to_float(const Image& image, float* out) const {
  if (value_of_byte_.size() == 1) {
    const float* values = value_of_byte_[0].data();
    for (size_t i = 0; i < image.pixels.size(); ++i) out[i] = values[image.pixels[i]];
    return;
  }
  const size_t channels = value_of_byte_.size();
  if (static_cast<size_t>(image.channels) != channels)
    throw std::runtime_error(fmt::format("standardize has numbers for {} channels, the image has {}", channels, image.channels));
  for (size_t i = 0; i < image.pixels.size(); i += channels)
    for (size_t channel = 0; channel < channels; ++channel) out[i + channel] = value_of_byte_[channel][image.pixels[i + channel]];
}

Pipeline::Result Pipeline::run(const Image& image, Random random) const {
  Scratch scratch;
  scratch.image = image;
  apply(scratch, random);
  Result result{scratch.image.shape(), std::vector<float>(scratch.image.pixels.size())};
  to_float(scratch.image, result.pixels.data());
  return result;
}

}  // namespace hinge::data
