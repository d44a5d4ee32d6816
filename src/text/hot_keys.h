// Hot keys in the labels of menus and buttons: GTK marks them by an underscore (_File), Qt by an ampersand (&File), and where the letter is
// not in the label both add it in brackets: "ファイル(_F)".
#pragma once

#include <string>
#include <string_view>

#include "text/format_codes.h"

namespace hinge::text {

// A label without its mark, and what was marked. marker 0: there is none.
struct HotKey {
  std::string label;
  char marker = 0;
  char32_t key = 0;  // lower case
};

// Takes the mark out of a label. A mark stands before a letter or digit and is the only one; doubled ones, entities (&amp;), the ampersand
// of AT&T, what is part of a format code ({file_name}) and what follows < or * (%<_Atomic%>) are none. Inside a
// word ("E_xit") it is one only if the others of its characters are letters (not "x86_64") and in labels of up to five words: in longer
// texts "file_name" is a name. Labels begin with a capital letter: in a text that does not, a mark further on is part of a name ("symbol
// _start not found", "pass &ptr to it"). In format strings of programs (format.percent) the marked word must begin with one, too: "_Redo
// %s", but not "No %s for _start".
HotKey take_hot_key(std::string_view label, const FormatSyntax& format = {});

// Marks the first word of `label` that begins with `key`, else the first `key`, else the first letter; never one of a format code.
std::string put_hot_key(std::string_view label, char marker, char32_t key, const FormatSyntax& format = {});

// Removes the hot keys of a message and of its translation. Here the other side tells whether a mark inside a word is one: it must have a
// mark too, and in another word ("E_xit" and "_Beenden", but not "gtk_init" and "gtk_init"). The same marked word on both sides is a name
// ("symbol _start not found"), unless it begins with a capital letter in a label of up to five words ("_Name:" and "_Name:").
void remove_hot_keys(std::string& source, std::string& target);

}  // namespace hinge::text
