// Commands, their options and what they do. The parser is CLI11, which only command.cc knows: its headers take seconds to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hinge::cli {

// What a command offers, as its --help has it, for other formats: the manual page, a shell's completion.
struct OptionHelp {
  std::vector<std::string> names;  // --json, or the one name of a positional argument
  std::string group;               // its heading
  std::string value;               // what is given, FILE; empty for a flag
  std::string meaning;
  bool positional = false, required = false, many = false, value_optional = false;
};

struct CommandHelp {
  std::string name;  // "hinge bench attention"
  std::string meaning;
  std::string footer;  // empty if it is that of the command above
  std::vector<OptionHelp> options;
  std::vector<CommandHelp> commands;
};

// What a command does; returns the exit code.
using Run = std::function<int()>;

// What more there is to say about an option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option required();
  Option group(const std::string& heading);  // its heading in the help
  Option split_at_commas();                  // of a list: "1,5" are two values
  Option one_at_a_time();                    // of a list: --set a --set b; without, --set a b too

 private:
  CLI::Option* option_;
};

// A command. Values are read into the variables given, which must live until it has run; a command's Run holds them. A name with -- is an
// option, one without a positional argument; `type` and `meaning` are for the help.
class Command {
 public:
  Command(CLI::App* app, Run* chosen) : app_(app), chosen_(chosen) {}

  Command subcommand(const std::string& name, const std::string& meaning);
  void require_subcommand();
  void footer(const std::string& text);  // ends the help, also that of subcommands added later
  void run(Run);                         // what to do when it is chosen
  CommandHelp help() const;              // of it and of all below it, as they are by now

  Option option(const std::string& name, std::string& value, const std::string& type, const std::string& meaning);
  Option option(const std::string& name, std::vector<std::string>& values, const std::string& type, const std::string& meaning);
  // The value may be left out, and is `alone` then.
  Option option_or_alone(const std::string& name, std::string& value, const std::string& alone, const std::string& type,
                         const std::string& meaning);
  Option flag(const std::string& name, bool& value, const std::string& meaning);

 private:
  CLI::App* app_;
  Run* chosen_;
};

// The whole command line.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& meaning, const std::string& version);
  ~CommandLine();

  Command root();
  // Parses and does what the chosen command does; --help and --version print and return 0. A mistake is a UsageError that names the
  // nearest valid command or option, or those there are.
  int run(int argc, const char* const* argv);
  std::string help() const;

 private:
  std::unique_ptr<CLI::App> app_;
  Run chosen_;
};

}  // namespace hinge::cli
