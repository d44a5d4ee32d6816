// Configs on the type-less list of fields.
#include "support/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "support/atomic_file.h"
#include "support/nearest.h"
#include "support/toml.h"
#include "support/utf8.h"

namespace hinge::support {
namespace {

std::string toml_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
          out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  return out + "\"";
}

// Scalars, lists and none as TOML. Doubles get the fewest digits that read back as the same number, and never look like integers.
struct TomlText {
  std::string operator()(std::monostate) const { return toml_string(std::string(config_detail::kNone)); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    const std::string text = fmt::format("{}", value);
    return std::isfinite(value) && text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::string& value) const { return toml_string(value); }
  std::string operator()(const std::vector<ConfigScalar>& items) const {
    std::vector<std::string> texts;
    for (const ConfigScalar& item : items) texts.push_back(std::visit(*this, item));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
};

std::string toml_text(const ConfigValue& value) { return std::visit(TomlText(), value); }

std::optional<ConfigScalar> scalar_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  return std::nullopt;
}

// Nothing for dates, times and what nests deeper than a list of scalars.
std::optional<ConfigValue> value_of(const toml::node& node) {
  if (const toml::array* array = node.as_array()) {
    std::vector<ConfigScalar> items;
    for (const toml::node& element : *array) {
      std::optional<ConfigScalar> item = scalar_of(element);
      if (!item) return std::nullopt;
      items.push_back(std::move(*item));
    }
    return items;
  }
  std::optional<ConfigScalar> scalar = scalar_of(node);
  if (!scalar) return std::nullopt;
  return config_detail::widen(std::move(*scalar));
}

std::string raw_text(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& concrete) { text << concrete; });
  return text.str();
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// Sets fields from TOML nodes; `where` says in messages where a node comes from.
class Reader {
 public:
  Reader(const std::vector<ConfigField>& fields, const Renames& renames, std::function<std::string(const toml::node&)> where)
      : fields_(fields), renames_(renames), where_(std::move(where)) {}

  void read_table(const toml::table& table, const std::string& prefix) const {
    for (const auto& [name, node] : entries_of(table)) read(prefix + name, *node);
  }

  // `raw`: the text of an override, which a field of texts takes as it is.
  void read(const std::string& key, const toml::node& node, const std::optional<std::string>& raw = std::nullopt) const {
    const auto field = std::find_if(fields_.begin(), fields_.end(), [&](const ConfigField& other) { return other.key == key; });
    if (field == fields_.end()) {
      const bool group = std::any_of(fields_.begin(), fields_.end(), [&](const auto& other) { return other.key.starts_with(key + "."); });
      const std::string now = new_key(key);
      if (!group)
        throw ConfigError(fmt::format("{}: unknown key '{}'{}", where_(node), key,
                                      now.empty() ? suggestion(key) : fmt::format("; it is called '{}' now", now)));
      if (!node.is_table())
        throw ConfigError(
            fmt::format("{}: '{}' is a group of keys, not a value; {}", where_(node), key,
                        now.empty() ? fmt::format("give for example '{}'", first_in(key)) : fmt::format("it is called '{}' now", now)));
      read_table(*node.as_table(), key + ".");
      return;
    }
    const std::optional<ConfigValue> value = value_of(node);
    if (value && field->set(*value)) return;
    if (raw && !node.is_table() && field->set(ConfigValue(*raw))) return;
    if (const std::string now = value ? new_word(key, *value) : ""; !now.empty())
      throw ConfigError(fmt::format("{}: '{}' is {}; it is called {} now", where_(node), key, toml_text(*value), toml_string(now)));
    std::string expected = field->expected;
    if (node.is_table()) expected += ", not a group of keys";
    throw ConfigError(
        fmt::format("{}: '{}' is {}, but must be {}", where_(node), key, raw && !node.is_string() ? *raw : raw_text(node), expected));
  }

