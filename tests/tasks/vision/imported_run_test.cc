// A run made of weights from elsewhere: what its folder says before anything is trained.
#include "tasks/vision/imported_run.h"

#include <ATen/ATen.h>

#include "../../support/temporary_folder.h"
#include "models/timm_weights.h"
#include "support/config.h"
#include "support/safetensors.h"
#include "tasks/vision/trained_model.h"

namespace hinge::vision {
namespace {

class ImportedRun : public support::TemporaryFolderTest {
 protected:
  // 4 classes, 96 images, 2.5 epochs of 12 steps.
  static Config config() {
    Config config;
    config.model.image_size = 8, config.model.channels = 1, config.model.classes = 4, config.model.patch = 4, config.model.width = 8,
    config.model.depth = 1, config.model.ffn.width = 8, config.model.heads = 1;
    config.data.format = "synthetic", config.data.synthetic_count = 96, config.data.synthetic_classes = 4, config.data.synthetic_size = 8,
    config.data.synthetic_channels = 1;
    config.optim.batch = 8, config.optim.epochs = 2.5;
    return config;
  }

  // The run of a new model's weights.
  std::string import(const Config& config, const std::string& name) const {
    const models::Vit model(config.model, 1);
    std::vector<support::TensorView> views;
    const auto tensors = models::timm_weights(model);
    for (const auto& [tensor_name, tensor] : tensors)
      views.push_back({tensor_name, support::Dtype::kF32, tensor.sizes().vec(), tensor.data_ptr()});
    support::write_safetensors(path("weights.safetensors"), views, {{"format", "pt"}});
    import_timm_run(path("weights.safetensors"), config, path(name));
    return path(name);
  }

  static std::optional<int64_t> steps_in_config(const std::string& run) {
    Config config;
    support::read_config(config, train::config_path(run));
    return config.optim.steps;
  }
};

TEST_F(ImportedRun, KnowsItsStepsIfItsImagesAreThere) {
  const std::string run = import(config(), "run");
  EXPECT_EQ(steps_in_config(run), 30);
  const train::RunStatus status = train::read_status(run);
  EXPECT_EQ(status.step, 0);
  EXPECT_EQ(status.steps, 30);
  EXPECT_EQ(status.state, "stopped");

  Config given = config();
  given.optim.steps = 7;
  EXPECT_EQ(train::read_status(import(given, "given")).steps, 7);

  Config elsewhere = config();
  elsewhere.data.format = "folder", elsewhere.data.path = path("not there");
  EXPECT_EQ(steps_in_config(import(elsewhere, "elsewhere")), std::nullopt);
}

}  // namespace
}  // namespace hinge::vision
