// .po files: what is empty, what is filled, and that nothing else changes. Where msgfmt is installed, it checks the results.
#include "text/po.h"

#include <algorithm>
#include <cstdlib>

#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "writers.h"

namespace hinge::text {
namespace {

const std::string kPo = R"po(# Translators' names.
#
msgid ""
msgstr ""
"Project-Id-Version: test\n"
"PO-Revision-Date: 2024-01-01 00:00+0000\n"
"Last-Translator: nobody\n"
"Language-Team: none\n"
"Language: de\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: main.c:1
msgid "Done"
msgstr "Fertig"

#. A comment for translators
#: main.c:2
#, c-format
msgid "Cannot open %s: \"%s\"\n"
msgstr ""

msgctxt "menu"
msgid "Open"
msgstr   ""
#: main.c:4
#| msgid "Old file"
msgid ""
"First line\n"
"second	line\\\n"
msgstr ""
""

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
#| msgid "Clos"
msgid "Close"
msgstr ""

msgid "One"
msgid_plural "Many"
msgstr[0] "Eins"
msgstr[1] ""

#~ msgid "Obsolete"
#~ msgstr ""
)po";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

void expect_msgfmt_accepts(const std::string& text) {
  if (std::system("command -v msgfmt >/dev/null 2>&1") != 0) return;
  const TemporaryFolder folder;
  const std::string command = "msgfmt -c --use-fuzzy -o " + folder.path("out.mo") + " " + folder.write("in.po", text);
  EXPECT_EQ(std::system(command.c_str()), 0) << text;
}

TEST(Po, EmptyEntries) {
  const PoFile file(kPo, "de.po");
  EXPECT_EQ(file.messages(), 7);
  const std::vector<PoEntry>& entries = file.empty_entries();
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].id, "Cannot open %s: \"%s\"\n");
  EXPECT_EQ(entries[0].line, 22);
  EXPECT_TRUE(entries[0].has_flag("c-format"));
  EXPECT_EQ(entries[1].context, "menu");
  EXPECT_EQ(entries[1].sources, std::vector<std::string>{"Open"});
  EXPECT_EQ(entries[2].id, "First line\nsecond\tline\\\n");
  EXPECT_EQ(entries[3].plural, "%d files");
  EXPECT_EQ(entries[3].sources, (std::vector<std::string>{"%d file", "%d files"}));
  EXPECT_TRUE(entries[4].has_flag("fuzzy"));
  EXPECT_EQ(file.text(), kPo);
}

