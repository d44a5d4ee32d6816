// Vocabularies: trained, stored, refused. The corpus: sentences and documents. Batches: every item once an epoch, the same at any step.
#include "text/corpus.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "readers.h"
#include "text/batches.h"
#include "writers.h"

namespace hinge::text {
namespace {

// Sentences of made-up words, the lengths spread.
std::string made_up(uint64_t number) {
  static const std::vector<std::string> syllables = {"Haus", "baum", "grün", "läuf", "t",    "en",  "the",
                                                     "tr",   "ee",   "…",    "und",  "(42)", "über"};
  uint64_t state = number + 1;
  const auto draw = [&](uint64_t n) { return ((state = state * 2862933555777941757ull + 3037000493ull) >> 33) % n; };
  std::string sentence;
  const uint64_t words = 1 + draw(14);
  for (uint64_t i = 0; i < words; ++i) {
    if (i > 0) sentence += ' ';
    const uint64_t parts = 1 + draw(3);
    for (uint64_t part = 0; part < parts; ++part) sentence += syllables[draw(syllables.size())];
  }
  return sentence;
}

ParallelText made_up_text(int documents, int pairs) {
  ParallelText text;
  uint64_t number = 0;
  for (int d = 0; d < documents; ++d) {
    text.documents.push_back({"d" + std::to_string(d), {}});
    for (int p = 0; p < pairs; ++p) {
      const std::string source = made_up(number++), target = made_up(number++);
      text.documents.back().pairs.push_back({source, target});
    }
  }
  return text;
}

std::vector<std::string_view> sentences(const ParallelText& text) {
  std::vector<std::string_view> all;
  for (const Document& document : text.documents)
    for (const Pair& pair : document.pairs) all.insert(all.end(), {pair.source, pair.target});
  return all;
}

const ParallelText& text() {
  static const ParallelText made = made_up_text(8, 40);
  return made;
}

const Vocabulary& vocabulary() {
  static const Vocabulary trained = Vocabulary::train(sentences(text()), {.size = 80});
  return trained;
}

TEST(Vocabulary, TrainedAndStored) {
  const TemporaryFolder folder;
  for (const PieceType type : {PieceType::bpe, PieceType::unigram}) {
    const Vocabulary trained = Vocabulary::train(sentences(text()), {.type = type, .size = 60});
    EXPECT_EQ(trained.size(), 60);
    EXPECT_EQ(trained.unk(), 0);
    EXPECT_EQ(trained.bos(), 1);
    EXPECT_EQ(trained.eos(), 2);
    EXPECT_EQ(trained.pad(), 3);
    EXPECT_EQ(Vocabulary::train(sentences(text()), {.type = type, .size = 60}).bytes(), trained.bytes()) << "training is not deterministic";
    const std::string sentence = "Haus … über\u00a0tree";
    const std::vector<int32_t> ids = trained.encode("  Haus … \n über\u00a0tree ");
    EXPECT_GT(ids.size(), 2u);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), trained.bos()), 0);

    trained.save(folder.path("vocabulary.model"));
    const Vocabulary loaded = Vocabulary::load(folder.path("vocabulary.model"));
    EXPECT_EQ(loaded.bytes(), trained.bytes());
    EXPECT_EQ(loaded.hash(), trained.hash());
    EXPECT_EQ(loaded.encode(sentence), ids);
    EXPECT_EQ(loaded.decode(loaded.encode("Haus … (42) über grün")), "Haus … (42) über grün");
    loaded.require_fit(trained.size(), trained.hash(), "the run");
  }
}

TEST(Vocabulary, UnknownCharacters) {
  const std::vector<int32_t> ids = vocabulary().encode("Ж");
  EXPECT_NE(std::find(ids.begin(), ids.end(), vocabulary().unk()), ids.end());
  const Vocabulary bytes = Vocabulary::train(sentences(text()), {.size = 330, .byte_fallback = true});
  EXPECT_EQ(bytes.decode(bytes.encode("Haus Ж 漢")), "Haus Ж 漢");
}

