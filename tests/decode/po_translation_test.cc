// Filling catalogues by a made-up translation: capital letters.
#include "decode/po_translation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

namespace hinge::decode {
namespace {

using Texts = std::vector<std::string>;

std::string header() {
  return "msgid \"\"\nmsgstr \"\"\n\"Content-Type: text/plain; charset=UTF-8\\n\"\n\"Plural-Forms: nplurals=2; plural=(n != 1);\\n\"\n\n";
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// %s becomes %S in the first translation, which is wrong; the second keeps it.
std::vector<Texts> capitals(const Texts& texts) {
  std::vector<Texts> all;
  for (const std::string& text : texts) {
    std::string kept = upper(text);
    for (size_t at = kept.find("%S"); at != std::string::npos; at = kept.find("%S", at + 1)) kept[at + 1] = 's';
    all.push_back({upper(text), kept});
  }
  return all;
}

TEST(PoTranslation, FillsWhatIsEmptyAndNothingElse) {
  const std::string translated = "#: a.c:1\nmsgid \"done\"\nmsgstr \"erledigt\"\n\n";
  const std::string before = header() + translated + "msgid \"open\"\nmsgstr \"\"\n\n#, c-format\nmsgid \"open %s\\n\"\nmsgstr \"\"\n";
  text::PoFile file(before, "x.po");
  const PoReport report = fill_po(file, capitals);
  EXPECT_EQ(report.messages, 3);
  EXPECT_EQ(report.empty, 2);
  EXPECT_EQ(report.filled, 2);
  EXPECT_EQ(file.text(), header() + translated +
                             "#, fuzzy\nmsgid \"open\"\nmsgstr \"OPEN\"\n\n#, fuzzy, c-format\nmsgid \"open %s\\n\"\n"
                             "msgstr \"OPEN %s\\n\"\n");
}

TEST(PoTranslation, WrongFormatCodesStayEmptyAndAreCounted) {
  const std::string before = header() + "#, c-format\nmsgid \"%s is %d\"\nmsgstr \"\"\n\nmsgid \"nothing\"\nmsgstr \"\"\n";
  text::PoFile file(before, "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"%s is %d", "nothing"}));
    return std::vector<Texts>{{"%s ist", "das ist %d"}, {" "}};
  });
  EXPECT_EQ(report.filled, 0);
  EXPECT_EQ(report.format_codes_differ, std::vector<int64_t>{7});
  EXPECT_EQ(report.untranslated, std::vector<int64_t>{10});
  EXPECT_EQ(file.text(), before);
}

TEST(PoTranslation, HotKeysAreTakenOutAndPutBack) {
  text::PoFile file(header() + "msgid \"E_xit now\"\nmsgstr \"\"\n\nmsgid \"&File\"\nmsgstr \"\"\n\nmsgid \"_save %s\"\nmsgstr \"\"\n",
                    "x.po");
  fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"Exit now", "File", "save %s"}));
    return std::vector<Texts>{{"Jetzt beenden"}, {"Datei"}, {"%s"}};
  });
  EXPECT_NE(file.text().find("msgstr \"_Jetzt beenden\""), std::string::npos) << file.text();
  EXPECT_NE(file.text().find("msgstr \"&Datei\""), std::string::npos) << file.text();
  EXPECT_NE(file.text().find("msgstr \"%s\""), std::string::npos) << "the mark must not get into the code\n" << file.text();
}

TEST(PoTranslation, HotKeysAreOnLettersThatAreInNoCode) {
  text::PoFile file(header() + "#, c-format\nmsgid \"_Delete %d\"\nmsgstr \"\"\n\n#, sh-format\nmsgid \"_Open $name\"\nmsgstr \"\"\n",
                    "x.po");
  fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"Delete %d", "Open $name"}));
    return std::vector<Texts>{{"%d Dateien entfernen"}, {"$name anzeigen"}};
  });
  EXPECT_NE(file.text().find("msgstr \"%d _Dateien entfernen\""), std::string::npos) << file.text();
  EXPECT_NE(file.text().find("msgstr \"$name _anzeigen\""), std::string::npos) << file.text();
}

TEST(PoTranslation, WhatHasNoWordsIsItsOwnTranslation) {
  text::PoFile file(header() +
                        "#, c-format\nmsgid \"%s:  %d\\n%s\\n\"\nmsgstr \"\"\n\nmsgid \"_1\"\nmsgstr \"\"\n\n"
                        "msgid \"\"\n\"first\\n\"\n\"\\n\"\n\"---  ---\\n\"\nmsgstr \"\"\n\nmsgid \"https://x.org\"\nmsgstr \"\"\n\n"
                        "msgid \"https://x.org (_F)\"\nmsgstr \"\"\n\nmsgid \"%s (_O)\"\nmsgstr \"\"\n",
                    "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"first"}));
    return std::vector<Texts>{{"erstens"}};
  });
  EXPECT_EQ(report.filled, 6);
  for (const char* part :
       {"msgstr \"https://x.org (_F)\"\n", "msgstr \"%s (_O)\"\n",
        "#, fuzzy, c-format\nmsgid \"%s:  %d\\n%s\\n\"\nmsgstr \"\"\n\"%s:  %d\\n\"\n\"%s\\n\"\n",
        "#, fuzzy\nmsgid \"_1\"\nmsgstr \"_1\"\n", "msgstr \"\"\n\"erstens\\n\"\n\"\\n\"\n\"---  ---\\n\"\n", "msgstr \"https://x.org\"\n"})
    EXPECT_NE(file.text().find(part), std::string::npos) << part << file.text();
}

