// The tables of a sweep, from its results to texts, and their places in Markdown files.
#pragma once

#include <optional>
#include <string>

#include "experiment/sweep_data.h"
#include "experiment/table.h"

namespace hinge::experiment {

// What the cells hold, for people: its label or name, with (%) for a share.
std::string value_title(const SweepData& data, const TableConfig& config);

// A row for each combination of the rows' axes that the sweep has. A cell is the mean ± standard deviation (number of runs). Throws
// support::ConfigError if the table asks for what the sweep does not have.
Table tabulate(const SweepData& data, const TableConfig& config);

// The same in Markdown.
std::string tabulate_markdown(const SweepData& data, const TableConfig& config);

// A Markdown file's text in which the table between <!-- begin: table NAME --> and <!-- end: table NAME --> is this one. Nothing if it has
// no such place; throws std::runtime_error if there is a begin without an end, or two. `file` is for the message.
std::optional<std::string> replace_table(const std::string& markdown, const std::string& name, const std::string& table,
                                         const std::string& file);

}  // namespace hinge::experiment