TEST(Vocabulary, Mistakes) {
  const TemporaryFolder folder;
  EXPECT_ERROR(Vocabulary::train(sentences(text()), {.size = 3}), "size 3");
  EXPECT_ERROR(Vocabulary::train(sentences(text()), {.coverage = 0.1}), "coverage 0.1");
  EXPECT_ERROR(Vocabulary::train(sentences(text()), {.size = 50000}), "50000 pieces", "too high");
  EXPECT_ERROR(Vocabulary::train(sentences(text()), {.type = PieceType::unigram, .size = 50000}), "50000 pieces", "too high");
  EXPECT_ERROR(Vocabulary::train(sentences(text()), {.size = 16}), "16 pieces");
  EXPECT_ERROR(Vocabulary::train({" ", ""}, {}), "no text");
  EXPECT_ERROR(Vocabulary::from_bytes("rubbish", "run/vocabulary.model"), "run/vocabulary.model: is no SentencePiece model");
  EXPECT_ERROR(Vocabulary::from_bytes("", "x"), "is no SentencePiece model");
  EXPECT_ERROR(Vocabulary::load(folder.path("absent.model")), "absent.model");
  const std::vector<int32_t> beyond = {80};
  EXPECT_ERROR(vocabulary().decode(beyond), "no piece 80", "it has 80");
  const Vocabulary other = Vocabulary::train(sentences(text()), {.size = 70});
  EXPECT_ERROR(other.require_fit(vocabulary().size(), vocabulary().hash(), "runs/de-en"), "does not fit runs/de-en", "70 pieces",
               "with 80");
  EXPECT_ERROR(vocabulary().require_fit(80, other.hash(), "runs/de-en"), "does not fit");
}

// The texts of other readers are missing in `partial`; in a whole text they are there.
TEST(Corpus, OfSeveralReadersIsThatOfOne) {
  for (const CorpusOptions& options : {CorpusOptions{.longest = 30}, CorpusOptions{.document_tokens = 60}}) {
    const Corpus alone(text(), vocabulary(), options);
    std::vector<Corpus::Place> places;
    for (int64_t i = 0; i < alone.size(); i += 3) places.push_back(alone.place(i));
    for (const bool partial : {false, true}) {
      const auto errors = with_readers(3, [&](const Readers& readers) {
        ParallelText own = text();
        own.partial = partial;
        int64_t number = 0;
        for (Document& document : own.documents)
          for (Pair& pair : document.pairs)
            if (partial && number++ % 3 != readers.rank) pair = {};
        const Corpus corpus(own, vocabulary(), options, readers);
        ASSERT_EQ(corpus.size(), alone.size());
        EXPECT_EQ(corpus.skipped(), alone.skipped());
        for (int64_t i = 0; i < alone.size(); ++i) {
          EXPECT_TRUE(std::ranges::equal(corpus.source(i), alone.source(i))) << i;
          EXPECT_TRUE(std::ranges::equal(corpus.target(i), alone.target(i))) << i;
          EXPECT_EQ(corpus.place_name(i), alone.place_name(i));
        }
        fill_in_targets(own, places, readers);
        for (const Corpus::Place& place : places) EXPECT_EQ(joined(own, place).target, joined(text(), place).target);
      });
      EXPECT_EQ(errors, std::vector<std::string>(3));
    }
  }
}

TEST(Corpus, Sentences) {
  const Corpus corpus(text(), vocabulary(), {});
  ASSERT_EQ(corpus.size(), text().pairs());
  const Pair& pair = text().documents[1].pairs[2];
  const int64_t i = 40 + 2;
  EXPECT_EQ(corpus.place(i).document, 1);
  EXPECT_EQ(corpus.place(i).first, 2);
  EXPECT_EQ(joined(text(), corpus.place(i)), pair);
  const std::span<const int32_t> source = corpus.source(i), target = corpus.target(i);
  EXPECT_EQ(std::vector<int32_t>(source.begin(), source.end() - 1), vocabulary().encode(pair.source));
  EXPECT_EQ(source.back(), vocabulary().eos());
  EXPECT_EQ(vocabulary().decode(target), pair.target);
  EXPECT_EQ(corpus.target_length(i), static_cast<int64_t>(target.size()) + 1);
}

