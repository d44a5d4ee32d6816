// A compiled catalogue of messages.
#include "../target.h"
#include "text/mo_file.h"

namespace hinge::fuzz {

static void mo_target(Input input) { text::parse_mo(text_of(input), "messages.mo"); }

const Target target_mo{"mo", &mo_target};

}  // namespace hinge::fuzz
