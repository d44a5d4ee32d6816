// Pictures of any kind as a model's input, and labels in terms of its classes.
#include "tasks/vision/model_input.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "../../support/errors.h"
#include "../../support/temporary_folder.h"
#include "data/codec.h"
#include "tasks/vision/labels.h"

namespace hinge::vision {
namespace {

data::Image coloured(int height, int width, std::vector<uint8_t> rgb) {
  data::Image image;
  image.reshape(height, width, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = rgb[i % 3];
  return image;
}

Config config_of(int64_t size, int64_t channels, const std::string& eval_pp) {
  Config config;
  config.model.image_size = size, config.model.channels = channels, config.data.eval_pp = eval_pp;
  return config;
}

TEST(ConvertChannels, ColourBecomesLuminanceAndGreyStaysWhatItIs) {
  data::Image image = coloured(1, 2, {255, 0, 0});
  convert_channels(image, 1);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{76, 76}));
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    data::Image grey = coloured(1, 1, {byte, byte, byte});
    convert_channels(grey, 1);
    EXPECT_EQ(grey.pixels, std::vector<uint8_t>{byte});
    convert_channels(grey, 3);
    EXPECT_EQ(grey.pixels, (std::vector<uint8_t>{byte, byte, byte}));
  }
  EXPECT_THROW(convert_channels(image, 4), std::runtime_error);
}

TEST(ModelInput, HasTheModelsSizeChannelsAndNumbers) {
  for (const char* pp :
       {"value_range(-1,1)", "resize_small(16)|central_crop(12)| value_range(-1,1)", "resize_small(12)|value_range(-1,1)"}) {
    const ModelInput input = model_input(config_of(12, 1, pp), coloured(30, 20, {255, 255, 255}));
    EXPECT_EQ(input.pixels.sizes(), (at::IntArrayRef{1, 12, 12, 1})) << pp;
    EXPECT_TRUE((input.pixels == 1).all().item<bool>()) << pp;
    EXPECT_EQ(input.image.shape(), (data::Shape{12, 12, 1})) << pp;
  }
  EXPECT_EQ(model_input(config_of(12, 3, ""), coloured(5, 7, {9, 8, 7})).pixels[0][0][0][2].item<float>(), 7);
  EXPECT_EQ(model_input(config_of(12, 3, "central_crop(5)"), coloured(5, 7, {9, 8, 7})).pixels.size(1), 12);
}

TEST(ModelInput, NamesTheFileThatCannotBeOne) {
  const support::TemporaryFolder folder;
  const std::vector<uint8_t> png = data::encode_png(coloured(3000, 1, {1, 2, 3}));
  const std::string file = folder.write("thin.png", png);
  EXPECT_TRUE(support::mentions(support::error_of([&] { model_input(config_of(8, 3, "resize_small(8)|central_crop(9)"), file); }),
                                {file + ": central_crop(9)"}));
  EXPECT_TRUE(support::mentions(support::error_of([&] { model_input(config_of(8, 3, "resize_small(1000)|central_crop(8)"), file); }),
                                {file + ": has 3000x1 pixels"}));
  EXPECT_EQ(model_input(config_of(8, 3, "resize_small(8)|central_crop(8)"), file).pixels.size(1), 8);
}

TEST(ProbePipeline, IsBigVisionsForLargeModelsAndTheRunsForSmallOnes) {
  const auto text = [](int64_t size, const char* eval_pp) { return probe_pipeline(config_of(size, 3, eval_pp)).text(); };
  EXPECT_EQ(text(224, "resize_small(256)|central_crop(224)|value_range(-1,1)"), "resize(256)|central_crop(224)|value_range(-1,1)");
  EXPECT_EQ(text(384, "resize(384)| standardize(0.5,0.5)"), "resize(439)|central_crop(384)|standardize(0.5,0.5)");
  EXPECT_EQ(text(64, ""), "resize(73)|central_crop(64)");
  EXPECT_EQ(text(64, "resize(64)"), "resize(73)|central_crop(64)");
  for (const char* eval_pp : {"value_range(-1,1)", "resize_small(40)|central_crop(32)", ""})
    EXPECT_EQ(text(63, eval_pp), input_pipeline(config_of(63, 3, eval_pp)).text());
  // A wide picture keeps its left and right; cutting the aspect away would leave the middle third.
  data::Image picture = coloured(64, 192, {0, 0, 0});
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 192; ++x) picture.row(y)[3 * x] = static_cast<uint8_t>(x);
  const data::Pipeline::Result result =
      probe_pipeline(config_of(64, 3, "resize_small(64)|central_crop(64)")).run(picture, data::Random(0, data::Purpose::augment, 0, 0));
  ASSERT_EQ(result.shape, (data::Shape{64, 64, 3}));
  EXPECT_NEAR(result.pixels[3 * 63] - result.pixels[0], 192.0 * 63 / 73, 3);
}

std::shared_ptr<const data::ImageSet> labelled(std::vector<std::string> classes, std::vector<uint8_t> labels) {
  std::vector<uint8_t> pixels(labels.size());
  const auto count = static_cast<int64_t>(labels.size());
  return std::make_shared<data::MemorySet>(std::move(classes), data::Shape{1, 1, 1}, std::move(pixels), std::move(labels),
                                           std::vector<data::MemorySet::Part>{{"made up", count}});
}

std::vector<int64_t> labels_of(const data::ImageSet& images) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < images.size(); ++i) labels.push_back(images.label(i));
  return labels;
}

TEST(MatchLabels, GoesByName) {
  const LabelledImages found = match_labels(labelled({"dog", "cat"}, {0, 1, 1}), {"ant", "cat", "dog"});
  EXPECT_EQ(labels_of(*found.images), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(found.images->classes().size(), 3U);
  EXPECT_TRUE(found.among.empty());
}

TEST(MatchLabels, GoesByPlaceWhereNamesAreNumbers) {
  EXPECT_EQ(labels_of(*match_labels(labelled({"0", "1"}, {1, 0}), {"cat", "dog"}).images), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(labels_of(*match_labels(labelled({"cat", "dog"}, {1, 0}), {"0", "1"}).images), (std::vector<int64_t>{1, 0}));
}

TEST(MatchLabels, RestrictsToTheClassesAskedFor) {
  const LabelledImages found = match_labels(labelled({"ant", "cat", "dog"}, {0, 1, 2, 2}), {"owl", "cat", "ant", "dog"}, {"dog", "ant"});
  EXPECT_EQ(found.among, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(labels_of(*found.images), (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(found.left_out, 1);
}

TEST(MatchLabels, NamesWhatItDoesNotKnow) {
  using support::error_of;
  using support::mentions;
  const auto images = labelled({"dogs"}, {0});
  EXPECT_TRUE(mentions(error_of([&] { match_labels(images, {"cat", "dog"}); }), {"'dogs'", "did you mean 'dog'"}));
  EXPECT_TRUE(mentions(error_of([&] { match_labels(images, {"cat", "dog"}, {"cats"}); }), {"'cats'", "did you mean 'cat'"}));
  EXPECT_TRUE(mentions(error_of([&] { match_labels(images, {"cat", "dog"}, {"cat"}); }), {"none of the images", "'dogs'"}));
  EXPECT_TRUE(mentions(error_of([&] { match_labels(images, {"cat", "dog"}, {"cat", "cat"}); }), {"twice"}));
}

}  // namespace
}  // namespace hinge::vision
