// Batches are the same for any number of threads and after a resume; epochs are permutations; mixup; errors.
#include "data/loader.h"

#include <fmt/format.h>

#include <set>

#include "data/codec.h"
#include "data/error.h"
#include "data/source.h"
#include "writers.h"

namespace hinge::data {
namespace {

std::shared_ptr<const ImageSet> made_up(int64_t count, int channels = 3) {
  return make_synthetic({.shape = {12, 10, channels}, .classes = 4, .count = count});
}

constexpr const char* kAugment = "inception_crop(8)|flip_lr|randaug(2,15)|value_range(-1,1)";

std::vector<Batch> batches(const std::shared_ptr<const ImageSet>& set, const char* pipeline, const LoaderOptions& options,
                           int most = 1000) {
  Loader loader(set, Pipeline(pipeline), options);
  std::vector<Batch> list;
  for (Batch batch; static_cast<int>(list.size()) < most && loader.next(batch);) list.push_back(batch);
  return list;
}

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.part, b.part);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.pixels, b.pixels);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.indices, b.indices);
  EXPECT_EQ(a.other_labels, b.other_labels);
  EXPECT_EQ(a.lambda, b.lambda);
}

TEST(Loader, SameBatchesForAnyNumberOfThreads) {
  const auto set = made_up(50);
  LoaderOptions options{.batch_size = 7, .seed = 9, .threads = 1, .mixup = 0.4};
  const std::vector<Batch> one = batches(set, kAugment, options, 25);
  ASSERT_EQ(one.size(), 25u);
  for (const int threads : {2, 5}) {
    options.threads = threads;
    const std::vector<Batch> several = batches(set, kAugment, options, 25);
    ASSERT_EQ(several.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) expect_same(one[i], several[i]);
  }
}

TEST(Loader, ResumesAtAnyStep) {
  const auto set = made_up(23);
  for (const bool drop_last : {false, true}) {
    LoaderOptions options{.batch_size = 5, .seed = 4, .threads = 2, .mixup = 0.2, .drop_last = drop_last};
    const std::vector<Batch> whole = batches(set, kAugment, options, 20);
    for (const int64_t first : {1, 4, 5, 13}) {
      options.first_step = first;
      const std::vector<Batch> rest = batches(set, kAugment, options, 3);
      for (size_t i = 0; i < rest.size(); ++i) expect_same(whole[static_cast<size_t>(first) + i], rest[i]);
    }
  }
}

TEST(Loader, SeedsAndEpochsDiffer) {
  const auto set = made_up(20);
  const std::vector<Batch> a = batches(set, kAugment, {.batch_size = 20, .seed = 1}, 2),
                           b = batches(set, kAugment, {.batch_size = 20, .seed = 2}, 1);
  EXPECT_NE(a[0].indices, a[1].indices);
  EXPECT_NE(a[0].indices, b[0].indices);
  // In order, but augmented anew in each epoch.
  const std::vector<Batch> ordered = batches(set, kAugment, {.batch_size = 20, .shuffle = false}, 2);
  EXPECT_EQ(ordered[0].indices, ordered[1].indices);
  EXPECT_NE(ordered[0].pixels, ordered[1].pixels);
}

TEST(Loader, EveryEpochIsAPermutation) {
  const auto set = made_up(20, 1);
  std::vector<int64_t> stream;
  for (const Batch& batch : batches(set, "", {.batch_size = 7}, 20))
    stream.insert(stream.end(), batch.indices.begin(), batch.indices.end());
  ASSERT_EQ(stream.size(), 140u);
  for (size_t epoch = 0; epoch < 7; ++epoch) {
    const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(20 * epoch);
    EXPECT_EQ(std::set<int64_t>(begin, begin + 20).size(), 20u);
  }
  for (const Batch& batch : batches(set, "", {.batch_size = 7, .drop_last = true}, 10))
    EXPECT_EQ(std::set<int64_t>(batch.indices.begin(), batch.indices.end()).size(), 7u);
  const Loader stays(set, Pipeline(""), {.batch_size = 7, .drop_last = true});
  EXPECT_EQ(stays.steps_per_epoch(), 2);
}

