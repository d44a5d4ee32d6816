// Reads two files side by side and checks every line; writes such files.
#include "text/parallel.h"

#include <algorithm>

#include "support/atomic_file.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

struct Problem {
  const FileLines* file = nullptr;
  std::string reason, text;  // for the counts; for the error
};

Problem problem_of(const FileLines& file, const FileLines::Line& line, int64_t longest) {
  if (line.cut)
    return {&file, "over-long",
            fmt::format("is longer than {} MiB: split the line, or unpack the file and look", FileLines::kLongest >> 20)};
  if (const std::optional<std::string> problem = utf8_problem(line.text)) return {&file, "not UTF-8", *problem};
  const auto length = static_cast<int64_t>(count_code_points(line.text));
  if (length > longest)
    return {&file, "over-long",
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
  FileLines source(source_path), target(target_path);
  ParallelText text;
  int64_t number = 0;  // of the line
  const auto reject = [&](const Problem& problem) {
    if (options.on_error == OnError::stop) throw with_skip_advice(TextError(problem.file->path(), number, problem.text), "lines");
    ++text.skipped[problem.reason];
  };

  bool open = false;  // whether the last document goes on
  for (;;) {
    const std::optional<FileLines::Line> source_line = source.next(), target_line = target.next();
    if (!source_line && !target_line) break;
    ++number;
    if (!source_line || !target_line) {
      const FileLines &longer = source_line ? source : target, &shorter = source_line ? target : source;
      reject(
          {&longer, "without a partner line", fmt::format("has no partner: {} has {} lines; make them equal", shorter.path(), number - 1)});
      continue;
    }
    Problem problem = problem_of(source, *source_line, options.longest);
    if (problem.file == nullptr) problem = problem_of(target, *target_line, options.longest);
    if (problem.file != nullptr) {
      reject(problem);
      continue;
    }
    const std::string_view from = strip(source_line->text), to = strip(target_line->text);
    if (from.empty() && to.empty()) {
      open = false;
      continue;
    }
    if (from.empty() || to.empty()) {
      const FileLines &blank = from.empty() ? source : target, &full = from.empty() ? target : source;
      reject({&blank, "blank on one side",
              fmt::format("is blank, but {} has text in this line; only a line that is blank in both files ends a document", full.path())});
      continue;
    }
    if (!open) text.documents.push_back({fmt::format("{}:{}", source.path(), number), {}});
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
