// What is written about a sweep: one self-contained HTML page, its figures as SVG, its tables in Markdown files. All of it comes from the
// results.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiment/sweep_data.h"

namespace hinge::experiment {

// "210 points: 204 done, 3 diverged, 1 failed, 2 missing"
std::string state_text(const SweepData& data);

// File name and content of each figure that has something to show.
std::vector<std::pair<std::string, std::string>> figure_files(const SweepData& data);

// Markdown files, path and content, with the sweep's tables put into their places. Throws std::runtime_error with the markers of a table
// that has no place in any of them.
std::vector<std::pair<std::string, std::string>> markdown_files(const SweepData& data, const std::vector<std::string>& paths);

// The page: figures, tables, what is missing and what diverged, where and with what it was measured, the sweep's file.
std::string render_html(const SweepData& data);

}  // namespace hinge::experiment
