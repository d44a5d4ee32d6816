// What an error says to a user.
#pragma once

#include <exception>

namespace hinge {

// Its message; of LibTorch's errors without the stack that they print. Lives as long as the error.
const char* error_text(const std::exception& error);

}  // namespace hinge