TEST(Po, FillsAndLeavesTheRest) {
  for (const bool crlf : {false, true}) {
    const auto ends = [&](std::string text) {
      for (size_t at = 0; crlf && (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, "\r");
      return text;
    };
    PoFile file(ends(kPo), "de.po");
    EXPECT_EQ(file.fill(0, {"Kann %s nicht öffnen: „%s“"}), PoFilled::filled);
    EXPECT_EQ(file.fill(1, {"Öffnen"}), PoFilled::filled);
    EXPECT_EQ(file.fill(2, {"Erste Zeile\nzweite\t\"Zeile\"\\"}), PoFilled::filled);
    EXPECT_EQ(file.fill(3, {"%d Datei", "%d Dateien"}), PoFilled::filled);
    EXPECT_EQ(file.fill(4, {"Schließen"}), PoFilled::filled);
    std::string expected = kPo;
    expected = replaced(expected, "#, c-format\nmsgid \"Cannot open %s: \\\"%s\\\"\\n\"\nmsgstr \"\"",
                        "#, fuzzy, c-format\nmsgid \"Cannot open %s: \\\"%s\\\"\\n\"\nmsgstr \"Kann %s nicht öffnen: „%s“\\n\"");
    expected = replaced(expected, "msgctxt \"menu\"\nmsgid \"Open\"\nmsgstr   \"\"",
                        "#, fuzzy\nmsgctxt \"menu\"\nmsgid \"Open\"\nmsgstr   \"Öffnen\"");
    expected = replaced(expected, "#| msgid \"Old", "#, fuzzy\n#| msgid \"Old");
    expected = replaced(expected, "line\\\\\\n\"\nmsgstr \"\"\n\"\"",
                        "line\\\\\\n\"\nmsgstr \"\"\n\"Erste Zeile\\n\"\n\"zweite\\t\\\"Zeile\\\"\\\\\\n\"");
    expected = replaced(expected, "#, c-format\nmsgid \"%d file\"", "#, fuzzy, c-format\nmsgid \"%d file\"");
    expected = replaced(expected, "msgstr[0] \"\"\nmsgstr[1] \"\"", "msgstr[0] \"%d Datei\"\nmsgstr[1] \"%d Dateien\"");
    expected = replaced(expected, "msgid \"Close\"\nmsgstr \"\"", "msgid \"Close\"\nmsgstr \"Schließen\"");
    EXPECT_EQ(file.text(), ends(expected));
    // What was written is read back.
    const PoFile again(file.text(), "de.po");
    EXPECT_TRUE(again.empty_entries().empty());
    expect_msgfmt_accepts(file.text());
  }
}

TEST(Po, FilledTwice) {
  PoFile file(kPo, "de.po");
  EXPECT_EQ(file.fill(4, {"Falsch"}), PoFilled::filled);
  EXPECT_EQ(file.fill(4, {" Schließen "}), PoFilled::filled);
  EXPECT_EQ(file.text(), replaced(kPo, "msgid \"Close\"\nmsgstr \"\"", "msgid \"Close\"\nmsgstr \"Schließen\""));
}

TEST(Po, FormatCodesMustBeTheSame) {
  PoFile file(kPo, "de.po");
  EXPECT_EQ(file.fill(0, {"Kann %s nicht öffnen"}), PoFilled::format_codes_differ);
  EXPECT_EQ(file.fill(0, {"Kann %s nicht öffnen: %d"}), PoFilled::format_codes_differ);
  EXPECT_EQ(file.fill(0, {"100% der %s nicht: %s"}), PoFilled::format_codes_differ);
  EXPECT_EQ(file.fill(3, {"%d Datei", "Dateien"}), PoFilled::format_codes_differ);
  EXPECT_EQ(file.fill(1, {" "}), PoFilled::empty);
  EXPECT_EQ(file.text(), kPo);
  EXPECT_EQ(file.fill(0, {"%2$s kann nicht geöffnet werden: %1$s"}), PoFilled::filled);
  EXPECT_EQ(file.fill(0, {"Kann nicht öffnen"}), PoFilled::format_codes_differ) << "the earlier filling must go";
  EXPECT_EQ(file.text(), kPo);
  EXPECT_ERROR(file.fill(3, {"%d Datei"}), "de.po:37", "2 forms");
}

TEST(Po, FlagsSayWhichCodesThereAre) {
  struct Case {
    const char *flags, *id, *good, *bad;  // a message, a translation that msgfmt accepts and one that it does not
  };
  for (const Case& one : {Case{"c-format", "%s has %d", "%2$d in %1$s", "%2$d in %s"},
                          Case{"python-format", "%(total count)d items", "%(total count)d Dinge", "%(Anzahl)d Dinge"},
                          Case{"python-format", "%s has %d", "%s: %d", "%2$d in %1$s"},
                          Case{"lua-format", "%s has %d", "%s: %d", "%2$d in %1$s"},
                          Case{"kde-format", "%1s of %2", "%1 s von %2", "%1 s"},
                          Case{"qt-format", "%1d and %2", "%2 und %1 d", "%1 d"},
                          Case{"java-format", "{0,number} files", "Dateien: {0,number,#}", "{0} Dateien"},
                          Case{"java-format", "file {0}", "Datei ''{0}''", "d'ouvrir {0}"},
                          Case{"java-format", "a '{'{0}", "{0} '{'", "a '{0}'"},
                          Case{"java-format", "a '{'{0}", "{0} '}'", "''{'' {0}"},
                          Case{"java-format", "a {0}", "{0}", "{0} }"},
                          Case{"ruby-format", "%<name>s of %{all}", "%{all}: %<name>s", "%{all}: %<Name>s"},
                          Case{"boost-format", "%1% files of %2%", "%2%: %1% Dateien", "%1% Dateien"},
                          Case{"boost-format", "%|1$5| files", "Dateien: %|1$5|", "Dateien: %|2$5|"},
                          Case{"lisp-format", "~a has ~5d~%", "~a: ~5d~%", "~d: ~a~%"},
                          Case{"scheme-format", "~a files", "~a Dateien", "Dateien"},
                          Case{"csharp-format", "{0,10} files", "{0} Dateien", "Dateien"},
                          Case{"sh-format", "open $file", "${file} öffnen", "$Datei öffnen"},
                          Case{"fuzzy, python-brace-format", "{n}% done", "{n} % erledigt", "{m} % erledigt"},
                          Case{"no-c-format", "100% done", "100 % erledigt", "%d erledigt"}}) {
    PoFile file(kPo.substr(0, kPo.find("#:")) + "#, " + one.flags + "\nmsgid \"" + one.id + "\"\nmsgstr \"\"\n", "x.po");
    EXPECT_EQ(file.fill(0, {one.bad}), PoFilled::format_codes_differ) << one.flags << ": " << one.bad;
    ASSERT_EQ(file.fill(0, {one.good}), PoFilled::filled) << one.flags << ": " << one.good;
    expect_msgfmt_accepts(file.text());
  }
}

TEST(Po, PluralsOfOtherLanguages) {
  const auto sources = [](const std::string& rule, const std::string& one, const std::string& many, int forms) {
    std::string po = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: " + rule + "\\n\"\n\nmsgid \"" + one +
                     "\"\nmsgid_plural \"" + many + "\"\n";
    for (int i = 0; i < forms; ++i) po += "msgstr[" + std::to_string(i) + "] \"\"\n";
    return PoFile(po, "x.po").empty_entries().at(0).sources;
  };
  using Sources = std::vector<std::string>;
  const std::string russian = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);";
  EXPECT_EQ(sources(russian, "%d file", "%d files", 3), (Sources{"%d file", "%d files", "%d files"}));
  EXPECT_EQ(sources(russian, "one file", "%d files", 3), (Sources{"%d files", "%d files", "%d files"}));
  EXPECT_EQ(sources("nplurals=2; plural=(n != 1);", "one file", "%d files", 2), (Sources{"one file", "%d files"}));
  EXPECT_EQ(sources("nplurals=1; plural=0;", "%d file", "%d files", 1), Sources{"%d files"});
  EXPECT_EQ(sources("nplurals=INTEGER; plural=EXPRESSION;", "one file", "%d files", 1), Sources{"%d files"});
}

