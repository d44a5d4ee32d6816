// Configs: plain structs bound to TOML. A struct lists its fields once,
//
//   struct Optim {
//     double lr = 1e-3;
//     std::optional<double> clip = 1.0;
//     std::string path = {};
//     template <class V> void visit(V& v) {
//       v("lr", lr, "peak learning rate");
//       v("clip", clip, "largest global norm of the gradient");
//       v("path", path, "where to write");
//     }
//   };
//
// and from that come reading, `--set` overrides, writing, differences and the listing of all keys. Fields are bool, int64_t, double,
// std::string (optionally one of given words), enums, std::vector and std::optional of those, and structs with a visit() of their own.
// An enum says its words through a function found beside it:
//
//   inline std::vector<std::pair<std::string, Pool>> config_words(Pool) { return {{"gap", Pool::kGap}, {"tok", Pool::kTok}}; }
//
// An optional field without a value is "none". A text is not optional, because "none" may be what it says: an empty one stands for no
// value.
//
// A struct that is read as a whole may list what its keys and words were called in former versions. An old name is then an error that says
// the new one:
//
//   static support::Renames renames() { return {.keys = {{"optim.tokens", "optim.batch"}}, .words = {{"model.pool", "mean", "gap"}}}; }
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace hinge::support {

// A mistake in a config or an override: says file and line or the override, the key, what was given and what is expected.
struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using ConfigScalar = std::variant<bool, int64_t, double, std::string>;
// What a field can hold; monostate is an optional without a value.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<ConfigScalar>>;

// One field of a struct, seen without its type. `set` returns false if the value is not of the type or not one of the words.
struct ConfigField {
  std::string key;  // "model.attention.h"
  std::string help;
  std::string expected;  // "a number", "one of relu, gelu", ...
  std::function<ConfigValue()> get;
  std::function<bool(const ConfigValue&)> set;
};

struct Renames {
  struct Key {
    std::string old, now;
  };
  struct Word {
    std::string key;
    ConfigValue old;  // a word, or what the key took when it took no words: true, 3
    std::string now;
  };
  std::vector<Key> keys = {};
  std::vector<Word> words = {};
};

namespace config_detail {

template <class T> struct Codec;  // expected(), encode(T), decode(scalar, T&): a type as a scalar

template <class T>
concept Enum = std::is_enum_v<T> && requires(T value) {
  config_words(value);
};

template <> struct Codec<bool> {
  static std::string expected(bool many) { return many ? "true or false values" : "true or false"; }
  static ConfigScalar encode(bool value) { return value; }
  static bool decode(const ConfigScalar& scalar, bool& value);
};
template <> struct Codec<int64_t> {
  static std::string expected(bool many) { return many ? "whole numbers" : "a whole number"; }
  static ConfigScalar encode(int64_t value) { return value; }
  static bool decode(const ConfigScalar& scalar, int64_t& value);
};
template <> struct Codec<double> {
  static std::string expected(bool many) { return many ? "numbers" : "a number"; }
  static ConfigScalar encode(double value) { return value; }
  static bool decode(const ConfigScalar& scalar, double& value);
};
template <> struct Codec<std::string> {
  static std::string expected(bool many) { return many ? "texts" : "a text"; }
  static ConfigScalar encode(const std::string& value) { return value; }
  static bool decode(const ConfigScalar& scalar, std::string& value);
};
std::string one_of(std::vector<std::string> words);  // an empty word: "or empty"
template <Enum T> struct Codec<T> {
  static std::string expected(bool many) {
    std::vector<std::string> words;
    for (const auto& entry : config_words(T{})) words.emplace_back(entry.first);
    return (many ? "items that are each " : "") + one_of(words);
  }
  static ConfigScalar encode(T value) {
    for (const auto& entry : config_words(T{}))
      if (entry.second == value) return std::string(entry.first);
    throw std::logic_error("a value of an enum has no word in config_words");
  }
  static bool decode(const ConfigScalar& scalar, T& value) {
    const auto* word = std::get_if<std::string>(&scalar);
    for (const auto& entry : config_words(T{}))
      if (word != nullptr && *word == entry.first) return value = entry.second, true;
    return false;
  }
};

ConfigValue widen(ConfigScalar scalar);                        // a scalar as a value
std::optional<ConfigScalar> narrow(const ConfigValue& value);  // a value as a scalar, if it is one
inline constexpr std::string_view kNone = "none";
bool is_none(const ConfigValue& value);

// A field's whole type: scalar, list or optional.
template <class T> struct FieldCodec {
  static std::string expected() { return Codec<T>::expected(false); }
  static ConfigValue encode(const T& value) { return widen(Codec<T>::encode(value)); }
  static bool decode(const ConfigValue& given, T& value) {
    const std::optional<ConfigScalar> scalar = narrow(given);
    return scalar && Codec<T>::decode(*scalar, value);
  }
};
template <class T> struct FieldCodec<std::vector<T>> {
  static std::string expected() { return "a list of " + Codec<T>::expected(true); }
  static ConfigValue encode(const std::vector<T>& values) {
    std::vector<ConfigScalar> items;
    for (const auto& value : values) items.push_back(Codec<T>::encode(value));
    return items;
  }
  static bool decode(const ConfigValue& given, std::vector<T>& values) {
    const auto* items = std::get_if<std::vector<ConfigScalar>>(&given);
    if (items == nullptr) return false;
    std::vector<T> decoded;
    for (const ConfigScalar& item : *items) {
      T value{};
      if (!Codec<T>::decode(item, value)) return false;
      decoded.push_back(std::move(value));
    }
    values = std::move(decoded);
    return true;
  }
};
template <class T> struct FieldCodec<std::optional<T>> {
  static_assert(!std::is_same_v<T, std::string>, "\"none\" would be no value: take a text that may be empty");
  static std::string expected() { return FieldCodec<T>::expected() + ", or none"; }
  static ConfigValue encode(const std::optional<T>& value) { return value ? FieldCodec<T>::encode(*value) : ConfigValue(); }
  static bool decode(const ConfigValue& given, std::optional<T>& value) {
    if (is_none(given)) return value.reset(), true;
    T decoded{};
    if (!FieldCodec<T>::decode(given, decoded)) return false;
    value = std::move(decoded);
    return true;
  }
};

// The visitor: turns a struct into its list of fields, nested structs with their names in front.
class Collector {
 public:
  template <class T> void operator()(const char* name, T& value, const char* help) {
    if constexpr (requires { value.visit(*this); }) {
      const std::string outer = prefix_;
      prefix_ += name + std::string(".");
      value.visit(*this);
      prefix_ = outer;
    } else {
      using Whole = FieldCodec<T>;
      fields_.push_back({prefix_ + name, help, Whole::expected(), [&value] { return Whole::encode(value); },
                         [&value](const ConfigValue& given) { return Whole::decode(given, value); }});
    }
  }
  void operator()(const char* name, std::string& value, const char* help, const std::vector<std::string>& words);

  std::vector<ConfigField> take() { return std::move(fields_); }

 private:
  std::string prefix_;
  std::vector<ConfigField> fields_;
};

template <class T> Renames renames_of() {
  if constexpr (requires { T::renames(); })
    return T::renames();
  else
    return {};
}

void read_text(const std::vector<ConfigField>& fields, const Renames& renames, std::string_view text, const std::string& name);
void read_path(const std::vector<ConfigField>& fields, const Renames& renames, const std::string& path);
void apply_override(const std::vector<ConfigField>& fields, const Renames& renames, const std::string& assignment);
std::string write(const std::vector<ConfigField>& fields);
std::string describe(const std::vector<ConfigField>& fields);

}  // namespace config_detail

// The fields of a struct, in the order of its visit(); they refer to `config`.
template <class T> std::vector<ConfigField> config_fields(T& config) {
  config_detail::Collector collector;
  config.visit(collector);
  return collector.take();
}

// The word of a value of an enum.
template <config_detail::Enum T> std::string config_word(T value) { return std::get<std::string>(config_detail::Codec<T>::encode(value)); }

// Reads a TOML file, or text that came from `name`, over what `config` holds; keys that are not there keep their value.
// If anything is wrong, `config` stays as it was and ConfigError is thrown.
template <class T> void read_config(T& config, const std::string& path) {
  T changed = config;
  config_detail::read_path(config_fields(changed), config_detail::renames_of<T>(), path);
  config = std::move(changed);
}
template <class T> void read_config_text(T& config, std::string_view text, const std::string& name) {
  T changed = config;
  config_detail::read_text(config_fields(changed), config_detail::renames_of<T>(), text, name);
  config = std::move(changed);
}

// Applies "model.attention.h=relu". The value is TOML; words and lists of words need no quotes.
template <class T> void override_config(T& config, const std::string& assignment) {
  T changed = config;
  config_detail::apply_override(config_fields(changed), config_detail::renames_of<T>(), assignment);
  config = std::move(changed);
}

// All keys as TOML, always in the same order; reading it gives an equal config. Throws std::runtime_error for a text that is not UTF-8.
template <class T> std::string write_config(T config) { return config_detail::write(config_fields(config)); }

// All keys of a config with their values, what they take and what they mean, for a person: `hinge train --help-config`.
template <class T> std::string describe_config(T config) { return config_detail::describe(config_fields(config)); }

// Keys and values (as TOML text) of any TOML text, nested keys joined by dots, in the order of the text.
using FlatConfig = std::vector<std::pair<std::string, std::string>>;
FlatConfig flatten_config(std::string_view text, const std::string& name);

struct ConfigDifference {
  std::string key;
  std::vector<std::string> values;  // one a config, as TOML text; empty where the key is not there
};
// The keys whose values are not the same in all configs, in the order of the first that has them.
std::vector<ConfigDifference> config_differences(const std::vector<FlatConfig>& configs);
template <class T> std::vector<ConfigDifference> config_differences(const T& left, const T& right) {
  return config_differences(
      std::vector<FlatConfig>{flatten_config(write_config(left), "left"), flatten_config(write_config(right), "right")});
}

}  // namespace hinge::support