TEST(PoTranslation, NamesOfTranslatorsAreLeftToThem) {
  const std::string before = header() + "msgid \"translator-credits\"\nmsgstr \"\"\n\nmsgid \"translator_credits\"\nmsgstr \"\"\n";
  text::PoFile file(before, "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts());
    return std::vector<Texts>();
  });
  EXPECT_EQ(report.names_translators, (std::vector<int64_t>{6, 9}));
  EXPECT_EQ(report.empty, 2);
  EXPECT_EQ(file.text(), before);
}

TEST(PoTranslation, TextsThatAreTooLongAreToldFromOthers) {
  const std::string before = header() + "msgid \"\"\n\"short\\n\"\n\"\\n\"\n\"long\\n\"\nmsgstr \"\"\n\nmsgid \"nothing\"\nmsgstr \"\"\n";
  text::PoFile file(before, "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"short", "long", "nothing"}));
    return std::vector<Texts>{{"kurz"}, {}, {""}};
  });
  EXPECT_EQ(report.too_long, std::vector<int64_t>{6});
  EXPECT_EQ(report.untranslated, std::vector<int64_t>{12});
  EXPECT_EQ(report.filled, 0);
  EXPECT_EQ(file.text(), before);
}

TEST(PoTranslation, OldContextsAreNotTranslated) {
  text::PoFile file(header() + "msgid \"Verb|_Open\"\nmsgstr \"\"\n", "x.po");
  fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"Open"}));
    return std::vector<Texts>{{"Öffnen"}};
  });
  EXPECT_NE(file.text().find("msgid \"Verb|_Open\"\nmsgstr \"_Öffnen\"\n"), std::string::npos) << file.text();
}

TEST(PoTranslation, CodesAreNotTakenForHotKeys) {
  text::PoFile file(header() + "msgid \"a {file_name}\"\nmsgstr \"\"\n\n#, sh-format\nmsgid \"a $file_name\"\nmsgstr \"\"\n", "x.po");
  fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"a {file_name}", "a $file_name"}));
    return std::vector<Texts>{{"{file_name}"}, {"$file_name"}};
  });
  EXPECT_TRUE(text::PoFile(file.text(), "x.po").empty_entries().empty()) << file.text();
}

TEST(PoTranslation, APartWithoutTranslationLeavesTheEntryEmpty) {
  const std::string before = header() + "msgid \"\"\n\"first\\n\"\n\"\\n\"\n\"second\\n\"\nmsgstr \"\"\n";
  text::PoFile file(before, "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"first", "second"}));
    return std::vector<Texts>{{"erstens"}, {""}};
  });
  EXPECT_EQ(report.filled, 0);
  EXPECT_EQ(report.untranslated, std::vector<int64_t>{6});
  EXPECT_EQ(file.text(), before);
}

TEST(PoTranslation, TheFlagsDecideWhichTranslationIsRight) {
  text::PoFile file(header() + "#, python-brace-format\nmsgid \"{n}% done\"\nmsgstr \"\"\n", "x.po");
  fill_po(file, [](const Texts&) { return std::vector<Texts>{{"{n}% fertig", "{n}% da"}}; });
  EXPECT_NE(file.text().find("msgstr \"{n}% fertig\""), std::string::npos) << file.text();
}

TEST(PoTranslation, PluralFormsAndEqualTextsAreTranslatedOnce) {
  text::PoFile file(header() +
                        "msgid \"a file\"\nmsgid_plural \"%d files\"\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n\n"
                        "msgctxt \"menu\"\nmsgid \"a file\"\nmsgstr \"\"\n",
                    "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"a file", "%d files"}));
    return std::vector<Texts>{{"eine Datei"}, {"%d Dateien"}};
  });
  EXPECT_EQ(report.filled, 2);
  EXPECT_NE(file.text().find("msgstr[0] \"eine Datei\"\nmsgstr[1] \"%d Dateien\"\n"), std::string::npos) << file.text();
}