TEST(Po, OldContextsAreNotTranslated) {
  const auto source = [](const std::string& entry) { return PoFile(entry + "msgstr \"\"\n", "x.po").empty_entries().at(0).sources.at(0); };
  const auto source_of_id = [&](const std::string& id) { return source("msgid \"" + id + "\"\n"); };
  EXPECT_EQ(source_of_id("Verb|Open"), "Open");
  EXPECT_EQ(source_of_id("menuitem|_Copy"), "_Copy");
  EXPECT_EQ(source_of_id("keyboard label|Page %d Up"), "Page %d Up");
  EXPECT_EQ(source_of_id("calendar:week|Week"), "Week");
  for (const std::string other :
       {"on|off", "blob|tree", "FILE|DIR", "file|DIR", "Usage: sln src dest|File", "[-a|-b]", "Use -a|Print", "one | Two", "With |Pipe",
        "One|Two|Three", "|Pipe", "Pipe|", "a%s|Open", "a (very|Very) long text", "of more words than a context has|Open"})
    EXPECT_EQ(source_of_id(other), other);
  EXPECT_EQ(source("msgctxt \"menu\"\nmsgid \"Verb|Open\"\n"), "Verb|Open") << "it has a context";
  EXPECT_EQ(
      PoFile("msgid \"Noun|File\"\nmsgid_plural \"Noun|Files\"\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n", "x.po").empty_entries().at(0).sources,
      (std::vector<std::string>{"Noun|File", "Noun|Files"}));

  PoFile file(kPo + "\n#, c-format\nmsgid \"Verb|Open %s\\n\"\nmsgstr \"\"\n", "x.po");
  EXPECT_EQ(file.fill(5, {"%s öffnen"}), PoFilled::filled);
  EXPECT_NE(file.text().find("msgid \"Verb|Open %s\\n\"\nmsgstr \"%s öffnen\\n\""), std::string::npos) << file.text();
  expect_msgfmt_accepts(file.text());
}

TEST(Po, NamesOfTranslatorsAreTold) {
  const auto names = [](const std::string& entry) {
    const PoFile file(entry + "\nmsgstr \"\"\n", "x.po");
    return names_translators(file.empty_entries().at(0).id, file.empty_entries().at(0).context);
  };
  EXPECT_TRUE(names("msgid \"translator-credits\""));
  EXPECT_TRUE(names("msgid \"translator_credits\""));
  EXPECT_TRUE(names("msgctxt \"EMAIL OF TRANSLATORS\"\nmsgid \"Your emails\""));
  EXPECT_FALSE(names("msgid \"Credits of the translator\""));
}

