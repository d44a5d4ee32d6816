// A translation of several sentences, cut into the sentences that it was made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

// Cuts `translation` into one part per reference, some of which may be empty: of all cuts, one whose parts have the fewest word errors
// (insertions, deletions, substitutions) against the references together, as mwerSegmenter does (Matusov et al. 2005). Words are the tokens
// of mteval-v13a, and the parts are these tokens with spaces between them, which BLEU and chrF read as the text itself. Of equally
// good cuts, one with more parts that end as their references do, with a full stop mostly, is taken.
std::vector<std::string> resegment(std::string_view translation, const std::vector<std::string>& references);

}  // namespace hinge::text
