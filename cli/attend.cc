// hinge attend: where a trained model looks in a picture.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output_folder.h"
#include "cli/trained_model.h"
#include "data/codec.h"
#include "tasks/vision/attention_maps.h"
#include "tasks/vision/model_input.h"

namespace hinge::cli {
namespace {

struct AttendOptions {
  RunOptions run;
  std::string image, out;
  bool json = false;
};

nlohmann::json to_json(const vision::AttentionNumbers& numbers) {
  return {
      {"mass", numbers.mass}, {"entropy", numbers.entropy}, {"zero_share", numbers.zero_share}, {"skipped_share", numbers.skipped_share}};
}

void print(const std::string& name, const vision::AttentionNumbers& numbers) {
  fmt::print("{:>5}  {:>7.4f}  {:>7.3f}  {:>6.1f}%  {:>6.1f}%\n", name, numbers.mass, numbers.entropy, 100 * numbers.zero_share,
             100 * numbers.skipped_share);
}

int attend(const AttendOptions& options) {
  const vision::TrainedModel trained = open_vision(options.run, "hinge attend");
  const vision::ModelInput input = vision::model_input(trained.config, options.image);
  const vision::AttentionMaps maps = vision::attention_maps(*trained.model, input.pixels);
  const int64_t patch = *trained.model->config().patch;

  OutputFolder folder(options.out.empty() ? "attention-" + std::filesystem::path(options.image).stem().string() : options.out);
  const auto write = [&](const std::string& name, const data::Image& picture) { folder.write(name, vision::png_of(picture)); };
  write("overview.png", vision::overview(input.image, maps, patch));
  write("heads.png", vision::head_overview(input.image, maps, patch));
  for (size_t i = 0; i < maps.layers.size(); ++i)
    write(fmt::format("layer-{:02}.png", i), vision::overlay(input.image, maps.layers[i].map, patch));
  write("rollout.png", vision::overlay(input.image, maps.rollout, patch));

  const std::vector<std::string>& files = folder.files();
  const vision::AttentionNumbers all = vision::mean_of_layers(maps);
  if (options.json) {
    nlohmann::json layers = nlohmann::json::array();
    for (const vision::LayerAttention& layer : maps.layers) layers.push_back(to_json(layer));
    fmt::print("{}", json_text({{"image", options.image}, {"layers", layers}, {"all", to_json(all)}, {"files", files}}));
    return 0;
  }
  fmt::print("layer     mass  entropy    zeros  skipped\n");
  for (size_t i = 0; i < maps.layers.size(); ++i) print(std::to_string(i), maps.layers[i]);
  print("all", all);
  fmt::print("{}: the image, the layers 0 to {}, the rollout\n{}: a row for each layer, a picture for each head\n", files[0],
             maps.layers.size() - 1, files[1]);
  fmt::print("{} more pictures: each layer and the rollout by themselves\n", files.size() - 2);
  return 0;
}

}  // namespace

void add_attend(Command parent) {
  auto options = std::make_shared<AttendOptions>();
  Command command = parent.subcommand("attend", "Draw the attention maps of an image");
  add_run(command, options->run);
  command.option("image", options->image, "IMAGE", "A JPEG or PNG file").required();
  command.option("--out", options->out, "FOLDER", "Folder for the pictures (default: attention-IMAGE)");
  command.flag("--json", options->json, "Print the numbers as JSON instead of a table");
  command.footer(
      "Maps show how much attention each part of the image gets: from the class token if the model has one, else averaged over all "
      "tokens.\n"
      "mass: sum of a query's weights; entropy: of these weights, in nats; zeros: weights that are exactly 0; skipped: work saved by "
      "them.\nThe row 'all' is the mean over layers.");
  command.run([options] { return attend(*options); });
}

}  // namespace hinge::cli
