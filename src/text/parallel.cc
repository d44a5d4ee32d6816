// Reads two files side by side and checks every line; writes such files.
#include "text/parallel.h"

#include <algorithm>

#include "support/atomic_file.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

struct Side {
  explicit Side(const std::string& path) : path(path), content(read_text_file(path)), lines(split_lines(content)) {}

  std::string path, content;
  std::vector<std::string_view> lines;  // of content
};

struct Problem {
  const Side* side = nullptr;
  std::string reason, text;  // for the counts; for the error
};

Problem problem_of(const Side& side, size_t i, int64_t longest) {
  const std::string_view line = side.lines[i];
  if (const std::optional<std::string> problem = utf8_problem(line)) return {&side, "not UTF-8", *problem};
  const auto length = static_cast<int64_t>(count_code_points(line));
  if (length > longest)
    return {&side, "over-long",
            fmt::format("has {} characters, {} are allowed: split the line, or allow more by data.longest", length, longest)};
  return {};
}

}  // namespace

int64_t ParallelText::pairs() const {
  int64_t count = 0;
  for (const Document& document : documents) count += static_cast<int64_t>(document.pairs.size());
  return count;
}

ParallelText read_parallel(const std::string& source_path, const std::string& target_path, const ParallelOptions& options) {
  const Side source(source_path), target(target_path);
  ParallelText text;
  const auto reject = [&](const Problem& problem, size_t line, int64_t count = 1) {
    if (options.on_error == OnError::stop)
      throw with_skip_advice(TextError(problem.side->path, static_cast<int64_t>(line) + 1, problem.text), "lines");
    text.skipped[problem.reason] += count;
  };

  const size_t both = std::min(source.lines.size(), target.lines.size());
  if (source.lines.size() != target.lines.size()) {
    const bool source_longer = source.lines.size() > target.lines.size();
    const Side &longer = source_longer ? source : target, &shorter = source_longer ? target : source;
    reject({&longer, "without a partner line",
            fmt::format("has no partner: this file has {} lines, {} has {}; make them equal", longer.lines.size(), shorter.path,
                        shorter.lines.size())},
           both, static_cast<int64_t>(longer.lines.size() - both));
  }

  bool open = false;  // whether the last document goes on
  for (size_t i = 0; i < both; ++i) {
    Problem problem = problem_of(source, i, options.longest);
    if (problem.side == nullptr) problem = problem_of(target, i, options.longest);
    if (problem.side != nullptr) {
      reject(problem, i);
      continue;
    }
    const std::string_view from = strip(source.lines[i]), to = strip(target.lines[i]);
    if (from.empty() && to.empty()) {
      open = false;
      continue;
    }
    if (from.empty() || to.empty()) {
      const Side &blank = from.empty() ? source : target, &full = from.empty() ? target : source;
      reject({&blank, "blank on one side",
              fmt::format("is blank, but {} has text in this line; only a line that is blank in both files ends a document", full.path)},
             i);
      continue;
    }
    if (!open) text.documents.push_back({fmt::format("{}:{}", source.path, i + 1), {}});
    open = true;
    text.documents.back().pairs.push_back({std::string(from), std::string(to)});
  }
  if (text.documents.empty()) throw TextError(source_path, 0, fmt::format("has no pair of lines with {}", target_path));
  return text;
}

void write_parallel(const ParallelText& text, const std::string& source_path, const std::string& target_path, bool document_ends) {
  support::AtomicFile source_file(source_path), target_file(target_path);
  std::string source, target;
  for (const Document& document : text.documents) {
    if (document_ends && !source.empty()) source += '\n', target += '\n';
    for (const Pair& pair : document.pairs) source += pair.source + '\n', target += pair.target + '\n';
  }
  source_file.write(source);
  target_file.commit(target);
  source_file.commit();
}

}  // namespace hinge::text