 private:
  // Keys of the same last name elsewhere first ("lr" for "optim.lr"), then the fewest typing mistakes, over keys and groups.
  std::string suggestion(const std::string& key) const {
    std::vector<std::string> known;
    for (const ConfigField& field : fields_) {
      for (size_t dot = field.key.find('.'); dot != std::string::npos; dot = field.key.find('.', dot + 1))
        if (const std::string group = field.key.substr(0, dot); std::find(known.begin(), known.end(), group) == known.end())
          known.push_back(group);
      known.push_back(field.key);
    }
    for (const std::string& candidate : known)
      if (last_part(candidate) == last_part(key)) return fmt::format("; did you mean '{}'?", candidate);
    if (const std::optional<std::string> near = nearest(key, known)) return fmt::format("; did you mean '{}'?", *near);
    return "; --help-config lists all keys";
  }
  // "" if it never was another's name.
  std::string new_key(const std::string& key) const {
    for (const Renames::Key& renamed : renames_.keys)
      if (renamed.old == key) return renamed.now;
    return "";
  }
  std::string new_word(const std::string& key, const ConfigValue& value) const {
    for (const Renames::Word& renamed : renames_.words)
      if (renamed.key == key && value == renamed.old) return renamed.now;
    return "";
  }
  std::string first_in(const std::string& group) const {
    return std::find_if(fields_.begin(), fields_.end(), [&](const auto& field) { return field.key.starts_with(group + "."); })->key;
  }

  const std::vector<ConfigField>& fields_;
  const Renames& renames_;
  std::function<std::string(const toml::node&)> where_;
};

// `text` as one TOML value, or nothing.
std::optional<toml::table> parse_value(const std::string& text) {
  try {
    toml::table table = parse_toml("value = " + text, "");
    if (table.size() == 1) return table;
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// An override's value: TOML, or a word, or a list in which words stand without quotes.
toml::table parse_loosely(const std::string& text) {
  if (std::optional<toml::table> table = parse_value(text)) return std::move(*table);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::string list;
    std::istringstream items(text.substr(1, text.size() - 2));
    for (std::string item; std::getline(items, item, ',');) {
      item = trimmed(item);
      list += (parse_value(item) ? item : toml_string(item)) + ", ";
    }
    if (std::optional<toml::table> table = parse_value("[" + list + "]")) return std::move(*table);
  }
  return toml::table{{"value", text}};
}

void flatten(const toml::table& table, const std::string& prefix, FlatConfig& flat) {
  for (const auto& [name, node] : entries_of(table)) {
    if (const toml::table* inner = node->as_table()) {
      flatten(*inner, prefix + name + ".", flat);
      continue;
    }
    const std::optional<ConfigValue> value = value_of(*node);
    flat.emplace_back(prefix + name, value ? toml_text(*value) : raw_text(*node));
  }
}

}  // namespace

