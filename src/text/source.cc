// Finds the files of a part and reads them; catalogues are read whole and split.
#include "text/source.h"

#include <filesystem>

namespace hinge::text {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const TextSource& source) { return source.path.empty() ? "." : source.path; }

// Also if it is packed.
std::optional<std::string> file_of(const fs::path& folder, const std::string& name) {
  for (const char* packing : {"", ".gz", ".xz"}) {
    const fs::path path = folder / (name + packing);
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  return {};
}

std::string find_file(const fs::path& folder, const std::string& name) {
  if (const std::optional<std::string> file = file_of(folder, name)) return *file;
  throw TextError((folder / name).string(), 0,
                  "does not exist, nor does it with .gz or .xz appended; check path, pair and the names of the parts");
}

ParallelText read_files(const TextSource& source, const std::string& name, const Readers& readers = {}) {
  const LanguagePair pair = parse_language_pair(source.pair);
  const ParallelOptions options{source.on_error, source.longest};
  const fs::path folder = folder_of(source);
  const size_t comma = name.find(',');
  if (comma != std::string::npos)
    return read_parallel((folder / name.substr(0, comma)).string(), (folder / name.substr(comma + 1)).string(), options, readers);
  const std::string source_path = find_file(folder, name + "." + pair.source), target_path = find_file(folder, name + "." + pair.target);
  return read_parallel(source_path, target_path, options, readers);
}

CatalogueText read_machine(const TextSource& source) {
  CatalogueOptions options;
  if (!source.path.empty()) options.root = source.path;
  options.pair = source.pair;
  options.on_error = source.on_error;
  options.longest = source.longest;
  options.held_out = source.held_out;
  return read_catalogues(options);
}

ParallelText take(ParallelText& part, const TextSource& source) {
  if (part.documents.empty())
    throw TextError(source.path.empty() ? CatalogueOptions().root : source.path, 0,
                    fmt::format("has too few messages for {}: none is held out; install more programs, or set held_out", source.pair));
  return std::move(part);
}

bool from_files(const TextSource& source) {
  if (source.longest < 1) throw std::runtime_error(fmt::format("longest {} is not allowed: give at least 1", source.longest));
  return source.kind == SourceKind::files;
}

}  // namespace

std::vector<std::string> part_names() {
  std::vector<std::string> names;
  for (const auto& entry : config_words(Part())) names.push_back(entry.first);
  return names;
}

std::optional<Part> part_of(const std::string& name) {
  for (const auto& [word, part] : config_words(Part()))
    if (word == name) return part;
  return {};
}

ParallelText read_text(const TextSource& source, Part part) {
  if (from_files(source)) return read_files(source, part == Part::train ? source.train : part == Part::valid ? source.valid : source.test);
  CatalogueText text = read_machine(source);
  ParallelText taken = take(part == Part::train ? text.train : part == Part::valid ? text.valid : text.test, source);
  taken.skipped = std::move(text.skipped);
  return taken;
}

std::optional<ParallelText> read_named_text(const TextSource& source, const std::string& name) {
  if (const std::optional<Part> part = part_of(name)) return read_text(source, *part);
  if (!from_files(source)) return {};
  const LanguagePair pair = parse_language_pair(source.pair);
  for (const std::string& language : {pair.source, pair.target})
    if (!file_of(folder_of(source), name + "." + language)) return {};
  return read_files(source, name);
}

TrainingText read_training_text(const TextSource& source, const Readers& readers) {
  if (from_files(source)) return {read_files(source, source.train, readers), read_files(source, source.valid, readers), {}};
  CatalogueText text = read_machine(source);
  return {take(text.train, source), take(text.valid, source), std::move(text.skipped)};
}

}  // namespace hinge::text
