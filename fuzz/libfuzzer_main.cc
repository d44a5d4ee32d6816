// One target for libFuzzer, HINGE_FUZZ_TARGET, in a program of its own. The others are not linked: libFuzzer looks after each input through
// all that there is.
#include "target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  const size_t mutated = LLVMFuzzerMutate(data, size, most);
  if (const auto mend = hinge::fuzz::HINGE_FUZZ_TARGET.mend; mend != nullptr && seed % 2 == 0) mend({data, mutated});
  return mutated;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hinge::fuzz::run(hinge::fuzz::HINGE_FUZZ_TARGET, {data, size});
  return 0;
}
