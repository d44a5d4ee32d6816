// The vision transformer: sizes, values and gradients against its definition, and what may differ between training and evaluation.
#include "models/vit.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "../support/errors.h"
#include "plain_vit.h"

namespace hinge::models {
namespace {

using support::error_of;
using support::mentions;

VitConfig small() {
  VitConfig config;
  config.image_size = 13, config.patch = 4, config.channels = 3, config.classes = 5;  // 3 x 3 tokens; the last row and column fall off
  config.width = 16, config.depth = 2, config.ffn.width = 24, config.heads = 2;
  return config;
}

at::Tensor images_for(const VitConfig& config, int64_t n = 4) {
  return at::randn({n, config.image_size, config.image_size, config.channels});
}

// ---- sizes

// big_vision's counts, 224 px, 1000 classes: those published for the sizes with a class token (Ti/16 5,717,416, S/16 22,050,664, B/16
// 86,567,656, ...) less the token and the token's position.
struct Count {
  const char* size;
  int64_t gap;
};
constexpr Count kCounts[] = {{"Ti/16", 5717032}, {"S/32", 22878184}, {"S/16", 22049896}, {"S/8", 22054504},
                             {"M/16", 38836712}, {"B/32", 88222696}, {"B/16", 86566120}, {"L/16", 304324584}};

// Of the whole model, from its first two blocks: all blocks are alike, and L/16 would be 1.2 GB.
int64_t parameters_of(VitConfig config) {
  config = resolved(config);
  config.size.clear();
  const int64_t depth = *config.depth;
  config.depth = 1;
  const int64_t one = Vit(config, 0).parameters().count();
  config.depth = 2;
  const int64_t two = Vit(config, 0).parameters().count();
  return one + (depth - 1) * (two - one);
}

class Counts : public testing::TestWithParam<Count> {};

TEST_P(Counts, AreThoseOfBigVision) {
  VitConfig config;
  config.size = GetParam().size;
  config.attention.qk_norm = false;
  const VitConfig sizes = resolved(config);
  const int64_t width = *sizes.width, mlp = *sizes.ffn.width, depth = *sizes.depth, heads = *sizes.heads;
  EXPECT_EQ(parameters_of(config), GetParam().gap);
  if (width > 384) return;  // the options add the same formulas to all of them
  const auto with = [&](const auto& change) {
    VitConfig changed = config;
    change(changed);
    return parameters_of(changed) - GetParam().gap;
  };
  const int64_t dense = width * width + width;
  EXPECT_EQ(with([](VitConfig& c) { c.pool = Pool::tok; }), width);
  EXPECT_EQ(with([](VitConfig& c) { c.pool = Pool::map; }), width + 4 * dense + 2 * width + 2 * width * mlp + mlp + width);
  EXPECT_EQ(with([](VitConfig& c) { c.position = nn::Position::sinusoidal; }), -sizes.tokens() * width);
  EXPECT_EQ(with([](VitConfig& c) { c.rep_size = -1; }), dense);
  EXPECT_EQ(with([](VitConfig& c) { c.rep_size = 100; }), 100 * width + 100 - 1000 * (width - 100));
  EXPECT_EQ(with([](VitConfig& c) { c.attention.qk_norm = true; }), depth * 2 * 2 * (width / heads));
  EXPECT_EQ(with([](VitConfig& c) { c.attention.qk_norm = true, c.attention.qk_norm_bias = false; }), depth * 2 * (width / heads));
  EXPECT_EQ(with([](VitConfig& c) { c.attention.gate = "linear"; }), depth * dense);
  EXPECT_EQ(with([](VitConfig& c) { c.attention.learn_alpha = c.attention.learn_gain = c.attention.learn_bias = "head"; }),
            depth * 3 * heads);
  EXPECT_EQ(with([](VitConfig& c) { c.attention.learn_alpha = "layer"; }), depth);
}

INSTANTIATE_TEST_SUITE_P(Variants, Counts, testing::ValuesIn(kCounts), [](const auto& info) {
  std::string name = info.param.size;
  name[name.find('/')] = '_';
  return name;
});

TEST(Vit, StartsAsBigVisionDoes) {
  VitConfig config = small();
  config.width = 64, config.ffn.width = 256, config.pool = Pool::tok, config.head_bias = -6.9;
  const Vit model(config, 1);
  const auto get = [&](const char* name) { return model.parameters().find(name)->value.detach(); };
  EXPECT_TRUE(get("head.weight").eq(0).all().item<bool>());
  EXPECT_TRUE(get("head.bias").eq(-6.9f).all().item<bool>());
  EXPECT_TRUE(get("cls_token").eq(0).all().item<bool>());
  EXPECT_TRUE(get("blocks.0.norm1.weight").eq(1).all().item<bool>());
  EXPECT_TRUE(get("blocks.0.attn.qkv.bias").eq(0).all().item<bool>());
  const auto deviation = [&](const char* name) { return get(name).std().item<double>(); };
  const auto largest = [&](const char* name) { return get(name).abs().max().item<double>(); };
  // Of n draws a deviation is right to about 1 / sqrt(2 n); the smallest here has 64.
  EXPECT_NEAR(deviation("pos_embed"), 1.0 / 8, 0.02);
  EXPECT_NEAR(deviation("blocks.1.mlp.fc1.bias"), 1e-6, 3e-7);
  EXPECT_NEAR(deviation("blocks.1.mlp.fc2.bias"), 1e-6, 5e-7);
  // Xavier: uniform up to sqrt(6 / (in + out)); q, k and v are three layers.
  EXPECT_NEAR(largest("blocks.0.attn.qkv.weight"), std::sqrt(6.0 / 128), 1e-3);
  EXPECT_NEAR(largest("blocks.0.mlp.fc1.weight"), std::sqrt(6.0 / 320), 1e-3);
  EXPECT_NEAR(largest("patch_embed.proj.weight"), std::sqrt(6.0 / (48 + 64)), 1e-3);
  for (const nn::Parameter& parameter : model.parameters().all())
    EXPECT_EQ(parameter.decays, parameter.name.ends_with("weight") && parameter.name.find("norm") == std::string::npos) << parameter.name;
  const Vit same(config, 1), other(config, 2);
  EXPECT_TRUE(at::equal(get("pos_embed"), same.parameters().find("pos_embed")->value));
  EXPECT_FALSE(at::equal(get("pos_embed"), other.parameters().find("pos_embed")->value));
}

// big_vision leaves these two kernels to flax's default: normal with the variance 1 / in, cut off at two deviations.
TEST(Vit, KernelsCanStartAsLeCunSays) {
  VitConfig config = small();
  config.width = 64, config.rep_size = 256, config.init = nn::Init::lecun;
  const Vit model(config, 1);
  for (const auto& [name, in] : {std::pair("patch_embed.proj.weight", 48.0), std::pair("pre_logits.fc.weight", 64.0)}) {
    const at::Tensor kernel = model.parameters().find(name)->value.detach();
    const double deviation = 1 / std::sqrt(in), n = static_cast<double>(kernel.numel());
    EXPECT_NEAR(kernel.std().item<double>() / deviation, 1, 4 / std::sqrt(2 * n)) << name;
    EXPECT_NEAR(kernel.mean().item<double>() / deviation, 0, 4 / std::sqrt(n)) << name;
    const double largest = kernel.abs().max().item<double>() / deviation;
    EXPECT_LT(largest, 2 / 0.8796) << name;
    EXPECT_GT(largest, 2.1) << name;
  }
  // The others stay as they are.
  EXPECT_NEAR(model.parameters().find("blocks.0.attn.qkv.weight")->value.abs().max().item<double>(), std::sqrt(6.0 / 128), 1e-3);
}

TEST(Vit, AConvolutionalStemEndsAtThePatches) {
  VitConfig config = small();
  config.stem = Stem::conv, config.image_size = 16, config.width = 64;  // 4 x 4 tokens
  const Vit model(config, 1);
  const auto sizes = [&](const std::string& name) { return model.parameters().find(name)->value.sizes().vec(); };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes("stem.0.conv.weight"), (Sizes{16, 3, 3, 3}));
  EXPECT_EQ(sizes("stem.1.conv.weight"), (Sizes{32, 16, 3, 3}));
  EXPECT_EQ(sizes("stem.2.conv.weight"), (Sizes{64, 32, 3, 3}));
  EXPECT_EQ(sizes("stem.2.norm.bias"), (Sizes{64}));
  EXPECT_EQ(sizes("patch_embed.proj.weight"), (Sizes{64, 64, 1, 1}));
  EXPECT_EQ(sizes("pos_embed"), (Sizes{1, 16, 64}));
  EXPECT_EQ(model.parameters().find("stem.3.conv.weight"), nullptr);
  config.stem = Stem::patches;
  EXPECT_EQ(model.flops() - Vit(config, 1).flops(),
            2.0 * (16 * 16 * 27 * 16 + 8 * 8 * 144 * 32 + 4 * 4 * 288 * 64 + 16 * 64 * 64 - 16 * 48 * 64));
}

TEST(Vit, LearnedNumbersStartWhereTheConfigSaysAndAreSharedAsItSays) {
  VitConfig config = small();
  config.attention.alpha = 0.5, config.attention.learn_alpha = "model", config.attention.learn_gain = "layer";
  config.attention.learn_bias = "head";
  const Vit model(config, 1);
  const auto starts = [&](const char* name, int64_t count, double value) {
    const nn::Parameter* parameter = model.parameters().find(name);
    ASSERT_TRUE(parameter) << name;
    EXPECT_TRUE(at::equal(parameter->value.detach(), at::full({count}, value))) << name;
    EXPECT_FALSE(parameter->decays) << name;
  };
  starts("attention.alpha", 1, 0.5), starts("blocks.0.attn.gain", 1, 1), starts("blocks.1.attn.gain", 1, 1);
  starts("blocks.0.attn.bias", 2, 0), starts("blocks.1.attn.bias", 2, 0);
  EXPECT_EQ(model.parameters().find("blocks.0.attn.alpha"), nullptr);
  config.attention.first.blocks = 1, config.attention.first.alpha = 1;
  EXPECT_TRUE(mentions(error_of([&] { Vit(config, 1); }), {"model.attention.learn_alpha = model", "starts at 0.5", "elsewhere at 1"}));
  config.attention.first.learn_alpha = "none";
  EXPECT_EQ(error_of([&] { Vit(config, 1); }), "");
}

TEST(Vit, FlopsAreThoseOfTheProducts) {
  VitConfig config = small();  // 9 tokens, width 16, mlp 24, 5 classes
  // patches 9 x 48 x 16; a block: qkv 9 x 16 x 48, scores and reads 9 x 9 x 16 each, out 9 x 16 x 16, mlp 2 times 9 x 16 x 24; head 16 x 5
  EXPECT_EQ(Vit(config, 0).flops(), 2.0 * (9 * 48 * 16 + 2 * (9 * 16 * 48 + 2 * 9 * 9 * 16 + 9 * 16 * 16 + 2 * 9 * 16 * 24) + 16 * 5));
  config.pool = Pool::tok, config.rep_size = 7, config.attention.gate = "linear";  // 10 tokens from the blocks on
  EXPECT_EQ(Vit(config, 0).flops(),
            2.0 * (9 * 48 * 16 + 2 * (10 * 16 * 48 + 2 * 10 * 10 * 16 + 2 * 10 * 16 * 16 + 2 * 10 * 16 * 24) + 16 * 7 + 7 * 5));
  config = small(), config.attention.first.blocks = 1, config.attention.first.gate = "linear";
  const double with_gate = Vit(config, 0).flops();
  EXPECT_EQ(with_gate - Vit(small(), 0).flops(), 2.0 * 9 * 16 * 16);
  config = small(), config.pool = Pool::map;  // the probe attends: q 16 x 16, kv 9 x 16 x 32, scores and sums 9 x 16, out 16 x 16, mlp
  EXPECT_EQ(Vit(config, 0).flops(), 2.0 * (9 * 48 * 16 + 2 * (9 * 16 * 48 + 2 * 9 * 9 * 16 + 9 * 16 * 16 + 2 * 9 * 16 * 24) +
                                           (16 * 16 + 9 * 16 * 32 + 2 * 9 * 16 + 16 * 16 + 2 * 16 * 24) + 16 * 5));
}

// ---- values and gradients

struct Case {
  std::string name;
  VitConfig config;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, const auto& change) {
    std::replace(name.begin(), name.end(), '-', '_');
    all.push_back({name, small()});
    change(all.back().config);
  };
  for (const std::string& preset : preset_names()) {
    add(preset, [&](VitConfig& c) { c.attention.preset = preset; });
    add(preset + "_plain_keys", [&](VitConfig& c) { c.attention.preset = preset, c.attention.qk_norm = false; });
    add(preset + "_map", [&](VitConfig& c) { c.attention.preset = preset, c.pool = Pool::map; });
    if (preset != "softmax")
      add(preset + "_learned", [&](VitConfig& c) {
        c.attention.preset = preset;
        c.attention.learn_alpha = c.attention.learn_gain = c.attention.learn_bias = "head";
      });
  }
  for (const char* h : {"relu", "relu2", "gelu", "gelu_tanh", "softplus", "identity", "relu6", "sigmoid", "silu"})
    add(std::string("h_") + h, [&](VitConfig& c) { c.attention.h = h, c.attention.gain = 0.75, c.attention.bias = -0.25; });
  for (const char* length : {"none", "fixed", "keys", "visible"})
    add(std::string("length_") + length, [&](VitConfig& c) {
      c.attention.length = length, c.attention.alpha = 0.5;
      if (c.attention.length == "fixed") c.attention.length_n = 5;
    });
  add("alpha_0", [](VitConfig& c) { c.attention.alpha = 0; });
  add("alpha_2", [](VitConfig& c) { c.attention.alpha = 2; });
  add("map_parts", [](VitConfig& c) { c.pool = Pool::map, c.attention.h = "gelu", c.attention.alpha = 0.5, c.attention.gain = 2; });
  add("tok", [](VitConfig& c) { c.pool = Pool::tok; });
  add("tok_rep", [](VitConfig& c) { c.pool = Pool::tok, c.rep_size = -1; });
  add("rep", [](VitConfig& c) { c.rep_size = 7; });
  add("pool_first", [](VitConfig& c) { c.pool_first = true; });
  add("sinusoidal", [](VitConfig& c) { c.position = nn::Position::sinusoidal; });
  for (const char* gate : {"linear", "sigmoid"}) add(std::string("gate_") + gate, [&](VitConfig& c) { c.attention.gate = gate; });
  for (const char* sharing : {"model", "layer"})
    for (const bool checkpointing : {false, true})
      add(fmt::format("learned_{}{}", sharing, checkpointing ? "_checkpointed" : ""), [&](VitConfig& c) {
        c.attention.alpha = 0.5, c.attention.gain = 2, c.attention.bias = -0.25, c.gradient_checkpointing = checkpointing;
        c.attention.learn_alpha = c.attention.learn_gain = c.attention.learn_bias = sharing;
      });
  add("rela", [](VitConfig& c) { c.attention.preset = "rela"; });
  add("first_identity", [](VitConfig& c) { c.attention.first.blocks = 1, c.attention.first.h = "identity", c.attention.alpha = 0.5; });
  add("first_softmax", [](VitConfig& c) {
    c.attention.first.blocks = 1, c.attention.first.preset = "softmax", c.attention.first.qk_norm = false,
    c.attention.first.gate = "linear";
    c.pool = Pool::map;
  });
  for (const int64_t patch : {1, 2, 4})
    add("conv_stem_" + std::to_string(patch), [&](VitConfig& c) { c.stem = Stem::conv, c.patch = patch, c.image_size = 8; });
  add("norms_without_biases", [](VitConfig& c) { c.attention.qk_norm_bias = false; });
  for (const Pool pool : {Pool::gap, Pool::tok, Pool::map})
    add("post_norm_" + std::to_string(static_cast<int>(pool)), [&](VitConfig& c) { c.norm = nn::NormPlacement::post, c.pool = pool; });
  for (const char* activation : {"relu", "softmax_norm", "gelu_tanh"})
    add(std::string("ffn_") + activation, [&](VitConfig& c) { c.ffn.activation = activation; });
  add("all", [](VitConfig& c) {
    c.pool = Pool::map, c.rep_size = 12, c.position = nn::Position::sinusoidal, c.attention.gate = "linear",
    c.gradient_checkpointing = true, c.channels = 1;
  });
  return all;
}

