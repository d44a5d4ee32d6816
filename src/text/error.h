// An error in a text file: missing, cut short, not UTF-8, of another length than its partner. And how errors of single lines are taken.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "support/on_error.h"

namespace hinge::text {

struct TextError : std::runtime_error {
  // line 0: the file as a whole. The message is "file:line: problem", or "file: problem".
  TextError(const std::string& file, int64_t line, const std::string& problem)
      : std::runtime_error(line > 0 ? fmt::format("{}:{}: {}", file, line, problem) : fmt::format("{}: {}", file, problem)),
        file(file),
        line(line),
        problem(problem) {}

  std::string file;
  int64_t line;
  std::string problem;
};

using support::OnError;  // of a bad line or catalogue

// The same error; its problem ends with how to do without `what`, the kind of thing that is bad: "lines", "catalogues".
TextError with_skip_advice(const TextError& error, const std::string& what);

// How many items were left out, by reason.
using Counts = std::map<std::string, int64_t>;
std::string describe(const Counts& counts);  // "3 not UTF-8, 1 over-long"; "none"

}  // namespace hinge::text