TEST(PoTranslation, MessagesKeepTheirShape) {
  const auto joined = [](const MessageParts& parts) {
    std::string text;
    for (size_t i = 0; i < parts.texts.size(); ++i) text += parts.before[i] + "<" + parts.texts[i] + ">";
    return text + parts.before.back();
  };
  EXPECT_EQ(joined(split_message("one line")), "<one line>");
  EXPECT_EQ(joined(split_message("a long\nline that\nis wrapped\n")), "<a long line that is wrapped>\n");
  EXPECT_EQ(joined(split_message("first\n\nsecond\nmore\n")), "<first>\n\n<second more>\n");
  EXPECT_EQ(joined(split_message("Usage: x\n  -a  all\n  -b,  --both\n")), "<Usage: x>\n  -a  <all>\n  -b,  <--both>\n");
  EXPECT_EQ(joined(split_message("Host: %s\nPort: %d\n")), "<Host: %s>\n<Port: %d>\n") << "each line is by itself";
  EXPECT_EQ(joined(split_message("Is done.\nand more")), "<Is done.>\n<and more>");
  EXPECT_EQ(joined(split_message("Name\tSize \t Date")), "<Name>\t<Size> \t <Date>");
  EXPECT_EQ(joined(split_message("&Open\tCtrl+O")), "<&Open>\tCtrl+O");
  EXPECT_EQ(joined(split_message("Help\tF1")), "<Help>\tF1");
  EXPECT_EQ(joined(split_message("&Delete\tDel")), "<&Delete>\tDel");
  EXPECT_EQ(joined(split_message("Name:     %s\nSize:  %d\n")), "<Name:>     <%s>\n<Size:>  <%d>\n");
  EXPECT_EQ(joined(split_message("Help\tForm\nCtrl+O")), "<Help>\t<Form>\n<Ctrl+O>");
  EXPECT_EQ(joined(split_message("One.  Two.   Three  four")), "<One.  Two.   Three>  <four>") << "gaps between sentences are none";
  EXPECT_EQ(joined(split_message("- an item")), "<- an item>");
  const std::string full = "This line has more than fifty characters, so it may be full", next = "Then comes another.";
  EXPECT_EQ(joined(split_message(full + "\n" + next)), "<" + full + " " + next + ">");
  EXPECT_EQ(split_message(full + "\n" + next + "\n\nx").widths, (std::vector<size_t>{full.size(), 0}));
  EXPECT_EQ(joined(split_message("things:\n- one\n- two\nof them")), "<things:>\n<- one>\n<- two of them>");
  EXPECT_EQ(joined(split_message("\n\n x \n")), "\n\n <x> \n");
  EXPECT_EQ(joined(split_message("\n")), "\n");
  EXPECT_EQ(joined(split_message("")), "");

  text::PoFile file(header() + "msgid \"\"\n\"Usage: x\\n\"\n\"  -a   all\\n\"\nmsgstr \"\"\n", "x.po");
  fill_po(file, capitals);
  EXPECT_NE(file.text().find("msgstr \"\"\n\"USAGE: X\\n\"\n\"  -a   ALL\\n\"\n"), std::string::npos) << file.text();
}

TEST(PoTranslation, WhatWasWrappedIsWrapped) {
  text::PoFile file(header() + "#, python-format\nmsgid \"\"\n\"a line that\\n\"\n\"goes %(on and on)s\\n\"\nmsgstr \"\"\n\n" +
                        "msgid \"\"\n\"first words\\n\"\n\"and others\\n\"\nmsgstr \"\"\n",
                    "x.po");
  fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"a line that goes %(on and on)s", "first words and others"}));
    return std::vector<Texts>{{"einige Worte %(on and on)s"}, {"ein paar Wörter und sehrlangeandere"}};
  });
  EXPECT_NE(file.text().find("msgstr \"einige Worte %(on and on)s\\n\""), std::string::npos) << "a code stays whole\n" << file.text();
  EXPECT_NE(file.text().find("\"ein paar\\n\"\n\"Wörter und\\n\"\n\"sehrlangeandere\\n\"\n"), std::string::npos) << file.text();
}

TEST(PoTranslation, ControlCodesAreLeftToPeople) {
  const std::string before = header() + "msgid \"\\033[1mDone\\033[0m\"\nmsgstr \"\"\n\nmsgid \"\\r\"\nmsgstr \"\"\n\n";
  text::PoFile file(before + "msgid \"\\a\\bx\"\nmsgstr \"\"\n", "x.po");
  const PoReport report = fill_po(file, capitals);
  EXPECT_EQ(report.control_codes, (std::vector<int64_t>{6, 13})) << "in the filled file";
  EXPECT_EQ(report.filled, 1);
}

TEST(PoTranslation, ApostrophesOfJavaAreDoubled) {
  text::PoFile file(header() + "#, java-format\nmsgid \"Can''t open {0}\"\nmsgstr \"\"\n\n#, java-format\nmsgid \"Can't\"\nmsgstr \"\"\n",
                    "x.po");
  const PoReport report = fill_po(file, [](const Texts& texts) {
    EXPECT_EQ(texts, Texts({"Can't open {0}", "Can't"}));
    return std::vector<Texts>{{"Impossible d'ouvrir {0}"}, {"C'est"}};
  });
  EXPECT_EQ(report.filled, 2);
  EXPECT_NE(file.text().find("msgstr \"Impossible d''ouvrir {0}\""), std::string::npos) << file.text();
  EXPECT_NE(file.text().find("msgstr \"C'est\""), std::string::npos) << file.text();
}

}  // namespace
}  // namespace hinge::decode
