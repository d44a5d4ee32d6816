// The configs that come with the program: every file is understood, those of the paper say what it says, the smoke test that the head of a
// full-size one names works, and those of translation train on made-up text. HINGE_CONFIGS is their folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "../support/temporary_folder.h"
#include "../text/writers.h"
#include "command.h"
#include "data/codec.h"
#include "data/pipeline.h"

namespace {

namespace fs = std::filesystem;
using hinge_command::Result;
using nlohmann::json;

// The line of the config's head that trains on made-up images.
std::string smoke_test_of(const fs::path& config) {
  std::ifstream text(config);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("#   hinge train ") && line.find("data.format=synthetic") != std::string::npos) return line.substr(10);
  return {};
}

fs::path vit_file(const std::string& name) { return fs::path(HINGE_CONFIGS) / "vit" / (name + ".toml"); }

class Configs : public hinge::support::TemporaryFolderTest {
 protected:
  Result hinge(const std::string& arguments) const { return hinge_command::run(folder_, arguments); }

  // Every key with its value, of the file or by default: the lines "key = value  # meaning" of --help-config. Texts without quotes. Asked
  // once for all tests.
  using Values = std::map<std::string, std::string>;
  const Values& values(const fs::path& file) const {
    static std::map<fs::path, Values> known;
    if (known.count(file)) return known[file];
    Values& values = known[file];
    const Result result = hinge("train '" + file.string() + "' --help-config");
    EXPECT_EQ(result.code, 0) << file << ": " << result.err;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      const size_t equals = line.find(" = "), comment = line.find(" # ");
      if (equals == std::string::npos || comment == std::string::npos) continue;
      std::string value = line.substr(equals + 3, comment - equals - 3);
      value.erase(value.find_last_not_of(' ') + 1);
      if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
      values[line.substr(0, equals)] = value;
    }
    return values;
  }

  // Does what the head of a full-size config says, into a run of the same name.
  void run_smoke_test(const std::string& name, double head_bias) const {
    const std::string relative = "configs/vit/" + name + ".toml";
    std::string command = smoke_test_of(vit_file(name));
    ASSERT_NE(command.find(relative), std::string::npos);
    command.replace(command.find(relative), relative.size(), "'" + vit_file(name).string() + "'");
    const Result result = hinge(command + " --out " + path(name));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("Done"), std::string::npos) << result.out;
    std::istringstream metrics(content(name + "/metrics.jsonl"));
    double loss = 0;
    for (std::string line; std::getline(metrics, line);) loss = json::parse(line).value("eval/loss", loss);
    EXPECT_GT(loss, 0);
    EXPECT_LT(loss, -head_bias) << "a head of zeros has this loss and a little more";
  }

  static std::vector<fs::path> vit_files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(fs::path(HINGE_CONFIGS) / "vit")) files.push_back(entry.path());
    return files;
  }
};

TEST_F(Configs, AreUnderstoodAndSayHowToRunThem) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(HINGE_CONFIGS)) {
    const bool sweep = fs::relative(entry.path(), HINGE_CONFIGS).string().starts_with("sweeps/");  // no config of one run
    if (entry.path().extension() != ".toml" || sweep) continue;
    ++files;
    const std::string file = entry.path().string();
    EXPECT_FALSE(values(entry.path()).empty()) << file;
    const std::string name = "configs/" + fs::relative(entry.path(), HINGE_CONFIGS).string();
    EXPECT_NE(hinge_command::read_file(entry.path()).find("hinge train " + name), std::string::npos)
        << file << ": its head does not have its command";
  }
  EXPECT_GE(files, 19u);
}

// Every point of a sweep is a config that is understood, and what its figures and tables ask for is there or may come.
TEST_F(Configs, OfSweepsAreUnderstoodAndSayHowToRunThem) {
  size_t files = 0;
  put("none.jsonl", "");
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HINGE_CONFIGS) / "sweeps")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const std::string file = entry.path().string(), name = "configs/" + fs::relative(entry.path(), HINGE_CONFIGS).string();
    EXPECT_NE(hinge_command::read_file(entry.path()).find("hinge sweep " + name), std::string::npos)
        << file << ": its head does not have its command";
    // A part without points: all configs are resolved, and nothing is measured or trained.
    const Result points = hinge("sweep '" + file + "' --dry-run --points 1000000/1000000 --results " + path("none.jsonl"));
    EXPECT_EQ(points.code, 0) << points.err;
    EXPECT_NE(points.out.find(" 0 to run in part"), std::string::npos) << points.out;
    const Result report = hinge("report '" + file + "' --results " + path("none.jsonl") + " --out " + path("page.html"));
    EXPECT_EQ(report.code, 0) << report.err;
  }
  EXPECT_GE(files, 27u);
}

