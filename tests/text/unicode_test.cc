// UTF-8, classes of characters, lower case; files: plain, gzip, xz, damaged.
#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/files.h"
#include "writers.h"

namespace hinge::text {
namespace {

TEST(Utf8, FindsWhatIsInvalid) {
  EXPECT_FALSE(find_invalid_utf8("aäß€😀"));
  const std::vector<std::pair<std::string, size_t>> bad = {
      {"a\x80", 1},             // a continuation byte alone
      {"ab\xC3", 2},            // cut short
      {"\xC0\xAF", 0},          // '/' in two bytes
      {"\xE0\x80\xAF", 0},      // and in three
      {"x\xED\xA0\x80", 1},     // half a surrogate pair
      {"\xF4\x90\x80\x80", 0},  // past U+10FFFF
      {"\xE4\xF6\xFC", 0},      // Latin-1
      {"\xC3\xA4\xC3\x28", 2},
  };
  for (const auto& [text, place] : bad) EXPECT_EQ(find_invalid_utf8(text), place) << text;
}

TEST(Utf8, ThereAndBack) {
  const std::string text = "aä€😀\n";
  const std::u32string points = to_code_points(text);
  EXPECT_EQ(points, U"aä€😀\n");
  EXPECT_EQ(count_code_points(text), 5u);
  std::string back;
  for (const char32_t c : points) append_utf8(back, c);
  EXPECT_EQ(back, text);
}

TEST(Characters, Spaces) {
  EXPECT_EQ(strip(" \t\u00a0a b\u3000\u2028\r\n"), "a b");
  EXPECT_EQ(strip(" \n"), "");
  EXPECT_EQ(collapse_spaces("  a \t\n b\u00a0c  "), "a b\u00a0c");
  EXPECT_FALSE(is_space(0x200B));
}

TEST(Characters, LowerCase) {
  EXPECT_EQ(lower_case("ÄÖÜ ẞ ABC Éа́ ДЖ"), "äöü ß abc éа́ дж");
  EXPECT_EQ(lower_case("İstanbul"), "i\u0307stanbul");
  EXPECT_EQ(lower_case("ΟΔΟΣ ΣΑΣ Σ."), "οδος σας σ.");
  EXPECT_TRUE(is_letter(U'ß') && is_letter(U'д') && is_letter(U'漢'));
  EXPECT_FALSE(is_letter(U'…') || is_letter(U'1') || is_letter(U'“'));
}

TEST(Files, PlainAndPacked) {
  const TemporaryFolder folder;
  const std::string text = "eins\nzwei\r\n\ndrei";
  std::string large;
  for (int i = 0; i < 700'000; ++i) large += std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
  for (const std::string& content : {text, large, std::string("\n")}) {
    EXPECT_EQ(read_text_file(folder.write("plain", content)), content);
    EXPECT_EQ(read_text_file(folder.write("packed.gz", gzipped(content))), content);
    EXPECT_EQ(read_text_file(folder.write("packed.xz", xzipped(content))), content);
    EXPECT_EQ(read_text_file(folder.write("two.gz", gzipped(content) + gzipped("more"))), content + "more");
    EXPECT_EQ(read_text_file(folder.write("two.xz", xzipped(content) + xzipped("more"))), content + "more");
  }
  EXPECT_EQ(split_lines(text), (std::vector<std::string_view>{"eins", "zwei", "", "drei"}));
  EXPECT_EQ(split_lines("\xEF\xBB\xBFx\n\n"), (std::vector<std::string_view>{"x", ""}));
  EXPECT_TRUE(split_lines("").empty());
}

TEST(Files, DamagedOnes) {
  const TemporaryFolder folder;
  const std::string text(10000, 'x');
  for (const std::string& packed : {gzipped(text), xzipped(text)}) {
    const std::string path = folder.write("short", packed.substr(0, packed.size() / 2));
    EXPECT_ERROR(read_text_file(path), path, "cut short");
    std::string changed = packed;
    changed[packed.size() / 2] = static_cast<char>(changed[packed.size() / 2] ^ 0x55);
    EXPECT_ERROR(read_text_file(folder.write("changed", changed)), "corrupt");
  }
  EXPECT_ERROR(read_text_file(folder.write("trailing", gzipped(text) + "rubbish")), "corrupt");
  EXPECT_ERROR(read_text_file(folder.path("absent")), "absent: cannot be read: No such file");
  EXPECT_ERROR(read_text_file(folder.path()), "is a folder");
}

}  // namespace
}  // namespace hinge::text