TEST(Po, NamesItsLanguage) {
  for (const auto& [locale, variant] : {std::pair<std::string, LocaleVariant>{"de", {"", ""}},
                                        {"de_AT", {"at", ""}},
                                        {"pt-BR", {"br", ""}},
                                        {"sr@latin", {"", "latin"}},
                                        {"sr_RS@latin", {"rs", "latin"}},
                                        {"de_AT.UTF-8@euro", {"at", "euro"}},
                                        {"de.UTF-8", {"", ""}},
                                        {"", {"", ""}}})
    EXPECT_TRUE(variant_of(locale) == variant) << locale;
  EXPECT_EQ(PoFile(kPo, "de.po").language(), "de");
  EXPECT_EQ(PoFile("msgid \"\"\nmsgstr \"Language: \\nLanguage-Team: de\\n\"\n", "x.po").language(), "");
  EXPECT_EQ(PoFile("msgid \"a\"\nmsgstr \"\"\n", "x.po").language(), "") << "no header";
  for (const char* locale : {"de", "de_AT", "DE-AT", "de@euro", "de.UTF-8"}) EXPECT_EQ(language_of(locale), "de");
  EXPECT_EQ(language_of("German"), "german");
  EXPECT_EQ(language_of(""), "");
}

TEST(Po, WordsAreLettersBesideCodesAndAddresses) {
  for (const char* text : {"%d %%", "{name}: 100", "—…", "", "%(user name)s", "https://www.gnome.org/%s/x", "1. (https://x.org)", "$x"})
    EXPECT_FALSE(has_words(text, {.spaced_names = true, .shell = true})) << text;
  for (const char* text : {"%d files", "ä", "%s: Fehler", "see https://x.org", "see:https://x.org", "\u3092https://x.org", "$x"})
    EXPECT_TRUE(has_words(text)) << text;
}

TEST(Po, HotKeysStayOutsideOfFormatCodes) {
  EXPECT_EQ(put_hot_key("%d Dateien", '_', U'd'), "%d _Dateien");
  EXPECT_EQ(put_hot_key("%s und es", '_', U's'), "%s und e_s");
  EXPECT_EQ(put_hot_key("{name}: 5", '&', U'n'), "{name}: &5");
  EXPECT_EQ(put_hot_key("%s", '_', U's'), "%s");
  EXPECT_EQ(put_hot_key("$name öffnen", '_', U'n', {.shell = true}), "$name öff_nen");
}

TEST(Po, EscapesAndEnds) {
  PoFile file("msgid \"\\x41\\102 \\a\\q\" \"more\"\nmsgstr \"\"\n", "x.po");
  EXPECT_EQ(file.empty_entries().at(0).id, "AB \a\\qmore");
  // As in gettext, the last two of many hexadecimal digits count.
  PoFile digits("msgid \"\\x00000000000041,\\xFFFFFFFFFFFF42\"\nmsgstr \"\"\n", "x.po");
  EXPECT_EQ(digits.empty_entries().at(0).id, "A,B");
  EXPECT_EQ(with_ends_of("\n  text: ", "Text: \n"), "\n  Text: ");
  EXPECT_EQ(with_ends_of("text", " Text "), "Text");
  // A file that ends without a line end.
  PoFile last("msgid \"a\"\nmsgstr \"\"", "x.po");
  last.fill(0, {"b"});
  EXPECT_EQ(last.text(), "#, fuzzy\nmsgid \"a\"\nmsgstr \"b\"");
  // A file whose first line belongs to an entry.
  PoFile first("msgctxt \"c\"\nmsgid \"a\"\nmsgstr \"\"\n", "x.po");
  first.fill(0, {"b"});
  EXPECT_EQ(first.text(), "#, fuzzy\nmsgctxt \"c\"\nmsgid \"a\"\nmsgstr \"b\"\n");
}

TEST(Po, LinesAreThoseOfTheFilledFile) {
  PoFile file(kPo, "de.po");
  const auto number_of = [&](const std::string& text, const std::string& line) {
    return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(line)), '\n') + 1;
  };
  std::vector<int64_t> before;
  for (const PoEntry& entry : file.empty_entries()) before.push_back(entry.line);
  EXPECT_EQ(file.lines(), before);
  file.fill(0, {"Kann %s nicht öffnen: %s"});
  file.fill(1, {"Öffnen"});
  file.fill(2, {"Erste\nzweite\ndritte"});
  EXPECT_EQ(file.lines().at(1), number_of(file.text(), "msgid \"Open\""));
  EXPECT_EQ(file.lines().at(3), number_of(file.text(), "msgid \"%d file\""));
  EXPECT_EQ(file.lines().at(4), number_of(file.text(), "msgid \"Close\""));
}