TEST_F(Configs, OfVisionGiveAModelAndItsImages) {
  for (const fs::path& file : vit_files()) {
    // Nothing to do is found out after the model, the optimiser and the preprocessing have been looked at, and before weights are made.
    const Result result = hinge("train '" + file.string() + "' --set data.format=synthetic --set optim.steps=0 --out " + path("run"));
    EXPECT_EQ(result.code, 1) << file;
    EXPECT_NE(result.err.find("there is no step to train"), std::string::npos) << file << ": " << result.err;
    const Values& config = values(file);
    const int size = std::stoi(config.at("model.image_size")), channels = std::stoi(config.at("model.channels"));
    hinge::data::Image image;
    image.reshape(size < 64 ? size : 300, size < 64 ? size : 400, channels);  // small images are taken as they are
    for (const char* key : {"data.train_pp", "data.eval_pp"}) {
      const hinge::data::Pipeline pipeline(config.at(key));
      EXPECT_EQ(pipeline.run(image, hinge::data::Random(0, hinge::data::Purpose::augment, 0, 0)).shape,
                (hinge::data::Shape{size, size, channels}))
          << file << " " << key;
    }
  }
}

// What the paper says of a size; it does not name the augmentation of S/8, for which that of S/16 is taken.
struct Recipe {
  const char *file, *size, *randaug, *mixup;
};
constexpr Recipe kRecipes[] = {
    {"i1k_s32", "S/32", "randaug(2,15)|", "0.2"},
    {"i1k_s16", "S/16", "randaug(2,15)|", "0.5"},
    {"i1k_s8", "S/8", "randaug(2,15)|", "0.5"},
    {"i1k_b32", "B/32", "randaug(2,15)|", "0.5"},
    {"i1k_b16", "B/16", "randaug(2,15)|", "0.5"},
    {"i1k_l16", "L/16", "randaug(2,15)|", "0.5"},
    {"i21k_s32", "S/32", "", "0.0"},
    {"i21k_s16", "S/16", "randaug(2,0)|", "0.0"},
    {"i21k_s8", "S/8", "randaug(2,0)|", "0.0"},
    {"i21k_b32", "B/32", "randaug(2,10)|", "0.2"},
    {"i21k_b16", "B/16", "randaug(2,10)|", "0.2"},
    {"i21k_l16", "L/16", "randaug(2,15)|", "0.5"},
};

TEST_F(Configs, OfThePaperHaveItsValues) {
  for (const Recipe& recipe : kRecipes) {
    const bool large = std::string(recipe.file).starts_with("i21k");
    const Values& config = values(vit_file(recipe.file));
    const Values expected = {
        {"model.size", recipe.size},
        {"model.image_size", "224"},
        {"model.channels", "3"},
        {"model.position", "learned"},
        {"model.pool", large ? "gap" : "tok"},
        {"model.pool_first", "false"},
        {"model.rep_size", large ? "0" : "-1"},
        {"model.head_bias", large ? "-10.0" : "-6.9"},
        {"model.dropout", "0.0"},
        {"model.drop_path", "0.0"},
        {"model.attention.preset", "relu-vit"},
        {"model.init", "lecun"},
        {"model.ffn.activation", "gelu_tanh"},
        {"model.attention.qk_norm", "true"},
        {"model.attention.qk_norm_bias", "false"},
        {"model.attention.gate", ""},
        {"data.train", large ? "train" : "train[:99%]"},
        {"data.train_pp", fmt::format("inception_crop(224,method=bilinear)|flip_lr|{}value_range(-1,1)", recipe.randaug)},
        {"data.eval_pp", "resize_small(256,area)|central_crop(224)|value_range(-1,1)"},
        {"data.mixup", recipe.mixup},
        {"optim.batch", "4096"},
        {"optim.epochs", large ? "30.0" : "300.0"},
        {"optim.steps", "none"},
        {"optim.lr", "0.001"},
        {"optim.beta1", "0.9"},
        {"optim.beta2", "0.999"},
        {"optim.weight_decay", "0.0001"},
        {"optim.warmup_steps", "10000"},
        {"optim.schedule", "cosine"},
        {"optim.clip", "1.0"},
        {"optim.loss", "sigmoid"},
    };
    for (const auto& [key, value] : expected) EXPECT_EQ(config.at(key), value) << recipe.file << " " << key;
  }
  for (const fs::path& file : vit_files()) {
    const std::string name = file.stem().string();
    const auto named = [&](const Recipe& recipe) { return name == recipe.file; };
    const bool of_paper = name.starts_with("i1k") || name.starts_with("i21k");
    EXPECT_EQ(std::any_of(std::begin(kRecipes), std::end(kRecipes), named), of_paper) << name;
  }
}

