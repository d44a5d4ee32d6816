// .mo files written here and read back; what is cleaned and left out; the split; hot keys, format codes and plural rules.
#include "text/catalogues.h"

#include <set>

#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "text/mo_file.h"
#include "text/plural_forms.h"
#include "text/source.h"
#include "writers.h"

namespace hinge::text {
namespace {

using namespace std::string_literals;

const std::string kHeader = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n";

TEST(MoFile, BothByteOrders) {
  for (const bool big_end_first : {false, true}) {
    const MoFile file = parse_mo(
        mo_file({{"", kHeader}, {"Open", "Öffnen"}, {"menu\4Open", "Menü öffnen"}, {"%d file\0%d files"s, "%d Datei\0%d Dateien"s}},
                big_end_first),
        "test.mo");
    EXPECT_EQ(file.header, kHeader);
    ASSERT_EQ(file.messages.size(), 3u);
    EXPECT_EQ(file.messages[0].id, "%d file");
    EXPECT_EQ(file.messages[0].plural, "%d files");
    EXPECT_EQ(file.messages[0].forms, (std::vector<std::string>{"%d Datei", "%d Dateien"}));
    EXPECT_EQ(file.messages[1].id, "Open");
    EXPECT_EQ(file.messages[1].context, "");
    EXPECT_EQ(file.messages[2].context, "menu");
    EXPECT_EQ(file.messages[2].forms, std::vector<std::string>{"Menü öffnen"});
  }
}

TEST(MoFile, OtherEncodings) {
  const MoFile file = parse_mo(mo_file({{"", "Content-Type: text/plain; charset=ISO-8859-1\n"}, {"five", "f\xFCnf"}}), "test.mo");
  EXPECT_EQ(file.messages.at(0).forms.at(0), "fünf");
  EXPECT_ERROR(parse_mo(mo_file({{"", kHeader}, {"five", "f\xFCnf"}}), "test.mo"), "test.mo: ", "UTF-8");
  EXPECT_ERROR(parse_mo(mo_file({{"", "Content-Type: text/plain; charset=KLINGON\n"}}), "test.mo"), "KLINGON");
}

TEST(MoFile, Damaged) {
  const std::string good = mo_file({{"", kHeader}, {"Open", "Öffnen"}});
  EXPECT_ERROR(parse_mo("", "x.mo"), "x.mo: is no .mo file");
  EXPECT_ERROR(parse_mo(std::string(100, 'x'), "x.mo"), "magic number");
  for (const size_t size : {24u, 40u, 70u}) EXPECT_ERROR(parse_mo(std::string_view(good).substr(0, size), "x.mo"), "x.mo: is cut short");
  std::string newer = good;
  newer[6] = 2;
  EXPECT_ERROR(parse_mo(newer, "x.mo"), "revision 2");
}

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

// What msgfmt --no-hash of gettext 0.21 makes of a header, of Quit/Beenden, and of two c-format messages: "%<PRIu64> byte" with its plural
// and the context "disk", and "%d pages", which is translated as "%Id Seiten".
const std::string kSystemDependent = from_hex(
    "de120495010001000200000030000000400000000500000050000000020000006400000002000000740000007c00000000000000d400000004000000d5000000"
    "28000000da00000007000000030100000100000000000000000000000000000002000000070000000b01000002000000120100008400000098000000a4000000"
    "c000000014010000060000000000000016000000ffffffff3001000009000000ffffffff390100000100000000000000070000000000000007000000ffffffff"
    "48010000010000000100000009000000ffffffff005175697400436f6e74656e742d547970653a20746578742f706c61696e3b20636861727365743d5554462d"
    "380a004265656e64656e005052497536340049006469736b0425206279746500253c5052497536343e2062797465730025642070616765730025204279746500"
    "252042797465730025642053656974656e00");

// A thousand messages in the same ten thousand bytes would be ten million.
TEST(MoFile, MessagesInOnePlace) {
  const std::string text(10'000, 'x');
  std::vector<std::pair<std::string, std::string>> messages;
  for (int i = 0; i < 1000; ++i) messages.emplace_back(fmt::format("{:04}", i), "");
  messages.emplace_back("last", text);
  std::string file = mo_file(messages);
  const size_t translations = 28 + 8 * messages.size();
  const std::string last = file.substr(translations + 8 * (messages.size() - 1), 8);
  for (size_t i = 0; i < messages.size(); ++i) file.replace(translations + 8 * i, 8, last);
  EXPECT_ERROR(parse_mo(file, "test.mo"), "test.mo: ", "same places");
}

TEST(MoFile, SystemDependentStrings) {
  const MoFile file = parse_mo(kSystemDependent, "test.mo");
  ASSERT_EQ(file.messages.size(), 3u);
  EXPECT_EQ(file.messages[0].id, "Quit");
  EXPECT_EQ(file.messages[1].context, "disk");
  EXPECT_EQ(file.messages[1].id, "%<PRIu64> byte");
  EXPECT_EQ(file.messages[1].plural, "%<PRIu64> bytes");
  EXPECT_EQ(file.messages[1].forms, (std::vector<std::string>{"%<PRIu64> Byte", "%<PRIu64> Bytes"}));
  EXPECT_EQ(file.messages[2].id, "%d pages");
  EXPECT_EQ(file.messages[2].forms, std::vector<std::string>{"%d Seiten"});

  for (const size_t size : {46u, 130u, 150u, 330u})
    EXPECT_ERROR(parse_mo(std::string_view(kSystemDependent).substr(0, size), "x.mo"), "x.mo: is cut short");
  std::string damaged = kSystemDependent;
  damaged[0x8C] = 9;  // which of two parts stands in the first string
  EXPECT_ERROR(parse_mo(damaged, "x.mo"), "x.mo: is damaged", "no part 9");
}

std::vector<Pair> all_pairs(const CatalogueText& text) {
  std::vector<Pair> pairs;
  for (const ParallelText* part : {&text.train, &text.valid, &text.test})
    for (const Document& document : part->documents) pairs.insert(pairs.end(), document.pairs.begin(), document.pairs.end());
  return pairs;
}

TEST(Catalogues, CleansMessages) {
  const TemporaryFolder folder;
  folder.write("de/LC_MESSAGES/one.mo", mo_file({{"", kHeader},
                                                 {"_Open file", "Datei ö_ffnen"},
                                                 {"%d file\0%d files"s, "%d Datei\0%d Dateien"s},
                                                 {"Two\n  lines\n", "Zwei\nZeilen\n"},
                                                 {"Read %s", "Lies %d"},
                                                 {"%s: %d", "%s: %d"},
                                                 {"toolbar|Cut", "Ausschneiden"},
                                                 {"An Archive folder to use for Messages|Archive... here.", "Für Archivieren."},
                                                 {"menu\4edit|paste", "Einfügen"},
                                                 {"translator-credits", "Erika Mustermann"},
                                                 {"not translated at all", "not translated at all"},
                                                 {"Apache", "Apache"}}));
  folder.write("de/LC_MESSAGES/two.mo", mo_file({{"", kHeader}, {"Open file", "Datei öffnen"}, {"Quit", "Beenden"}, {"w\4Quit", "Ende"}}));
  folder.write("de/LC_MESSAGES/readme.txt", "not a catalogue");
  CatalogueOptions options{.root = folder.path(), .held_out = 0};
  const CatalogueText text = read_catalogues(options);
  EXPECT_EQ(text.catalogues, 2);
  EXPECT_EQ(text.messages, 14);
  ASSERT_EQ(text.train.documents.size(), 2u);
  EXPECT_EQ(text.train.documents[0].name, "one");
  EXPECT_EQ(text.train.documents[0].pairs,
            (std::vector<Pair>{{"%d file", "%d Datei"},
                               {"%d files", "%d Dateien"},
                               {"An Archive folder to use for Messages|Archive... here.", "Für Archivieren."},
                               {"Apache", "Apache"},
                               {"Two lines", "Zwei Zeilen"},
                               {"Open file", "Datei öffnen"},
                               {"edit|paste", "Einfügen"},
                               {"Cut", "Ausschneiden"}}));
  EXPECT_EQ(text.train.documents[1].pairs, (std::vector<Pair>{{"Quit", "Beenden"}, {"Quit", "Ende"}}));
  EXPECT_EQ(
      text.skipped,
      (Counts{
          {"with other format codes", 1}, {"without words", 1}, {"names of translators", 1}, {"not translated", 1}, {"there already", 1}}));
  // The other direction has the same pairs, turned round.
  options.pair = "de-en";
  std::vector<Pair> turned = all_pairs(read_catalogues(options));
  for (Pair& pair : turned) std::swap(pair.source, pair.target);
  EXPECT_EQ(turned, all_pairs(text));
}

TEST(Catalogues, WhatIsLeftOutIsCountedOnceForTheirParts) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> messages = {{"", kHeader}, {"Read %s", "Lies %d"}};
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'f'; ++b) messages.emplace_back("word "s + a + b, "Wort "s + b + a);
  folder.write("de/LC_MESSAGES/one.mo", mo_file(messages));
  TextSource source;
  source.path = folder.path(), source.held_out = 0.2;
  const TrainingText text = read_training_text(source);
  EXPECT_EQ(text.skipped, (Counts{{"with other format codes", 1}}));
  EXPECT_EQ(text.train.skipped, Counts());
  EXPECT_EQ(text.valid.skipped, Counts());
  const ParallelText alone = read_text(source, Part::valid);
  EXPECT_EQ(alone.pairs(), text.valid.pairs());
  EXPECT_EQ(alone.skipped, text.skipped) << "what is left out before the split is told with any part";
  EXPECT_GT(text.train.pairs(), text.valid.pairs());
}

TEST(Catalogues, TwoLanguagesMeetInTheMessagesOfBoth) {
  const TemporaryFolder folder;
  folder.write("de/LC_MESSAGES/a.mo",
               mo_file({{"", kHeader}, {"cat", "Katze"}, {"dog", "Hund"}, {"%d cow\0%d cows"s, "%d Kuh\0%d Kühe"s}}));
  folder.write("pl/LC_MESSAGES/a.mo",
               mo_file({{"",
                         "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && "
                         "(n%100<10 || n%100>=20) ? 1 : 2);\n"},
                        {"cat", "kot"},
                        {"%d cow\0%d cows"s, "%d krowa\0%d krowy\0%d krów"s}}));
  folder.write("de/LC_MESSAGES/b.mo", mo_file({{"", kHeader}, {"mouse", "Maus"}}));
  const CatalogueText text = read_catalogues({.root = folder.path(), .pair = "de-pl", .held_out = 0});
  EXPECT_EQ(all_pairs(text), (std::vector<Pair>{{"%d Kuh", "%d krowa"}, {"%d Kühe", "%d krów"}, {"Katze", "kot"}}));
}

TEST(Catalogues, EnglishIsNotTakenForALanguageWithoutMessages) {
  const TemporaryFolder folder;
  folder.write("de/LC_MESSAGES/a.mo", mo_file({{"", kHeader}}));
  folder.write("fr/LC_MESSAGES/a.mo", mo_file({{"", kHeader}, {"dog", "chien"}}));
  for (const char* language : {"de", "fr"})
    folder.write(std::string(language) + "/LC_MESSAGES/b.mo", mo_file({{"", kHeader}, {"cat", language == "de"s ? "Katze" : "chat"}}));
  const CatalogueText text = read_catalogues({.root = folder.path(), .pair = "de-fr", .held_out = 0});
  EXPECT_EQ(all_pairs(text), (std::vector<Pair>{{"Katze", "chat"}}));
  EXPECT_EQ(text.skipped, (Counts{{"in one language only", 1}}));
}

TEST(Catalogues, Mistakes) {
  const TemporaryFolder folder;
  folder.write("fr/LC_MESSAGES/a.mo", mo_file({{"cat", "chat"}}));
  folder.write("fr/LC_MESSAGES/b.mo", "rubbish, and long enough to be read as a header");
  const std::string root = folder.path();
  EXPECT_ERROR(read_catalogues({.root = root, .pair = "en-de"}), "de/LC_MESSAGES", "'de'", "there are: fr");
  EXPECT_ERROR(read_catalogues({.root = root + "/absent"}), "install programs");
  EXPECT_ERROR(read_catalogues({.root = root, .pair = "en-fr"}), "b.mo: is no .mo file", "; data.on_error=skip leaves such catalogues out");
  EXPECT_ERROR(read_catalogues({.root = root, .pair = "en-en"}), "'en-en'");
  EXPECT_ERROR(read_catalogues({.root = root, .pair = "en-../fr"}), "'en-../fr'");
  EXPECT_ERROR(read_catalogues({.root = root, .pair = "en-fr", .held_out = 0.5}), "0.5");
  const CatalogueText text = read_catalogues({.root = root, .pair = "en-fr", .on_error = OnError::skip, .held_out = 0});
  EXPECT_EQ(all_pairs(text), (std::vector<Pair>{{"cat", "chat"}}));
  EXPECT_EQ(text.skipped, (Counts{{"catalogues that cannot be read", 1}}));
}

TEST(NearDuplicates, Keys) {
  EXPECT_EQ(near_duplicate_key("  Open %s files (12)!"), "open files 0");
  EXPECT_EQ(near_duplicate_key("OPEN {name} Files: 7…"), "open files 0");
  EXPECT_EQ(near_duplicate_key("Größe: %1$'d × %2$d"), "größe");
  EXPECT_NE(near_duplicate_key("open file"), near_duplicate_key("open files"));
}

TEST(Split, NearDuplicatesStayTogether) {
  // Sources in groups of three that differ in case, numbers and codes; every tenth pair also shares its target with a pair far away.
  std::vector<Pair> pairs;
  const char* variants[] = {"message %s of kind ", "MESSAGE %d of kind ", "Message, of kind: "};
  const auto word = [](int i) {
    std::string letters;
    for (int n = i + 1; n > 0; n /= 26) letters += static_cast<char>('a' + n % 26);
    return letters;
  };
  for (int i = 0; i < 3000; ++i)
    for (const char* variant : variants)
      pairs.push_back({variant + word(i), i % 10 == 0 ? "Ziel " + word(i / 20) : "Nachricht " + word(i)});
  std::vector<SplitPair> pointers;
  for (const Pair& pair : pairs) pointers.push_back({&pair});
  const std::vector<Part> parts = split_parts(pointers, 0.1);

  std::map<std::string, std::set<Part>> by_key;
  std::map<Part, int> sizes;
  for (size_t i = 0; i < pairs.size(); ++i) {
    by_key["source " + near_duplicate_key(pairs[i].source)].insert(parts[i]);
    by_key["target " + near_duplicate_key(pairs[i].target)].insert(parts[i]);
    ++sizes[parts[i]];
  }
  for (const auto& [key, found] : by_key) EXPECT_EQ(found.size(), 1u) << key;
  for (const Part held_out : {Part::valid, Part::test}) {
    EXPECT_GT(sizes[held_out], 700);
    EXPECT_LT(sizes[held_out], 1100);
  }
  // Where a pair goes does not depend on the order.
  std::vector<SplitPair> turned(pointers.rbegin(), pointers.rend());
  std::vector<Part> turned_parts = split_parts(turned, 0.1);
  EXPECT_EQ(std::vector<Part>(turned_parts.rbegin(), turned_parts.rend()), parts);
  // A group that would make up most of the test is trained on.
  const std::vector<SplitPair> same(500, pointers[0]);
  EXPECT_EQ(split_parts(same, 0.4), std::vector<Part>(500, Part::train));
}

TEST(Split, OneWordMoreOrLessOrAnother) {
  using Sources = std::set<std::string>;
  const auto parts_of = [](const std::vector<std::pair<Pair, Sources>>& pairs) {
    std::vector<SplitPair> given;
    for (const auto& [pair, singulars] : pairs) given.push_back({&pair, singulars});
    return split_parts(given, 0.4);
  };
  // Of many such messages some are held out, each with all that are like it.
  int held_out = 0, apart = 0;
  for (char a = 'a'; a <= 'z'; ++a) {
    const std::string x(1, a), base = x + x + " cannot open the file";
    std::vector<Part> parts = parts_of({{{base, x + "1a"}, {}},
                                        {{base + " now", x + "2b"}, {}},
                                        {{x + x + " cannot close the file", x + "3c"}, {}},
                                        {{"so " + x + x + " cannot open the file", x + "4d"}, {}},
                                        {{"other " + x, "der " + x + x + " kann es nicht"}, {}},
                                        {{"thing " + x, "die " + x + x + " kann es nicht"}, {}},
                                        {{"a revision " + x, x + "5e"}, {}},
                                        {{"%d revisions " + x, x + "6f"}, {"one revision " + x, "a revision " + x}},
                                        {{"open " + x, x + "7g"}, {}},
                                        {{"close " + x, x + "8h"}, {}}});
    EXPECT_TRUE(std::all_of(parts.begin(), parts.begin() + 4, [&](Part part) { return part == parts[0]; })) << base;
    EXPECT_EQ(parts[4], parts[5]) << "by the targets";
    EXPECT_EQ(parts[6], parts[7]) << "plural forms";
    held_out += parts[0] == Part::train ? 0 : 1;
    apart += parts[8] == parts[9] ? 0 : 1;
  }
  EXPECT_GT(held_out, 10);
  EXPECT_GT(apart, 5) << "short messages that differ in a word are different ones";
}

TEST(HotKeys, RemovedFromBothSides) {
  const auto removed = [](std::string source, std::string target) {
    remove_hot_keys(source, target);
    return source + " / " + target;
  };
  EXPECT_EQ(removed("_File", "_Datei"), "File / Datei");
  EXPECT_EQ(removed("E_xit", "_Beenden"), "Exit / Beenden");
  EXPECT_EQ(removed("&Save As…", "Speichern &unter …"), "Save As… / Speichern unter …");
  EXPECT_EQ(removed("_File", "ファイル(_F)"), "File / ファイル");
  EXPECT_EQ(removed("Select _all", "Alles auswählen"), "Select all / Alles auswählen");
  EXPECT_EQ(removed("gtk_init failed", "gtk_init schlug fehl"), "gtk_init failed / gtk_init schlug fehl");
  EXPECT_EQ(removed("foo_bar_baz", "foo_bar_baz"), "foo_bar_baz / foo_bar_baz");
  EXPECT_EQ(removed("__FILE__", "__FILE__"), "__FILE__ / __FILE__");
  EXPECT_EQ(removed("Cut &amp; paste", "Kopieren &amp; Einfügen"), "Cut &amp; paste / Kopieren &amp; Einfügen");
  EXPECT_EQ(removed("Find & Replace", "Suchen && Ersetzen"), "Find & Replace / Suchen && Ersetzen");
  EXPECT_EQ(removed("_Do not show this message again", "Diese _Meldung nicht mehr anzeigen"),
            "Do not show this message again / Diese Meldung nicht mehr anzeigen");
}

TEST(HotKeys, NamesWithASignInFrontAreNone) {
  const auto stays = [](const std::string& source, const std::string& target) {
    std::string from = source, to = target;
    remove_hot_keys(from, to);
    return from == source && to == target;
  };
  EXPECT_TRUE(stays("symbol _start not found", "Symbol _start nicht gefunden"));
  EXPECT_TRUE(stays("pass &ptr to the function", "der Funktion &ptr übergeben"));
  EXPECT_TRUE(stays("_Pragma takes a parenthesized string literal", "_Pragma nimmt ein geklammertes Zeichenkettenliteral"));
  EXPECT_TRUE(stays("%<_Atomic%> qualified type", "%<_Atomic%>-qualifizierter Typ"));
  EXPECT_TRUE(stays("Use *_tz() function", "Die *_tz()-Funktion verwenden"));
  EXPECT_TRUE(stays("no _start in it", "darin ist kein _start-Symbol"));
  EXPECT_EQ(take_hot_key("הצג _קובץ").label, "הצג קובץ") << "letters without case are not small";
  EXPECT_TRUE(stays("gtk_init() failed", "gtk_init schlug fehl"));
  std::string source = "_Name:", target = "_Name:";
  remove_hot_keys(source, target);
  EXPECT_EQ(source + target, "Name:Name:") << "this is a label";

  const FormatSyntax c{.percent = true};
  for (const char* text : {"No %s for symbol _start", "Pass &ptr to %s", "Read file_name %s", "%<_Atomic%> in %s"})
    EXPECT_EQ(take_hot_key(text, c).marker, 0) << text;
  for (const char* text : {"symbol _start not found", "pass &ptr to the function", "no file_name given", "%<_Atomic%> in a declaration"})
    EXPECT_EQ(take_hot_key(text).marker, 0) << text;
  for (const char* text :
       {"_Redo %s", "Select File _Type (%s)", "E_xit %s", "_Detect automatically (currently %d × %d ppi)", "%s 表示(_v)"})
    EXPECT_EQ(take_hot_key(text, c).marker, '_') << text;
  EXPECT_EQ(take_hot_key("_hours").label, "hours");
  EXPECT_EQ(take_hot_key("Import data and settings from _older programs").label, "Import data and settings from older programs");
}

TEST(HotKeys, TakenAndPutBack) {
  const HotKey taken = take_hot_key("E_xit");
  EXPECT_EQ(taken.label, "Exit");
  EXPECT_EQ(taken.marker, '_');
  EXPECT_EQ(taken.key, U'x');
  EXPECT_EQ(take_hot_key("No mark").marker, 0);
  EXPECT_EQ(take_hot_key("The file file_name could not be opened").marker, 0);
  EXPECT_EQ(take_hot_key("Se_ttings…").label, "Settings…");
  EXPECT_EQ(take_hot_key("Read-_only:").label, "Read-only:");
  for (const char* name : {"x86_64", "file_name.txt", "%s_x", "'file_name'", "foo_bar_", "AT&T", "Ask R&D"})
    EXPECT_EQ(take_hot_key(name).marker, 0) << name;
  EXPECT_EQ(take_hot_key("&Call AT&T").label, "Call AT&T");
  EXPECT_EQ(put_hot_key("Datei öffnen", '_', U'ö'), "Datei _öffnen");
  EXPECT_EQ(put_hot_key("Beenden", '&', U'n'), "Bee&nden");
  EXPECT_EQ(put_hot_key("Beenden", '_', U'x'), "_Beenden");
  EXPECT_EQ(put_hot_key("…", '_', U'x'), "…");
  EXPECT_EQ(put_hot_key("Datei", 0, 0), "Datei");
}

TEST(HotKeys, AreNoPartOfFormatCodes) {
  for (const char* label : {"Open {file_name}", "%(user_name)s", "{_name}", "%_d files"}) EXPECT_EQ(take_hot_key(label).marker, 0) << label;
  EXPECT_EQ(take_hot_key("_Open {name}").label, "Open {name}");
  EXPECT_EQ(take_hot_key("rm $_x", {.shell = true}).marker, 0);
  EXPECT_EQ(take_hot_key("%(the _name)s", {.spaced_names = true}).marker, 0);
}

constexpr FormatSyntax kC{.percent = true}, kPython{.percent = true, .numbered = false, .spaced_names = true}, kQt{.qt = true},
    kJava{.commas = true}, kShell{.shell = true};

TEST(FormatCodes, Found) {
  using Codes = std::vector<std::string>;
  const auto codes = [](std::string_view text, const FormatSyntax& syntax = {}) {
    Codes found;
    for (const FormatCode& code : find_format_codes(text, syntax)) found.emplace_back(text.substr(code.begin, code.end - code.begin));
    return found;
  };
  EXPECT_EQ(codes("%s: %d of %5.2f%%"), (Codes{"%s", "%d", "%5.2f", "%%"}));
  EXPECT_EQ(codes("%2$s %1$*3$lu"), (Codes{"%2$s", "%1$*3$lu"}));
  EXPECT_EQ(codes("%(name)s has {0} {size:>10} {} ${HOME}"), (Codes{"%(name)s", "{0}", "{size:>10}", "{}", "{HOME}"}));
  EXPECT_EQ(codes("%1 of %L2, %n"), (Codes{"%1", "%L2", "%n"}));
  EXPECT_EQ(codes("%qD is not %<const%>"), (Codes{"%qD", "%<", "%>"}));
  EXPECT_EQ(codes("%<PRIu64> bytes"), (Codes{"%<PRIu64>"}));
  EXPECT_EQ(codes("100% done, 5 %"), Codes{});
  EXPECT_EQ(codes("100% done", kC), Codes{"% d"});
  EXPECT_EQ(codes("5 %", kC), Codes{"%"});
  EXPECT_EQ(codes("5 %(of) 6", kC), Codes{"%"});
  EXPECT_EQ(codes("{ not a code } {also not}"), Codes{});
  EXPECT_EQ(codes("%(total count)d of %1$s", kPython), (Codes{"%(total count)d", "%1"}));
  EXPECT_EQ(codes("5 %(of all) files"), Codes{});
  EXPECT_EQ(codes("%1s, %L2d, %n, 5% done", kQt), (Codes{"%1", "%L2", "%n"}));
  EXPECT_EQ(codes("{0,number} {1, date,short} {2,10} { not, a code }", kJava), (Codes{"{0,number}", "{1, date,short}", "{2,10}"}));
  EXPECT_EQ(codes("{yes,no} costs $5 or $price"), Codes{});
  EXPECT_EQ(codes("$file_1 ${file} $5 $ ${1} ${x", kShell), (Codes{"$file_1", "${file}", "{1}"}));
}

TEST(FormatCodes, Compared) {
  EXPECT_TRUE(same_format_codes("%s is %d", "%2$d hat %1$s"));
  EXPECT_TRUE(same_format_codes("%-10s", "%s"));
  EXPECT_TRUE(same_format_codes("%i", "%d"));
  EXPECT_TRUE(same_format_codes("{a} and {b}", "{b} und {a}"));
  EXPECT_FALSE(same_format_codes("%s is %d", "%d ist %s"));
  EXPECT_FALSE(same_format_codes("%s", "%s %s"));
  EXPECT_FALSE(same_format_codes("%s", "s"));
  EXPECT_FALSE(same_format_codes("%ld", "%d"));
  EXPECT_FALSE(same_format_codes("{name}", "{Name}"));
  EXPECT_FALSE(same_format_codes("50%%", "50 Prozent"));
  EXPECT_FALSE(same_format_codes("%d percent", "%d % der", kC));
}

TEST(FormatCodes, AreNumberedOrNot) {
  EXPECT_FALSE(same_format_codes("%s has %d", "%2$d in %s"));
  EXPECT_FALSE(same_format_codes("%*d", "%2$*d"));
  EXPECT_FALSE(same_format_codes("{} {}", "{1} {}"));
  EXPECT_TRUE(same_format_codes("{} {}", "{1} {0}"));
  EXPECT_TRUE(same_format_codes("{} of {name}", "{name}: {}"));
  EXPECT_TRUE(same_format_codes("%1$s: %m, 5%% 5%* x", "%1$s: %m, 5%% 5%* x")) << "these take no arguments";
  EXPECT_TRUE(same_format_codes("%s has %d", "%2$d in %1$s", kC));
  EXPECT_FALSE(same_format_codes("%s has %d", "%2$d in %1$s", kPython));
}

TEST(FormatCodes, OfOtherLanguages) {
  EXPECT_FALSE(same_format_codes("%(total count)d", "%(Anzahl)d", kPython));
  EXPECT_TRUE(same_format_codes("%1s of %2", "%1 s von %2", kQt));
  EXPECT_FALSE(same_format_codes("%1 %2", "%1 %1", kQt));
  EXPECT_TRUE(same_format_codes("{0,number}", "{0,number,#.#}", kJava));
  EXPECT_FALSE(same_format_codes("{0,number}", "{0}", kJava));
  EXPECT_TRUE(same_format_codes("{0,10}", "{0}", kJava));
  EXPECT_FALSE(same_format_codes("{0,10}", "{1,10}", kJava));
  EXPECT_TRUE(same_format_codes("open $file", "${file} öffnen", kShell));
  EXPECT_FALSE(same_format_codes("open $file", "$Datei öffnen", kShell));
}

TEST(PluralForms, Rules) {
  const PluralForms german;
  EXPECT_EQ(german.form(1), 0u);
  EXPECT_EQ(german.form(0), 1u);
  EXPECT_TRUE(german.singular_is_one());
  const PluralForms russian("nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);");
  for (const auto& [n, form] : std::vector<std::pair<uint64_t, size_t>>{{1, 0}, {21, 0}, {11, 2}, {3, 1}, {13, 2}, {5, 2}, {102, 1}})
    EXPECT_EQ(russian.form(n), form) << n;
  EXPECT_FALSE(russian.singular_is_one());
  const PluralForms slovenian("nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0)");
  EXPECT_EQ(slovenian.form(1), 1u);
  EXPECT_EQ(slovenian.form(5), 0u);
  EXPECT_EQ(PluralForms("nplurals=1; plural=0;").form(1), 0u);
  EXPECT_EQ(PluralForms("nplurals=2; plural=!(n*2-2 <= n/1);").form(5), 1u);
  EXPECT_ERROR(PluralForms("nplurals=INTEGER; plural=EXPRESSION;"), "nplurals=INTEGER");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=n ~ 1;"), "character 3");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=(n != 1;"), "no plural rule");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=n % 0;"), "no plural rule");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=1 / n > 1;"), "no plural rule");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=7 % (n - 200);"), "no plural rule");
  EXPECT_ERROR(PluralForms("nplurals=2; plural=" + std::string(100000, '(')), "no plural rule");
}

}  // namespace
}  // namespace hinge::text
