// What a bad item of the data does (a file that cannot be decoded, a line that is not UTF-8): stop with an error, or be skipped and
// counted.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hinge::support {

enum class OnError { stop, skip };

inline std::vector<std::pair<std::string, OnError>> config_words(OnError) { return {{"stop", OnError::stop}, {"skip", OnError::skip}}; }

}  // namespace hinge::support