TEST_F(Configs, TheSmokeTestOfTheSmallestFullSizeModelWorks) {
  run_smoke_test("i1k_s32", -6.9);
  // The others name the same one.
  for (const Recipe& recipe : kRecipes) {
    std::string expected = smoke_test_of(vit_file("i1k_s32"));
    expected.replace(expected.find("i1k_s32"), 7, recipe.file);
    EXPECT_EQ(smoke_test_of(vit_file(recipe.file)), expected);
  }
}

// Of 224 pixels: probed with big_vision's preprocessing or the one given, on the splits given.
TEST_F(Configs, AFullSizeModelIsTrainedProbedAndShown) {
  ASSERT_NO_FATAL_FAILURE(run_smoke_test("i21k_s32", -10));
  const std::string probe = "probe " + path("i21k_s32") + " --data synthetic --shots 1 --seeds 1 --json ";
  Result result = hinge(probe);
  ASSERT_EQ(result.code, 0) << result.err;
  json answer = json::parse(result.out);
  EXPECT_EQ(answer["preprocessing"], "resize(256)|central_crop(224)|value_range(-1,1)");
  EXPECT_EQ(answer["sets"][0]["support"], "train");
  EXPECT_EQ(answer["sets"][0]["test"], "test");
  result = hinge(probe + "--pp 'resize(224)|value_range(0,1)' --splits 'train[:6],val[:3]'");
  ASSERT_EQ(result.code, 0) << result.err;
  answer = json::parse(result.out);
  EXPECT_EQ(answer["preprocessing"], "resize(224)|value_range(0,1)");
  EXPECT_EQ(answer["sets"][0]["support"], "train[:6]");
  EXPECT_EQ(answer["sets"][0]["test"], "val[:3]");
  EXPECT_EQ(answer["sets"][0]["images"], 3);
  result = hinge("probe " + path("i21k_s32") + " --data synthetic --shots 1 --seeds 1 --splits train,val --pp 'resize(224)'");
  EXPECT_NE(result.out.find("preprocessing: resize(224)\n"), std::string::npos) << result.out;
  for (const char* wrong : {"--splits train", "--splits 'train[x],test'", "--pp 'resise(224)'"}) {
    result = hinge(probe + wrong);
    EXPECT_EQ(result.code, 2) << wrong;
    EXPECT_NE(result.err.find(std::string(wrong).substr(0, 4)), std::string::npos) << result.err;
  }

  hinge::data::Image image;
  image.reshape(256, 256, 3);
  const std::vector<uint8_t> png = hinge::data::encode_png(image);
  put("image.png", {png.begin(), png.end()});
  const std::string attend = "attend " + path("i21k_s32") + " " + path("image.png") + " --out " + path("maps");
  answer = json::parse(hinge(attend + " --json").out);
  double mass = 0;
  for (const json& layer : answer["layers"]) mass += layer["mass"].get<double>();
  EXPECT_NEAR(answer["all"]["mass"], mass / 12, 1e-9);
  EXPECT_NE(hinge(attend).out.find("\n  all  "), std::string::npos);
}

// ---- translation

std::string translation_file(const std::string& name) { return (fs::path(HINGE_CONFIGS) / "translation" / (name + ".toml")).string(); }

// Texts in two languages, which are numbers as words.
class TranslationConfigs : public Configs {
 protected:
  struct Said {
    std::string english, german;
  };
  Said sentence(int words) {
    constexpr const char* kEnglish[] = {"zero", "one", "two", "three", "four", "five", "six", "seven"};
    constexpr const char* kGerman[] = {"null", "eins", "zwei", "drei", "vier", "fuenf", "sechs", "sieben"};
    Said said;
    for (int i = 0; i < words; ++i) {
      const size_t word = random_() % 8;
      said.english += (i > 0 ? " " : "") + std::string(kEnglish[word]), said.german += (i > 0 ? " " : "") + std::string(kGerman[word]);
    }
    return said;
  }

  // NAME.en and NAME.de: documents of so many sentences, each with a blank line behind it; without documents, sentences only.
  void put_files(const std::string& name, int documents, int sentences) {
    std::string english, german;
    for (int document = 0; document < std::max(documents, 1); ++document) {
      for (int i = 0; i < sentences; ++i) {
        const Said said = sentence(1 + i % 7);
        english += said.english + "\n", german += said.german + "\n";
      }
      if (documents > 0) english += "\n", german += "\n";
    }
    put(name + ".en", english), put(name + ".de", german);
  }

