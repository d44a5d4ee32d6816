// Translations of several sentences are cut where the sentences end, whatever is missing, wrong or too much.
#include "text/resegment.h"

#include "text/score.h"
#include "writers.h"

namespace hinge::text {
namespace {

using Parts = std::vector<std::string>;

const Parts kReferences = {"A man sleeps.", "Two dogs, both brown, run over a field.", "A man eats in a park."};

TEST(Resegment, FindsTheSentencesOfAPerfectTranslation) {
  EXPECT_EQ(resegment("A man sleeps. Two dogs, both brown, run over a field. A man eats in a park.", kReferences),
            (Parts{"A man sleeps .", "Two dogs , both brown , run over a field .", "A man eats in a park ."}));
}

TEST(Resegment, FindsThemAmongMistakes) {
  // Other words, one too many and one too few.
  EXPECT_EQ(resegment("The man is sleeping. Two brown dogs run over grass. A man eats in the green park.", kReferences),
            (Parts{"The man is sleeping .", "Two brown dogs run over grass .", "A man eats in the green park ."}));
  // A sentence is missing at the beginning, in the middle, at the end.
  EXPECT_EQ(resegment("Two dogs run over a field. A man eats in a park.", kReferences),
            (Parts{"", "Two dogs run over a field .", "A man eats in a park ."}));
  EXPECT_EQ(resegment("A man sleeps. A man eats in a park.", kReferences), (Parts{"A man sleeps .", "", "A man eats in a park ."}));
  EXPECT_EQ(resegment("A man sleeps. Two dogs, both brown, run over a field.", kReferences),
            (Parts{"A man sleeps .", "Two dogs , both brown , run over a field .", ""}));
  // Its beginning is also that of another sentence.
  EXPECT_EQ(resegment("A man eats in a park.", {kReferences[0], kReferences[2]}), (Parts{"", "A man eats in a park ."}));
  // What comes between two sentences belongs to one of them.
  const Parts more = resegment("A man sleeps. So it is. Two dogs, both brown, run over a field.", kReferences);
  EXPECT_EQ(more[0], "A man sleeps . So it is .");
}

TEST(Resegment, EndsOfTheRange) {
  EXPECT_EQ(resegment("", kReferences), (Parts{"", "", ""}));
  EXPECT_EQ(resegment("Anything at all.", {"Something else"}), (Parts{"Anything at all ."}));
  EXPECT_EQ(resegment("a b", {"a", "", "b"}), (Parts{"a", "", "b"}));
  EXPECT_EQ(resegment("a b", {}), Parts{});
}

// No cut has fewer errors, and all words are there.
TEST(Resegment, IsTheBestCut) {
  const auto errors = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
    for (size_t i = 0; i <= a.size(); ++i)
      for (size_t j = 0; j <= b.size(); ++j)
        cost[i][j] =
            i == 0 || j == 0 ? i + j : std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
    return cost[a.size()][b.size()];
  };
  uint64_t state = 1;
  const auto draw = [&](uint64_t n) { return ((state = state * 2862933555777941757ull + 3037000493ull) >> 33) % n; };
  const auto some_words = [&](uint64_t most) {
    std::string words;
    for (uint64_t n = draw(most + 1); n > 0; --n) words += (words.empty() ? "" : " ") + std::string(1, static_cast<char>('a' + draw(4)));
    return words;
  };
  for (int round = 0; round < 200; ++round) {
    const Parts references = {some_words(4), some_words(4), some_words(4)};
    const std::string translation = some_words(12);
    const std::vector<std::string> words = tokenize_13a(translation);
    const Parts parts = resegment(translation, references);
    size_t found = 0, best = SIZE_MAX;
    std::vector<std::string> all;
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<std::string> part = tokenize_13a(parts[i]);
      found += errors(part, tokenize_13a(references[i]));
      all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT_EQ(all, words);
    const auto cut = [&](size_t begin, size_t end) {
      return std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(begin), words.begin() + static_cast<std::ptrdiff_t>(end));
    };
    for (size_t first = 0; first <= words.size(); ++first)
      for (size_t second = first; second <= words.size(); ++second)
        best = std::min(best, errors(cut(0, first), tokenize_13a(references[0])) + errors(cut(first, second), tokenize_13a(references[1])) +
                                  errors(cut(second, words.size()), tokenize_13a(references[2])));
    EXPECT_EQ(found, best) << translation;
  }
}

// Scores of the parts are those of the sentences that were joined.
TEST(Resegment, LeavesTheScoresAsTheyAre) {
  const Parts hypotheses = {"A man is asleep.", "Two dogs, both brown, run over a field.", "It costs 1,234.50 (ca. 20-30 % more)!"};
  const Parts references = {"A man sleeps.", "Two dogs, both brown, run over a field.", "That costs 1,234.50 (about 20-30 % more)."};
  const Parts parts = resegment(hypotheses[0] + " " + hypotheses[1] + " " + hypotheses[2], references);
  const auto views = [](const Parts& texts) { return std::vector<std::string_view>(texts.begin(), texts.end()); };
  EXPECT_EQ(bleu(views(parts), views(references)).score, bleu(views(hypotheses), views(references)).score);
  EXPECT_EQ(chrf(views(parts), views(references)).score, chrf(views(hypotheses), views(references)).score);
}

}  // namespace
}  // namespace hinge::text
