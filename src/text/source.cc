// Finds the files of a part and reads them; catalogues are read whole and split.
#include "text/source.h"

#include <filesystem>

namespace hinge::text {
namespace {

namespace fs = std::filesystem;

std::string find_file(const fs::path& folder, const std::string& name) {
  for (const char* packing : {"", ".gz", ".xz"}) {
    const fs::path path = folder / (name + packing);
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path.string();
  }
  throw TextError((folder / name).string(), 0,
                  "does not exist, nor does it with .gz or .xz behind it; check path, pair and the names of the parts");
}

ParallelText read_files(const TextSource& source, const std::string& name) {
  const LanguagePair pair = parse_language_pair(source.pair);
  const ParallelOptions options{parse_on_error(source.on_error), source.longest};
  const fs::path folder = source.path.empty() ? "." : source.path;
  const size_t comma = name.find(',');
  if (comma != std::string::npos)
    return read_parallel((folder / name.substr(0, comma)).string(), (folder / name.substr(comma + 1)).string(), options);
  const std::string source_path = find_file(folder, name + "." + pair.source), target_path = find_file(folder, name + "." + pair.target);
  return read_parallel(source_path, target_path, options);
}

}  // namespace

ParallelText read_text(const TextSource& source, Part part) {
  if (source.longest < 1) throw std::runtime_error(fmt::format("longest {} is not allowed: give at least 1", source.longest));
  if (source.kind == "files")
    return read_files(source, part == Part::train ? source.train : part == Part::valid ? source.valid : source.test);
  if (source.kind != "catalogues")
    throw std::runtime_error(fmt::format("kind '{}' of text is unknown; allowed: catalogues, files", source.kind));
  CatalogueOptions options;
  if (!source.path.empty()) options.root = source.path;
  options.pair = source.pair;
  options.on_error = parse_on_error(source.on_error);
  options.longest = source.longest;
  options.held_out = source.held_out;
  CatalogueText text = read_catalogues(options);
  ParallelText chosen = std::move(part == Part::train ? text.train : part == Part::valid ? text.valid : text.test);
  chosen.skipped = std::move(text.skipped);
  if (chosen.documents.empty())
    throw TextError(options.root, 0,
                    fmt::format("has too few messages for {}: none is held out; install more programs, or set held_out", options.pair));
  return chosen;
}

}  // namespace hinge::text
