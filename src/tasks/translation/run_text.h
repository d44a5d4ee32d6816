// The text that a command names.
#pragma once

#include <string>

#include "tasks/translation/config.h"
#include "text/parallel.h"
#include "text/source.h"

namespace hinge::translation {

// "train", "valid" or "test". `option` ("--split") is for the message. Throws tasks::RequestError.
text::Part parse_part(const std::string& option, const std::string& name);

// That part of the text of a config, or two files: "SOURCE,TARGET".
text::ParallelText read_part_or_files(const std::string& option, const std::string& given, const Config& config);

}  // namespace hinge::translation
