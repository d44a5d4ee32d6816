// How a trained model searches for translations, as commands take it.
#pragma once

#include <string>

#include "cli/command.h"
#include "decode/translation_options.h"

namespace hinge::cli {

// As they were given; empty: the default.
struct SearchArguments {
  std::string beam, length_penalty, max_length, patience, batch;

  bool any() const { return !(beam + length_penalty + max_length + patience + batch).empty(); }
};

void add_search(Command command, SearchArguments& arguments, const std::string& heading);

// Throws UsageError.
decode::TranslationOptions search_options(const SearchArguments& given);

}  // namespace hinge::cli
