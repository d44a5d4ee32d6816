// hinge manual: the manual page, made of what the commands say about themselves, so that it is never out of date.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "cli/commands.h"

namespace hinge::cli {
namespace {

// Text as roff shows it unchanged: no hyphen becomes a dash, no line a request.
std::string roff(std::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_line = i == 0 || text[i - 1] == '\n';
    if (starts_line && (text[i] == '.' || text[i] == '\'')) escaped += "\\&";
    switch (text[i]) {
      case '\\': escaped += "\\e"; break;
      case '-': escaped += "\\-"; break;
      case '\'': escaped += "\\(aq"; break;
      case '^': escaped += "\\(ha"; break;
      case '~': escaped += "\\(ti"; break;
      case '`': escaped += "\\(ga"; break;
      default: escaped += text[i];
    }
  }
  return escaped;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// Each of its lines by itself.
std::string lines(std::string_view text) {
  std::string page;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    page += roff(text.substr(0, end)) + "\n";
    if (end == std::string_view::npos) break;
    page += ".br\n";
    text.remove_prefix(end + 1);
  }
  return page;
}

std::string value(const OptionHelp& option) {
  const std::string name = italic(option.value) + (option.many ? " ..." : "");
  return option.value_optional ? "[" + name + "]" : name;
}

// Every command has it, and one mention is enough.
bool is_help(const OptionHelp& option) { return option.names.back() == "--help"; }

std::string usage(const CommandHelp& command) {
  std::string line = bold(command.name);
  std::string required, arguments;
  bool optional = false;
  for (const OptionHelp& option : command.options) {
    if (option.positional) {
      const std::string argument = value(option);
      arguments += option.required ? " " + argument : " [" + argument + "]";
    } else if (option.required) {
      required += " " + bold(option.names.back()) + " " + value(option);
    } else {
      optional = optional || !is_help(option);
    }
  }
  line += required + (optional ? " [" + italic("OPTION") + " ...]" : "") + arguments;
  if (!command.commands.empty()) line += " " + italic("COMMAND");
  return line;
}

std::string items(const CommandHelp& command, bool with_help) {
  std::string page, group = "Options";
  for (const bool positional : {true, false}) {
    for (const OptionHelp& option : command.options) {
      if (option.positional != positional || (is_help(option) && !with_help)) continue;
      if (!positional && option.group != group) {
        group = option.group;
        page += ".PP\n" + roff(group) + ":\n";
      }
      std::string term;
      if (!positional)
        for (const std::string& name : option.names) term += (term.empty() ? "" : ", ") + bold(name);
      if (!option.value.empty()) term += (term.empty() ? "" : " ") + value(option);
      page += ".TP\n" + term + "\n" + lines(option.meaning);
    }
  }
  return page;
}

// The commands that do something; those that only hold others are in their names.
std::string sections(const CommandHelp& command) {
  std::string page;
  for (const CommandHelp& below : command.commands) {
    if (!below.commands.empty()) {
      page += sections(below);
      continue;
    }
    page += ".SS " + usage(below) + "\n" + lines(below.meaning + ".") + items(below, false);
    if (!below.footer.empty()) page += ".PP\n" + lines(below.footer);
  }
  return page;
}

std::string manual(const CommandHelp& program) {
  std::string_view summary = program.meaning;
  if (summary.ends_with('.')) summary.remove_suffix(1);
  return fmt::format(".\\\" Made by 'hinge manual'.\n.TH HINGE 1 \"\" \"Hinge {}\" \"User Commands\"\n.nh\n.ad l\n", HINGE_VERSION) +
         ".SH NAME\nhinge \\- " + roff(summary) + "\n.SH SYNOPSIS\n" + usage(program) + "\n.SH DESCRIPTION\n" + lines(program.footer) +
         items(program, true) + ".SH COMMANDS\n" + sections(program) + ".SH FILES\n.TP\n" + italic("share/hinge/configs") +
         "\nConfigs for " + bold("hinge train") + ", in the folder that holds the command's own " + italic("bin") + "\n";
}

}  // namespace

void add_manual(Command parent) {
  Command command = parent.subcommand("manual", "Print this program's manual page, to be read with: hinge manual | man -l -");
  command.run([parent] {
    fmt::print("{}", manual(parent.help()));
    return 0;
  });
}

}  // namespace hinge::cli
