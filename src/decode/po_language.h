// Whether a message catalogue is in the language that a model translates into.
#pragma once

#include <optional>
#include <string>

#include "text/po.h"

namespace hinge::decode {

// Compares the language that a catalogue's header names with the target of `pair` ("en-de"). Throws TextError if they are two languages. If
// only the country or the script differs, returns a warning. Nothing if they agree or cannot be compared. `name` is the catalogue's, `run`
// the model's, for the messages.
std::optional<std::string> check_language(const text::PoFile& file, const std::string& name, const std::string& run,
                                          const std::string& pair);

}  // namespace hinge::decode
