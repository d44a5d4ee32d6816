// What must hold of a configuration, or the run does not begin.
#pragma once

#include <stdexcept>
#include <string>

namespace hinge::support {

inline void require(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}

}  // namespace hinge::support
