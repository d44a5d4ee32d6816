#include "experiment/vit_report.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>

#include "data/source.h"
#include "eval/attention_maps.h"
#include "eval/model_input.h"
#include "train/vit_run.h"

namespace hinge::experiment {
namespace {

constexpr size_t kOneAClass = 10, kWrong = 8, kMapped = 3;  // images of the samples, and of them with maps
constexpr double kMostFlops = 1e12;                         // of each model for finding images that it gets wrong

struct Asked {
  std::string name;  // of the run
  train::LoadedVit loaded;
};

struct Prediction {
  int64_t label = 0;
  double probability = 0;
};

// One evaluation image and what each model says of it.
struct Sample {
  int64_t index = 0;
  std::vector<Prediction> predictions;
};

bool same_images(const train::DataConfig& a, const train::DataConfig& b) {
  const auto key = [](const train::DataConfig& c) {
    return std::tie(c.format, c.path, c.eval, c.label_map, c.synthetic_count, c.synthetic_classes, c.synthetic_size, c.synthetic_channels);
  };
  return key(a) == key(b);
}

std::vector<Asked> load_models(std::vector<RunSummary>& runs) {
  std::vector<Asked> models;
  for (RunSummary& run : runs) try {
      train::LoadedVit loaded = train::load_vit(run.folder, train::Which::best, nullptr);
      if (!models.empty() && !same_images(loaded.config.data, models.front().loaded.config.data))
        throw std::runtime_error(
            fmt::format("{} was trained on other images than {} and is not in the samples", run.name, models.front().name));
      models.push_back({run.name, std::move(loaded)});
    } catch (const std::runtime_error& error) {
      run.problems.emplace_back(error.what());
    }
  return models;
}

Prediction ask(const train::LoadedVit& loaded, const data::Image& image) {
  const at::Tensor logits = loaded.model->forward(eval::model_input(loaded.config, image).pixels, /*training=*/false)[0];
  const at::Tensor probabilities = loaded.config.optim.loss == "sigmoid" ? at::sigmoid(logits) : at::softmax(logits, 0);
  const int64_t best = logits.argmax().item<int64_t>();
  return {best, probabilities[best].item<double>()};
}

// The first image of some classes, then some that a model gets wrong, of images spread over the whole set.
std::vector<Sample> choose_samples(const std::vector<Asked>& models, const data::ImageSet& images) {
  double flops = 1;
  for (const Asked& model : models) flops = std::max(flops, model.loaded.model->flops());
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
      sample.predictions.push_back(ask(model.loaded, image));
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

ReportPicture picture_of(const Sample& sample, const std::vector<Asked>& models, const data::ImageSet& images) {
  const int64_t label = images.label(sample.index);
  std::string caption = images.classes()[static_cast<size_t>(label)];
  for (size_t i = 0; i < models.size(); ++i) {
    const Prediction& said = sample.predictions[i];
    caption += fmt::format("\n{} {}: {}, {:.0f}%", said.label == label ? "✓" : "✗", models[i].name,
                           models[i].loaded.classes[static_cast<size_t>(said.label)], 100 * said.probability);
  }
  return {caption, eval::png_of(eval::enlarged(images.load(sample.index)))};
}

void add_samples(Report& report, const std::vector<Asked>& models) {
  const train::DataConfig& config = models.front().loaded.config.data;
  const std::unique_ptr<data::ImageSet> images = data::open_images(train::source_of(config, config.eval));
  const std::vector<Sample> samples = choose_samples(models, *images);

  ReportSection predictions{
      "Sample predictions",
      fmt::format("Images of {}, {}: one each of at most ten classes, then some that not all get right. Under each its class, "
                  "and what each run says with which probability.",
                  config.format, config.eval),
      {},
      /*picture_width=*/128};
  for (const Sample& sample : samples) predictions.pictures.push_back(picture_of(sample, models, *images));
  report.sections.push_back(std::move(predictions));

  ReportSection maps{
      "Attention maps",
      "The image, then what each layer reads of it in the mean of its heads, first layer first, and last the rollout through "
      "all layers. Bright patches are read the most.",
      {},
      /*picture_width=*/static_cast<int>(128 * std::min<int64_t>(*models.front().loaded.config.model.depth + 2, 8))};
  for (size_t i = 0; i < std::min(kMapped, samples.size()); ++i)
    for (const Asked& model : models) {
      const std::string& label = images->classes()[static_cast<size_t>(images->label(samples[i].index))];
      maps.pictures.push_back(
          {fmt::format("{}: {}", label, model.name), eval::attention_overview(model.loaded, images->load(samples[i].index))});
    }
  report.sections.push_back(std::move(maps));
}

}  // namespace

Report vit_report(std::vector<RunSummary> runs, const std::string& title) {
  const at::NoGradGuard guard;
  at::set_num_threads(omp_get_num_procs());
  tell_apart(runs);
  const std::vector<Asked> models = load_models(runs);
  Report report{.title = title,
                .subtitle = fmt::format("{} run{} side by side", runs.size(), runs.size() == 1 ? "" : "s"),
                .runs = std::move(runs),
                .curves = {{"train/loss", "Training loss", "loss"},
                           {"eval/accuracy", "Accuracy on the evaluation images", "accuracy"},
                           {"eval/loss", "Loss on the evaluation images", "loss"},
                           {"train/accuracy", "Accuracy on the training batches", "accuracy"}},
                .sections = {}};
  if (models.empty()) return report;
  try {
    add_samples(report, models);
  } catch (const std::runtime_error& error) {
    report.sections.push_back({"Sample predictions", fmt::format("There are none: {}", error.what()), {}, 0});
  }
  return report;
}

}  // namespace hinge::experiment
