// Whether text is UTF-8, as everything is that configs and checkpoints store.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hinge::support {

// The place of the first byte that is not valid UTF-8 (overlong forms, surrogates and values past U+10FFFF are not).
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Throws std::runtime_error with `what` and the text, its wrong bytes as \xE9.
void require_utf8(const std::string& what, std::string_view text);

}  // namespace hinge::support
