// Two files of parallel text, plain or packed; bad lines stop it or are left out.
#include "text/parallel.h"

#include <algorithm>
#include <stdexcept>

#include "../target.h"
#include "text/files.h"

namespace hinge::fuzz {

static void parallel_target(Input input) {
  static MemoryFile source, target;
  if (input.empty()) return;
  const auto on_error = input[0] % 2 == 0 ? text::OnError::stop : text::OnError::skip;
  const auto [first, second] = split(input.subspan(1));
  const std::string source_path = source.holding(first), target_path = target.holding(second);
  const text::ParallelText text = text::read_parallel(source_path, target_path, {.on_error = on_error, .longest = 100});
  int64_t pairs = 0;
  for (const text::Document& document : text.documents) pairs += static_cast<int64_t>(document.pairs.size());
  if (pairs == 0 || pairs != text.pairs()) throw std::logic_error("an empty document");
  // Lines one by one are the lines of the whole.
  const std::string whole = text::read_text_file(source_path);
  text::FileLines lines(source_path);
  for (const std::string_view expected : text::split_lines(whole))
    if (const auto line = lines.next(); !line || line->text != expected) throw std::logic_error("another line");
  if (lines.next()) throw std::logic_error("one line more");
}

const Target target_parallel{"parallel", &parallel_target};

}  // namespace hinge::fuzz
