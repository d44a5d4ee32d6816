// Reads the values of options, and says what is wrong with them: what was given, what is allowed, and the nearest valid name.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/attention.h"
#include "hinge/kernels/activations.h"

namespace hinge::cli {

// A mistake in what the user typed: shown as one message, exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// If `arguments` hold a command or an option that `app` does not know, a message that names it and the nearest valid one; if they stop
// short of a command, a message that names those there are.
std::optional<std::string> explain_mistake(const CLI::App& app, const std::vector<std::string>& arguments);

// Comma-separated lists. Empty items and items given twice are errors; `option` is for the message.
std::vector<kernels::Activation> parse_activations(const std::string& option, const std::string& text);         // "relu,gelu" or "all"
std::vector<bench::Shape> parse_shapes(const std::string& option, const std::string& text);                     // "8x6x197,1x6x4096"
std::vector<bench::Pass> parse_passes(const std::string& option, const std::string& text);                      // "forward,backward"
std::vector<std::optional<bench::ZeroShares>> parse_zeros(const std::string& option, const std::string& text);  // "off,0.65:0.40"
std::vector<double> parse_dropouts(const std::string& option, const std::string& text);                         // "0,0.1"
std::vector<bool> parse_causal(const std::string& option, const std::string& text);                             // "off,on"

// Comma-separated words out of `known`.
std::vector<std::string> parse_words(const std::string& option, const std::string& text, const std::vector<std::string>& known);

// A whole number in [low, high].
int64_t parse_whole(const std::string& option, const std::string& text, int64_t low, int64_t high);

}  // namespace hinge::cli
