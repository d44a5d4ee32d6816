// The text of a run, and that which a command names.
#pragma once

#include <string>

#include "support/progress.h"
#include "tasks/translation/config.h"
#include "text/parallel.h"
#include "text/readers.h"
#include "text/source.h"
#include "text/vocabulary.h"
#include "train/processes.h"

namespace hinge::translation {

// "train", "valid" or "test". `option` ("--split") is for the message. Throws tasks::RequestError.
text::Part parse_part(const std::string& option, const std::string& name);

// A split of the text of a config: train, valid or test, or of files also NAME of NAME.LANGUAGE beside them.
text::ParallelText read_split(const std::string& option, const std::string& name, const Config& config);

// Such a split, or two files: "SOURCE,TARGET".
text::ParallelText read_split_or_files(const std::string& option, const std::string& given, const Config& config);

// For the comparison with that of other processes, which have read all of it, too: with a number that depends on all.
std::string described(const text::ParallelText& text);

// The processes as readers that share a text: each has a part of its own, whatever teams there are.
text::Readers readers_of(const train::Processes& processes);

// The vocabulary that a run begins with: that of the file, or one trained on the training text, both languages together.
text::Vocabulary make_vocabulary(const DataConfig& config, const text::ParallelText& train, const support::ProgressOutput& output);

}  // namespace hinge::translation
