// Runs the hinge program as a user does. HINGE_COMMAND is its path.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"

namespace {

using hinge_command::Result;

class Cli : public hinge::support::TemporaryFolderTest {
 protected:
  Result hinge(const std::string& arguments) const { return hinge_command::run(folder_, arguments); }

  // Wrong usage: exit code 2, nothing on standard output, one line that holds all the parts.
  void expect_usage_error(const std::string& arguments, std::initializer_list<const char*> parts) const {
    const Result result = hinge(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const char* part : parts) EXPECT_NE(result.err.find(part), std::string::npos) << arguments << ": " << result.err;
  }
};

TEST_F(Cli, Version) {
  const Result result = hinge("--version");
  EXPECT_EQ(result.code, 0);
  int major = 0, minor = 0, patch = 0, length = 0;
  EXPECT_EQ(std::sscanf(result.out.c_str(), "hinge %d.%d.%d\n%n", &major, &minor, &patch, &length), 3) << result.out;
  EXPECT_EQ(static_cast<size_t>(length), result.out.size()) << result.out;
}

TEST_F(Cli, Help) {
  const Result result = hinge("--help");
  EXPECT_EQ(result.code, 0);
  for (const char* part : {"doctor", "bench", "--version"}) EXPECT_NE(result.out.find(part), std::string::npos) << part;
  const Result attention = hinge("bench attention --help");
  EXPECT_EQ(attention.code, 0);
  for (const char* part : {"What to measure", "How to measure", "Output", "--h ", "--shapes", "--threads", "--zeros", "--json", "--plot"})
    EXPECT_NE(attention.out.find(part), std::string::npos) << part;
  EXPECT_EQ(hinge("").code, 2);
}

TEST_F(Cli, UnknownNamesTheNearest) {
  expect_usage_error("dokter", {"'dokter'", "Did you mean 'doctor'?"});
  expect_usage_error("bench atention", {"'atention'", "Did you mean 'attention'?"});
  expect_usage_error("bench attention --shaeps 1x1x8", {"'--shaeps'", "Did you mean '--shapes'?"});
  expect_usage_error("bench attention --thread=1", {"'--thread'", "Did you mean '--threads'?"});
  expect_usage_error("doctor --jsn", {"'--jsn'", "Did you mean '--json'?"});
  expect_usage_error("bench attention --h rleu", {"'rleu'", "Did you mean 'relu'?", "softmax"});
  expect_usage_error("bench attention --pass bakward", {"'bakward'", "Did you mean 'backward'?"});
  expect_usage_error("bench", {"'hinge bench' needs a command: attention"});
}

TEST_F(Cli, BadValuesSayWhatIsAllowed) {
  for (const char* shape : {"48x50", "0x1x5", "1x1xL", "1x2x3x4"})
    expect_usage_error(std::string("bench attention --shapes ") + shape, {"--shapes", shape, "for example 8x6x197"});
  expect_usage_error("bench attention --shapes 1x1x8,1x1x8", {"'1x1x8' twice"});
  expect_usage_error("bench attention --h relu,,gelu", {"empty item"});
  expect_usage_error("bench attention --zeros 0.5", {"'0.5'", "0.65:0.40"});
  expect_usage_error("bench attention --zeros 0.65:0.9", {"0.9", "less than 0.65"});
  expect_usage_error("bench attention --shapes 1x1x8,01x1x8,1x1x9", {"--shapes", "'01x1x8' twice"});
  expect_usage_error("bench attention --zeros 0.65:0.4,0.65:0.40", {"--zeros", "'0.65:0.40' twice"});
  expect_usage_error("bench attention --dropout 0.1,0.10", {"--dropout", "'0.10' twice"});
  expect_usage_error("bench attention --dim 1 --zeros 0.65:0.40 --shapes 1x2x8", {"--dim 1", "--zeros 0.65:0.40", "at least 2"});
  expect_usage_error("bench attention --dropout 1", {"'1'", "probability"});
  expect_usage_error("bench attention --threads 0", {"'0'", "from 1 to"});
  expect_usage_error("bench attention --rounds many", {"'many'", "from 1 to"});
  expect_usage_error("bench attention --causal maybe", {"'maybe'", "on, off"});
}

TEST_F(Cli, DoctorAsText) {
  const Result result = hinge("doctor");
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"processor", "memory", "threads", "SIMD", "compiler", "FMA peak", "oneDNN", "BLAS", "LibTorch"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part;
}

TEST_F(Cli, DoctorAsJson) {
  const Result result = hinge("doctor --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_GT(json.at("fma_peak_gflops"), 0);
  EXPECT_GT(json.at("onednn").at("sgemm_gflops"), 0);
  EXPECT_GT(json.at("blas").at("sgemm_gflops"), 0);
  EXPECT_GT(json.at("libtorch").at("mm_gflops"), 0);
  EXPECT_FALSE(json.at("onednn").at("version").get<std::string>().empty());
  EXPECT_FALSE(json.at("libtorch").at("version").get<std::string>().empty());
  EXPECT_TRUE(json.at("blas").at("path").get<std::string>().starts_with("/"));
  EXPECT_FALSE(json.at("compiler").get<std::string>().empty());
  EXPECT_GE(json.at("threads"), 1);
  EXPECT_GE(json.at("cpu").at("cores"), 1);
  EXPECT_GT(json.at("memory").at("available_bytes"), 0);
  EXPECT_TRUE(json.at("findings").is_array());
  const std::string in_use = json.at("simd").at("in_use");
  for (const char* list : {"compiled", "usable"}) {
    const auto names = json.at("simd").at(list).get<std::vector<std::string>>();
    EXPECT_NE(std::find(names.begin(), names.end(), in_use), names.end()) << list;
  }
}

TEST_F(Cli, ThreadsFollowOnePolicy) {
  const std::string attention = "bench attention --quick --rounds 1 --shapes 1x1x8 --dim 8 --h relu --pass forward --json -";
  const std::string vit = "bench vit --models 28px/4 --attention relu-vit --pass infer --rounds 1 --json -";
  const auto answer = [&](const std::string& command) {
    const Result result = hinge(command);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto expect_threads = [&](int threads) {
    const nlohmann::json doctor = answer("doctor --json");
    EXPECT_EQ(doctor.at("threads"), threads);
    EXPECT_EQ(answer(attention).at("machine").at("threads"), threads);
    return doctor;
  };
  cpu_set_t cores;
  ASSERT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);

  ::unsetenv("OMP_NUM_THREADS");
  const nlohmann::json free = expect_threads(CPU_COUNT(&cores));
  EXPECT_EQ(free.at("findings").dump().find("thread on"), std::string::npos) << free;  // nothing was set: nothing is wrong
  EXPECT_EQ(free.at("findings").dump().find("threads on"), std::string::npos) << free;

  ::setenv("OMP_NUM_THREADS", "1", 1);
  const nlohmann::json one = expect_threads(1);
  EXPECT_EQ(answer(vit).at("machine").at("threads"), 1);
  if (one.at("cpu").at("cores") > 1) {
    EXPECT_NE(one.at("findings").dump().find("Hinge uses one thread on"), std::string::npos) << one;
    EXPECT_NE(one.at("findings").dump().find("unset OMP_NUM_THREADS"), std::string::npos) << one;
  }
  EXPECT_EQ(answer(attention + " --threads 3").at("machine").at("threads"), 3);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_F(Cli, BenchAttentionWritesRowsAndPlot) {
  const Result result =
      hinge("bench attention --quick --shapes 1x2x20,2x1x13 --h relu,softmax --dim 16 --threads 2 --zeros off,0.65:0.40 --json " +
            path("rows.json") + " --plot " + path("plot.svg"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("relu backward, zeros 0.65:0.4"), std::string::npos) << result.out;
  const nlohmann::json json = nlohmann::json::parse(content("rows.json"));
  const nlohmann::json& machine = json.at("machine");
  EXPECT_GT(machine.at("fma_peak_gflops"), 0);
  EXPECT_GT(machine.at("sgemm_gflops"), 0);
  EXPECT_EQ(machine.at("threads"), 2);
  EXPECT_FALSE(machine.at("simd").get<std::string>().empty());
  EXPECT_FALSE(machine.at("cpu").get<std::string>().empty());
  ASSERT_EQ(json.at("results").size(), 2u * 2u * 2u * 2u);
  for (const nlohmann::json& row : json.at("results")) {
    EXPECT_TRUE(row.at("h") == "relu" || row.at("h") == "softmax");
    EXPECT_TRUE(row.at("pass") == "forward" || row.at("pass") == "backward");
    EXPECT_TRUE((row.at("B") == 1 && row.at("H") == 2 && row.at("L") == 20) || (row.at("B") == 2 && row.at("H") == 1 && row.at("L") == 13));
    EXPECT_EQ(row.at("D"), 16);
    EXPECT_EQ(row.at("threads"), 2);
    EXPECT_GE(row.at("zeros"), 0);
    EXPECT_GT(row.at("median_ms"), 0);
    EXPECT_GT(row.at("gflops"), 0);
    EXPECT_GT(row.at("percent_of_peak"), 0);
  }
  const std::string svg = content("plot.svg");
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_NE(svg.find("oneDNN sgemm"), std::string::npos);
}

TEST_F(Cli, BenchAttentionJsonToStandardOutput) {
  const Result result = hinge("bench attention --quick --rounds 1 --shapes 1x1x8 --dim 8 --h relu --pass forward --causal --json -");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.at("results").size(), 1u);
  EXPECT_EQ(json.at("results")[0].at("causal"), true);
}

TEST_F(Cli, BenchAttentionFailsBeforeTheWorkIfItCannotWrite) {
  for (const char* option : {"--json", "--plot"}) {
    const Result result = hinge(std::string("bench attention --quick ") + option + " " + path("missing/result"));
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("missing/result"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("each folder in it must exist"), std::string::npos) << result.err;
  }
}

TEST_F(Cli, BenchGemmMeasuresTheProductsOfAModel) {
  const Result result = hinge("bench gemm --models decode/1 --threads 1 --rounds 1 --json -");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.at("results").size(), 5u);
  for (const nlohmann::json& row : json.at("results")) {
    EXPECT_EQ(row.at("R"), 4);
    EXPECT_EQ(row.at("kind"), "infer");
    EXPECT_GT(row.at("gflops"), 0);
  }
  expect_usage_error("bench gemm --kinds forwrd", {"'forwrd'", "Did you mean 'forward'?"});
  expect_usage_error("bench gemm --workers 0", {"'0'", "from 1 to"});
}

// 2 of 3 parts of 6 tokens: the formulas of docs/scaling.md.
TEST_F(Cli, BenchSequenceCountsWhatProcessesSend) {
  const Result result = hinge(
      "launch -n 3 -- bench sequence --tokens 6 --heads 2 --width 8 --rounds 1 --kinds relu,softmax,relu/keys --json " + path("rows.json"));
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json rows = nlohmann::json::parse(content("rows.json")).at("rows");
  const auto expect = [&](size_t row, const char* kind, int64_t numbers, int64_t messages, int64_t rounds) {
    EXPECT_EQ(rows.at(row).at("kind"), kind);
    EXPECT_EQ(rows.at(row).at("bytes"), 4 * numbers);
    EXPECT_EQ(rows.at(row).at("messages"), messages);
    EXPECT_EQ(rows.at(row).at("rounds"), rounds);
  };
  constexpr int64_t n = 4, H = 2, D = 8;
  expect(0, "relu", 2 * n * H * D, 4, 2);
  expect(1, "relu", 3 * n * H * D, 4, 2);
  expect(2, "softmax", n * H * (2 * D + 1), 4, 2);
  expect(3, "softmax", n * H * (3 * D + 2), 4, 2);
  expect(4, "relu", 2 * n * H * D, 2, 1);
  expect(5, "relu", 4 * n * H * D, 4, 2);
  expect(6, "one number per row and head", n * H, 2, 1);
  expect_usage_error("bench sequence", {"hinge launch -n 2 -- bench sequence"});
}

TEST_F(Cli, BenchTranslateMeasuresAndSaysOnWhat) {
  const Result result = hinge("bench translate --cases decode --attention reluformer --threads 1 --rounds 1 --json " + path("rows.json"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("decode"), std::string::npos) << result.out;
  const nlohmann::json json = nlohmann::json::parse(content("rows.json"));
  EXPECT_LT(json.at("largest_error"), 1e-4);
  ASSERT_EQ(json.at("results").size(), 1u);
  const nlohmann::json& row = json.at("results")[0];
  EXPECT_EQ(row.at("case"), "decode");
  EXPECT_EQ(row.at("attention"), "reluformer");
  EXPECT_EQ(row.at("batches"), nlohmann::json::array({std::vector<int>(16, 25)}));
  EXPECT_GT(row.at("tokens"), 0);
  EXPECT_GT(row.at("tokens_per_second"), 0);
  EXPECT_GT(row.at("memory_bytes"), int64_t{4} * 30'000'000) << "the weights alone are more";
  expect_usage_error("bench translate --cases uneevn", {"'uneevn'", "Did you mean 'uneven'?"});
}

TEST_F(Cli, BenchTranslateTakesEveryKind) {
  const Result result =
      hinge("bench translate --cases decode --attention entmax15 --ffn softmax --ffn-width 64 --threads 1 --rounds 1 --json -");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json row = nlohmann::json::parse(result.out).at("results")[0];
  EXPECT_EQ(row.at("attention"), "entmax15");
  EXPECT_EQ(row.at("ffn"), "softmax");
  EXPECT_EQ(row.at("ffn_width"), 64);
  expect_usage_error("bench translate --attention sparsmax", {"'sparsmax'", "Did you mean 'sparsemax'?"});
}

TEST_F(Cli, BenchAttentionRefusesWhatDoesNotFit) {
  const Result result = hinge("bench attention --shapes 1000000x1000x1000");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("GiB"), std::string::npos) << result.err;
}

}  // namespace
