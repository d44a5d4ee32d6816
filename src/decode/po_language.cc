#include "decode/po_language.h"

#include <fmt/format.h>

#include "text/catalogues.h"
#include "text/error.h"

namespace hinge::decode {

std::optional<std::string> check_language(const text::PoFile& file, const std::string& name, const std::string& run,
                                          const std::string& pair) {
  const std::string& theirs = file.language();
  const std::string ours = text::parse_language_pair(pair).target;
  // Names that are no codes cannot be compared: a file's ending may be "deu", a header's field "German".
  if (text::language_of(theirs).size() != 2 || text::language_of(ours).size() != 2) return std::nullopt;
  if (text::language_of(theirs) != text::language_of(ours))
    throw text::TextError(name, 0,
                          fmt::format("is a catalogue in '{}' (the Language field of its header), but {} translates into '{}' ({}); use a "
                                      "run that translates into '{}', or correct the field if it is wrong",
                                      theirs, run, ours, pair, theirs));
  const auto [country, script] = text::variant_of(theirs);
  const auto [our_country, our_script] = text::variant_of(ours);
  if (script == our_script && (country == our_country || country.empty() || our_country.empty())) return std::nullopt;
  return fmt::format(
      "{} is a catalogue in '{}' (the Language field of its header), but {} translates into '{}'; check whether that is close enough", name,
      theirs, run, ours);
}

}  // namespace hinge::decode
