// A config: as a flat list of keys, and into fields of every type; what was read is written and read again. A single line is also an
// override.
#include "support/config.h"

#include <stdexcept>

#include "../target.h"
#include "text/source.h"
#include "text/vocabulary.h"

namespace hinge::fuzz {
namespace {

struct Fields {
  std::string name = "x";
  int64_t count = 1;
  double rate = 0.5;
  bool on = false;
  std::optional<double> clip;
  std::vector<double> rates;
  text::TextSource text;
  text::VocabularyOptions vocabulary;

  template <class V> void visit(V& v) {
    v("name", name, "a text");
    v("count", count, "a whole number");
    v("rate", rate, "a number");
    v("on", on, "a switch");
    v("clip", clip, "a number, or none");
    v("rates", rates, "numbers");
    v("text", text, "a group");
    v("vocabulary", vocabulary, "another group");
  }
};

}  // namespace

static void config_target(Input input) {
  const std::string_view text = text_of(input);
  Fields fields;
  if (text.find('\n') == std::string_view::npos) try {
      support::override_config(fields, std::string(text));
    } catch (const std::runtime_error&) {
      // The same text may still be a config.
    }
  support::flatten_config(text, "config.toml");  // takes all that is TOML
  support::read_config_text(fields, text, "config.toml");
  const std::string written = support::write_config(fields);
  Fields again;
  support::read_config_text(again, written, "written.toml");
  if (support::write_config(again) != written) throw std::logic_error("a config changes when it is written and read");
}

const Target target_config{"config", &config_target};

}  // namespace hinge::fuzz
