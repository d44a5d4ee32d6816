#include "decode/po_language.h"

#include <gtest/gtest.h>

#include "../support/errors.h"

namespace hinge::decode {
namespace {

std::optional<std::string> checked(const std::string& language, const std::string& pair) {
  const text::PoFile file("msgid \"\"\nmsgstr \"Language: " + language + "\\n\"\n\nmsgid \"one\"\nmsgstr \"\"\n", "x.po");
  return check_language(file, "x.po", "the run", pair);
}

TEST(PoLanguage, MustBeTheTarget) {
  for (const char* language : {"de", "de_AT", "DE", "", "German", "deu"}) EXPECT_FALSE(checked(language, "en-de")) << language;
  EXPECT_FALSE(checked("fr", "en-deu")) << "cannot be compared";
  EXPECT_ERROR(checked("fr_CA", "en-de"), "x.po: ", "'fr_CA'", "the run translates into 'de' (en-de)");
  EXPECT_ERROR(checked("en", "en-de"), "'en'");
}

TEST(PoLanguage, MayBeAVariant) {
  const std::optional<std::string> warning = checked("pt_BR", "en-pt_PT");
  ASSERT_TRUE(warning);
  EXPECT_TRUE(support::mentions(*warning, {"x.po", "'pt_BR'", "'pt_PT'", "the run"}));
  EXPECT_TRUE(checked("sr@latin", "en-sr"));
  EXPECT_FALSE(checked("pt", "en-pt_PT"));
}

}  // namespace
}  // namespace hinge::decode
