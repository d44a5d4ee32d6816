// A catalogue that is filled: what comes out is a catalogue again, with as many messages.
#include "text/po.h"

#include <stdexcept>

#include "../target.h"

namespace hinge::fuzz {

static void po_target(Input input) {
  text::PoFile file(std::string(text_of(input)), "messages.po");
  for (size_t i = 0; i < file.empty_entries().size(); ++i) file.fill(i, file.empty_entries()[i].sources);
  const int64_t messages = file.messages();
  const std::string filled = file.text();
  int64_t again = 0;
  try {
    again = text::PoFile(filled, "filled.po").messages();
  } catch (const std::runtime_error& error) {
    throw std::logic_error(std::string("the filled catalogue cannot be read: ") + error.what());
  }
  if (again != messages) throw std::logic_error("the filled catalogue has another number of messages");
}

const Target target_po{"po", &po_target};

}  // namespace hinge::fuzz