class Against : public testing::TestWithParam<Case> {};

TEST_P(Against, PlainAten) {
  at::manual_seed(5);
  const VitConfig& config = GetParam().config;
  const Vit model(config, 3);
  randomise(model);
  const at::Tensor images = images_for(config), weights = at::randn({images.size(0), config.classes});
  const Named plain = leaves_of(model, at::kFloat), exact = leaves_of(model, at::kDouble);

  const at::Tensor logits = model.forward(images, /*noise=*/1);
  const at::Tensor plain_logits = PlainVit(config, plain).forward(images);
  const at::Tensor exact_logits = PlainVit(config, exact).forward(images.to(at::kDouble));
  expect_as_close(logits, plain_logits, exact_logits, exact_logits.abs().max().item<double>(), "logits");
  EXPECT_TRUE(at::equal(logits, model.forward(images))) << "evaluation differs without any dropout";

  torch::autograd::backward({(logits * weights).sum()});
  torch::autograd::backward({(plain_logits * weights).sum()});
  torch::autograd::backward({(exact_logits * weights.to(at::kDouble)).sum()});
  double largest = 0;
  for (const auto& [name, leaf] : exact) largest = std::max(largest, leaf.grad().abs().max().item<double>());
  for (const nn::Parameter& parameter : model.parameters().all()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    // Gradients are sums over examples and tokens, in another order here than there.
    expect_as_close(parameter.value.grad(), plain.at(parameter.name).grad(), exact.at(parameter.name).grad(), 4 * largest, parameter.name);
  }
}

