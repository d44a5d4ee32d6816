#include "cli/search_options.h"

#include <cstdint>
#include <limits>

#include "cli/arguments.h"

namespace hinge::cli {

void add_search(Command command, SearchArguments& arguments, const std::string& heading) {
  command.option("--beam", arguments.beam, "N", "Hypotheses kept in each step; 1: greedy search (default: 4)").group(heading);
  command
      .option("--length-penalty", arguments.length_penalty, "A",
              "Scores are log p / ((5 + tokens) / 6)^A; a larger A prefers longer translations (default: 0.6)")
      .group(heading);
  command
      .option("--max-length", arguments.max_length, "A,B",
              "A translation has at most A times as many tokens as its source, plus B; or one number of tokens (default: 1.5,20)")
      .group(heading);
  command
      .option("--patience", arguments.patience, "X",
              "End a search when X times the beam's hypotheses have ended; none: when no better one can come (default: 1)")
      .group(heading);
  command.option("--batch", arguments.batch, "TOKENS", "Source tokens in a batch (default: 1024)").group(heading);
}

decode::TranslationOptions search_options(const SearchArguments& given) {
  decode::TranslationOptions options;
  if (!given.beam.empty()) options.search.beam = parse_whole("--beam", given.beam, 1, 1000);
  if (!given.length_penalty.empty()) options.search.length_penalty = parse_number("--length-penalty", given.length_penalty);
  if (!given.patience.empty())
    options.search.patience =
        given.patience == "none" ? std::numeric_limits<double>::infinity() : parse_number("--patience", given.patience);
  if (!given.batch.empty()) options.batch_tokens = parse_whole("--batch", given.batch, 1, 1 << 24);
  if (given.max_length.empty()) return options;
  const size_t comma = given.max_length.find(',');
  if (comma == std::string::npos) {
    options.length_factor = 0;
    options.length_extra = parse_whole("--max-length", given.max_length, 1, 1 << 20);
  } else {
    options.length_factor = parse_number("--max-length", given.max_length.substr(0, comma));
    options.length_extra = parse_whole("--max-length", given.max_length.substr(comma + 1), 0, 1 << 20);
  }
  return options;
}

}  // namespace hinge::cli
