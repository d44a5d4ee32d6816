// Parallel files: documents, packed files, and every kind of bad line, both when it stops and when it is skipped.
#include "text/parallel.h"

#include "support/config.h"
#include "support/process_memory.h"
#include "text/files.h"
#include "text/source.h"
#include "writers.h"

namespace hinge::text {
namespace {

constexpr ParallelOptions kSkip{.on_error = OnError::skip, .longest = 5000};
const std::string kAdvice = "; data.on_error=skip leaves such lines out";

TEST(Parallel, DocumentsAreSeparatedByBlankLines) {
  const TemporaryFolder folder;
  const std::string de = folder.write("x.de", "\n eins \nzwei\n\n\t\ndrei"),
                    en = folder.write("x.en", "\r\none\r\ntwo\r\n\r\n\r\nthree\r\n");
  const ParallelText text = read_parallel(de, en);
  ASSERT_EQ(text.documents.size(), 2u);
  EXPECT_EQ(text.documents[0].pairs, (std::vector<Pair>{{"eins", "one"}, {"zwei", "two"}}));
  EXPECT_EQ(text.documents[1].pairs, (std::vector<Pair>{{"drei", "three"}}));
  EXPECT_EQ(text.documents[1].name, de + ":6");
  EXPECT_EQ(text.pairs(), 3);
  EXPECT_TRUE(text.skipped.empty());
}

TEST(Parallel, PackedFilesAndFindingThem) {
  const TemporaryFolder folder;
  folder.write("train.de.gz", gzipped("eins\nzwei\n"));
  folder.write("train.en.xz", xzipped("one\ntwo\n"));
  folder.write("dev.de", "drei\n");
  folder.write("other.english", "three\n");
  const TextSource source{.kind = SourceKind::files, .pair = "de-en", .path = folder.path(), .valid = "dev.de,other.english"};
  EXPECT_EQ(read_text(source, Part::train).documents[0].pairs, (std::vector<Pair>{{"eins", "one"}, {"zwei", "two"}}));
  EXPECT_EQ(read_text(source, Part::valid).documents[0].pairs, (std::vector<Pair>{{"drei", "three"}}));
  EXPECT_ERROR(read_text(source, Part::test), "test.de: does not exist", ".gz");
  TextSource wrong;
  EXPECT_ERROR(support::read_config_text(wrong, "kind = \"file\"", "x.toml"), "kind", "file", "catalogues, files");
  EXPECT_ERROR(support::read_config_text(wrong, "on_error = \"ignore\"", "x.toml"), "on_error", "ignore", "stop, skip");
  EXPECT_ERROR(read_text({.kind = SourceKind::files, .pair = "deen"}, Part::train), "'deen'", "en-de");
}

TEST(Files, ArePackedOrNot) {
  const TemporaryFolder folder;
  EXPECT_TRUE(is_packed(folder.write("a", gzipped("eins\n"))));
  EXPECT_TRUE(is_packed(folder.write("b", xzipped("eins\n"))));
  EXPECT_FALSE(is_packed(folder.write("c.gz", "eins\n")));
  EXPECT_FALSE(is_packed(folder.write("d", "")));
  EXPECT_FALSE(is_packed(folder.path("absent")));
}

TEST(Parallel, UnequalNumbersOfLines) {
  const TemporaryFolder folder;
  const std::string de = folder.write("x.de", "eins\nzwei\ndrei\n"), en = folder.write("x.en", "one\n");
  EXPECT_ERROR(read_parallel(de, en), (de + ":2: "), "has no partner", (en + " has 1 lines"), kAdvice);
  EXPECT_ERROR(read_parallel(en, de), (de + ":2: "));
  const ParallelText text = read_parallel(de, en, kSkip);
  EXPECT_EQ(text.pairs(), 1);
  EXPECT_EQ(text.skipped, (Counts{{"without a partner line", 2}}));
}

TEST(Parallel, BadLines) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good", "one\ntwo\nthree\n");
  const std::string latin = folder.write("latin", "eins\nf\xFCnf\ndrei\n"), blank = folder.write("blank", "eins\n \ndrei\n"),
                    over_long = folder.write("long", "eins\n" + std::string(5001, 'x') + "\ndrei\n");
  EXPECT_ERROR(read_parallel(latin, good), (latin + ":2: "), "UTF-8", "byte 2", "0xfc", kAdvice);
  EXPECT_ERROR(read_parallel(good, latin), (latin + ":2: "));
  EXPECT_ERROR(read_parallel(blank, good), (blank + ":2: "), "blank", good, kAdvice);
  EXPECT_ERROR(read_parallel(good, blank), (blank + ":2: "));
  EXPECT_ERROR(read_parallel(over_long, good), (over_long + ":2: "), "5001 characters", "5000 are allowed", "data.longest", kAdvice);
  const std::vector<std::pair<std::string, std::string>> skipped = {
      {latin, "not UTF-8"}, {blank, "blank on one side"}, {over_long, "over-long"}};
  for (const auto& [path, reason] : skipped) {
    const ParallelText text = read_parallel(path, good, kSkip);
    EXPECT_EQ(text.documents.at(0).pairs, (std::vector<Pair>{{"eins", "one"}, {"drei", "three"}})) << reason;
    EXPECT_EQ(text.skipped, (Counts{{reason, 1}}));
  }
  // A limit in characters, not bytes.
  const std::string umlauts = folder.write("umlauts", "äöü\n"), three = folder.write("three", "aou\n");
  EXPECT_EQ(read_parallel(umlauts, three, {.longest = 3}).pairs(), 1);
  EXPECT_ERROR(read_parallel(folder.write("e1", ""), folder.write("e2", "")), "no pair of lines");
}

// Packed text is read as it comes: neither its size nor a line that does not end costs memory.
TEST(Parallel, PackedTextOfAnySizeIsStreamed) {
  const TemporaryFolder folder;
  std::string lines;
  while (lines.size() < (16 << 20)) lines += "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";
  constexpr int kTimes = 24;  // 384 MiB
  std::string many, no_end;
  const std::string unit = gzipped(lines), letters = gzipped(std::string(16 << 20, 'x'));
  for (int i = 0; i < kTimes; ++i) many += unit, no_end += letters;
  many += gzipped("last\n"), no_end += gzipped("\nlast\n");
  const std::string large = folder.write("large.gz", many), endless = folder.write("endless.gz", no_end);
  many = no_end = lines = "";
  support::forget_largest_resident();
  const int64_t before = support::largest_resident_bytes();
  const ParallelText text = read_parallel(large, large);
  ASSERT_EQ(text.pairs(), 1);
  EXPECT_EQ(text.documents[0].name, large + ":" + std::to_string(int64_t{kTimes} * (16 << 20) + 1));
  const ParallelText skipping = read_parallel(endless, endless, kSkip);
  EXPECT_EQ(skipping.documents.at(0).pairs, (std::vector<Pair>{{"last", "last"}}));
  EXPECT_EQ(skipping.skipped, (Counts{{"over-long", 1}}));
  EXPECT_ERROR(read_parallel(endless, endless), endless + ":1: is longer than 4 MiB", kAdvice);
  EXPECT_LT(support::largest_resident_bytes() - before, 64 << 20);
}

TEST(Parallel, WrittenAndReadAgain) {
  const TemporaryFolder folder;
  const ParallelText text{{{"a", {{"one", "eins"}, {"two", "zwei"}}}, {"b", {{"three", "drei"}}}}, {}};
  const std::string en = folder.path("x.en"), de = folder.path("x.de");
  write_parallel(text, en, de, /*document_ends=*/true);
  EXPECT_EQ(read_text_file(en), "one\ntwo\n\nthree\n");
  EXPECT_EQ(read_text_file(de), "eins\nzwei\n\ndrei\n");
  const ParallelText again = read_parallel(en, de);
  ASSERT_EQ(again.documents.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(again.documents[i].pairs, text.documents[i].pairs);
  write_parallel(text, en, de, /*document_ends=*/false);
  EXPECT_EQ(read_text_file(en), "one\ntwo\nthree\n");
  EXPECT_EQ(read_text_file(de), "eins\nzwei\ndrei\n");
  EXPECT_ERROR(write_parallel(text, folder.path("y.en"), folder.path("absent/y.de"), false), "absent/y.de");
  EXPECT_ERROR(read_text_file(folder.path("y.en")), "cannot be read");
}

TEST(Counts, AsText) {
  EXPECT_EQ(describe({}), "none");
  EXPECT_EQ(describe({{"over-long", 2}, {"not UTF-8", 0}, {"cut", 1}}), "1 cut, 2 over-long");
}

}  // namespace
}  // namespace hinge::text
