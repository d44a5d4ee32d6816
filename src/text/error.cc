// Errors with advice, counts as text.
#include "text/error.h"

namespace hinge::text {

TextError with_skip_advice(const TextError& error, const std::string& what) {
  return {error.file, error.line, fmt::format("{}; data.on_error=skip leaves such {} out", error.problem, what)};
}

std::string describe(const Counts& counts) {
  std::string text;
  for (const auto& [reason, count] : counts)
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, reason);
  return text.empty() ? "none" : text;
}

}  // namespace hinge::text
