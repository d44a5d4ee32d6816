// Scores against numbers of the sacrebleu package (2.6.0); python/tests/test_score.py compares with the package itself on many texts.
#include "text/score.h"

#include "writers.h"

namespace hinge::text {
namespace {

const std::vector<std::string_view> kHypotheses = {"The cat sat on a mat.", "Es kostet 1.234,56 € (ca. 20-30 % mehr)!", "",
                                                   "He said: &quot;AT&amp;T&quot; is „groß“."};
const std::vector<std::string_view> kReferences = {"The cat sat on the mat.", "Das kostet 1.234,56 € (etwa 20-30 % mehr).",
                                                   "Not translated.", "He said: \"AT&T\" is „groß“ now."};

TEST(Tokens13a, Signs) {
  using Tokens = std::vector<std::string>;
  EXPECT_EQ(tokenize_13a("Hello, world. It's 3.14, or 1,000-2,000."),
            (Tokens{"Hello", ",", "world", ".", "It's", "3.14", ",", "or", "1,000", "-", "2,000", "."}));
  EXPECT_EQ(tokenize_13a("&lt;b&gt; &amp;quot; &quot;x&quot; a<skipped>b"),
            (Tokens{"<", "b", ">", "&", "quot", ";", "\"", "x", "\"", "ab"}));
  EXPECT_EQ(tokenize_13a("well-known 5-6 $5 a/b [x]"), (Tokens{"well-known", "5", "-", "6", "$", "5", "a", "/", "b", "[", "x", "]"}));
  EXPECT_EQ(tokenize_13a("ä.ö „Zitat“\u00a0…"), (Tokens{"ä", ".", "ö", "„Zitat“", "…"}));
  EXPECT_EQ(tokenize_13a(".,. ..."), (Tokens{".", ",", ".", ".", ".", "."}));
  EXPECT_EQ(tokenize_13a(" \t "), Tokens{});
}

TEST(Bleu, Corpus) {
  const Bleu result = bleu(kHypotheses, kReferences);
  EXPECT_NEAR(result.score, 61.149405756500805, 1e-12);
  EXPECT_EQ(result.details(), "87.5/72.4/61.5/52.2 (BP = 0.911 ratio = 0.914 hyp_len = 32 ref_len = 35)");
  EXPECT_NEAR(bleu(kHypotheses, kReferences, {.lowercase = true}).score, 61.149405756500805, 1e-12);
  EXPECT_NEAR(bleu({"a b c d e"}, {"a b c d e"}).score, 100, 1e-12);
  EXPECT_EQ(bleu({""}, {"a b"}).score, 0);
  EXPECT_EQ(bleu({"x"}, {"a b"}).score, 0);
}

TEST(Chrf, Corpus) {
  EXPECT_NEAR(chrf(kHypotheses, kReferences).score, 54.63359910958473, 1e-12);
  EXPECT_NEAR(chrf(kHypotheses, kReferences, {.words = 2}).score, 55.04326156302044, 1e-12);
  EXPECT_EQ(chrf(kHypotheses, kReferences).name(), "chrF2");
  EXPECT_EQ(chrf(kHypotheses, kReferences, {.words = 2}).name(), "chrF2++");
  EXPECT_EQ(chrf({""}, {"a"}).score, 0);
}

TEST(Scores, Signatures) {
  EXPECT_EQ(signature(BleuOptions{}).find("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:hinge-"), 0u);
  EXPECT_EQ(signature(BleuOptions{.lowercase = true}, true).find("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|unit:document|version:hinge-"),
            0u);
  EXPECT_EQ(signature(ChrfOptions{}).find("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:hinge-"), 0u);
  EXPECT_EQ(signature(ChrfOptions{.words = 2}).find("nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|"), 0u);
}

TEST(Scores, Documents) {
  const Documents documents = join_documents({"a b", "", "", "c", " "}, {"A", "B ", "", "C", "D"});
  EXPECT_EQ(documents.hypotheses, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(documents.references, (std::vector<std::string>{"A B", "C D"}));
  EXPECT_ERROR(join_documents({"a", "b"}, {"A", ""}), "line 2", "blank");
  EXPECT_ERROR(join_documents({""}, {""}), "all references are blank");
}

TEST(Scores, UnequalNumbers) {
  EXPECT_ERROR(bleu({"a"}, {"a", "b"}), "1 hypotheses and 2 references");
  EXPECT_ERROR(chrf({}, {}), "no sentences");
  EXPECT_ERROR(chrf({"a"}, {"a"}, {.characters = 0}), "0 characters");
}

}  // namespace
}  // namespace hinge::text
