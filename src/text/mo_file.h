// Compiled gettext catalogues (.mo): tables of messages and their translations. The hash table, an index for look-ups, is not needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

struct Message {
  std::string context;             // msgctxt; mostly none
  std::string id, plural;          // msgid, and msgid_plural if there is one
  std::vector<std::string> forms;  // msgstr, or one for each plural form
};

struct MoFile {
  std::string header;             // the translation of the empty message: "Name: value" lines
  std::vector<Message> messages;  // all others, in the order of the file, system-dependent ones last ("%<PRIu64>"), as UTF-8
};

// Either byte order; other encodings, which the header names, are converted. `path` is for the messages of TextError.
MoFile parse_mo(std::string_view bytes, const std::string& path);
MoFile read_mo(const std::string& path);

}  // namespace hinge::text
