#include "ops/error_text.h"

#include <c10/util/Exception.h>

namespace hinge {

const char* error_text(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch ? torch->what_without_backtrace() : error.what();
}

}  // namespace hinge