TEST(Po, WhatIsUnusualButAllowed) {
  EXPECT_EQ(PoFile(kPo, "de.po").partly_translated(), 1);
  // Blank lines within an entry, and a string below its keyword.
  PoFile loose("msgid\n\n\"a\"\n\n\"b\"\nmsgstr\n\"\"\n", "x.po");
  EXPECT_EQ(loose.empty_entries().at(0).id, "ab");
  loose.fill(0, {"c"});
  EXPECT_EQ(loose.text(), "#, fuzzy\nmsgid\n\n\"a\"\n\n\"b\"\nmsgstr\n\"c\"\n");
  EXPECT_EQ(PoFile("msgid\r\n\"a\"\r\nmsgstr\r\n\"\"\r\n", "x.po").empty_entries().at(0).id, "a");
  // White space is its own translation.
  PoFile space("msgid \" \\n\"\nmsgstr \"\"\n", "x.po");
  EXPECT_EQ(space.fill(0, {""}), PoFilled::filled);
  EXPECT_EQ(space.text(), "#, fuzzy\nmsgid \" \\n\"\nmsgstr \" \\n\"\n");
  EXPECT_TRUE(PoFile("\xEF\xBB\xBFmsgid \"a\"\nmsgstr \"\"\n", "x.po").has_byte_order_mark());
  EXPECT_FALSE(loose.has_byte_order_mark());
}

TEST(Po, Mistakes) {
  EXPECT_ERROR(PoFile("# old\rmsgid \"a\"\rmsgstr \"\"\r", "x.po"), "x.po", "CR");
  EXPECT_ERROR(PoFile("msgid \"a\"\nmsgstr\n\nmsgid \"b\"\nmsgstr \"\"\n", "x.po"), "x.po:1: ", "without a string");
  EXPECT_ERROR(PoFile("msgid \"a\"\nmsgstr \"b\nx", "x.po"), "x.po:2: ", "quotation mark");
  EXPECT_ERROR(PoFile("msgid \"a\"\nmsgstr \"\\\"\n", "x.po"), "x.po:2: ", "quotation mark");
  EXPECT_ERROR(PoFile("msgid \"a\"\n\nhello\n", "x.po"), "x.po:3: ", "not understood");
  EXPECT_ERROR(PoFile("\"a\"\n", "x.po"), "x.po:1: ");
  EXPECT_ERROR(PoFile("msgstr \"a\"\n", "x.po"), "x.po:1: ", "without a msgid");
  EXPECT_ERROR(PoFile("msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[1] \"\"\n", "x.po"), "x.po:3: ", "msgstr[0]");
  EXPECT_ERROR(PoFile("msgid \"a\"\nmsgid \"b\"\nmsgstr \"\"\n", "x.po"), "x.po:1: ", "no msgstr");
  EXPECT_ERROR(PoFile("msgid \"f\xFCnf\"\nmsgstr \"\"\n", "x.po"), "x.po:1: ", "UTF-8");
  EXPECT_ERROR(PoFile("msgid \"f\\374nf\"\nmsgstr \"\"\n", "x.po"), "x.po:1: ", "UTF-8", "escapes");
  EXPECT_ERROR(PoFile("msgid \"one\"\nmsgid_plural \"\\xfc\"\nmsgstr[0] \"\"\n", "x.po"), "x.po:1: ", "UTF-8", "escapes");
  EXPECT_ERROR(PoFile("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=ISO-8859-1\\n\"\n", "x.po"), "ISO-8859-1", "msgconv");
  for (const std::string charset : {"ASCII", "US-ASCII"})
    EXPECT_ERROR(PoFile("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=" + charset + "\\n\"\n", "x.po"), charset, "msgconv");
  const PoFile filled_in("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n", "x.po");
  const PoFile unfilled("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=CHARSET\\n\"\n", "x.po");
  EXPECT_TRUE(filled_in.names_charset());
  EXPECT_FALSE(unfilled.names_charset()) << "a template";
  EXPECT_FALSE(PoFile("msgid \"\"\nmsgstr \"Language: de\\n\"\n", "x.po").names_charset());
  EXPECT_FALSE(PoFile("msgid \"a\"\nmsgstr \"\"\n", "x.po").names_charset()) << "no header";
}

}  // namespace
}  // namespace hinge::text
