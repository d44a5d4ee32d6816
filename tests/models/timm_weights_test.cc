// Weights under timm's names: what goes out comes back, what differs is converted, what does not fit is named.
#include "models/timm_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "../support/errors.h"
#include "../support/temporary_folder.h"

namespace hinge::models {
namespace {

using support::error_of;
using support::mentions;
using Tensors = std::map<std::string, at::Tensor>;

VitConfig small_config() {
  VitConfig config;
  config.image_size = 12, config.channels = 1, config.classes = 3, config.patch = 4, config.width = 16, config.depth = 1,
  config.ffn.width = 32, config.heads = 2;
  return config;
}

VitConfig with_token() {
  VitConfig config = small_config();
  config.pool = Pool::tok;
  return config;
}

class TimmWeights : public support::TemporaryFolderTest {
 protected:
  static Tensors tensors_of(const Vit& model) {
    Tensors tensors;
    for (const auto& [name, tensor] : timm_weights(model)) tensors[name] = tensor.clone();
    return tensors;
  }

  void write(const Tensors& tensors, support::Dtype dtype = support::Dtype::kF32) const {
    std::vector<support::TensorView> views;
    for (const auto& [name, tensor] : tensors) views.push_back({name, dtype, tensor.sizes().vec(), tensor.data_ptr()});
    support::write_safetensors(path("weights.safetensors"), views);
  }

  std::vector<std::string> load(const Vit& model, bool head = true) const {
    return load_timm_weights(support::SafetensorsFile(path("weights.safetensors")), model, head);
  }

