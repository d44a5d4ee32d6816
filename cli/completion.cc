// hinge completion: what a shell needs to complete commands and options, made of the table of commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

// One line of the table for each command: what may follow it. An option's value and what is not an option are left to the shell, which
// knows files.
void add_bash_cases(const CommandHelp& command, std::string& cases) {
  std::vector<std::string> commands, options;
  for (const CommandHelp& below : command.commands) commands.push_back(below.name.substr(command.name.size() + 1));
  for (const OptionHelp& option : command.options)
    if (!option.positional) options.insert(options.end(), option.names.begin(), option.names.end());
  cases += fmt::format("      '{}') commands='{}' options='{}' ;;\n", command.name, fmt::join(commands, " "), fmt::join(options, " "));
  for (const CommandHelp& below : command.commands) add_bash_cases(below, cases);
}

std::string bash_completion(const CommandHelp& program) {
  std::string cases;
  add_bash_cases(program, cases);
  return fmt::format(R"(# Completion of hinge's commands and options in bash. Made by 'hinge completion bash'.
_hinge() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path='' commands='' options='' i
  COMPREPLY=()
  for ((i = 0; i < COMP_CWORD; ++i)); do
    if ((i == 0)); then
      path=hinge
    elif [[ " $commands " == *" ${{COMP_WORDS[i]}} "* ]]; then
      path+=" ${{COMP_WORDS[i]}}"
    else
      continue
    fi
    case $path in
{}    esac
  done
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -n $commands ]]; then
    compopt +o default
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  fi
}}
complete -o default -F _hinge hinge
)",
                     cases);
}

}  // namespace

void add_completion(Command parent) {
  auto shell = std::make_shared<std::string>();
  Command command =
      parent.subcommand("completion", "Print a script that lets a shell complete commands and options: source <(hinge completion bash)");
  command.option("shell", *shell, "SHELL", "The shell: bash").required();
  command.run([parent, shell] {
    parse_words("SHELL", *shell, {"bash"});
    fmt::print("{}", bash_completion(parent.help()));
    return 0;
  });
}

}  // namespace hinge::cli