  // A machine with one German catalogue.
  void put_catalogue(const std::string& root, int messages) {
    std::map<std::string, std::string> known = {{"", "Content-Type: text/plain; charset=UTF-8\n"}};
    while (known.size() <= static_cast<size_t>(messages)) {
      const Said said = sentence(2 + static_cast<int>(known.size() % 6));
      known[said.english] = said.german;
    }
    put(root + "/de/LC_MESSAGES/made-up.mo", hinge::text::mo_file({known.begin(), known.end()}));
  }

  // Two steps of a config on a vocabulary of 60 pieces into the run `out`, and its last evaluation.
  Result train(const std::string& name, const std::string& out, const std::string& more) const {
    const Result result = hinge("train '" + translation_file(name) + "' --out " + path(out) +
                                " --set optim.steps=2 --set data.vocabulary.size=60 --set train.threads=1 " + more);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("after 2 steps"), std::string::npos) << result.out;
    return result;
  }
  double status(const std::string& run, const char* key) const { return json::parse(content(run + "/status.json"))["values"].at(key); }
  bool has_metric(const std::string& run, const std::string& name) const {
    return content(run + "/metrics.jsonl").find("\"" + name + "\":") != std::string::npos;
  }
  // A loss that is a number, a BLEU, and both of the mean of the last checkpoints.
  void expect_scores(const std::string& run) const {
    for (const char* key : {"loss", "averaged_loss"}) EXPECT_GT(status(run, key), 0) << key;
    for (const char* key : {"bleu", "averaged_bleu"}) EXPECT_GE(status(run, key), 0) << key;
  }
  // All three attentions of a run are those of the ReLUFormer, and it trains with the regulariser.
  void expect_reluformer(const std::string& run) const {
    const Values& config = values(path(run + "/config.toml"));
    EXPECT_EQ(config.at("model.attention.preset"), "reluformer") << run;
    EXPECT_EQ(config.at("model.attention.gamma"), "4.0") << run;
    for (const char* part : {"encoder", "decoder", "cross"})
      EXPECT_EQ(config.at(fmt::format("model.{}.attention.preset", part)), "") << run;
    EXPECT_TRUE(has_metric(run, "train/regulariser")) << run;
  }

 private:
  std::mt19937 random_{7};
};

TEST_F(TranslationConfigs, OfCaptionsTrain) {
  put_files("train", 0, 120), put_files("val", 0, 20);
  const Result result = train("multi30k", "run", "--set data.path=" + path("") + " --set train.bleu_sentences=4");
  EXPECT_NE(result.err.find("training: 120 pairs"), std::string::npos) << result.err;
  expect_scores("run");
  expect_reluformer("run");
  EXPECT_EQ(values(path("run/config.toml")).at("data.pair"), "de-en");
  // Its head names the parameters with 6,000 pieces, of which each has a row of 128.
  EXPECT_NEAR((status("run", "parameters") + (6000 - 60) * 128) / 1e6, 2.1, 0.05);
}

TEST_F(TranslationConfigs, OfDocumentsTrain) {
  put_files("train", 6, 80), put_files("dev", 2, 80);
  const Result result = train(
      "europarl-512", "run", "--set data.path=" + path("") + " --set model.width=32 --set model.ffn.width=64 --set train.bleu_sentences=2");
  // Documents of about 650 tokens are cut once.
  EXPECT_NE(result.err.find("training: 12 parts of documents"), std::string::npos) << result.err;
  expect_scores("run");
  expect_reluformer("run");
}

TEST_F(TranslationConfigs, OfMessagesGiveTheModelsThatTheirHeadNames) {
  const std::string head = hinge_command::read_file(translation_file("messages"));
  EXPECT_TRUE(head.starts_with("# A ReLUFormer of 2.3 M parameters that translates program messages"));
  put_catalogue("locale", 120);
  const std::string text = "--set data.path=" + path("locale") + " --set data.held_out=0.2 --set train.bleu_sentences=4";
  train("messages", "reluformer", text);
  expect_scores("reluformer");
  expect_reluformer("reluformer");
  const Values& config = values(path("reluformer/config.toml"));
  EXPECT_EQ(config.at("data.kind"), "catalogues");
  EXPECT_EQ(config.at("data.pair"), "en-de");

  const std::string other = "--set model.attention.preset=softmax";
  EXPECT_NE(head.find(other + "    for the Transformer of the same size"), std::string::npos);
  train("messages", "transformer", text + " " + other);
  EXPECT_EQ(values(path("transformer/config.toml")).at("model.attention.preset"), "softmax");
  EXPECT_FALSE(has_metric("transformer", "train/regulariser"));
  EXPECT_EQ(status("transformer", "parameters"), status("reluformer", "parameters"));
}

}  // namespace
