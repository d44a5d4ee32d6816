#include "watch/terminal.h"

#include <curses.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/progress.h"
#include "watch/screen.h"

namespace hinge::watch {
namespace {

constexpr int kRefreshMilliseconds = 1000;
constexpr int kEscape = 27, kControlC = 3;

volatile std::sig_atomic_t ended_by = 0;

extern "C" void end_watching(int signal) { ended_by = signal; }

// Signals that end the program end the loop instead, so that the terminal is put back. What was ignored at the start stays so.
class Signals {
 public:
  Signals() {
    ended_by = 0;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction before {
      }, now{};
      ::sigaction(signal, nullptr, &before);
      if (before.sa_handler == SIG_IGN) continue;
      now.sa_handler = end_watching;
      ::sigaction(signal, &now, nullptr);
      before_.emplace_back(signal, before);
    }
  }
  ~Signals() {
    for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

class Curses {
 public:
  Curses() {
    std::setlocale(LC_CTYPE, "");
    screen_ = ::newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) {
      const char* kind = std::getenv("TERM");
      throw std::runtime_error(std::string("the terminal '") + (kind == nullptr ? "" : kind) +
                               "' is not known here: set TERM, or use hinge watch --once");
    }
    ::cbreak();
    ::noecho();
    ::nonl();
    ::keypad(stdscr, TRUE);
    ::set_escdelay(25);
    ::curs_set(0);
    if (::has_colors()) {
      ::start_color();
      ::use_default_colors();
      ::init_pair(1, COLOR_GREEN, -1);
      ::init_pair(2, COLOR_RED, -1);
    }
  }
  ~Curses() {
    ::endwin();
    ::delscreen(screen_);
  }
  Curses(const Curses&) = delete;
  Curses& operator=(const Curses&) = delete;

  void paint(const std::vector<Line>& lines) const {
    ::erase();
    for (size_t row = 0; row < lines.size(); ++row) {
      ::move(static_cast<int>(row), 0);
      for (const Span& span : lines[row]) {
        ::attrset(attributes(span.style));
        ::addstr(span.text.c_str());
      }
    }
    ::attrset(A_NORMAL);
    ::refresh();
  }

 private:
  static chtype attributes(Style style) {
    switch (style) {
      case Style::title: return A_REVERSE;
      case Style::header: return A_BOLD;
      case Style::selected: return A_REVERSE;
      case Style::good: return static_cast<chtype>(COLOR_PAIR(1));
      case Style::bad: return static_cast<chtype>(COLOR_PAIR(2)) | A_BOLD;
      case Style::quiet: return A_DIM;
      case Style::plain: break;
    }
    return A_NORMAL;
  }

  SCREEN* screen_;
};

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &parts)};
}

// False: quit.
bool press(Screen& screen, int key) {
  switch (key) {
    case KEY_UP: return screen.press(Key::up);
    case KEY_DOWN: return screen.press(Key::down);
    case KEY_PPAGE: return screen.press(Key::page_up);
    case KEY_NPAGE: return screen.press(Key::page_down);
    case KEY_HOME: return screen.press(Key::first);
    case KEY_END: return screen.press(Key::last);
    case KEY_ENTER:
    case '\r':
    case '\n':
    case KEY_RIGHT: return screen.press(Key::open);
    case KEY_LEFT:
    case kEscape: return screen.press(Key::back);
    case KEY_BACKSPACE:
    case '\b':
    case 127: return screen.press(Key::erase);
    case kControlC: return screen.press(Key::quit);
    default: return key < 0 || key > 255 || screen.press(Key::character, static_cast<char>(key));
  }
}

// A terminal that is gone gives no keys, at once and for ever.
bool is_gone() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace

int watch_in_terminal(experiment::WatchedFolder& folder, const experiment::ScoreFormatOf& format_of) {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    throw std::runtime_error("this is not a terminal: use hinge watch --once for text, or --web for a page");
  const Signals signals;
  const Curses curses;
  Screen screen(folder, format_of, support::locale_is_utf8());
  double looked = -1e9;
  const auto seconds = support::ProgressOutput::standard_error().seconds;
  for (bool go_on = true; go_on && ended_by == 0 && !is_gone();) {
    if (seconds() - looked >= 1e-3 * kRefreshMilliseconds) folder.refresh(), looked = seconds();
    curses.paint(screen.draw(LINES, COLS, clock_text()));
    ::timeout(kRefreshMilliseconds);
    // What waits is taken at once: a pasted text or a held key is not to be redrawn letter by letter.
    for (int key = ::getch(); key != ERR && go_on; key = ::getch()) {
      if (key != KEY_RESIZE) go_on = press(screen, key);
      ::timeout(0);
    }
  }
  return ended_by;
}

}  // namespace hinge::watch
