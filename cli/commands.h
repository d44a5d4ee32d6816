// The commands of hinge. Each adds itself to the command line and leaves what it will do in `run`.
#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace hinge::cli {

// What the chosen command does; returns the exit code.
using Run = std::function<int()>;

void add_doctor(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
void add_runs(CLI::App& app, Run& run);
void add_report(CLI::App& app, Run& run);
void add_eval(CLI::App& app, Run& run);
void add_predict(CLI::App& app, Run& run);
void add_attend(CLI::App& app, Run& run);
void add_probe(CLI::App& app, Run& run);
void add_weights(CLI::App& app, Run& run);
void add_data(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_bench_attention(CLI::App& bench, Run& run);
void add_bench_vit(CLI::App& bench, Run& run);

}  // namespace hinge::cli