TEST(Corpus, OverLongPairs) {
  int64_t over = 0;
  for (const Document& document : text().documents)
    for (const Pair& pair : document.pairs)
      over += std::max(vocabulary().encode(pair.source).size(), vocabulary().encode(pair.target).size()) + 1 > 20;
  ASSERT_GT(over, 0);
  const Corpus dropped(text(), vocabulary(), {.longest = 20});
  EXPECT_EQ(dropped.size(), text().pairs() - over);
  EXPECT_EQ(dropped.skipped(), (Counts{{"over-long", over}}));
  const Corpus cut(text(), vocabulary(), {.longest = 20, .over_long = OverLong::truncate});
  EXPECT_EQ(cut.size(), text().pairs());
  EXPECT_EQ(cut.skipped(), Counts());
  EXPECT_EQ(cut.cut(), over);
  for (const Corpus* corpus : {&dropped, &cut})
    for (int64_t i = 0; i < corpus->size(); ++i) {
      EXPECT_LE(corpus->source_length(i), 20);
      EXPECT_LE(corpus->target_length(i), 20);
    }
  EXPECT_ERROR(Corpus(text(), vocabulary(), {.longest = 1}), "longest 1");
  EXPECT_ERROR(Corpus(text(), vocabulary(), {.longest = 2}), "no item is left");
}

TEST(Corpus, DocumentsAreCutAtSentenceEnds) {
  for (const int64_t most : {64, 128, 100000}) {
    const Corpus corpus(text(), vocabulary(), {.document_tokens = most});
    int64_t pairs = 0, document = 0, next = 0;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      const Corpus::Place& place = corpus.place(i);
      if (place.document != document) {
        EXPECT_EQ(next, 40) << "document " << document << " is not complete";
        document = place.document;
        next = 0;
      }
      EXPECT_EQ(place.first, next);
      next += place.pairs;
      pairs += place.pairs;
      EXPECT_LE(corpus.source_length(i), most);
      EXPECT_LE(corpus.target_length(i), most);
      // Whole sentences on both sides, and as many as there is room for.
      const Pair all = joined(text(), place);
      EXPECT_EQ(vocabulary().decode(corpus.source(i).first(corpus.source(i).size() - 1)), all.source);
      EXPECT_EQ(vocabulary().decode(corpus.target(i)), all.target);
      if (next < 40) {
        const Pair& following = text().documents[static_cast<size_t>(document)].pairs[static_cast<size_t>(next)];
        EXPECT_TRUE(corpus.source_length(i) + static_cast<int64_t>(vocabulary().encode(following.source).size()) > most ||
                    corpus.target_length(i) + static_cast<int64_t>(vocabulary().encode(following.target).size()) > most);
      }
    }
    EXPECT_EQ(pairs, text().pairs());
    if (most == 100000) {
      EXPECT_EQ(corpus.size(), 8);
    }
  }
}

TEST(Corpus, SourcesThatAModelCannotRead) {
  ParallelText some = made_up_text(2, 40);
  some.documents.push_back({"long", {{std::string(300, 't'), "kurz"}}});
  const auto too_long = [](const Pair& pair) { return vocabulary().encode(pair.source).size() + 1 > 20; };
  int64_t over = 0;
  for (const Document& document : some.documents) over += std::count_if(document.pairs.begin(), document.pairs.end(), too_long);
  ASSERT_GT(over, 1);
  ASSERT_TRUE(too_long(some.documents[2].pairs[0]));
  EXPECT_EQ(leave_out_long_sources(some, vocabulary(), 20), over);
  EXPECT_EQ(some.pairs(), 81 - over);
  EXPECT_EQ(some.documents.size(), 2u) << "an empty document stays";
  for (const Document& document : some.documents) EXPECT_EQ(std::count_if(document.pairs.begin(), document.pairs.end(), too_long), 0);
}

// The sentences of a document are divided by the space that a vocabulary puts in front of each.
TEST(Corpus, DocumentsNeedSpaces) {
  using std::string_literals::operator""s;
  const std::string with = "\x1A\x0C\n\x08identity\x12\0"s, without = "\x1A\x0E\n\x08identity\x12\0\x18\0"s;  // add_dummy_prefix: false
  std::string bytes = vocabulary().bytes();
  ASSERT_TRUE(bytes.ends_with(with));
  bytes.replace(bytes.size() - with.size(), with.size(), without);
  const Vocabulary joining = Vocabulary::from_bytes(bytes, "x.model");
  EXPECT_NO_THROW(Corpus(text(), joining, {}));
  EXPECT_ERROR(Corpus(text(), joining, {.document_tokens = 100}), "no space in front of a sentence", "data.vocabulary_file");
}

