#include "tasks/vision/model_input.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "data/codec.h"
#include "data/error.h"

namespace hinge::vision {
namespace {

class ConvertedSet : public data::ImageSet {
 public:
  ConvertedSet(std::shared_ptr<const data::ImageSet> images, int channels)
      : ImageSet(images->classes()), images_(std::move(images)), channels_(channels) {}
  using ImageSet::load;
  int64_t size() const override { return images_->size(); }
  int64_t label(int64_t i) const override { return images_->label(i); }
  std::string name(int64_t i) const override { return images_->name(i); }
  void load(int64_t i, data::Image& image) const override {
    images_->load(i, image);
    convert_channels(image, channels_);
  }

 private:
  std::shared_ptr<const data::ImageSet> images_;
  int channels_;
};

// Where the step of a preprocessing begins that makes numbers of bytes, its last; its end if it has none.
size_t numbers_step(const std::string& text) {
  const size_t bar = text.rfind('|'), last = text.find_first_not_of(' ', bar == std::string::npos ? 0 : bar + 1);
  if (last == std::string::npos) return text.size();
  return text.compare(last, 11, "value_range") == 0 || text.compare(last, 11, "standardize") == 0 ? last : text.size();
}

}  // namespace

void convert_channels(data::Image& image, int channels) {
  if (image.channels == channels) return;
  const size_t count = static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  std::vector<uint8_t> converted(count * static_cast<size_t>(channels));
  if (image.channels == 3 && channels == 1) {
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* rgb = image.pixels.data() + 3 * i;
      converted[i] = static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    }
  } else if (image.channels == 1 && channels == 3) {
    for (size_t i = 0; i < converted.size(); ++i) converted[i] = image.pixels[i / 3];
  } else {
    throw std::runtime_error(fmt::format("an image of {} channels cannot become one of {}: only grey (1) and colour (3) can be converted",
                                         image.channels, channels));
  }
  image.channels = channels;
  image.pixels = std::move(converted);
}

std::shared_ptr<const data::ImageSet> with_channels(std::shared_ptr<const data::ImageSet> images, int64_t channels) {
  return std::make_shared<ConvertedSet>(std::move(images), static_cast<int>(channels));
}

data::Pipeline input_pipeline(const Config& config) {
  std::string text = config.data.eval_pp;
  const std::string resize = fmt::format("resize({})", config.model.image_size);
  if (const size_t numbers = numbers_step(text); numbers < text.size())
    text.insert(numbers, resize + "|");
  else if (text.find_first_not_of(' ') == std::string::npos)
    text = resize;
  else
    text += "|" + resize;
  return data::Pipeline(text);
}

data::Pipeline probe_pipeline(const Config& config) {
  const int64_t size = config.model.image_size;
  if (size < 64) return input_pipeline(config);
  std::string text = fmt::format("resize({})|central_crop({})", std::llround(static_cast<double>(size) * 256 / 224), size);
  if (const std::string numbers = config.data.eval_pp.substr(numbers_step(config.data.eval_pp)); !numbers.empty()) text += "|" + numbers;
  return data::Pipeline(text);
}

ModelInput model_input(const Config& config, data::Image image) {
  convert_channels(image, static_cast<int>(config.model.channels));
  const data::Pipeline pipeline = input_pipeline(config);
  data::Scratch scratch;
  scratch.image = std::move(image);
  data::Random random(0, data::Purpose::augment, 0, 0);
  pipeline.apply(scratch, random);
  ModelInput input{std::move(scratch.image), {}};
  input.pixels = at::empty({1, input.image.height, input.image.width, input.image.channels});
  pipeline.to_float(input.image, input.pixels.data_ptr<float>());
  return input;
}

ModelInput model_input(const Config& config, const std::string& file) {
  data::Image image = data::read_image(file);
  try {
    return model_input(config, std::move(image));
  } catch (const std::runtime_error& error) {
    throw data::DataError(file, error.what());
  }
}

}  // namespace hinge::vision
