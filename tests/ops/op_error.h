// The errors of ops, without LibTorch's stack trace.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace hinge::testing {

// The message with which `action` fails; "" if it does not.
template <class Action> std::string error_of(const Action& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace hinge::testing