TEST(Batches, WhatDoesNotFitIsNamed) {
  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  const auto length = [&](int64_t i) { return std::max(corpus->source_length(i), corpus->target_length(i)); };
  int64_t longest = 0, over = 0;
  for (int64_t i = 0; i < corpus->size(); ++i) {
    if (length(i) > length(longest)) longest = i;
    over += length(i) > 20 ? 1 : 0;
  }
  const std::string place = fmt::format("pair {} of d{}", longest % 40 + 1, longest / 40);
  EXPECT_EQ(corpus->place_name(longest), place);
  EXPECT_ERROR(Batches(corpus, {.tokens = 20}), fmt::format("{}: has {} tokens", place, length(longest)), "a batch holds 20",
               fmt::format("{} of {} items", over, corpus->size()), "optim.batch", "data.longest_tokens");
  EXPECT_NO_THROW(Batches(corpus, {.tokens = length(longest)}));

  const auto documents = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{.document_tokens = 100000});
  EXPECT_EQ(documents->place_name(1), "pairs 1 to 40 of d1");
  EXPECT_ERROR(Batches(documents, {.tokens = 200}), "pairs 1 to 40 of d", "8 of 8 items", "data.document_tokens");
}

TEST(Batches, EveryItemOnceAnEpochWithinTheLimits) {
  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  Batches batches(corpus, {.tokens = 300, .seed = 7});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> seen(static_cast<size_t>(corpus->size()));
    for (int64_t step = batches.first_step(epoch); step < batches.first_step(epoch + 1); ++step) {
      const TextBatch batch = batches.at(step);
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batches.epoch_of(step), epoch);
      ASSERT_EQ(batch.source_offsets.size(), batch.items.size() + 1);
      ASSERT_EQ(batch.target_offsets.size(), batch.items.size() + 1);
      EXPECT_LE(batch.source.size(), 300u);
      EXPECT_LE(batch.target_in.size(), 300u);
      int64_t shortest = 1000, longest = 0;
      for (size_t i = 0; i < batch.items.size(); ++i) {
        const int64_t item = batch.items[i];
        ++seen[static_cast<size_t>(item)];
        const auto part = [&](const std::vector<int64_t>& all, const std::vector<int64_t>& offsets) {
          return std::vector<int64_t>(all.begin() + offsets[i], all.begin() + offsets[i + 1]);
        };
        const std::span<const int32_t> x = corpus->source(item), y = corpus->target(item);
        std::vector<int64_t> in(y.begin(), y.end()), out = in;
        in.insert(in.begin(), corpus->bos());
        out.push_back(corpus->eos());
        EXPECT_EQ(part(batch.source, batch.source_offsets), std::vector<int64_t>(x.begin(), x.end()));
        EXPECT_EQ(part(batch.target_in, batch.target_offsets), in);
        EXPECT_EQ(part(batch.target_out, batch.target_offsets), out);
        const int64_t length = std::max(corpus->source_length(item), corpus->target_length(item));
        shortest = std::min(shortest, length);
        longest = std::max(longest, length);
      }
      EXPECT_LE(longest, 2 * shortest + 4) << "lengths of one batch are not similar";
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), corpus->size());
  }
}

