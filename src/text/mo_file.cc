// The layout of GNU gettext's manual, "The Format of GNU MO Files": magic number, revision, number of strings N, place of the table of
// originals, place of the table of translations; each table holds N pairs of length and place. A context stands before its message with
// \4 between them; plural forms stand one behind the other with \0 between them.
// From revision 0.1 on there are system-dependent strings too. They have tables of their own, whose entries are places of: the place of the
// string's fixed text; then, again and again, how many bytes of it come next and the number of the system's part behind them, up to ~0.
// The parts are named in one more table: "PRIu64" is the letters that <inttypes.h> has for it, "I" a flag that glibc alone knows.
#include "text/mo_file.h"

#include <iconv.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "text/error.h"
#include "text/files.h"
#include "text/plural_forms.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

constexpr size_t kMostOfFile = 4;  // how often each of its bytes may be part of a message; where nothing is damaged, that is once
constexpr uint32_t kMagic = 0x950412de, kSwappedMagic = 0xde120495;

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {
    if (bytes.size() < 20) throw TextError(path, 0, "is no .mo file: it is shorter than the header of one");
    if (word(0) == kSwappedMagic)
      big_end_first_ = true;
    else if (word(0) != kMagic)
      throw TextError(path, 0, "is no .mo file: it does not begin with the magic number 0x950412de");
    if (word(4) >> 16 > 1) throw TextError(path, 0, fmt::format("has revision {} of the .mo format; 0 and 1 are read", word(4) >> 16));
  }

  uint32_t word(size_t at) const {
    if (at + 4 > bytes_.size()) throw TextError(path_, 0, "is cut short; install its package again");
    const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(bytes_[at + i])}; };
    return big_end_first_ ? byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3) : byte(3) << 24 | byte(2) << 16 | byte(1) << 8 | byte(0);
  }

  uint32_t strings() const { return word(8); }
  std::string_view original(uint32_t i) const { return string(word(12), i); }
  std::string_view translation(uint32_t i) const { return string(word(16), i); }

  uint32_t system_strings() const { return (word(4) & 0xFFFF) > 0 ? word(36) : 0; }
  std::string system_original(uint32_t i) const { return system_string(word(40), i); }
  std::string system_translation(uint32_t i) const { return system_string(word(44), i); }

 private:
  std::string_view slice(size_t place, size_t length) const {
    if (place > bytes_.size() || length > bytes_.size() - place)
      throw TextError(path_, 0, "is cut short: a message lies behind its end; install its package again");
    return bytes_.substr(place, length);
  }

  std::string_view string(size_t table, uint32_t i) const { return slice(word(table + size_t{8} * i + 4), word(table + size_t{8} * i)); }

  std::string system_string(size_t table, uint32_t i) const {
    constexpr uint32_t kEnd = 0xFFFFFFFF;
    size_t at = word(table + size_t{4} * i), place = word(at);
    std::string text;
    for (at += 4;; at += 8) {
      const size_t length = word(at);
      text += slice(place, length);
      place += length;
      const uint32_t part = word(at + 4);
      if (part == kEnd) break;
      text += system_part(part);
      if (text.size() > bytes_.size())
        throw TextError(path_, 0, "is damaged: a message is longer than the file; install its package again");
    }
    if (text.ends_with('\0')) text.pop_back();  // its end counts as text here
    return text;
  }

  // As .po files write it: "<PRIu64>". The flag may be missing.
  std::string system_part(uint32_t i) const {
    if (i >= word(28)) throw TextError(path_, 0, fmt::format("is damaged: it has no part {}; install its package again", i));
    std::string name(string(word(32), i));
    if (name.ends_with('\0')) name.pop_back();
    return name == "I" ? "" : "<" + name + ">";
  }

  std::string_view bytes_;
  const std::string& path_;
  bool big_end_first_ = false;
};

