// Opens parallel text from a few words: where it comes from, which languages, which part of it. Configs hold this struct as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/catalogues.h"
#include "text/parallel.h"

namespace hinge::text {

// The catalogues of the programs on this machine, or parallel files.
enum class SourceKind { catalogues, files };
inline std::vector<std::pair<std::string, SourceKind>> config_words(SourceKind) {
  return {{"catalogues", SourceKind::catalogues}, {"files", SourceKind::files}};
}

struct TextSource {
  SourceKind kind = SourceKind::catalogues;
  std::string pair = "en-de";
  std::string path = {};                                        // catalogues: /usr/share/locale if empty; files: the folder that holds them
  std::string train = "train", valid = "valid", test = "test";  // files: NAME of NAME.LANGUAGE, or "SOURCE,TARGET"
  OnError on_error = OnError::stop;
  int64_t longest = 5000;  // characters of a line or message
  double held_out = 0.01;  // catalogues: share of each of valid and test

  template <class V> void visit(V& v) {
    v("kind", kind, "the catalogues of the programs on this machine, or parallel files");
    v("pair", pair, "languages, from-to, such as en-de");
    v("path", path, "catalogues: folder of the locales (none: /usr/share/locale); files: the folder that holds them");
    v("train", train, "files: NAME of NAME.LANGUAGE (also .gz, .xz) to train on, or two file names with a comma");
    v("valid", valid, "files: the same, to choose by");
    v("test", test, "files: the same; hinge eval, analyze and data export read it, training does not");
    v("on_error", on_error, "what to do about a bad line or catalogue");
    v("longest", longest, "characters per line; longer lines are errors, longer catalogue messages are skipped");
    v("held_out", held_out, "catalogues: share of the messages for each of valid and test");
  }
};

// "train", "valid" and "test"; nothing for another name.
std::vector<std::string> part_names();
std::optional<Part> part_of(const std::string& name);

// Throws TextError for files, std::runtime_error for a mistake in `source`. Of catalogues, `skipped` is what was left out of all parts, as
// they are split after that.
ParallelText read_text(const TextSource& source, Part part);

// The text of that name: one of the parts, or of files also NAME of NAME.LANGUAGE beside them. Nothing if there is none.
std::optional<ParallelText> read_named_text(const TextSource& source, const std::string& name);

// What training needs, read once. Of files, several readers read a part of the lines each (text/parallel.h); catalogues are read whole by
// each, as they are split by what is in all of them.
struct TrainingText {
  ParallelText train, valid;
  Counts skipped;  // of catalogues, which are split after messages were left out
};
TrainingText read_training_text(const TextSource& source, const Readers& readers = {});

}  // namespace hinge::text
