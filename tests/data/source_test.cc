// Every format written by the test and read back; splits; label maps; damaged and missing files.
#include "data/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "data/check.h"
#include "data/codec.h"
#include "data/formats.h"
#include "writers.h"

namespace hinge::data {
namespace {

const Bytes kImages = pattern(5 * 3 * 4);
const Bytes kLabels = {3, 0, 9, 1, 3};

void write_mnist(const TemporaryFolder& folder, bool gz) {
  const auto put = [&](const std::string& name, const Bytes& bytes) {
    folder.write(name + (gz ? ".gz" : ""), gz ? gzipped(bytes) : bytes);
  };
  put("train-images-idx3-ubyte", idx_file({5, 3, 4}, kImages));
  put("train-labels-idx1-ubyte", idx_file({5}, kLabels));
  put("t10k-images-idx3-ubyte", idx_file({1, 3, 4}, pattern(12, 7)));
  put("t10k-labels-idx1-ubyte", idx_file({1}, {8}));
}

TEST(Idx, ReadsPlainAndGzipped) {
  for (const bool gz : {false, true})
    for (const char* format : {"mnist", "fashion-mnist", "kmnist"}) {
      const TemporaryFolder folder;
      write_mnist(folder, gz);
      const auto train = open_images({.format = format, .path = folder.path()});
      ASSERT_EQ(train->size(), 5);
      EXPECT_EQ(train->classes().size(), 10u);
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(train->label(i), kLabels[static_cast<size_t>(i)]);
        const Image image = train->load(i);
        EXPECT_EQ(image.shape(), (Shape{3, 4, 1}));
        EXPECT_EQ(image.pixels, Bytes(kImages.begin() + i * 12, kImages.begin() + i * 12 + 12));
      }
      EXPECT_TRUE(train->name(2).ends_with(gz ? "train-images-idx3-ubyte.gz #2" : "train-images-idx3-ubyte #2")) << train->name(2);
      const auto test = open_images({.format = format, .path = folder.path(), .split = "test"});
      ASSERT_EQ(test->size(), 1);
      EXPECT_EQ(test->label(0), 8);
      EXPECT_EQ(test->load(0).pixels, pattern(12, 7));
    }
}

TEST(Idx, ColourAndFreeClasses) {
  const TemporaryFolder folder;
  folder.write("test-images-idx4-ubyte", idx_file({2, 1, 2, 3}, pattern(12)));
  folder.write("test-labels-idx1-ubyte", idx_file({2}, {1, 4}));
  const auto set = open_images({.format = "idx", .path = folder.path(), .split = "test"});
  EXPECT_EQ(set->classes(), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(set->load(1).shape(), (Shape{1, 2, 3}));
}

TEST(Idx, SplitsAreThoseWithFiles) {
  const TemporaryFolder folder;
  const DataSource source{.format = "idx", .path = folder.path()};
  EXPECT_EQ(splits(source), (std::vector<std::string>{"train", "test"}));  // opening them says which files are missing
  folder.write("val-images-idx4-ubyte", "");
  folder.write("extra-images.idx3-ubyte.gz", "");
  folder.write("other-labels-idx1-ubyte", "");
  folder.write("-images-idx3-ubyte", "");
  EXPECT_EQ(splits(source), (std::vector<std::string>{"extra", "val"}));
  write_mnist(folder, true);
  EXPECT_EQ(splits(source), (std::vector<std::string>{"extra", "test", "train", "val"}));
  EXPECT_EQ(splits({.format = "mnist", .path = folder.path()}), (std::vector<std::string>{"train", "test"}));
}

TEST(Source, LiesWithinAFolder) {
  const TemporaryFolder folder;
  folder.write("in/set/cat/a.png", "");
  folder.write("out/cat/a.png", "");
  folder.write("in/map.txt", "");
  const auto within = [&](const std::string& path, const std::string& map = "") {
    return lies_within({.format = "folder", .path = path, .label_map = map}, folder.path("in"));
  };
  EXPECT_TRUE(within(folder.path("in/set")));
  EXPECT_TRUE(within(folder.path("in/set/../set"), folder.path("in/map.txt")));
  EXPECT_FALSE(within(folder.path("out")));
  EXPECT_FALSE(within(folder.path("in/../out")));
  EXPECT_FALSE(within(folder.path("in/none")));
  EXPECT_FALSE(within(folder.path("in/set"), "/etc/hosts"));
  EXPECT_FALSE(lies_within({.format = "folder", .path = folder.path("in/set")}, folder.path("in/s")));  // there is none
  folder.write("in/s/x", "");
  EXPECT_FALSE(lies_within({.format = "folder", .path = folder.path("in/set")}, folder.path("in/s")));
  EXPECT_TRUE(lies_within({.format = "synthetic"}, folder.path("in")));
  EXPECT_FALSE(lies_within({.format = "fashion-mnist"}, folder.path("in")));
  std::filesystem::create_symlink(folder.path("out"), folder.path("in/link"));
  EXPECT_FALSE(within(folder.path("in/link")));
  std::filesystem::create_symlink("/etc/hosts", folder.path("in/set/cat/b.png"));
  EXPECT_FALSE(within(folder.path("in/set")));
}

TEST(Idx, DamageIsNamed) {
  const TemporaryFolder folder;
  const auto open = [&] { return open_images({.format = "mnist", .path = folder.path()}); };
  EXPECT_ERROR(open(), "has none of the files train-images-idx3-ubyte");
  folder.write("train-labels-idx1-ubyte", idx_file({5}, kLabels));
  const Bytes images = idx_file({5, 3, 4}, kImages);
  const auto images_are = [&](const Bytes& bytes) { folder.write("train-images-idx3-ubyte", bytes); };

  images_are({});
  EXPECT_ERROR(open(), "train-images-idx3-ubyte: is empty");
  images_are(first(images, images.size() - 1));
  EXPECT_ERROR(open(), "train-images-idx3-ubyte: is cut short", "60", "59");
  images_are(first(images, 9));
  EXPECT_ERROR(open(), "train-images-idx3-ubyte: is cut short");
  images_are({1, 2, 3, 4, 5});
  EXPECT_ERROR(open(), "train-images-idx3-ubyte: is not an IDX file");
  images_are(idx_file({0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, kImages));
  EXPECT_ERROR(open(), "train-images-idx3-ubyte: is cut short");
  images_are(idx_file({6, 3, 4}, pattern(72)));
  EXPECT_ERROR(open(), "train-labels-idx1-ubyte: has 5 labels for the 6 images");
  images_are(images);
  folder.write("train-labels-idx1-ubyte", idx_file({5}, {0, 1, 2, 10, 3}));
  EXPECT_ERROR(open(), "train-labels-idx1-ubyte #3: label 10");

  std::filesystem::remove(folder.path("train-images-idx3-ubyte"));
  Bytes gz = gzipped(idx_file({5, 100, 100}, pattern(50000)));
  folder.write("train-images-idx3-ubyte.gz", first(gz, gz.size() / 2));
  EXPECT_ERROR(open(), "train-images-idx3-ubyte.gz: is cut short");
  folder.write("train-images-idx3-ubyte.gz", first(gz, gz.size() - 3));
  EXPECT_ERROR(open(), "train-images-idx3-ubyte.gz: is cut short");
  gz[gz.size() - 6] ^= 0xFF;  // in the check sum
  folder.write("train-images-idx3-ubyte.gz", gz);
  EXPECT_ERROR(open(), "train-images-idx3-ubyte.gz: is corrupt");
}

// A record of planes 1, 2, 3 with a mark at row 0, column 1 of the green plane.
Bytes cifar_record(std::initializer_list<uint8_t> labels) {
  Bytes bytes = labels;
  for (const uint8_t value : {1, 2, 3}) bytes.insert(bytes.end(), 1024, value);
  bytes[labels.size() + 1024 + 1] = 77;
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Cifar, ReadsBoth) {
  const TemporaryFolder folder;
  for (int batch = 1; batch <= 5; ++batch)
    folder.write(fmt::format("cifar-10-batches-bin/data_batch_{}.bin", batch),
                 cifar_record({static_cast<uint8_t>(batch)}) + cifar_record({9}));
  folder.write("cifar-10-batches-bin/test_batch.bin", cifar_record({0}));
  folder.write("cifar-10-batches-bin/batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  const auto ten = open_images({.format = "cifar10", .path = folder.path()});  // the folder above the archive's own
  ASSERT_EQ(ten->size(), 10);
  EXPECT_EQ(ten->label(4), 3);
  EXPECT_EQ(ten->label(5), 9);
  EXPECT_EQ(ten->classes()[9], "truck");
  EXPECT_TRUE(ten->name(5).ends_with("data_batch_3.bin #1")) << ten->name(5);
  const Image image = ten->load(4);
  EXPECT_EQ(image.shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(first(image.pixels, 9), (Bytes{1, 2, 3, 1, 77, 3, 1, 2, 3}));
  EXPECT_EQ(open_images({.format = "cifar10", .path = folder.path(), .split = "test"})->size(), 1);

  const TemporaryFolder other;
  other.write("train.bin", cifar_record({19, 99}) + cifar_record({0, 42}));
  const auto hundred = open_images({.format = "cifar100", .path = other.path()});
  EXPECT_EQ(hundred->label(0), 99);
  EXPECT_EQ(hundred->label(1), 42);
  EXPECT_EQ(hundred->classes().size(), 100u);
}

TEST(Cifar, DamageIsNamed) {
  const TemporaryFolder folder;
  const auto open = [&](const char* split) { return open_images({.format = "cifar10", .path = folder.path(), .split = split}); };
  folder.write("test_batch.bin", first(cifar_record({1}), 3000));
  EXPECT_ERROR(open("test"), "test_batch.bin: is cut short", "3073");
  folder.write("test_batch.bin", cifar_record({10}));
  EXPECT_ERROR(open("test"), "test_batch.bin #0: label 10");
  EXPECT_ERROR(open("train"), "data_batch_1.bin: cannot be read");
  EXPECT_ERROR(open("val"), "no split 'val'", "train", "test");
}

Bytes flat_png(uint8_t value, int size = 4) { return encode_png({size, size, 3, Bytes(static_cast<size_t>(size * size * 3), value)}); }

TEST(Folder, ClassesAreSortedFolders) {
  const TemporaryFolder folder;
  folder.write("train/zebra/1.png", flat_png(1));
  folder.write("train/ant/b.PNG", flat_png(3));
  folder.write("train/ant/a.jpeg", flat_png(2));  // a PNG under a wrong name
  folder.write("train/ant/notes.txt", "no image");
  folder.write("train/ant/.hidden.png", "no image");
  folder.write("train/ant/deep/c.jpg", jpeg_file(4, 4, 3, Bytes(48, 90)));
  folder.write("val/ant/1.png", flat_png(9));
  const auto set = open_images({.format = "folder", .path = folder.path()});
  EXPECT_EQ(set->classes(), (std::vector<std::string>{"ant", "zebra"}));
  ASSERT_EQ(set->size(), 4);
  EXPECT_TRUE(set->name(0).ends_with("ant/a.jpeg"));
  EXPECT_TRUE(set->name(2).ends_with("ant/deep/c.jpg"));
  EXPECT_EQ(set->label(0), 0);
  EXPECT_EQ(set->label(3), 1);
  EXPECT_EQ(set->load(0).pixels[0], 2);
  EXPECT_EQ(set->load(1).pixels[0], 3);
  EXPECT_EQ(splits({.format = "folder", .path = folder.path()}), (std::vector<std::string>{"train", "val"}));
  EXPECT_EQ(splits({.format = "folder", .path = folder.path("train")}), (std::vector<std::string>{"all"}));
  EXPECT_EQ(open_images({.format = "folder", .path = folder.path("train"), .split = "all"})->size(), 4);
}

TEST(Folder, ProblemsAreNamed) {
  const TemporaryFolder folder;
  const auto open = [&](const char* split) { return open_images({.format = "folder", .path = folder.path(), .split = split}); };
  EXPECT_ERROR(open("train"), "has no folder 'train'", "all");
  EXPECT_ERROR(open("all"), "holds no folders");
  folder.write("cat/readme.txt", "x");
  EXPECT_ERROR(open("all"), "1 class folders, but no .jpg");
  folder.write("cat/empty.jpg", Bytes{});
  EXPECT_ERROR(open("all")->load(0), "cat/empty.jpg: is empty");
}

TEST(Folder, APartIsASampleOfAllClasses) {
  const TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) folder.write(fmt::format("train/{}/{}.png", i < 50 ? "a" : "b", i), Bytes{1});
  const auto names = [&](const char* split) {
    const auto set = open_images({.format = "folder", .path = folder.path(), .split = split});
    std::set<std::string> names;
    std::array<int, 2> counts{};
    for (int64_t i = 0; i < set->size(); ++i) {
      names.insert(set->name(i));
      ++counts[static_cast<size_t>(set->label(i))];
    }
    EXPECT_GT(counts[0], 5) << split;
    EXPECT_GT(counts[1], 5) << split;
    return names;
  };
  const std::set<std::string> low = names("train[:60%]"), high = names("train[60%:]");
  EXPECT_EQ(low.size(), 60u);
  EXPECT_EQ(high.size(), 40u);
  for (const std::string& name : high) EXPECT_FALSE(low.contains(name));
  EXPECT_EQ(low, names("train[:60%]"));
}

TEST(Split, Ranges) {
  using Range = std::pair<int64_t, int64_t>;
  const auto range = [](const char* text, int64_t size) { return parse_split(text).range(size); };
  EXPECT_EQ(range("train", 10), Range(0, 10));
  EXPECT_EQ(range("train[:90%]", 60000), Range(0, 54000));
  EXPECT_EQ(range("train[90%:]", 60000), Range(54000, 60000));
  EXPECT_EQ(range("train[10%:20%]", 60000), Range(6000, 12000));
  EXPECT_EQ(range("train[:1000]", 60000), Range(0, 1000));
  EXPECT_EQ(range("train[-1000:]", 60000), Range(59000, 60000));
  EXPECT_EQ(range("train[-10%:]", 1000), Range(900, 1000));
  EXPECT_EQ(range("train[:99%]", 1281167), Range(0, 1268355));
  EXPECT_EQ(range("train[99%:]", 1281167), Range(1268355, 1281167));
  EXPECT_EQ(parse_split("val[5:7]").name, "val");
  for (const char* wrong : {"", "[:5]", "train[", "train[5]", "train[:5", "train[a:]", "train[:101%]", "train[:5]x", "train[1:2:3]"})
    EXPECT_ERROR(parse_split(wrong), "is not understood", "train[:90%]");
  for (const char* none : {"train[:0]", "train[5:5]", "train[7:3]", "train[:11]", "train[-11:]", "train[:1%]"})
    EXPECT_ERROR(range(none, 10), none, "of 10");
}

TEST(Split, TakesAPartInOrder) {
  const TemporaryFolder folder;
  write_mnist(folder, false);
  const auto part = open_images({.format = "mnist", .path = folder.path(), .split = "train[1:3]"});
  ASSERT_EQ(part->size(), 2);
  EXPECT_EQ(part->label(1), 9);
  EXPECT_TRUE(part->name(1).ends_with("#2"));
  EXPECT_EQ(part->load(1).pixels, Bytes(kImages.begin() + 24, kImages.begin() + 36));
}

TEST(LabelMap, NamesAndNumbers) {
  const TemporaryFolder folder;
  for (const char* name : {"all/n01/1.png", "all/n02/1.png", "all/n03/1.png", "all/n03/2.png"}) folder.write(name, flat_png(1));
  const auto open = [&](const std::string& map) {
    return open_images({.format = "folder", .path = folder.path("all"), .split = "all", .label_map = folder.write("map.tsv", map)});
  };
  const auto named = open("# comment\nn01\tdog\r\nn03\tcat\n\nn99\tcow\n");
  EXPECT_EQ(named->classes(), (std::vector<std::string>{"cat", "cow", "dog"}));
  ASSERT_EQ(named->size(), 3);  // n02 has no line
  EXPECT_EQ(named->label(0), 2);
  EXPECT_EQ(named->label(1), 0);
  EXPECT_TRUE(named->name(2).ends_with("n03/2.png"));
  const auto numbered = open("n02\t7\nn03\t2\n");
  EXPECT_EQ(numbered->classes().size(), 8u);
  EXPECT_EQ(numbered->label(0), 7);
  EXPECT_EQ(numbered->label(1), 2);
  EXPECT_ERROR(open("n01\tdog\nn02 cat\n"), "map.tsv:2", "'n02 cat'", "tab");
  EXPECT_ERROR(open("n01\tdog\nn01\tcat\n"), "map.tsv:2", "second time");
  EXPECT_ERROR(open("m01\tdog\n"), "map.tsv", "none of the set's classes", "n01");
}

TEST(Synthetic, IsDeterministicAndItsClassesCanBeSeen) {
  for (const int channels : {1, 3}) {
    const DataSource source{.format = "synthetic", .synthetic = {.shape = {24, 20, channels}, .classes = 7, .count = 140, .seed = 3}};
    DataSource test_source = source;
    test_source.split = "test";
    const auto train = open_images(source), again = open_images(source), test = open_images(test_source);
    EXPECT_EQ(train->classes().size(), 7u);
    EXPECT_EQ(train->load(11).pixels, again->load(11).pixels);
    EXPECT_NE(train->load(11).pixels, train->load(18).pixels);  // same class, another image
    EXPECT_NE(train->load(11).pixels, test->load(11).pixels);

    // Nearest class mean.
    const size_t count = train->load(0).pixels.size();
    std::vector<std::vector<double>> means(7, std::vector<double>(count));
    for (int64_t i = 0; i < train->size(); ++i) {
      const Image image = train->load(i);
      for (size_t k = 0; k < count; ++k) means[static_cast<size_t>(train->label(i))][k] += image.pixels[k] / 20.0;
    }
    int right = 0;
    for (int64_t i = 0; i < test->size(); ++i) {
      const Image image = test->load(i);
      std::vector<double> distances(7);
      for (size_t c = 0; c < 7; ++c)
        for (size_t k = 0; k < count; ++k) distances[c] += (image.pixels[k] - means[c][k]) * (image.pixels[k] - means[c][k]);
      right += std::min_element(distances.begin(), distances.end()) - distances.begin() == test->label(i);
    }
    EXPECT_GT(right, 130);
  }
  for (const std::string& split : splits({.format = "synthetic"}))
    EXPECT_GT(open_images({.format = "synthetic", .split = split})->size(), 0) << split;
  EXPECT_ERROR(open_images({.format = "synthetic", .split = "all"}), "'all'", "train, val, test");
  EXPECT_ERROR(open_images({.format = "synthetic", .path = "x"}), "no path");
  EXPECT_ERROR(make_synthetic({.count = 0}), "0 images");
}

TEST(Formats, EveryRowIsWhole) {
  ASSERT_EQ(formats().size(), format_table().size());
  EXPECT_EQ(std::set<std::string>(formats().begin(), formats().end()).size(), formats().size());
  for (const Format& format : format_table()) {
    EXPECT_EQ(&find_format(format.name), &format);
    EXPECT_FALSE(format.help.empty()) << format.name;
    EXPECT_NE(format.open, nullptr) << format.name;
    EXPECT_NE(format.splits.empty(), format.find_splits == nullptr) << format.name;
    EXPECT_EQ(format.default_path.empty(), format.install.empty()) << format.name;
    EXPECT_EQ(format.needs_path(), format.name != "fashion-mnist" && format.name != "synthetic") << format.name;
  }
}

TEST(Source, MistakesAreExplained) {
  EXPECT_ERROR(open_images({.format = "imagenet"}), "'imagenet'", "fashion-mnist", "folder", "synthetic");
  EXPECT_ERROR(open_images({.format = "cifar1"}), "'cifar1'", "Did you mean 'cifar10'?");
  EXPECT_ERROR(open_images({.format = "cifar10"}), "cifar10", "need a path");
  EXPECT_ERROR(open_images({.format = "cifar10", .path = "/nowhere/at/all"}), "/nowhere/at/all: does not exist");
}

TEST(Check, ListsTheBadOnesInOrder) {
  const TemporaryFolder folder;
  for (int i = 0; i < 300; ++i) folder.write(fmt::format("c{}/{}.png", i % 3, i), flat_png(1, i % 2 ? 4 : 5));
  const Bytes jpeg = jpeg_file(16, 16, 3, pattern(768));
  folder.write("c1/broken.png", first(flat_png(3), 50));
  folder.write("c0/empty.png", Bytes{});
  folder.write("c2/cut.jpg", first(jpeg, jpeg.size() / 2));
  std::filesystem::create_directory(folder.path("c3"));
  const auto set = open_folder(folder.path());
  for (const int threads : {1, 3}) {
    const CheckReport report = check(*set, threads);
    EXPECT_EQ(report.images, 303);
    EXPECT_EQ(report.classes, 4);
    EXPECT_EQ(report.empty_classes, 1);
    ASSERT_EQ(report.bad.size(), 3u);
    EXPECT_TRUE(report.bad[0].name.ends_with("c0/empty.png"));
    EXPECT_TRUE(report.bad[1].name.ends_with("c1/broken.png"));
    EXPECT_TRUE(report.bad[2].name.ends_with("c2/cut.jpg"));
    EXPECT_EQ(report.bad[0].problem.substr(0, 8), "is empty");
    EXPECT_EQ(report.sizes, (std::map<std::pair<int, int>, int64_t>{{{4, 4}, 150}, {{5, 5}, 150}}));
  }
}

}  // namespace
}  // namespace hinge::data
