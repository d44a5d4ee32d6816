// `hinge watch` in a terminal: paints its screen by ncurses and reads the keys, until the user quits.
#pragma once

#include "experiment/watch.h"

namespace hinge::watch {

// Returns the signal that ended it, 0 if the user did. The terminal is as before then, whichever way it ends. Throws std::runtime_error if
// standard input and output are no terminal that ncurses knows.
int watch_in_terminal(experiment::WatchedFolder& folder, const experiment::ScoreFormatOf& format_of);

}  // namespace hinge::watch
