// What tests ask of error messages.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <vector>

namespace hinge::support {

// Whether a message holds all of these parts.
inline testing::AssertionResult mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos) return testing::AssertionFailure() << "no '" << part << "' in '" << message << "'";
  return testing::AssertionSuccess();
}

// The message with which `action` fails; "" if it does not.
template <class Action> std::string error_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Fails unless `expression` throws an error that holds all the parts.
#define EXPECT_ERROR(expression, ...) \
  EXPECT_TRUE(::hinge::support::mentions(::hinge::support::error_of([&] { static_cast<void>(expression); }), {__VA_ARGS__}))

}  // namespace hinge::support