void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

INSTANTIATE_TEST_SUITE_P(Models, Against, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(Vit, ShowsWhatIsInside) {
  at::manual_seed(6);
  VitConfig config = small();
  config.rep_size = 7;
  const Vit model(config, 3);
  randomise(model);
  const at::Tensor images = images_for(config);
  const at::NoGradGuard guard;
  VitViews views;
  const at::Tensor logits = model.forward(images, /*noise=*/{}, &views);
  EXPECT_TRUE(at::equal(logits, model.forward(images))) << "looking changes the result";
  ASSERT_EQ(views.layers.size(), 4u);
  EXPECT_EQ(views.layers[3].name, "blocks.1.mlp");
  ASSERT_EQ(views.blocks.size(), 2u);
  EXPECT_EQ(views.pre_logits.sizes(), (std::vector<int64_t>{4, 7}));
  EXPECT_TRUE(at::equal(views.pre_logits, model.features(images)));
  const auto get = [&](const char* name) { return model.parameters().find(name)->value; };
  EXPECT_TRUE(at::allclose(logits, at::matmul(views.pre_logits, get("head.weight").t()) + get("head.bias"), 1e-5, 1e-5));
  const std::vector<nn::AttentionView> attentions = nn::attentions_of(views.layers);
  ASSERT_EQ(attentions.size(), 2u);
  const auto& [q, k, v, options] = attentions[1];
  EXPECT_EQ(q.sizes(), (std::vector<int64_t>{4, 2, 9, 8}));
  const at::Tensor w = nn::attention_weights(attentions[1]), s = at::matmul(q, k.transpose(2, 3)) / std::sqrt(8.0);
  EXPECT_TRUE(at::allclose(w, at::relu(s) / 9, 1e-5, 1e-6));
  EXPECT_GT(w.sum().item<double>(), 0);
}

// ---- training and evaluation

VitConfig noisy(VitConfig config) {
  config.dropout = 0.1, config.drop_path = 0.3, config.attention.dropout = 0.1;
  return config;
}

// Everything below runs one step with the same random numbers and gives back the loss and all gradients.
std::vector<at::Tensor> step(const Vit& model, const at::Tensor& images) {
  for (const nn::Parameter& parameter : model.parameters().all()) parameter.value.mutable_grad().reset();
  const at::Tensor loss = model.forward(images, /*noise=*/11).square().sum();
  torch::autograd::backward({loss});
  std::vector<at::Tensor> results = {loss.detach()};
  for (const nn::Parameter& parameter : model.parameters().all()) results.push_back(parameter.value.grad().clone());
  return results;
}

TEST(Vit, RecomputingChangesNoBit) {
  for (const bool with_noise : {false, true}) {
    VitConfig config = with_noise ? noisy(small()) : small();
    const Vit model(config, 3);
    config.gradient_checkpointing = true;
    const Vit again(config, 3);
    at::manual_seed(8);
    randomise(model);
    at::manual_seed(8);
    randomise(again);
    const at::Tensor images = images_for(config);
    const std::vector<at::Tensor> expected = step(model, images), got = step(again, images);
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], got[i])) << "result " << i << ", noise " << with_noise;
    EXPECT_TRUE(at::equal(step(again, images)[0], got[0]));
  }
}

