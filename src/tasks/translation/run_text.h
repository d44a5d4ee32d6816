// The text that a command names.
#pragma once

#include <string>

#include "tasks/translation/config.h"
#include "text/parallel.h"
#include "text/source.h"

namespace hinge::translation {

// "train", "valid" or "test". `option` ("--split") is for the message. Throws tasks::RequestError.
text::Part parse_part(const std::string& option, const std::string& name);

// A split of the text of a config: train, valid or test, or of files also NAME of NAME.LANGUAGE beside them.
text::ParallelText read_split(const std::string& option, const std::string& name, const Config& config);

// Such a split, or two files: "SOURCE,TARGET".
text::ParallelText read_split_or_files(const std::string& option, const std::string& given, const Config& config);

}  // namespace hinge::translation
