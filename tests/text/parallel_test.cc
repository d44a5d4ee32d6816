// Parallel files: documents, packed files, and every kind of bad line, both when it stops and when it is skipped.
#include "text/parallel.h"

#include <utility>

#include "readers.h"
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

// ---- several readers of one text

// Lines of every kind, more than a run of each reader. A line is {source, target}.
using LinePairs = std::vector<std::pair<std::string, std::string>>;
LinePairs many_lines() {
  LinePairs lines;
  for (int i = 0; i < 11 * Readers::kRun + 7; ++i) lines.emplace_back(fmt::format("Satz {}", i), fmt::format("sentence {}", i));
  for (const size_t blank : {0, 63, 64, 200, 201, 500}) lines[blank] = {"", ""};
  return lines;
}
std::pair<std::string, std::string> written(const TemporaryFolder& folder, const std::string& name, const LinePairs& lines) {
  std::string source, target;
  for (const auto& [from, to] : lines) source += from + "\n", target += to + "\n";
  return {folder.write(name + ".de", source), folder.write(name + ".en", target)};
}

TEST(ParallelReaders, HaveTheDocumentsOfOneAndEachPairIsReadByOne) {
  const TemporaryFolder folder;
  LinePairs lines = many_lines();
  lines[3].first = "\xff", lines[70].second = "", lines[400].first = std::string(6000, 'x'), lines[699].second = "\xff";
  const auto [de, en] = written(folder, "x", lines);
  const ParallelText whole = read_parallel(de, en, kSkip);
  for (const int count : {2, 3, 4}) {
    std::vector<ParallelText> parts(static_cast<size_t>(count));
    const auto errors = with_readers(count, [&, de = de, en = en](const Readers& readers) {
      parts[static_cast<size_t>(readers.rank)] = read_parallel(de, en, kSkip, readers);
    });
    EXPECT_EQ(errors, std::vector<std::string>(parts.size()));
    for (const ParallelText& part : parts) {
      EXPECT_TRUE(part.partial);
      EXPECT_EQ(part.skipped, whole.skipped);
      ASSERT_EQ(part.documents.size(), whole.documents.size());
    }
    for (size_t d = 0; d < whole.documents.size(); ++d)
      for (size_t p = 0; p < whole.documents[d].pairs.size(); ++p) {
        int64_t read = 0;
        for (const ParallelText& part : parts) {
          EXPECT_EQ(part.documents[d].name, whole.documents[d].name);
          ASSERT_EQ(part.documents[d].pairs.size(), whole.documents[d].pairs.size());
          const Pair& pair = part.documents[d].pairs[p];
          if (pair == Pair{}) continue;
          EXPECT_EQ(pair, whole.documents[d].pairs[p]);
          ++read;
        }
        EXPECT_EQ(read, 1);
      }
  }
}

TEST(ParallelReaders, StopAtTheFirstBadLineWhoeverHasIt) {
  const TemporaryFolder folder;
  LinePairs lines = many_lines();
  lines[130].second = "\xff", lines[70].first = "\xff", lines[400].first = "";
  const auto [de, en] = written(folder, "x", lines);
  const auto errors = with_readers(3, [&, de = de, en = en](const Readers& readers) { read_parallel(de, en, {}, readers); });
  const std::string alone = support::error_of([&, de = de, en = en] { read_parallel(de, en); });
  EXPECT_TRUE(support::mentions(alone, {de + ":71: ", "UTF-8"}));
  EXPECT_EQ(errors, std::vector<std::string>(3, alone));
}

TEST(ParallelReaders, MustHaveOneText) {
  const TemporaryFolder folder;
  LinePairs lines = many_lines();
  const auto first = written(folder, "x", lines);
  lines[129].second += ".";  // of rank 0
  const auto second = written(folder, "y", lines);
  const auto errors = with_readers(2, [&](const Readers& readers) {
    const auto& [de, en] = readers.rank == 0 ? first : second;
    read_parallel(de, en, {}, readers);
  });
  for (const std::string& error : errors)
    EXPECT_TRUE(support::mentions(error, {"the data of rank 1 are not those of rank 0", "711 lines", " instead of "}));
}

}  // namespace
}  // namespace hinge::text
