// What `hinge watch` says of a run, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiment/watch.h"

namespace hinge::experiment {

// For people, each "-" where it is not known: "1:02:03", "812 images/s", "41%".
std::string time_left_text(const WatchedRun& run);
std::string speed_text(const WatchedRun& run);
std::string peak_share_text(const WatchedRun& run);
// The last of the scores that the format has; "-" before the first evaluation.
std::string score_text(const WatchedRun& run, const ScoreFormat& format);
std::string best_text(const WatchedRun& run, const ScoreFormat& format);

// A curve in `width` letters, from its lowest value to its highest.
std::string sparkline(const CurvePoints& points, size_t width, bool unicode);

// Text from files, fit for a terminal: control characters, which could be orders to it, and what is not UTF-8 become "?".
std::string printable(std::string_view text);

// A word of a shell.
std::string shell_word(const std::string& text);
// How to go on with a run that is not finished; empty if there is nothing to go on with.
std::string resume_command(const WatchedRun& run);

// The config keys in which runs of one task differ, over all tasks, and what each run has of them; "" if it has no such key.
std::vector<support::ConfigDifference> watched_differences(const std::vector<const WatchedRun*>& runs);

// All runs, with these keys.
Table watch_table(const std::vector<const WatchedRun*>& runs, const ScoreFormatOf& format_of, bool unicode);

}  // namespace hinge::experiment