namespace config_detail {

bool Codec<bool>::decode(const ConfigScalar& scalar, bool& value) {
  const bool* given = std::get_if<bool>(&scalar);
  return given != nullptr && (value = *given, true);
}

// 9e5 is a whole number too, although TOML calls it a float.
bool Codec<int64_t>::decode(const ConfigScalar& scalar, int64_t& value) {
  if (const int64_t* given = std::get_if<int64_t>(&scalar)) return value = *given, true;
  const double* given = std::get_if<double>(&scalar);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (given == nullptr || !(std::abs(*given) <= kExact) || *given != std::trunc(*given)) return false;
  value = static_cast<int64_t>(*given);
  return true;
}

bool Codec<double>::decode(const ConfigScalar& scalar, double& value) {
  if (const double* given = std::get_if<double>(&scalar)) return value = *given, true;
  const int64_t* given = std::get_if<int64_t>(&scalar);
  return given != nullptr && (value = static_cast<double>(*given), true);
}

bool Codec<std::string>::decode(const ConfigScalar& scalar, std::string& value) {
  const std::string* given = std::get_if<std::string>(&scalar);
  return given != nullptr && (value = *given, true);
}

std::string one_of(std::vector<std::string> words) {
  const bool may_be_empty = std::erase(words, "") > 0;
  return fmt::format("one of {}{}", fmt::join(words, ", "), may_be_empty ? ", or empty" : "");
}

ConfigValue widen(ConfigScalar scalar) {
  return std::visit([](auto& value) { return ConfigValue(std::move(value)); }, scalar);
}

std::optional<ConfigScalar> narrow(const ConfigValue& value) {
  if (const auto* scalar = std::get_if<bool>(&value)) return *scalar;
  if (const auto* scalar = std::get_if<int64_t>(&value)) return *scalar;
  if (const auto* scalar = std::get_if<double>(&value)) return *scalar;
  if (const auto* scalar = std::get_if<std::string>(&value)) return *scalar;
  return std::nullopt;
}

bool is_none(const ConfigValue& value) {
  const auto* word = std::get_if<std::string>(&value);
  return std::holds_alternative<std::monostate>(value) || (word != nullptr && *word == kNone);
}

void Collector::operator()(const char* name, std::string& value, const char* help, const std::vector<std::string>& words) {
  fields_.push_back({prefix_ + name, help, one_of(words), [&value] { return ConfigValue(value); },
                     [&value, words](const ConfigValue& given) {
                       const auto* word = std::get_if<std::string>(&given);
                       if (word == nullptr || std::find(words.begin(), words.end(), *word) == words.end()) return false;
                       value = *word;
                       return true;
                     }});
}

void read_text(const std::vector<ConfigField>& fields, const Renames& renames, std::string_view text, const std::string& name) {
  const toml::table table = parse_toml(text, name);
  const auto where = [&](const toml::node& node) { return fmt::format("{}:{}", name, node.source().begin.line); };
  Reader(fields, renames, where).read_table(table, "");
}

void read_path(const std::vector<ConfigField>& fields, const Renames& renames, const std::string& path) {
  read_text(fields, renames, read_file(path), path);
}

void apply_override(const std::vector<ConfigField>& fields, const Renames& renames, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string key = trimmed(assignment.substr(0, equals));
  if (equals == std::string::npos || key.empty())
    throw ConfigError(fmt::format("--set {}: give KEY=VALUE, for example optim.lr=1e-3", assignment));
  const std::string text = trimmed(assignment.substr(equals + 1));
  const toml::table table = parse_loosely(text);
  Reader(fields, renames, [&](const toml::node&) { return fmt::format("--set {}", assignment); }).read(key, *table.get("value"), text);
}

// A TOML table ends where the next begins, so each group's own keys come before its sub-groups, whatever the order of visit().
std::string write(const std::vector<ConfigField>& fields) {
  std::vector<std::pair<std::string, std::string>> tables = {{"", ""}};
  for (const ConfigField& field : fields) {
    require_utf8(field.key, toml_text(field.get()));
    const size_t dot = field.key.rfind('.');
    const std::string group = dot == std::string::npos ? "" : field.key.substr(0, dot);
    auto table = std::find_if(tables.begin(), tables.end(), [&](const auto& entry) { return entry.first == group; });
    if (table == tables.end()) table = tables.insert(tables.end(), {group, ""});
    table->second += fmt::format("{} = {}\n", last_part(field.key), toml_text(field.get()));
  }
  std::string text;
  for (const auto& [group, lines] : tables) {
    if (lines.empty()) continue;
    if (!text.empty()) text += '\n';
    if (!group.empty()) text += fmt::format("[{}]\n", group);
    text += lines;
  }
  return text;
}

std::string describe(const std::vector<ConfigField>& fields) {
  size_t width = 0;
  std::vector<std::string> settings;
  for (const ConfigField& field : fields) {
    settings.push_back(fmt::format("{} = {}", field.key, toml_text(field.get())));
    width = std::max(width, settings.back().size());
  }
  std::string text;
  for (size_t i = 0; i < fields.size(); ++i)
    text += fmt::format("{:<{}}  # {} ({})\n", settings[i], std::min<size_t>(width, 48), fields[i].help, fields[i].expected);
  return text;
}

}  // namespace config_detail

FlatConfig flatten_config(std::string_view text, const std::string& name) {
  FlatConfig flat;
  flatten(parse_toml(text, name), "", flat);
  return flat;
}

std::vector<ConfigDifference> config_differences(const std::vector<FlatConfig>& configs) {
  std::vector<ConfigDifference> all;
  for (size_t i = 0; i < configs.size(); ++i)
    for (const auto& [key, value] : configs[i]) {
      auto found = std::find_if(all.begin(), all.end(), [&key = key](const ConfigDifference& entry) { return entry.key == key; });
      if (found == all.end()) found = all.insert(all.end(), {key, std::vector<std::string>(configs.size())});
      found->values[i] = value;
    }
  std::erase_if(all, [](const ConfigDifference& entry) {
    return std::all_of(entry.values.begin(), entry.values.end(), [&](const std::string& value) { return value == entry.values[0]; });
  });
  return all;
}

}  // namespace hinge::support
