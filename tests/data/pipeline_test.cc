// Each step on small pictures whose result is known, and the errors of a wrong string.
#include "data/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "data/randaug.h"
#include "writers.h"

namespace hinge::data {
namespace {

Random dice(uint64_t item) { return Random(1, Purpose::augment, 0, item); }

Pipeline::Result run(const std::string& text, const Image& image, uint64_t item = 0) { return Pipeline(text).run(image, dice(item)); }

using Floats = std::vector<float>;

Image ramp(int height, int width, int channels = 1) {  // the value says the place: 16 y + x, more for further channels
  Image image;
  image.reshape(height, width, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) image.row(y)[x * channels + c] = static_cast<uint8_t>(16 * y + x + 80 * c);
  return image;
}

TEST(Resize, GrowsByInterpolation) {
  // Centres of the four new pixels lie at -1/4, 1/4, 3/4, 5/4 of the old grid.
  EXPECT_EQ(run("resize(4)", {1, 2, 1, {0, 100}}).pixels, (Floats{0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100}));
  EXPECT_EQ(run("resize(2)", {1, 1, 3, {1, 2, 3}}).pixels, (Floats{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
}

TEST(Resize, ShrinksWithAntialiasing) {
  // By two: the triangle of half width 2 around 0.5 weighs 3/8 3/8 1/8 inside, made to add up to 7/7, ...
  const Image image{4, 4, 1, {0, 70, 140, 212, 0, 70, 140, 212, 0, 70, 140, 212, 0, 70, 140, 212}};
  const Pipeline::Result result = run("resize(2)", image);
  const float left = std::round((3 * 0 + 3 * 70 + 140) / 7.0f), right = std::round((70 + 3 * 140 + 3 * 212) / 7.0f);
  EXPECT_EQ(result.pixels, (Floats{left, right, left, right}));
  // One bright pixel of 64 is not lost, wherever it is: about an eighth of its light is left, a little less at the border.
  for (int at = 0; at < 64; ++at) {
    Image dots{1, 64, 1, Bytes(64, 0)};
    dots.pixels[static_cast<size_t>(at)] = 255;
    const Image before = dots;
    Image after;
    ResizeScratch scratch;
    resize(before, {0, 0, 1, 64}, 1, 8, ResizeMethod::antialias, after, scratch);
    EXPECT_GT(std::accumulate(after.pixels.begin(), after.pixels.end(), 0), 15) << at;
  }
}

TEST(Resize, OtherMethodsAreTensorFlows) {
  // Five columns to two: the new pixels cover 2.5 old ones each, and their centres lie at 0.75 and 3.25.
  const Image image{1, 5, 1, {0, 40, 100, 180, 250}};
  const auto resized = [&](const Image& from, const char* method) { return run(fmt::format("resize(2,{})", method), from).pixels; };
  const float left = (0 + 40 + 0.5f * 100) / 2.5f, right = (0.5f * 100 + 180 + 250) / 2.5f;
  EXPECT_EQ(resized(image, "area"), (Floats{left, right, left, right}));
  EXPECT_EQ(resized(image, "bilinear"), (Floats{30, 198, 30, 198}));  // 0.75 of 40; 180 + 70 / 4 = 197.5
  EXPECT_NE(resized(image, "antialias"), resized(image, "bilinear"));
  EXPECT_EQ(run("resize(2)", image).pixels, resized(image, "antialias"));
  // Growing: bilinear and antialias are the same; by area every new pixel inside an old one is that one.
  const Image two{1, 2, 1, {0, 100}};
  EXPECT_EQ(run("resize(4,method=bilinear)", two).pixels, run("resize(4)", two).pixels);
  EXPECT_EQ(run("resize(4,area)", two).pixels, (Floats{0, 0, 100, 100, 0, 0, 100, 100, 0, 0, 100, 100, 0, 0, 100, 100}));
  EXPECT_EQ(run("resize(3,area)", two).pixels, (Floats{0, 50, 100, 0, 50, 100, 0, 50, 100}));
  // A mean over whole squares, wherever the step is.
  EXPECT_EQ(run("resize_small(2,area)", ramp(4, 4)).pixels, (Floats{9, 11, 41, 43}));  // 8.5 is rounded up
  EXPECT_NE(run("inception_crop(4,method=bilinear)", ramp(14, 14)).pixels, run("inception_crop(4)", ramp(14, 14)).pixels);
}

TEST(Resize, SameSizeAndBoxesAreExact) {
  const Image image = ramp(5, 7, 3);
  Image out;
  ResizeScratch scratch;
  for (const ResizeMethod method : {ResizeMethod::antialias, ResizeMethod::bilinear, ResizeMethod::area}) {
    resize(image, {0, 0, 5, 7}, 5, 7, method, out, scratch);
    EXPECT_EQ(out.pixels, image.pixels);
    resize(image, {1, 2, 3, 4}, 3, 4, method, out, scratch);
    for (int y = 0; y < 3; ++y) EXPECT_EQ(Bytes(out.row(y), out.row(y) + 12), Bytes(image.row(y + 1) + 6, image.row(y + 1) + 18));
  }
  for (const int size : {1, 2, 3, 50}) EXPECT_EQ(run(fmt::format("resize({})", size), image).shape, (Shape{size, size, 3}));
}

TEST(ResizeSmall, KeepsTheAspect) {
  EXPECT_EQ(run("resize_small(256)", ramp(100, 200)).shape, (Shape{256, 512, 1}));
  EXPECT_EQ(run("resize_small(10)", ramp(37, 20)).shape, (Shape{19, 10, 1}));
  EXPECT_EQ(run("resize_small(224)", ramp(300, 1)).shape, (Shape{67200, 224, 1}));
}

TEST(ResizeSmall, BoundsItsResult) {
  EXPECT_ERROR(run("resize_small(256)", ramp(60000, 1, 3)), "60000x1 pixels", "15360000x256", "at most 67108864 pixels");
  EXPECT_ERROR(run("resize_small(256)", ramp(1, 9'000'000)), "1x9000000 pixels", "256x2304000000");  // more than an int holds
}

TEST(CentralCrop, TakesTheMiddle) {
  EXPECT_EQ(run("central_crop(2)", ramp(4, 6)).pixels, (Floats{18, 19, 34, 35}));
  EXPECT_ERROR(run("central_crop(5)", ramp(4, 6)), "central_crop(5)", "4x6", "resize_small(5)");
}

TEST(RandomCrop, AllPlacesAndNoneOutside) {
  std::set<float> corners;
  for (uint64_t item = 0; item < 300; ++item) {
    const Pipeline::Result result = run("random_crop(3)", ramp(4, 6), item);
    ASSERT_EQ(result.shape, (Shape{3, 3, 1}));
    const float corner = result.pixels[0];
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 3; ++x) EXPECT_EQ(result.pixels[static_cast<size_t>(3 * y + x)], corner + 16.0f * y + x);
    corners.insert(corner);
  }
  EXPECT_EQ(corners, (std::set<float>{0, 1, 2, 3, 16, 17, 18, 19}));
  EXPECT_ERROR(run("random_crop(5)", ramp(4, 6)), "random_crop(5)");
}

TEST(InceptionCrop, BoxesHaveTheAreaAndStayInside) {
  // On a picture whose value is its column, the spread of the result tells the width of the box.
  Image columns;
  columns.reshape(100, 200, 1);
  for (int y = 0; y < 100; ++y)
    for (int x = 0; x < 200; ++x) columns.row(y)[x] = static_cast<uint8_t>(x);
  double least = 1000, most = 0;
  for (uint64_t item = 0; item < 1000; ++item) {
    const Pipeline::Result result = run("inception_crop(32, area_min=20, area_max=40)", columns, item);
    ASSERT_EQ(result.shape, (Shape{32, 32, 1}));
    const double width = (result.pixels[31] - result.pixels[0]) * 32 / 31;
    least = std::min(least, width);
    most = std::max(most, width);
  }
  EXPECT_NEAR(least, std::sqrt(0.2 * 20000 * 0.75), 4);
  EXPECT_NEAR(most, std::sqrt(0.4 * 20000 * 1.33), 4);
  EXPECT_EQ(run("inception_crop(8)", ramp(1, 1)).shape, (Shape{8, 8, 1}));
  EXPECT_EQ(run("inception_crop(8)", ramp(1, 100)).shape, (Shape{8, 8, 1}));
}

// The mean share of the image, from a picture whose red tells the column and whose green the row: two pixels inside the result, between
// which 15 of its 32 steps lie, tell the width and height of the box.
double mean_area(int height, int width) {
  Image places;
  places.reshape(height, width, 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      places.row(y)[3 * x] = static_cast<uint8_t>(255 * x / (width - 1));
      places.row(y)[3 * x + 1] = static_cast<uint8_t>(255 * y / (height - 1));
    }
  const Pipeline crop("inception_crop(32)");
  constexpr uint64_t kCount = 1500;
  double sum = 0;
  for (uint64_t item = 0; item < kCount; ++item) {
    const Floats pixels = crop.run(places, dice(item)).pixels;
    const auto place = [&](size_t at, size_t channel) { return pixels[3 * (32 * at + at) + channel]; };
    sum += (place(23, 0) - place(8, 0)) * (place(23, 1) - place(8, 1)) / (15.0 / 32 * 255 * 15.0 / 32 * 255);
  }
  return sum / kCount;
}

// All heights are equally likely, so that the mean is far below that of areas equally likely (0.43, 0.41, 0.46). The three numbers are
// those of a simulation of TensorFlow's rule; one box's share has a deviation of about 0.25.
TEST(InceptionCrop, SmallAreasAreLikelier) {
  EXPECT_NEAR(mean_area(375, 500), 0.343, 0.02);
  EXPECT_NEAR(mean_area(500, 375), 0.328, 0.02);
  EXPECT_NEAR(mean_area(224, 224), 0.376, 0.02);
}

TEST(PadCrop, MovesTheImageAndFills) {
  const Image image{2, 3, 1, {1, 2, 3, 4, 5, 6}};
  std::set<Floats> seen;
  for (uint64_t item = 0; item < 400; ++item) {
    const Floats out = run("pad_crop(1, fill=9)", image, item).pixels;
    bool found = false;  // among the nine moves
    for (int down = -1; down <= 1; ++down)
      for (int right = -1; right <= 1; ++right) {
        Floats expected;
        for (int y = 0; y < 2; ++y)
          for (int x = 0; x < 3; ++x) {
            const int fy = y + down, fx = x + right;
            expected.push_back(fy < 0 || fy > 1 || fx < 0 || fx > 2 ? 9 : image.row(fy)[fx]);
          }
        found = found || out == expected;
      }
    EXPECT_TRUE(found);
    seen.insert(out);
  }
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_EQ(run("pad_crop(0)", ramp(3, 4, 3)).pixels, run("", ramp(3, 4, 3)).pixels);
  for (uint64_t item = 0; item < 50; ++item) {  // further than the image is large
    for (const float value : run("pad_crop(10)", image, item).pixels) EXPECT_LE(value, 6);
    EXPECT_EQ(run("pad_crop(10)", ramp(3, 4, 3), item).shape, (Shape{3, 4, 3}));
  }
}

TEST(FlipLeftRight, HalfOfTheTime) {
  const Image image = ramp(2, 3, 3);
  Floats flipped;
  for (int y = 0; y < 2; ++y)
    for (int x = 2; x >= 0; --x)
      for (int c = 0; c < 3; ++c) flipped.push_back(image.row(y)[3 * x + c]);
  int flips = 0;
  for (uint64_t item = 0; item < 1000; ++item) {
    const Floats out = run("flip_lr", image, item).pixels;
    if (out == flipped)
      ++flips;
    else
      EXPECT_EQ(out, run("", image).pixels);
    EXPECT_EQ(run("flip_lr", ramp(1, 4), item).pixels, out == flipped ? (Floats{3, 2, 1, 0}) : (Floats{0, 1, 2, 3}));
  }
  EXPECT_NEAR(flips, 500, 80);
}

TEST(Values, RangeAndStandardize) {
  const Image image{1, 3, 1, {0, 51, 255}};
  EXPECT_EQ(run("", image).pixels, (Floats{0, 51, 255}));
  EXPECT_EQ(run("value_range(-1,1)", image).pixels, (Floats{-1, -0.6f, 1}));
  EXPECT_EQ(run("value_range(0, 1)", image).pixels, (Floats{0, 0.2f, 1}));
  EXPECT_EQ(run("standardize(0.2, 0.5)", image).pixels, (Floats{-0.4f, 0, 1.6f}));
  const Floats colour = run("standardize(0.2, 0.4, 0.6, 0.1, 0.2, 0.5)", {1, 1, 3, {51, 102, 255}}).pixels;
  EXPECT_NEAR(colour[0], 0, 1e-6);
  EXPECT_NEAR(colour[1], 0, 1e-6);
  EXPECT_NEAR(colour[2], 0.8, 1e-6);
  EXPECT_ERROR(run("standardize(0.2, 0.4, 0.6, 0.1, 0.2, 0.5)", image), "3 channels", "has 1");
}

TEST(Pipeline, WrongStringsNameTheStepAndTheSteps) {
  struct Case {
    const char *text, *step, *why;
  };
  for (const Case& wrong : std::initializer_list<Case>{
           {"inception_crop(224)|flop_lr", "'flop_lr'", "no such step"},
           {"resize", "'resize'", "needs size"},
           {"resize()", "'resize()'", "needs size"},
           {"resize(2,aria)", "'resize(2,aria)'", "method 'aria' is unknown; known are antialias, bilinear, area"},
           {"resize(2,area,3)", "'resize(2,area,3)'", "at most 2"},
           {"resize(0)", "'resize(0)'", "size 0"},
           {"resize(2.5)", "'resize(2.5)'", "whole"},
           {"resize(two)", "'resize(two)'", "'two' is not a number"},
           {"resize(2", "'resize(2'", "not closed"},
           {"flip_lr(1)", "'flip_lr(1)'", "at most 0"},
           {"inception_crop(2,size=3)", "'inception_crop(2,size=3)'", "twice"},
           {"inception_crop(2,aria=3)", "'inception_crop(2,aria=3)'", "'aria'"},
           {"inception_crop(2,50,20)", "'inception_crop(2,50,20)'", "larger"},
           {"randaug(2)", "'randaug(2)'", "needs m"},
           {"value_range(-1,1)|flip_lr", "'flip_lr'", "value_range"},
           {"value_range(-1,1)|value_range(0,1)", "'value_range(0,1)'", "one of them"},
           {"standardize(1,2,3)", "'standardize(1,2,3)'", "3 numbers"},
           {"standardize(1,0)", "'standardize(1,0)'", "above 0"},
           {"flip_lr||flip_lr", "''", "no such step"},
       })
    EXPECT_ERROR(Pipeline(wrong.text), wrong.text, wrong.step, wrong.why, "resize_small(size,method=antialias)",
                 "inception_crop(size,area_min=5,area_max=100,method=antialias)", "standardize(");
}

Image apply(const char* name, Image image, double m, uint64_t item = 0) {
  Image other;
  Random random = dice(item);
  for (const RandAugOperation& operation : randaug_operations())
    if (operation.name == name) {
      operation.apply(image, other, m / 10, random);
      return image;
    }
  ADD_FAILURE() << name;
  return image;
}

using Ints = std::vector<int>;

Ints numbers(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }

TEST(RandAug, OperationsOnKnownPixels) {
  const Image image{1, 5, 1, {0, 50, 128, 200, 255}};
  const Image middle{1, 3, 1, {50, 100, 150}};
  EXPECT_EQ(apply("Invert", image, 5).pixels, (Bytes{255, 205, 127, 55, 0}));
  EXPECT_EQ(apply("AutoContrast", middle, 5).pixels, (Bytes{0, 128, 255}));
  EXPECT_EQ(apply("AutoContrast", {1, 2, 1, {7, 7}}, 5).pixels, (Bytes{7, 7}));
  EXPECT_EQ(apply("Posterize", image, 5).pixels, (Bytes{0, 0, 128, 192, 192}));   // 2 bits
  EXPECT_EQ(apply("Posterize", image, 0).pixels, (Bytes{0, 0, 128, 128, 128}));   // 1 bit
  EXPECT_EQ(apply("Solarize", image, 5).pixels, (Bytes{0, 50, 127, 55, 0}));      // from 128 on
  EXPECT_EQ(apply("Solarize", image, 9.97).pixels, (Bytes{0, 50, 128, 200, 0}));  // from 255 on
  for (const double m : {10.0, 15.0, 20.0}) EXPECT_EQ(apply("Solarize", image, m).pixels, image.pixels) << m;
  EXPECT_EQ(apply("SolarizeAdd", image, 10).pixels, (Bytes{110, 160, 128, 200, 255}));
  EXPECT_EQ(apply("Brightness", image, 5).pixels, image.pixels);             // factor 1
  EXPECT_EQ(apply("Brightness", middle, 10).pixels, (Bytes{95, 190, 255}));  // factor 1.9
  EXPECT_EQ(apply("Contrast", middle, 10).pixels, (Bytes{5, 100, 195}));
  EXPECT_EQ(apply("Contrast", middle, 5).pixels, middle.pixels);
  EXPECT_EQ(apply("Color", middle, 10).pixels, middle.pixels);  // grey has no colour
  EXPECT_EQ(apply("Color", {1, 1, 3, {100, 100, 200}}, 0).pixels, (Bytes{110, 110, 120}));
  EXPECT_EQ(apply("Color", {1, 1, 3, {100, 100, 200}}, 5).pixels, (Bytes{100, 100, 200}));
  const Image dot{3, 3, 1, {0, 0, 0, 0, 130, 0, 0, 0, 0}};
  EXPECT_EQ(apply("Sharpness", dot, 0).pixels, (Bytes{0, 0, 0, 0, 58, 0, 0, 0, 0}));  // 50 + 0.1 * 80
  EXPECT_EQ(apply("Sharpness", dot, 5).pixels, dot.pixels);
}

TEST(RandAug, EqualizeFlattensTheHistogram) {
  Image image;
  image.reshape(64, 64, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(100 + i / 3 % 10);  // ten levels, equally often
  const Image flat = apply("Equalize", image, 5);
  for (int level = 0; level < 10; ++level) EXPECT_NEAR(flat.pixels[static_cast<size_t>(3 * level)], level * 255.0 / 9, 8) << level;
  EXPECT_EQ(apply("Equalize", {1, 2, 1, {7, 9}}, 5).pixels, (Bytes{7, 9}));
}

Image same(const Image& image) { return image; }

Image transposed(const Image& image) {  // of one channel
  Image turned;
  turned.reshape(image.width, image.height, 1);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) turned.row(x)[y] = image.row(y)[x];
  return turned;
}

TEST(RandAug, GeometryOnKnownPixels) {
  const Image image = ramp(9, 9);
  for (const char* name : {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"})
    EXPECT_EQ(apply(name, image, 0).pixels, image.pixels) << name;
  std::set<Ints> turns;
  for (uint64_t item = 0; item < 20; ++item) turns.insert(numbers(apply("Rotate", image, 30, item)));  // 90 degrees either way
  Ints clockwise, back;
  for (int y = 0; y < 9; ++y)
    for (int x = 0; x < 9; ++x) {
      clockwise.push_back(image.row(8 - x)[y]);
      back.push_back(image.row(x)[8 - y]);
    }
  EXPECT_EQ(turns, (std::set<Ints>{clockwise, back}));

  // What X does to an image, Y does to the transposed one.
  for (const auto& [axis, turned] : {std::pair<std::string, Image (*)(const Image&)>{"X", same}, {"Y", transposed}}) {
    const auto outcomes = [&, turned = turned](const std::string& name, const Image& image, double m) {
      std::set<Ints> seen;
      for (uint64_t item = 0; item < 20; ++item) seen.insert(numbers(turned(apply(name.c_str(), turned(image), m, item))));
      return seen;
    };
    EXPECT_EQ(outcomes("Translate" + axis, {1, 3, 1, {1, 2, 3}}, 22.4), (std::set<Ints>{{2, 3, 128}, {128, 1, 2}}));  // one pixel of side 1
    EXPECT_EQ(outcomes("Shear" + axis, {3, 3, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9}}, 30),
              (std::set<Ints>{{2, 3, 128, 4, 5, 6, 128, 7, 8}, {128, 1, 2, 4, 5, 6, 8, 9, 128}}));
  }
}

TEST(RandAug, CutoutIsASquareOfGrey) {
  size_t most = 0;
  for (uint64_t item = 0; item < 60; ++item) {
    const Image cut = apply("Cutout", {56, 56, 1, Bytes(56 * 56, 7)}, 10, item);  // 10 pixels each way
    const auto grey = static_cast<size_t>(std::count(cut.pixels.begin(), cut.pixels.end(), 128));
    EXPECT_EQ(grey + static_cast<size_t>(std::count(cut.pixels.begin(), cut.pixels.end(), 7)), cut.pixels.size());
    EXPECT_GE(grey, 100u);
    most = std::max(most, grey);
  }
  EXPECT_EQ(most, 400u);
}

TEST(RandAug, AllOperationsKeepTheShapeOfAnyImage) {
  EXPECT_EQ(randaug_operations().size(), 16u);
  for (const int channels : {1, 3})
    for (const auto& [height, width] : {std::pair{1, 1}, {2, 5}, {28, 28}})
      for (const RandAugOperation& operation : randaug_operations())
        for (const double m : {0.0, 5.0, 15.0, 30.0}) {
          Image image{height, width, channels, pattern(Shape{height, width, channels}.count())}, other;
          Random random = dice(5);
          operation.apply(image, other, m / 10, random);
          EXPECT_EQ(image.shape(), (Shape{height, width, channels})) << operation.name;
          EXPECT_EQ(image.pixels.size(), image.shape().count()) << operation.name;
        }
  std::set<Floats> seen;
  for (uint64_t item = 0; item < 64; ++item) seen.insert(run("randaug(2,15)", ramp(12, 12, 3), item).pixels);
  EXPECT_GT(seen.size(), 40u);
}

TEST(Random, DistributionsAndStreams) {
  Random a(1, Purpose::augment, 2, 3), b(1, Purpose::augment, 2, 3), c(1, Purpose::mixup, 2, 3), d(2, Purpose::augment, 2, 3);
  const uint32_t value = a.bits();
  EXPECT_EQ(value, b.bits());
  EXPECT_NE(value, c.bits());
  EXPECT_NE(value, d.bits());
  std::array<int, 5> counts{};
  for (int i = 0; i < 10000; ++i) ++counts[a.below(5)];
  for (const int count : counts) EXPECT_NEAR(count, 2000, 200);
  for (const double p : {0.001, 0.2, 0.5, 1.0, 8.0}) {  // mean 1/2, variance 1 / (4 (2p + 1))
    double sum = 0, squares = 0;
    constexpr int kCount = 20000;
    for (int i = 0; i < kCount; ++i) {
      const double x = a.beta(p);
      ASSERT_TRUE(x >= 0 && x <= 1) << p;
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
    }
    EXPECT_NEAR(sum / kCount, 0.5, 0.02) << p;
    EXPECT_NEAR(squares / kCount * 4 * (2 * p + 1), 1, 0.05) << p;
  }
}

}  // namespace
}  // namespace hinge::data
