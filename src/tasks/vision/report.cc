#include "tasks/vision/report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>

#include "data/source.h"
#include "tasks/vision/attention_maps.h"
#include "tasks/vision/predictions.h"
#include "tasks/vision/trained_model.h"
#include "train/trainer.h"

namespace hinge::vision {
namespace {

constexpr size_t kOneAClass = 10, kWrong = 8, kMapped = 3;  // images of the samples, and of them with maps
constexpr double kMostFlops = 1e12;                         // of each model for finding images that it gets wrong

struct Asked {
  std::string name;  // of the run
  TrainedModel trained;
};

// One evaluation image and what each model says of it.
struct Sample {
  int64_t index = 0;
  std::vector<Prediction> predictions;
};

bool same_images(const DataConfig& a, const DataConfig& b) {
  const auto key = [](const DataConfig& c) {
    return std::tie(c.format, c.path, c.eval, c.label_map, c.synthetic_count, c.synthetic_classes, c.synthetic_size, c.synthetic_channels);
  };
  return key(a) == key(b);
}

std::vector<Asked> load_models(std::vector<experiment::RunSummary>& runs) {
  std::vector<Asked> models;
  for (experiment::RunSummary& run : runs) try {
      TrainedModel trained = load(run.folder, train::Which::best);
      if (!models.empty() && !same_images(trained.config.data, models.front().trained.config.data))
        throw std::runtime_error(
            fmt::format("{} was trained on other images than {} and is not in the samples", run.name, models.front().name));
      models.push_back({run.name, std::move(trained)});
    } catch (const std::runtime_error& error) {
      run.problems.emplace_back(error.what());
    }
  return models;
}

// The first image of some classes, then some that a model gets wrong, of images spread over the whole set.
std::vector<Sample> choose_samples(const std::vector<Asked>& models, const data::ImageSet& images) {
  double flops = 1;
  for (const Asked& model : models) flops = std::max(flops, model.trained.model->flops());
  const int64_t wanted = std::clamp(static_cast<int64_t>(kMostFlops / flops), int64_t{2 * kOneAClass}, int64_t{256});
  const int64_t count = std::min(wanted, images.size());
  std::vector<Sample> of_classes, wrong;
  std::set<int64_t> seen;
  for (int64_t i = 0; i < count && (of_classes.size() < kOneAClass || wrong.size() < kWrong); ++i) {
    Sample sample{i * images.size() / count, {}};
    const data::Image image = images.load(sample.index);
    const int64_t label = images.label(sample.index);
    bool all_right = true;
    for (const Asked& model : models) {
      sample.predictions.push_back(predict(model.trained, model_input(model.trained.config, image), 1).at(0));
      all_right = all_right && sample.predictions.back().label == label;
    }
    if (of_classes.size() < kOneAClass && seen.insert(label).second)
      of_classes.push_back(std::move(sample));
    else if (!all_right && wrong.size() < kWrong)
      wrong.push_back(std::move(sample));
  }
  of_classes.insert(of_classes.end(), std::make_move_iterator(wrong.begin()), std::make_move_iterator(wrong.end()));
  return of_classes;
}

experiment::ReportPicture picture_of(const Sample& sample, const std::vector<Asked>& models, const data::ImageSet& images) {
  const int64_t label = images.label(sample.index);
  std::string caption = images.classes()[static_cast<size_t>(label)];
  for (size_t i = 0; i < models.size(); ++i) {
    const Prediction& said = sample.predictions[i];
    caption += fmt::format("\n{} {}: {}, {:.0f}%", said.label == label ? "✓" : "✗", models[i].name,
                           models[i].trained.classes[static_cast<size_t>(said.label)], 100 * said.probability);
  }
  return {caption, png_of(enlarged(images.load(sample.index)))};
}

std::vector<experiment::ReportSection> samples_of(const std::vector<Asked>& models, const std::string& within) {
  const DataConfig& config = models.front().trained.config.data;
  const data::DataSource source = source_of(config, config.eval);
  if (!within.empty() && !data::lies_within(source, within))
    throw std::runtime_error(
        fmt::format("the images of {} are outside of {}, and nothing there is read; 'hinge report' shows them", source.format, within));
  const std::unique_ptr<data::ImageSet> images = data::open_images(source);
  const std::vector<Sample> samples = choose_samples(models, *images);

  experiment::ReportSection predictions{"Sample predictions",
                                        fmt::format("Images of {}, {}: one each of at most ten classes, then some that not every run gets "
                                                    "right. Below each image: its class, and what each run predicts, with the probability.",
                                                    config.format, config.eval),
                                        {},
                                        /*picture_width=*/128};
  for (const Sample& sample : samples) predictions.pictures.push_back(picture_of(sample, models, *images));
  experiment::ReportSection maps{
      "Attention maps",
      "The image, then the attention of each layer, averaged over its heads, first layer first, and finally the rollout through all "
      "layers. Bright patches get the most attention.",
      {},
      /*picture_width=*/static_cast<int>(128 * std::min<int64_t>(*models.front().trained.config.model.depth + 2, 8))};
  for (size_t i = 0; i < std::min(kMapped, samples.size()); ++i)
    for (const Asked& model : models) {
      const std::string& label = images->classes()[static_cast<size_t>(images->label(samples[i].index))];
      maps.pictures.push_back(
          {fmt::format("{}: {}", label, model.name), attention_overview(model.trained, images->load(samples[i].index))});
    }
  return {std::move(predictions), std::move(maps)};
}

}  // namespace

std::vector<experiment::ReportSection> report_sections(std::vector<experiment::RunSummary>& runs, const std::string& within) {
  const at::NoGradGuard guard;
  train::use_threads(0);
  const std::vector<Asked> models = load_models(runs);
  if (models.empty()) return {};
  try {
    return samples_of(models, within);
  } catch (const std::runtime_error& error) {
    return {{"Sample predictions", fmt::format("There are none: {}", error.what()), {}, 0}};
  }
}

}  // namespace hinge::vision