TEST(Batches, AnyStepComesTheSame) {
  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  const BatchOptions options{.tokens = 300, .seed = 7};
  Batches in_order(corpus, options);
  const int64_t steps = in_order.first_step(3);
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < steps; ++step) expected.push_back(in_order.at(step).items);
  Batches resumed(corpus, options);
  for (int64_t step = steps - 1; step >= 0; step -= 3) EXPECT_EQ(resumed.at(step).items, expected[static_cast<size_t>(step)]) << step;

  // Another epoch or seed is another order; within an epoch, neighbours have different lengths.
  EXPECT_NE(expected[0], expected[static_cast<size_t>(in_order.first_step(1))]);
  EXPECT_NE(Batches(corpus, {.tokens = 300, .seed = 8}).at(0).items, expected[0]);
  std::vector<int64_t> sizes;
  for (int64_t step = 0; step < in_order.first_step(1); ++step) sizes.push_back(static_cast<int64_t>(in_order.at(step).items.size()));
  EXPECT_FALSE(std::is_sorted(sizes.begin(), sizes.end()) || std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST(Batches, WithoutShuffling) {
  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  Batches batches(corpus, {.tokens = 300, .shuffle = false});
  EXPECT_EQ(batches.steps(0), batches.steps(5));
  EXPECT_EQ(batches.at(1).items, batches.at(1 + batches.first_step(1)).items);
  EXPECT_LE(corpus->target_length(batches.at(0).items[0]), corpus->target_length(batches.at(batches.steps(0) - 1).items[0]));
  EXPECT_ERROR(Batches(corpus, {.tokens = 10}), "a batch holds 10");
  EXPECT_ERROR(batches.at(-1), "step -1");
}

TEST(Batches, AreCutInAsManyPartsAsAreEven) {
  const auto alike = [](size_t count) { return std::vector<int64_t>(count, 10'000); };
  const double most = 1.12;
  EXPECT_EQ(even_parts({alike(1)}, most), 1);
  EXPECT_EQ(even_parts({alike(2)}, most), 2);
  EXPECT_EQ(even_parts({alike(3)}, most), 1) << "one part would have twice the other";
  EXPECT_EQ(even_parts({alike(9)}, most), 2) << "4 and 5, but not 2, 2, 2 and 3";
  EXPECT_EQ(even_parts({alike(9)}, 1.1), 1);
  EXPECT_EQ(even_parts({alike(64)}, most), 64);
  EXPECT_EQ(even_parts({alike(64), alike(64), alike(7)}, most), 16) << "a small batch among large ones costs little";
  EXPECT_EQ(even_parts({{1, 1, 1, 1, 96}}, most), 1);
  EXPECT_EQ(even_parts({std::vector<int64_t>(64, 10)}, most), 2) << "adding up the gradients of four small parts would cost more";

  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  Batches batches(corpus, {.tokens = 300, .seed = 7});
  std::vector<std::vector<int64_t>> all;
  for (int64_t step = 0; step < batches.steps(0); ++step) {
    all.emplace_back();
    for (const int64_t item : batches.at(step).items) all.back().push_back(corpus->source_length(item) + corpus->target_length(item));
  }
  EXPECT_EQ(batches.sample_lengths(1000), all);
  EXPECT_EQ(batches.sample_lengths(1), std::vector(1, all.front()));
}

TEST(Batches, CutIntoPartsOfAboutAsManyTokens) {
  const auto corpus = std::make_shared<const Corpus>(text(), vocabulary(), CorpusOptions{});
  Batches batches(corpus, {.tokens = 300, .seed = 7});
  for (int64_t step = 0; step < batches.steps(0); ++step) {
    const TextBatch whole = batches.at(step);
    int64_t longest = 0;
    for (const int64_t item : whole.items) longest = std::max(longest, corpus->source_length(item) + corpus->target_length(item));
    for (const int64_t count : {1, 2, 8, 64}) {
      const std::vector<TextBatch> parts = cut(whole, count);
      ASSERT_EQ(std::ssize(parts), count);
      TextBatch joined;
      joined.source_offsets = joined.target_offsets = {0};
      for (const TextBatch& part : parts) {
        EXPECT_EQ(part.step, step);
        ASSERT_EQ(part.source_offsets.size(), part.items.size() + 1);
        EXPECT_EQ(part.source_offsets.back(), std::ssize(part.source));
        EXPECT_EQ(part.target_offsets.back(), std::ssize(part.target_out));
        const auto tokens = static_cast<double>(part.source.size() + part.target_in.size());
        const double fair = static_cast<double>(whole.source.size() + whole.target_in.size()) / static_cast<double>(count);
        EXPECT_NEAR(tokens, fair, static_cast<double>(longest));
        const auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& more) {
          to.insert(to.end(), more.begin(), more.end());
        };
        for (size_t i = 1; i < part.source_offsets.size(); ++i) {
          joined.source_offsets.push_back(std::ssize(joined.source) + part.source_offsets[i]);
          joined.target_offsets.push_back(std::ssize(joined.target_in) + part.target_offsets[i]);
        }
        append(joined.items, part.items), append(joined.source, part.source);
        append(joined.target_in, part.target_in), append(joined.target_out, part.target_out);
      }
      EXPECT_EQ(joined.items, whole.items);
      EXPECT_EQ(joined.source, whole.source);
      EXPECT_EQ(joined.source_offsets, whole.source_offsets);
      EXPECT_EQ(joined.target_in, whole.target_in);
      EXPECT_EQ(joined.target_out, whole.target_out);
      EXPECT_EQ(joined.target_offsets, whole.target_offsets);
    }
  }
}

}  // namespace
}  // namespace hinge::text
