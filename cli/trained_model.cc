#include "cli/trained_model.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "data/files.h"

namespace hinge::cli {

void add_model(Command command, ModelOptions& options) {
  command.option("run", options.run, "RUN", "Folder of a run that hinge train or hinge weights import has made").required();
  command.option("--checkpoint", options.checkpoint, "WHICH", "Which checkpoint: best or latest (default: best)");
}

train::LoadedVit open_model(const ModelOptions& options) {
  if (options.checkpoint != "best" && options.checkpoint != "latest")
    throw UsageError(fmt::format("--checkpoint '{}' is unknown. Allowed: best, latest", options.checkpoint));
  std::vector<std::string> notes;
  train::LoadedVit loaded = train::load_vit(options.run, options.checkpoint == "best" ? train::Which::best : train::Which::latest, &notes);
  for (const std::string& note : notes) fmt::print(stderr, "passing over a checkpoint: {}\n", note);
  const int64_t threads = loaded.config.train.threads;
  at::set_num_threads(static_cast<int>(threads > 0 ? threads : omp_get_num_procs()));
  return loaded;
}

train::DataConfig parse_data(const std::string& option, const std::string& text, const train::DataConfig& of_run) {
  train::DataConfig config = of_run;
  const size_t colon = text.find(':');
  config.format = text.substr(0, colon);
  config.path = colon == std::string::npos ? "" : text.substr(colon + 1);
  config.label_map.clear();
  const std::vector<std::string>& known = data::formats();
  if (std::find(known.begin(), known.end(), config.format) == known.end())
    throw UsageError(fmt::format("{} '{}': the format '{}' is unknown.{} Write FORMAT or FORMAT:FOLDER; formats: {}", option, text,
                                 config.format, suggestion(config.format, known), fmt::join(known, ", ")));
  return config;
}

std::vector<std::string> read_names(const std::string& path) {
  std::vector<std::string> names = data::read_lines(path);
  names.erase(std::remove(names.begin(), names.end(), ""), names.end());
  return names;
}

std::string json_text(const nlohmann::json& json) { return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"; }

}  // namespace hinge::cli
