// One target for libFuzzer: the one whose name the program's ends with, fuzz_safetensors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "target.h"

namespace {

const hinge::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  const char* slash = std::strrchr((*argv)[0], '/');
  const std::string program = slash != nullptr ? slash + 1 : (*argv)[0];
  for (const hinge::fuzz::Target& target : hinge::fuzz::targets())
    if (program == std::string("fuzz_") + target.name) chosen = &target;
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "no target is called %s\n", program.c_str());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hinge::fuzz::run(*chosen, {data, size});
  return 0;
}
