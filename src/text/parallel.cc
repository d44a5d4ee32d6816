// Reads two files side by side and checks every line; writes such files.
#include "text/parallel.h"

#include <array>
#include <deque>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "support/atomic_file.h"
#include "support/hash.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

// Why a line is bad.
enum Reason : char { kOverLong, kNotUtf8, kWithoutPartner, kBlankOnOneSide };
constexpr std::array<const char*, 4> kReasons = {"over-long", "not UTF-8", "without a partner line",
                                                 "blank on one side"};  // for the counts

struct Problem {
  const FileLines* file = nullptr;
  Reason reason = kOverLong;
  std::string text;  // for the error
};

Problem problem_of(const FileLines& file, const FileLines::Line& line, int64_t longest) {
  if (line.cut)
    return {&file, kOverLong, fmt::format("is longer than {} MiB: split the line, or unpack the file and look", FileLines::kLongest >> 20)};
  if (const std::optional<std::string> problem = utf8_problem(line.text)) return {&file, kNotUtf8, *problem};
  const auto length = static_cast<int64_t>(count_code_points(line.text));
  if (length > longest)
    return {&file, kOverLong,
            fmt::format("has {} characters, {} are allowed: split the line, or allow more by data.longest", length, longest)};
  return {};
}

// What a line of the two files is: a pair of sentences, the end of a document, or of a bad line its reason.
constexpr char kPair = 'p', kBlank = 'b';
using Kind = char;

// What one of several readers has found, as the others get it.
struct Findings {
  int64_t lines = 0;
  uint64_t hash = 0;       // of all lines, those of the others as well
  int64_t bad_line = 0;    // its first bad line if that ends the reading; 0: none
  std::string error = {};  // of that line
  std::string kinds = {};  // of its own lines

  std::string text() const { return fmt::format("{} {} {} {}\n{}{}", lines, hash, bad_line, kinds.size(), kinds, error); }
  explicit Findings(const std::string& text) {
    size_t own = 0;
    std::istringstream numbers(text);
    numbers >> lines >> hash >> bad_line >> own;
    const size_t begin = text.find('\n') + 1;
    kinds = text.substr(begin, own), error = text.substr(begin + own);
  }
  Findings() = default;
};

// All readers' findings. Throws on all if their texts are not the same, or the first error of any.
std::vector<Findings> shared(const Findings& own, const Readers& readers, const std::string& source_path) {
  std::vector<Findings> all;
  for (const std::string& text : readers.all_gather(own.text())) all.emplace_back(text);
  const Findings* bad = nullptr;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Findings &first = all[0], &one = all[rank];
    if (one.lines != first.lines || one.hash != first.hash)
      throw std::runtime_error(
          fmt::format("the data of rank {} are not those of rank 0: {} has {} lines (hash {:016x}) instead of {} (hash {:016x})", rank,
                      source_path, one.lines, one.hash, first.lines, first.hash));
    if (one.bad_line > 0 && (bad == nullptr || one.bad_line < bad->bad_line)) bad = &one;
  }
  if (bad != nullptr) throw std::runtime_error(bad->error);
  return all;
}

}  // namespace

int64_t ParallelText::pairs() const {
  int64_t count = 0;
  for (const Document& document : documents) count += static_cast<int64_t>(document.pairs.size());
  return count;
}

ParallelText read_parallel(const std::string& source_path, const std::string& target_path, const ParallelOptions& options,
                           const Readers& readers) {
  FileLines source(source_path), target(target_path);
  ParallelText text;
  text.partial = !readers.alone();
  bool open = false;  // whether the last document goes on
  const auto add = [&](int64_t number, Kind kind, Pair&& pair) {
    if (kind == kBlank) open = false;
    if (kind != kBlank && kind != kPair) ++text.skipped[kReasons[static_cast<size_t>(kind)]];
    if (kind != kPair) return;
    if (!open) text.documents.push_back({fmt::format("{}:{}", source.path(), number), {}});
    open = true;
    text.documents.back().pairs.push_back(std::move(pair));
  };

  Findings found;
  std::deque<Pair> own_pairs;  // of several readers
  const auto reject = [&](const Problem& problem, int64_t number) -> Kind {
    if (options.on_error == OnError::stop) {
      const TextError error = with_skip_advice(TextError(problem.file->path(), number, problem.text), "lines");
      if (readers.alone()) throw error;
      if (found.bad_line == 0) found.bad_line = number, found.error = error.what();
    }
    return problem.reason;
  };
  const auto kind_of = [&](const std::optional<FileLines::Line>& source_line, const std::optional<FileLines::Line>& target_line,
                           int64_t number, Pair& pair) -> Kind {
    if (!source_line || !target_line) {
      const FileLines &longer = source_line ? source : target, &shorter = source_line ? target : source;
      return reject({&longer, kWithoutPartner, fmt::format("has no partner: {} has {} lines; make them equal", shorter.path(), number - 1)},
                    number);
    }
    Problem problem = problem_of(source, *source_line, options.longest);
    if (problem.file == nullptr) problem = problem_of(target, *target_line, options.longest);
    if (problem.file != nullptr) return reject(problem, number);
    const std::string_view from = strip(source_line->text), to = strip(target_line->text);
    if (from.empty() && to.empty()) return kBlank;
    if (from.empty() || to.empty()) {
      const FileLines &blank = from.empty() ? source : target, &full = from.empty() ? target : source;
      return reject(
          {&blank, kBlankOnOneSide,
           fmt::format("is blank, but {} has text in this line; only a line that is blank in both files ends a document", full.path())},
          number);
    }
    pair = {std::string(from), std::string(to)};
    return kPair;
  };

  int64_t number = 0;
  for (;;) {
    const std::optional<FileLines::Line> source_line = source.next(), target_line = target.next();
    if (!source_line && !target_line) break;
    ++number;
    Pair pair;
    if (readers.alone()) {
      const Kind kind = kind_of(source_line, target_line, number, pair);
      add(number, kind, std::move(pair));
      continue;
    }
    for (const auto& line : {source_line, target_line}) found.hash = found.hash * 31 + (line ? support::fnv1a(line->text) : 1);
    if (!readers.own(number - 1)) continue;
    found.kinds += kind_of(source_line, target_line, number, pair);
    if (found.kinds.back() == kPair) own_pairs.push_back(std::move(pair));
  }
  if (!readers.alone()) {
    found.lines = number;
    const std::vector<Findings> all = shared(found, readers, source.path());
    std::vector<size_t> next(all.size());
    for (int64_t line = 0; line < number; ++line) {
      const auto owner = static_cast<size_t>(readers.owner(line));
      const Kind kind = all[owner].kinds[next[owner]++];
      Pair pair;
      if (kind == kPair && readers.own(line)) pair = std::move(own_pairs.front()), own_pairs.pop_front();
      add(line + 1, kind, std::move(pair));
    }
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
