// One visit() gives reading, overrides, writing, differences and help; every mistake names its place and what was meant.
#include "support/config.h"

#include <gtest/gtest.h>

#include <limits>

#include "errors.h"
#include "temporary_folder.h"

namespace hinge::support {
namespace {

enum class Pool { kGap, kTok };
std::vector<std::pair<std::string, Pool>> config_words(Pool) { return {{"gap", Pool::kGap}, {"tok", Pool::kTok}}; }

struct Attention {
  std::string h = "relu";
  double alpha = 1;
  std::optional<double> gain;
  template <class V> void visit(V& v) {
    v("h", h, "activation", {"relu", "gelu"});
    v("alpha", alpha, "power of the length");
    v("gain", gain, "factor");
  }
};

struct Model {
  Attention attention;
  Pool pool = Pool::kGap;
  std::vector<Pool> pools;
  int64_t depth = 12;
  template <class V> void visit(V& v) {
    v("attention", attention, "the attention");
    v("pool", pool, "how tokens become one");
    v("pools", pools, "all of them");
    v("depth", depth, "blocks");
  }
};

struct Config {
  std::string name = "run";
  bool flip = true;
  Model model;
  std::vector<double> rates = {0.1, 1};
  std::vector<std::string> words;
  std::vector<int64_t> shots = {1, 5};
  std::vector<bool> switches = {true, false};
  std::optional<std::vector<int64_t>> sizes;
  std::string note = "x";
  int64_t steps = 100;
  template <class V> void visit(V& v) {
    v("name", name, "of the run");
    v("flip", flip, "left to right");
    v("model", model, "the model");
    v("rates", rates, "learning rates");
    v("words", words, "some words");
    v("shots", shots, "of the probe");
    v("switches", switches, "on or off");
    v("sizes", sizes, "of images");
    v("note", note, "anything");
    v("steps", steps, "to train");
  }
};

Config read(const std::string& text) {
  Config config;
  read_config_text(config, text, "a.toml");
  return config;
}
std::string error_in(const std::string& text) {
  return error_of([&] { read(text); });
}
std::string error_of_set(const std::string& assignment) {
  return error_of([&] {
    Config config;
    override_config(config, assignment);
  });
}

TEST(Config, ReadsEveryType) {
  const Config config = read(R"(
name = "ü \"q\""
flip = false
rates = [1, 2.5]
words = ["a", "b"]
switches = []
sizes = [28]
note = "none"
steps = 9e5
[model]
pool = "tok"
pools = ["tok", "gap"]
[model.attention]
h = "gelu"
alpha = 2
gain = 0.5
)");
  EXPECT_EQ(config.name, "ü \"q\"");
  EXPECT_FALSE(config.flip);
  EXPECT_EQ(config.rates, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(config.words, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(config.switches.empty());
  EXPECT_EQ(config.sizes, (std::vector<int64_t>{28}));
  EXPECT_EQ(config.note, "none") << "a text may say so; only an optional number has no value then";
  EXPECT_EQ(config.steps, 900000);
  EXPECT_EQ(config.model.pool, Pool::kTok);
  EXPECT_EQ(config.model.pools, (std::vector<Pool>{Pool::kTok, Pool::kGap}));
  EXPECT_EQ(config.model.attention.h, "gelu");
  EXPECT_EQ(config.model.attention.alpha, 2);
  EXPECT_EQ(config.model.attention.gain, 0.5);
  EXPECT_EQ(config.shots, (std::vector<int64_t>{1, 5})) << "what the file does not name keeps its value";
}

// What was called otherwise in a former version.
struct Renamed : Config {
  static Renames renames() {
    return {.keys = {{"blocks", "model.depth"}, {"model.h", "model.attention.h"}, {"model.attention", "model.attention.h"}},
            .words = {{"model.pool", "mean", "gap"}, {"model.pool", true, "tok"}}};
  }
};

TEST(Config, OldNamesSayTheNewOnes) {
  const auto error_in_file = [](const std::string& text) {
    return error_of([&] {
      Renamed config;
      read_config_text(config, text, "a.toml");
    });
  };
  const auto error_of_override = [](const std::string& assignment) {
    return error_of([&] {
      Renamed config;
      override_config(config, assignment);
    });
  };
  EXPECT_EQ(error_in_file("flip = true\nblocks = 3\n"), "a.toml:2: unknown key 'blocks'; it is called 'model.depth' now");
  EXPECT_EQ(error_in_file("[model]\nh = \"relu\"\n"), "a.toml:2: unknown key 'model.h'; it is called 'model.attention.h' now");
  EXPECT_EQ(error_in_file("[model]\nattention = \"relu\"\n"),
            "a.toml:2: 'model.attention' is a group of keys, not a value; it is called 'model.attention.h' now");
  EXPECT_EQ(error_in_file("[model]\npool = \"mean\"\n"), "a.toml:2: 'model.pool' is \"mean\"; it is called \"gap\" now");
  EXPECT_EQ(error_in_file("[model]\npool = true\n"), "a.toml:2: 'model.pool' is true; it is called \"tok\" now");
  EXPECT_EQ(error_of_override("blocks=3"), "--set blocks=3: unknown key 'blocks'; it is called 'model.depth' now");
  EXPECT_EQ(error_of_override("model.pool=mean"), "--set model.pool=mean: 'model.pool' is \"mean\"; it is called \"gap\" now");
  // The new names are read as ever, a group that has an old name is still a group, and other mistakes are named as they were.
  Renamed config;
  read_config_text(config, "[model]\ndepth = 3\n[model.attention]\nh = \"gelu\"\n", "a.toml");
  EXPECT_EQ(config.model.depth, 3);
  EXPECT_EQ(config.model.attention.h, "gelu");
  EXPECT_TRUE(mentions(error_in_file("[model]\npool = \"gup\"\n"), {"gup", "gap, tok"}));
  EXPECT_TRUE(mentions(error_in_file("blokcs = 3\n"), {"unknown key 'blokcs'", "--help-config"}));
}

TEST(Config, UnknownKeysNameFileLineAndNearest) {
  EXPECT_TRUE(mentions(error_in("flip = true\n[model]\ndepht = 3\n"), {"a.toml:3", "'model.depht'", "'model.depth'"}));
  EXPECT_TRUE(mentions(error_in("[modle]\ndepth = 3\n"), {"a.toml:1", "'modle'", "'model'"}));
  EXPECT_TRUE(mentions(error_in("alpha = 3\n"), {"a.toml:1", "'model.attention.alpha'"}));
  EXPECT_TRUE(mentions(error_in("completely_different_thing = 3\n"), {"--help-config"}));
}

TEST(Config, WrongTypesSayWhatWasExpected) {
  EXPECT_TRUE(mentions(error_in("\n\nsteps = 1.5\n"), {"a.toml:3", "'steps'", "1.5", "a whole number"}));
  EXPECT_TRUE(mentions(error_in("flip = 1"), {"'flip'", "true or false"}));
  EXPECT_TRUE(mentions(error_in("name = 3"), {"'name'", "a text"}));
  EXPECT_TRUE(mentions(error_in("rates = ['x']"), {"'rates'", "a list of numbers"}));
  EXPECT_TRUE(mentions(error_in("rates = 1"), {"'rates'", "a list of numbers"}));
  EXPECT_TRUE(mentions(error_in("model.pool = 'map'"), {"'model.pool'", "map", "one of gap, tok"}));
  EXPECT_TRUE(mentions(error_in("model.attention.h = 'rlu'"), {"rlu", "one of relu, gelu"}));
  EXPECT_TRUE(mentions(error_in("model.attention.gain = 'x'"), {"a number, or none"}));
  EXPECT_TRUE(mentions(error_in("model = 3"), {"group of keys", "model.attention.h"}));
  EXPECT_TRUE(mentions(error_in("steps.x = 3"), {"'steps'", "not a group"}));
  EXPECT_TRUE(mentions(error_in("steps = 2024-01-01"), {"'steps'", "2024-01-01"}));
  EXPECT_TRUE(mentions(error_in("flip = true\nsteps = \n"), {"a.toml:2", "not TOML"}));
}

TEST(Config, StaysAsItWasWhenSomethingIsWrong) {
  Config config;
  EXPECT_THROW(read_config_text(config, "flip = false\nsteps = 'x'", "a.toml"), ConfigError);
  EXPECT_TRUE(config.flip);
}

TEST(Config, OverridesTakeWordsWithoutQuotes) {
  Config config;
  for (const char* assignment : {"model.attention.h=gelu", "model.attention.gain = 2", "words=[a, b-c]", "name=12", "rates=[1e-3]",
                                 "flip=false", "note=none", "sizes=none", "model.pool=tok", "model={depth=3}", "shots=[]"})
    override_config(config, assignment);
  EXPECT_EQ(config.model.attention.h, "gelu");
  EXPECT_EQ(config.model.attention.gain, 2);
  EXPECT_EQ(config.words, (std::vector<std::string>{"a", "b-c"}));
  EXPECT_EQ(config.name, "12");
  EXPECT_EQ(config.rates, std::vector<double>{1e-3});
  EXPECT_FALSE(config.flip);
  EXPECT_EQ(config.note, "none");
  EXPECT_EQ(config.model.pool, Pool::kTok);
  EXPECT_EQ(config.model.depth, 3);
  EXPECT_TRUE(config.shots.empty());
  override_config(config, "name=/data/a=b.bin");
  EXPECT_EQ(config.name, "/data/a=b.bin");
  override_config(config, "name=2024-01-01");
  EXPECT_EQ(config.name, "2024-01-01");

  EXPECT_TRUE(mentions(error_of_set("model.attention.hh=relu"), {"--set model.attention.hh=relu", "'model.attention.h'"}));
  EXPECT_TRUE(mentions(error_of_set("steps=many"), {"'steps'", "many", "a whole number"}));
  EXPECT_TRUE(mentions(error_of_set("steps"), {"KEY=VALUE"}));
  EXPECT_TRUE(mentions(error_of_set("=3"), {"KEY=VALUE"}));
  EXPECT_TRUE(mentions(error_of_set("steps="), {"'steps'", "a whole number"}));
}

TEST(Config, WritesAllKeysAndReadsThemBack) {
  Config config;
  config.name = "a\n\"b\" \\ \x01 ü";
  config.model.attention.alpha = 0.1 + 0.2;
  config.model.attention.gain = std::numeric_limits<double>::infinity();
  config.rates = {1e-300, 3, -0.0, 1e22};
  config.note = "none";
  config.sizes = {1, 2};
  config.steps = std::numeric_limits<int64_t>::min();
  const std::string text = write_config(config);
  const Config again = read(text);
  EXPECT_EQ(write_config(again), text);
  EXPECT_EQ(again.name, config.name);
  EXPECT_EQ(again.model.attention.alpha, 0.1 + 0.2);
  EXPECT_EQ(again.rates, config.rates);
  EXPECT_EQ(again.steps, config.steps);
  EXPECT_EQ(again.note, "none");
  EXPECT_EQ(write_config(Config()), R"(name = "run"
flip = true
rates = [0.1, 1.0]
words = []
shots = [1, 5]
switches = [true, false]
sizes = "none"
note = "x"
steps = 100

[model.attention]
h = "relu"
alpha = 1.0
gain = "none"

[model]
pool = "gap"
pools = []
depth = 12
)");
}

TEST(Config, WhatCouldNotBeReadAgainIsNotWritten) {
  Config config;
  config.words = {"caf\xC3\xA9", "caf\xE9/\xFF"};
  EXPECT_TRUE(mentions(error_of([&] { write_config(config); }), {"words", "\"caf\xC3\xA9\"", "\"caf\\xE9/\\xFF\"", "not UTF-8"}));
}

TEST(Config, DifferencesAndHelp) {
  Config changed;
  changed.steps = 5;
  changed.model.attention.h = "gelu";
  const std::vector<ConfigDifference> differences = config_differences(Config(), changed);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].key, "steps");
  EXPECT_EQ(differences[0].values, (std::vector<std::string>{"100", "5"}));
  EXPECT_EQ(differences[1].key, "model.attention.h");
  EXPECT_TRUE(config_differences(changed, changed).empty());
  const std::vector<ConfigDifference> other =
      config_differences(std::vector<FlatConfig>{flatten_config("a = 1\n[b]\nc = 'x'", "one"), flatten_config("a = 1", "two")});
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].key, "b.c");
  EXPECT_EQ(other[0].values, (std::vector<std::string>{"\"x\"", ""}));
  EXPECT_TRUE(mentions(describe_config(Config()), {"model.attention.h = \"relu\"", "# activation (one of relu, gelu)", "steps = 100"}));
}

class ConfigFileTest : public TemporaryFolderTest {};

TEST_F(ConfigFileTest, ReadsFilesAndNamesThem) {
  put("c.toml", "# head\nsteps = 7\n");
  Config config;
  read_config(config, path("c.toml"));
  EXPECT_EQ(config.steps, 7);
  EXPECT_TRUE(mentions(error_of([&] { read_config(config, path("none.toml")); }), {path("none.toml"), "No such file"}));
  put("c.toml", "stepz = 7\n");
  EXPECT_TRUE(mentions(error_of([&] { read_config(config, path("c.toml")); }), {path("c.toml") + ":1", "'steps'"}));
}

}  // namespace
}  // namespace hinge::support