  static void expect_same(const Vit& a, const Vit& b) {
    for (const nn::Parameter& parameter : a.parameters().all())
      EXPECT_TRUE(at::equal(parameter.value, b.parameters().find(parameter.name)->value)) << parameter.name;
  }
};

TEST_F(TimmWeights, GoOutAndComeBack) {
  std::vector<VitConfig> configs(7, small_config());
  configs[1].pool = Pool::tok, configs[1].rep_size = -1;
  configs[2].pool_first = true, configs[2].attention.qk_norm = false;
  configs[3].pool = Pool::map, configs[3].attention.gate = "linear";
  configs[4].position = nn::Position::sinusoidal, configs[4].attention.learn_alpha = "head";
  configs[5].attention.qk_norm_bias = false;
  configs[6].stem = Stem::conv;
  for (const VitConfig& config : configs) {
    const Vit from(config, 1), to(config, 2);
    write(tensors_of(from));
    EXPECT_TRUE(load(to).empty());
    expect_same(from, to);
  }
}

TEST_F(TimmWeights, HaveTimmsNames) {
  const Tensors token = tensors_of(Vit(with_token(), 1));
  EXPECT_EQ(token.at("pos_embed").sizes(), (at::IntArrayRef{1, 10, 16}));
  EXPECT_TRUE((token.at("pos_embed").select(1, 0) == 0).all().item<bool>());
  EXPECT_EQ(token.count("norm.weight"), 1U);
  VitConfig config = small_config();
  config.pool_first = true;
  const Tensors mean = tensors_of(Vit(config, 1));
  EXPECT_EQ(mean.at("pos_embed").sizes(), (at::IntArrayRef{1, 9, 16}));
  EXPECT_EQ(mean.count("fc_norm.weight"), 1U);
  EXPECT_EQ(mean.count("norm.weight"), 0U);
  config.position = nn::Position::sinusoidal;
  EXPECT_EQ(tensors_of(Vit(config, 1)).count("pos_embed"), 1U);
}

TEST_F(TimmWeights, TheClassTokensPositionBecomesPartOfIt) {
  Tensors tensors = tensors_of(Vit(with_token(), 1));
  tensors["pos_embed"] = at::arange(160, at::kFloat).view({1, 10, 16});
  tensors["cls_token"] = at::full({1, 1, 16}, 1000.0F);
  write(tensors);
  const Vit model(with_token(), 2);
  load(model);
  EXPECT_TRUE(at::equal(model.parameters().find("cls_token")->value.view(-1), 1000 + at::arange(16, at::kFloat)));
  EXPECT_TRUE(at::equal(model.parameters().find("pos_embed")->value, tensors["pos_embed"].slice(1, 1)));
}

TEST_F(TimmWeights, PositionsOfAnotherResolutionAreResampled) {
  VitConfig larger = with_token();
  larger.image_size = 20;
  const Vit from(with_token(), 1), to(larger, 2);
  write(tensors_of(from));
  const std::vector<std::string> notes = load(to);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(mentions(notes[0], {"from 9 to 25 tokens"}));
  EXPECT_TRUE(
      at::allclose(to.parameters().find("pos_embed")->value, resample_position(from.parameters().find("pos_embed")->value.detach(), 5)));
}

TEST_F(TimmWeights, OtherFloatingTypesAreConverted) {
  const Vit from(small_config(), 1), to(small_config(), 2);
  Tensors tensors = tensors_of(from);
  for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kHalf);
  write(tensors, support::Dtype::kF16);
  load(to);
  for (const nn::Parameter& parameter : from.parameters().all())
    EXPECT_TRUE(at::equal(parameter.value.to(at::kHalf).to(at::kFloat), to.parameters().find(parameter.name)->value)) << parameter.name;
}

TEST_F(TimmWeights, TheHeadCanBeLeftOut) {
  VitConfig more = small_config();
  more.classes = 7;
  const Vit from(more, 1), to(small_config(), 2);
  write(tensors_of(from));
  EXPECT_TRUE(mentions(error_of([&] { load(to); }), {"head.weight", "[7, 16]", "[3, 16]", "--no-head"}));
  EXPECT_NO_THROW(load(to, /*head=*/false));
  EXPECT_TRUE(at::equal(from.parameters().find("norm.weight")->value, to.parameters().find("norm.weight")->value));
  Tensors without = tensors_of(from);
  without.erase("head.weight"), without.erase("head.bias");
  write(without);
  EXPECT_TRUE(mentions(error_of([&] { load(to); }), {"holds no head.weight", "--no-head"}));
  EXPECT_NO_THROW(load(to, /*head=*/false));
}

TEST_F(TimmWeights, WhatDoesNotFitIsNamedWithWhatToDo) {
  const Vit plain(small_config(), 1), token(with_token(), 1);
  VitConfig config = small_config();
  config.pool_first = true;
  const Vit mean_first(config, 1);
  config = small_config();
  config.attention.qk_norm = false;
  const Vit without_norms(config, 1);
  config.attention.qk_norm = true, config.attention.qk_norm_bias = false;
  const Vit without_biases(config, 1);
  config = small_config();
  config.position = nn::Position::sinusoidal;
  const Vit fixed(config, 1);
  config = small_config();
  config.stem = Stem::conv;
  const Vit with_stem(config, 1);

  write(tensors_of(token));
  EXPECT_TRUE(mentions(error_of([&] { load(plain); }), {"pos_embed", "model.pool = tok"}));
  write(tensors_of(plain));
  EXPECT_TRUE(mentions(error_of([&] { load(token); }), {"cls_token", "model.pool = tok"}));
  EXPECT_TRUE(mentions(error_of([&] { load(mean_first); }), {"fc_norm.weight", "pool_first"}));
  EXPECT_TRUE(mentions(error_of([&] { load(without_norms); }), {"attn.k_norm", "qk_norm"}));
  EXPECT_TRUE(mentions(error_of([&] { load(fixed); }), {"pos_embed", "sinusoidal"}));
  EXPECT_TRUE(mentions(error_of([&] { load(without_biases); }), {"attn.k_norm.bias", "qk_norm_bias"}));
  EXPECT_TRUE(mentions(error_of([&] { load(with_stem); }), {"stem.0.conv.weight", "model.stem = conv"}));
  write(tensors_of(without_biases));
  EXPECT_TRUE(mentions(error_of([&] { load(plain); }), {"attn.q_norm.bias", "qk_norm_bias"}));
  write(tensors_of(without_norms));
  EXPECT_TRUE(mentions(error_of([&] { load(plain); }), {"attn.q_norm", "qk_norm"}));
  write(tensors_of(mean_first));
  EXPECT_TRUE(mentions(error_of([&] { load(plain); }), {"norm.weight", "pool_first"}));
  Tensors scaled = tensors_of(plain);
  scaled["blocks.0.ls1.gamma"] = at::ones({16});
  write(scaled);
  EXPECT_TRUE(mentions(error_of([&] { load(plain); }), {"blocks.0.ls1.gamma", "no place"}));
}

}  // namespace
}  // namespace hinge::models
