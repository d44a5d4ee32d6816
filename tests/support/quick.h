// HINGE_TEST_QUICK=1 asks for a sample of the long tests: about a sixth of the kernels' cases, a few kills instead of many.
#pragma once

#include <cstdlib>
#include <string>

namespace hinge::support {

inline bool quick() {
  const char* text = std::getenv("HINGE_TEST_QUICK");
  return text != nullptr && std::string(text) == "1";
}

}  // namespace hinge::support