// From the encoding that the header names to UTF-8. One that is UTF-8 already is only checked.
class ToUtf8 {
 public:
  ToUtf8(const std::string& charset, const std::string& path) : charset_(charset), path_(path) {
    if (charset.empty() || charset == "CHARSET" || charset == "UTF-8" || charset == "utf-8" || charset == "UTF8" || charset == "utf8")
      return;
    iconv_t opened = ::iconv_open("UTF-8", charset.c_str());
    if (reinterpret_cast<intptr_t>(opened) == -1)
      throw TextError(path, 0, fmt::format("is in the encoding '{}', which iconv does not know", charset));
    converter_ = opened;
  }
  ~ToUtf8() {
    if (converter_) ::iconv_close(*converter_);
  }
  ToUtf8(const ToUtf8&) = delete;
  ToUtf8& operator=(const ToUtf8&) = delete;

  std::string operator()(std::string_view text) const {
    std::string converted(text);
    if (converter_) {
      converted.resize(4 * text.size() + 4);
      char *in = const_cast<char*>(text.data()), *out = converted.data();
      size_t in_left = text.size(), out_left = converted.size();
      if (::iconv(*converter_, &in, &in_left, &out, &out_left) == static_cast<size_t>(-1) || in_left > 0)
        throw TextError(path_, 0, fmt::format("is not in the encoding '{}' that its header names", charset_));
      converted.resize(converted.size() - out_left);
      ::iconv(*converter_, nullptr, nullptr, nullptr, nullptr);
    }
    if (find_invalid_utf8(converted)) throw TextError(path_, 0, "is not UTF-8, and its header names no other encoding");
    return converted;
  }

 private:
  std::string charset_;
  const std::string& path_;
  std::optional<iconv_t> converter_;
};

std::string charset_of(std::string_view header) {
  const std::string type = header_field(header, "Content-Type");
  const size_t at = type.find("charset=");
  return at == std::string::npos ? "" : std::string(strip(type.substr(at + 8)));
}

Message message_of(std::string_view original, std::string_view translation, const ToUtf8& to_utf8) {
  Message message;
  if (const size_t end = original.find('\4'); end != std::string_view::npos) {
    message.context = to_utf8(original.substr(0, end));
    original.remove_prefix(end + 1);
  }
  if (const size_t end = original.find('\0'); end != std::string_view::npos) {
    message.plural = to_utf8(original.substr(end + 1));
    original = original.substr(0, end);
    for (size_t form; (form = translation.find('\0')) != std::string_view::npos; translation.remove_prefix(form + 1))
      message.forms.push_back(to_utf8(translation.substr(0, form)));
  }
  message.forms.push_back(to_utf8(translation));
  message.id = to_utf8(original);
  return message;
}

}  // namespace

MoFile parse_mo(std::string_view bytes, const std::string& path) {
  const Reader reader(bytes, path);
  MoFile file;
  const uint32_t count = reader.strings(), system_count = reader.system_strings();
  for (uint32_t i = 0; i < count; ++i)  // sorted, so that the header is the first; but who knows
    if (reader.original(i).empty()) {
      file.header = reader.translation(i);
      break;
    }
  const ToUtf8 to_utf8(charset_of(file.header), path);
  file.header = to_utf8(file.header);
  size_t length = 0;
  const auto add = [&](std::string_view original, std::string_view translation) {
    length += original.size() + translation.size();
    if (length > kMostOfFile * bytes.size())
      throw TextError(path, 0, "is damaged: its messages lie in the same places; install its package again");
    file.messages.push_back(message_of(original, translation, to_utf8));
  };
  for (uint32_t i = 0; i < count; ++i)
    if (const std::string_view original = reader.original(i); !original.empty()) add(original, reader.translation(i));
  for (uint32_t i = 0; i < system_count; ++i) add(reader.system_original(i), reader.system_translation(i));
  return file;
}

MoFile read_mo(const std::string& path) { return parse_mo(read_text_file(path), path); }

}  // namespace hinge::text