// Bytes of tensors that are alive, now and at most.
struct LiveBytes : c10::MemoryReportingInfoBase {
  int64_t now = 0, most = 0;
  void reportMemoryUsage(void*, int64_t size, int64_t, int64_t, c10::Device) override { most = std::max(most, now += size); }
  bool memoryProfilingEnabled() const override { return true; }
};

TEST(Vit, RecomputingNeedsLessMemory) {
  const auto most = [](bool checkpointing) {
    VitConfig config = small();
    config.image_size = 32, config.depth = 6, config.gradient_checkpointing = checkpointing;
    const Vit model(config, 3);
    const at::Tensor images = images_for(config, 16);
    auto bytes = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
    step(model, images);
    return bytes->most;
  };
  // Kept of a block of width 16: without, the input, both norms, qkv, attention's result, the middle and 24 hidden ones, about 150 numbers
  // a token; with, the 16 of the input. One block is made again at a time.
  const int64_t with = most(true), without = most(false);
  EXPECT_GT(with, 0);
  EXPECT_LT(with, without / 2) << "checkpointing takes " << with << " bytes, keeping all takes " << without;
}

TEST(Vit, NoiseIsOffInEvaluation) {
  const VitConfig config = noisy(small());
  const Vit model(config, 3), quiet(small(), 3);
  at::manual_seed(8);
  randomise(model);
  at::manual_seed(8);
  randomise(quiet);
  const at::Tensor images = images_for(config);
  EXPECT_TRUE(at::equal(model.forward(images), quiet.forward(images)));
  EXPECT_FALSE(at::equal(model.forward(images, 1), quiet.forward(images, 1)));
  EXPECT_TRUE(at::equal(model.forward(images, 1), model.forward(images, 1)));
  EXPECT_FALSE(at::equal(model.forward(images, 1), model.forward(images, 2)));
}

