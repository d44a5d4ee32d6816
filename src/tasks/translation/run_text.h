// The text of a run, and that which a command names.
#pragma once

#include <string>

#include "support/progress.h"
#include "tasks/translation/config.h"
#include "text/parallel.h"
#include "text/source.h"
#include "text/vocabulary.h"

namespace hinge::translation {

// "train", "valid" or "test". `option` ("--split") is for the message. Throws tasks::RequestError.
text::Part parse_part(const std::string& option, const std::string& name);

// That part of the text of a config, or two files: "SOURCE,TARGET".
text::ParallelText read_part_or_files(const std::string& option, const std::string& given, const Config& config);

// The vocabulary that a run begins with: that of the file, or one trained on the training text, both languages together.
text::Vocabulary make_vocabulary(const DataConfig& config, const text::ParallelText& train, const support::ProgressOutput& output);

}  // namespace hinge::translation