TEST(Loader, BatchLargerThanTheSet) {
  const std::vector<Batch> list = batches(made_up(3), "", {.batch_size = 8}, 2);
  EXPECT_EQ(list[1].size, 8);
  EXPECT_ERROR(Loader(made_up(3), Pipeline(""), {.batch_size = 8, .drop_last = true}), "3 images", "batch of 8");
}

TEST(Loader, OnePassInOrderWithAShortEnd) {
  const auto set = made_up(10);
  LoaderOptions options{.batch_size = 4, .threads = 3, .shuffle = false, .endless = false};
  const std::vector<Batch> list = batches(set, "resize(5)|value_range(-1,1)", options);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2].size, 2);
  EXPECT_EQ(list[2].indices, (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(list[2].labels, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(list[2].shape, (Shape{5, 5, 3}));
  ASSERT_EQ(list[2].pixels.size(), 2u * 75);
  const Pipeline::Result last = Pipeline("resize(5)|value_range(-1,1)").run(set->load(9), Random(0, Purpose::augment, 0, 9));
  EXPECT_EQ(std::vector<float>(list[2].pixels.begin() + 75, list[2].pixels.end()), last.pixels);
  options.drop_last = true;
  EXPECT_EQ(batches(set, "", options).size(), 2u);

  Loader loader(set, Pipeline(""), {.batch_size = 10, .shuffle = false, .endless = false});
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
}

TEST(Loader, MixupBlendsWithTheNeighbour) {
  const auto set = made_up(12);
  const LoaderOptions plain{.batch_size = 6, .seed = 5};
  LoaderOptions mixed = plain;
  mixed.mixup = 0.5;
  const std::vector<Batch> a = batches(set, "value_range(-1,1)", plain, 40), b = batches(set, "value_range(-1,1)", mixed, 40);
  std::set<float> lambdas;
  const size_t count = a[0].shape.count();
  for (size_t s = 0; s < a.size(); ++s) {
    EXPECT_TRUE(a[s].other_labels.empty());
    EXPECT_EQ(a[s].lambda, 1);
    EXPECT_EQ(a[s].labels, b[s].labels);
    ASSERT_EQ(b[s].other_labels.size(), 6u);
    const float lambda = b[s].lambda;
    EXPECT_GE(lambda, 0.5f);
    EXPECT_LE(lambda, 1.0f);
    lambdas.insert(lambda);
    for (size_t i = 0; i < 6; ++i) {
      const size_t other = (i + 5) % 6;
      EXPECT_EQ(b[s].other_labels[i], a[s].labels[other]);
      for (size_t k = 0; k < count; k += 11)
        ASSERT_NEAR(b[s].pixels[i * count + k], lambda * a[s].pixels[i * count + k] + (1 - lambda) * a[s].pixels[other * count + k], 1e-6);
    }
  }
  EXPECT_GT(lambdas.size(), 30u);
}

TEST(Loader, BatchesOfOneStepAreMixedWithOneWeight) {
  const LoaderOptions options{.batch_size = 12, .seed = 5, .mixup = 0.5, .parts = 4, .first_step = 1};
  std::set<float> lambdas;
  for (const Batch& batch : batches(made_up(12), "value_range(-1,1)", options, 8)) {
    const bool is_new = lambdas.insert(batch.lambda).second;
    EXPECT_EQ(is_new, batch.part == 0);
  }
  EXPECT_EQ(lambdas.size(), 2u);
}

// The parts of a step are its images in their order, whoever takes them; an epoch ends within steps.
TEST(Loader, ReadersShareTheStepsOfOne) {
  const auto set = made_up(50);
  LoaderOptions options{.batch_size = 22, .seed = 9, .threads = 2};
  const std::vector<Batch> whole = batches(set, kAugment, options, 6);
  options.parts = 4;
  const std::vector<Batch> parts = batches(set, kAugment, options, 6 * 4);
  for (size_t step = 0; step < 6; ++step) {
    std::vector<int64_t> indices;
    std::vector<float> pixels;
    for (size_t part = 0; part < 4; ++part) {
      const Batch& batch = parts[4 * step + part];
      EXPECT_EQ(batch.step, static_cast<int64_t>(step));
      EXPECT_EQ(batch.part, static_cast<int64_t>(part));
      EXPECT_NEAR(static_cast<double>(batch.size), 5.5, 0.5);
      indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
      pixels.insert(pixels.end(), batch.pixels.begin(), batch.pixels.end());
    }
    EXPECT_EQ(indices, whole[step].indices);
    EXPECT_EQ(pixels, whole[step].pixels);
  }
  options.mixup = 0.3;
  const std::vector<Batch> mixed = batches(set, kAugment, options, 6 * 4);
  for (const int64_t readers : {2, 4}) {
    options.readers = readers;
    Loader loader(set, Pipeline(kAugment), options);
    // One reader far ahead of the others.
    for (int64_t reader = 0; reader < readers; ++reader)
      for (int64_t i = 0; i < 6 * 4 / readers; ++i) {
        Batch batch;
        ASSERT_TRUE(loader.next(batch, reader));
        EXPECT_EQ(batch.part / (4 / readers), reader);
        expect_same(batch, mixed[static_cast<size_t>(4 * batch.step + batch.part)]);
      }
  }
}

class BadFiles : public testing::Test {
 protected:
  BadFiles() {
    for (int i = 0; i < 10; ++i)
      folder_.write(fmt::format("c/{}.png", i),
                    i == 3 || i == 4 || i == 9 ? Bytes{0x89, 'P', 'N', 'G'} : encode_png({4, 4, 3, Bytes(48, static_cast<uint8_t>(i))}));
    set_ = open_folder(folder_.path());
  }

  TemporaryFolder folder_;
  std::shared_ptr<const ImageSet> set_;
};

TEST_F(BadFiles, StopWithTheName) {
  for (const int threads : {1, 4}) {
    Loader loader(set_, Pipeline(""), {.batch_size = 2, .threads = threads, .shuffle = false});
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_ERROR(loader.next(batch), "c/3.png: ", "PNG");
    EXPECT_ERROR(loader.next(batch), "c/3.png: ");
  }
  for (int i = 0; i < 50; ++i) {  // of three in one batch the first, whichever thread is faster
    Loader loader(set_, Pipeline(""), {.batch_size = 10, .threads = 4, .shuffle = false});
    Batch batch;
    EXPECT_ERROR(loader.next(batch), "c/3.png: ");
  }
}

TEST_F(BadFiles, AreReplacedByTheNextInAStream) {
  for (const int threads : {1, 4}) {
    Loader loader(set_, Pipeline(""), {.batch_size = 10, .threads = threads, .shuffle = false, .on_error = OnError::skip});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.indices, (std::vector<int64_t>{0, 1, 2, 5, 5, 5, 6, 7, 8, 0}));
    EXPECT_EQ(batch.pixels[3 * 48], 5);
    ASSERT_TRUE(loader.next(batch));
    ASSERT_EQ(loader.skipped().size(), 3u);
    EXPECT_TRUE(loader.skipped()[2].ends_with("c/9.png"));
  }
}

TEST_F(BadFiles, AreLeftOutOfASinglePass) {
  const std::vector<Batch> list =
      batches(set_, "", {.batch_size = 1, .threads = 3, .shuffle = false, .endless = false, .on_error = OnError::skip});
  ASSERT_EQ(list.size(), 7u);
  EXPECT_EQ(list[3].indices, (std::vector<int64_t>{5}));
  const std::vector<Batch> large =
      batches(set_, "", {.batch_size = 6, .threads = 3, .shuffle = false, .endless = false, .on_error = OnError::skip});
  ASSERT_EQ(large.size(), 2u);
  EXPECT_EQ(large[0].indices, (std::vector<int64_t>{0, 1, 2, 5}));
  EXPECT_EQ(large[0].size, 4);
  EXPECT_EQ(large[0].pixels.size(), 4u * 48);
  EXPECT_EQ(large[0].pixels[3 * 48], 5);
  EXPECT_EQ(large[1].indices, (std::vector<int64_t>{6, 7, 8}));
}

TEST(Loader, AnImageTooLongToBeResizedIsABadFile) {
  const TemporaryFolder folder;
  folder.write("c/1.png", encode_png({6, 6, 3, Bytes(108)}));
  folder.write("c/2.png", encode_png({60000, 1, 3, Bytes(180000)}));
  folder.write("c/3.png", encode_png({6, 6, 3, Bytes(108, 3)}));
  const std::shared_ptr<const ImageSet> set = open_folder(folder.path());
  const Pipeline pipeline("resize_small(256)|central_crop(2)");
  Loader stops(set, pipeline, {.batch_size = 3, .shuffle = false});
  Batch batch;
  EXPECT_THROW(stops.next(batch), DataError);
  EXPECT_ERROR(stops.next(batch), "c/2.png: ", "60000x1");
  for (const bool endless : {true, false}) {
    Loader skips(set, pipeline, {.batch_size = 3, .shuffle = false, .endless = endless, .on_error = OnError::skip});
    ASSERT_TRUE(skips.next(batch));
    EXPECT_EQ(batch.indices, (endless ? std::vector<int64_t>{0, 2, 2} : std::vector<int64_t>{0, 2}));
    ASSERT_EQ(skips.skipped().size(), 1u);
    EXPECT_TRUE(skips.skipped()[0].ends_with("c/2.png"));
  }
}

TEST(Loader, NoReadableImageIsAnError) {
  const TemporaryFolder folder;
  folder.write("c/1.png", Bytes{});
  const std::shared_ptr<const ImageSet> set = open_folder(folder.path());
  EXPECT_ERROR(Loader(set, Pipeline(""), {}), "c/1.png: is empty");
  for (const bool endless : {true, false})
    EXPECT_ERROR(Loader(set, Pipeline(""), {.endless = endless, .on_error = OnError::skip}), "none of the 1 images", "c/1.png");
}

TEST(Loader, ImagesOfDifferentSizesAreAnErrorWithTheName) {
  const TemporaryFolder folder;
  folder.write("c/1.png", encode_png({4, 4, 3, Bytes(48)}));
  folder.write("c/2.png", encode_png({5, 4, 3, Bytes(60)}));
  const std::shared_ptr<const ImageSet> set = open_folder(folder.path());
  Loader loader(set, Pipeline(""), {.batch_size = 2});
  Batch batch;
  EXPECT_ERROR(loader.next(batch), "c/2.png", "5x4", "resize");
  Loader small(set, Pipeline("resize_small(3)|central_crop(3)"), {.batch_size = 2});
  EXPECT_TRUE(small.next(batch));
  EXPECT_ERROR(Loader(set, Pipeline("central_crop(5)"), {}), "c/1.png", "central_crop(5)");
}

TEST(Loader, OptionsAreChecked) {
  EXPECT_ERROR(Loader(made_up(3), Pipeline(""), {.batch_size = 0}), "batch size 0");
  EXPECT_ERROR(Loader(made_up(3), Pipeline(""), {.threads = 0}), "0 threads");
  EXPECT_ERROR(Loader(made_up(3), Pipeline(""), {.mixup = -1}), "mixup -1");
}

TEST(Loader, StopsInTheMiddleAndCountsWaiting) {
  const auto set = made_up(100);
  for (int i = 0; i < 20; ++i) {
    Loader loader(set, Pipeline(kAugment), {.batch_size = 16, .threads = 3});
    Batch batch;
    for (int k = 0; k < i % 4; ++k) loader.next(batch);
    EXPECT_GE(loader.waited_seconds(), 0);
    if (i == 0) {
      EXPECT_EQ(loader.waited_seconds(), 0);
    }
  }
  Loader loader(set, Pipeline(kAugment), {.batch_size = 100, .shuffle = false, .endless = false});
  Batch batch;
  loader.next(batch);  // all of the work lies before the first batch
  EXPECT_GT(loader.waited_seconds(), 0);
}

}  // namespace
}  // namespace hinge::data
