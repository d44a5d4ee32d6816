#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <optional>
#include <utility>

#include "cli/arguments.h"

namespace hinge::cli {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

// If `arguments` hold a command or an option that `app` does not know, a message that names it and the nearest valid one; if they stop
// short of a command, a message that names those there are.
std::optional<std::string> explain_mistake(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.size() > 1 && argument[0] == '-') {
      const std::string name = argument.substr(0, argument.find('='));
      const std::vector<std::string> known = option_names(*at);
      if (std::find(known.begin(), known.end(), name) == known.end())
        return fmt::format("'{}' has no option '{}'.{} '{} --help' lists them.", path, name, suggestion(name, known), path);
      continue;
    }
    const std::vector<std::string> commands = command_names(*at);
    if (std::find(commands.begin(), commands.end(), argument) != commands.end()) {
      at = at->get_subcommand(argument);
      path += " " + argument;
    } else if (!commands.empty()) {
      return fmt::format("'{}' has no command '{}'.{} Commands: {}.", path, argument, suggestion(argument, commands),
                         fmt::join(commands, ", "));
    }
  }
  if (const std::vector<std::string> commands = command_names(*at); !commands.empty())
    return fmt::format("'{}' needs a command: {}. '{} --help' lists them.", path, fmt::join(commands, " or "), path);
  return std::nullopt;
}

OptionHelp describe(const CLI::Option& option) {
  OptionHelp help;
  help.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  if (help.positional) help.names = {option.get_name(true)};
  help.group = option.get_group();
  help.meaning = option.get_description();
  help.required = option.get_required();
  help.many = option.get_expected_max() > 1;
  if (option.get_items_expected_max() > 0) help.value = option.get_type_name();
  help.value_optional = option.get_items_expected_min() == 0;
  return help;
}

CommandHelp describe(const CLI::App& app, const std::string& above, const std::string& footer_above) {
  CommandHelp help;
  help.name = above + app.get_name();
  help.meaning = app.get_description();
  if (app.get_footer() != footer_above) help.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) help.options.push_back(describe(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    help.commands.push_back(describe(*command, help.name + " ", app.get_footer()));
  return help;
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Option Option::split_at_commas() {
  option_->delimiter(',');
  return *this;
}

Option Option::one_at_a_time() {
  option_->allow_extra_args(false);
  return *this;
}

Command Command::subcommand(const std::string& name, const std::string& meaning) {
  return Command(app_->add_subcommand(name, meaning), chosen_);
}

void Command::require_subcommand() { app_->require_subcommand(1); }

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::run(Run run) {
  app_->callback([chosen = chosen_, run = std::move(run)] { *chosen = run; });
}

CommandHelp Command::help() const { return describe(*app_, "", ""); }

Option Command::option(const std::string& name, std::string& value, const std::string& type, const std::string& meaning) {
  return Option(app_->add_option(name, value, meaning)->type_name(type));
}

Option Command::option(const std::string& name, std::vector<std::string>& values, const std::string& type, const std::string& meaning) {
  return Option(app_->add_option(name, values, meaning)->type_name(type));
}

Option Command::option_or_alone(const std::string& name, std::string& value, const std::string& alone, const std::string& type,
                                const std::string& meaning) {
  const CLI::callback_t read = [&value, alone](const CLI::results_t& given) {
    value = given.at(0).empty() ? alone : given[0];
    return true;
  };
  return Option(app_->add_option(name, read, meaning)->type_name(type)->expected(0, 1));
}

Option Command::flag(const std::string& name, bool& value, const std::string& meaning) {
  return Option(app_->add_flag(name, value, meaning));
}

CommandLine::CommandLine(const std::string& name, const std::string& meaning, const std::string& version)
    : app_(std::make_unique<CLI::App>(meaning, name)) {
  app_->set_version_flag("--version", name + " " + version, "Print the version and exit");
  app_->set_help_flag("-h,--help", "Print this help and exit");
  app_->get_formatter()->column_width(36);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() { return Command(app_.get(), &chosen_); }

int CommandLine::run(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app_->exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw UsageError(explain_mistake(*app_, {argv + 1, argv + argc}).value_or(error.what()));
  }
  return chosen_();
}

std::string CommandLine::help() const { return app_->help(); }

}  // namespace hinge::cli