// ---- positions

TEST(Position, SincosIsTheFormula) {
  VitConfig config = small();
  for (const int64_t side : {1, 3, 7}) {
    const at::Tensor expected = PlainVit(config, {}).sines(side), got = nn::sinusoidal_positions_2d(side, *config.width);
    EXPECT_EQ(got.sizes(), expected.sizes());
    EXPECT_LE((got.to(at::kDouble) - expected).abs().max().item<double>(), 0x1p-24);
  }
}

TEST(Position, ResamplingKeepsCornersAndStraightLines) {
  // A table that grows by 1 a row and 10 a column stays one; its corners stay where they are.
  const auto table = [](int64_t side) {
    const at::Tensor at = at::arange(side, at::kDouble) / static_cast<double>(side - 1);
    const at::Tensor grid = at.unsqueeze(1) + 10 * at.unsqueeze(0);
    return at::stack({grid.flatten(), -2 * grid.flatten()}, 1).unsqueeze(0).to(at::kFloat);
  };
  for (const int64_t side : {2, 3, 9}) {
    const at::Tensor got = resample_position(table(5), side);
    EXPECT_EQ(got.sizes(), (std::vector<int64_t>{1, side * side, 2}));
    EXPECT_TRUE(at::allclose(got, table(side), 1e-6, 2e-6)) << side;
  }
  const at::Tensor position = at::randn({1, 16, 3});
  EXPECT_TRUE(at::equal(resample_position(position, 4), position));
  EXPECT_TRUE(mentions(error_of([] { resample_position(at::zeros({1, 15, 3}), 4); }), {"15 tokens", "no square"}));
}

// ---- mistakes

TEST(VitConfig, MistakesAreNamed) {
  const auto message = [](const auto& change) {
    VitConfig config = small();
    change(config);
    return error_of([&] { resolved(config); });
  };
  EXPECT_EQ(message([](VitConfig&) {}), "");
  for (const char* size : {"S", "S/", "X/16", "S/a", "/16", "s/16", "S/-4"})
    EXPECT_TRUE(mentions(message([&](VitConfig& c) { c.size = size; }), {"model.size", std::string("'") + size + "'", "S/16"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c = {}, c.size = "S/0"; }), {"model.patch", "at least 1"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c = {}, c.size = "Ti/16", c.width = 384; }),  // which is S/16's, the default
                       {"model.width 384", "model.size Ti/16", "where it is 192"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c = {}, c.size = "S/16", c.patch = 8; }), {"model.patch 8", "where it is 16"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.head_bias = std::nan(""); }), {"model.head_bias"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.classes = 0; }), {"model.classes", "at least 1", "0"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.heads = -1; }), {"model.heads", "-1"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.patch = 14; }), {"model.patch 14", "model.image_size 13"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.stem = Stem::conv, c.patch = 6; }), {"model.stem conv", "power of two", "6"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.stem = Stem::conv; }), {"model.stem conv", "multiple of the patch", "13 and 4"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.heads = 3; }), {"model.width 16", "model.heads 3"}));
  EXPECT_TRUE(
      mentions(message([](VitConfig& c) { c.width = 18, c.position = nn::Position::sinusoidal; }), {"sinusoidal", "multiple of 4"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.pool = Pool::tok, c.pool_first = true; }), {"model.pool_first", "gap"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.rep_size = -2; }), {"model.rep_size", "-2"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.dropout = 1; }), {"model.dropout", "[0, 1)"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.drop_path = -0.5; }), {"model.drop_path", "-0.5"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.attention.dropout = 2; }), {"model.attention.dropout", "2"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.attention.preset = "rleu"; }), {"attention.preset", "'rleu'", "relu-vit"}));
  for (const int64_t blocks : {-1, 3})
    EXPECT_TRUE(mentions(message([&](VitConfig& c) { c.attention.first.blocks = blocks; }),
                         {"model.attention.first.blocks", "from 0 to model.depth, which is 2", std::to_string(blocks)}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.attention.first.h = "identity"; }), {"model.attention.first.h", "first.blocks is 0"}));
  EXPECT_TRUE(mentions(message([](VitConfig& c) { c.attention.first.blocks = 1, c.attention.first.h = "rleu"; }),
                       {"model.attention.first.h", "'rleu'"}));
  EXPECT_EQ(message([](VitConfig& c) { c.attention.first.blocks = 2, c.attention.first.h = "gelu"; }), "");

  VitConfig config;
  config.size = "L/14", config.rep_size = -1;
  config = resolved(resolved(config));  // what is filled in goes with the size
  EXPECT_EQ((std::vector<int64_t>{*config.patch, *config.width, *config.depth, *config.ffn.width, *config.heads, config.rep_size,
                                  config.tokens()}),
            (std::vector<int64_t>{14, 1024, 24, 4096, 16, 1024, 256}));
  VitConfig some;
  some.heads = 8, some.width = 64;
  some = resolved(some);
  EXPECT_EQ((std::vector<int64_t>{*some.patch, *some.width, *some.depth, *some.ffn.width, *some.heads}),
            (std::vector<int64_t>{16, 64, 12, 1536, 8}));
  const Vit model(small(), 0);
  EXPECT_TRUE(mentions(error_of([&] { model.forward(at::zeros({1, 14, 13, 3})); }), {"13 x 13", "3 channels"}));
}

}  // namespace
}  // namespace hinge::models
