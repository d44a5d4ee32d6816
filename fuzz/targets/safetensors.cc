// Weights from elsewhere: the header, and data that lie where it says.
#include "support/safetensors.h"

#include <cstring>
#include <stdexcept>

#include "../target.h"

namespace hinge::fuzz {

static void safetensors_target(Input input) {
  static MemoryFile file;
  const std::string& path = file.holding(input);
  const support::SafetensorsFile opened(path, support::Verify::header);
  std::string copy;
  for (const support::TensorView& tensor : opened.tensors()) {
    copy.assign(static_cast<const char*>(tensor.data), tensor.bytes());
    if (&opened.at(tensor.name) != opened.find(tensor.name)) throw std::logic_error("two tensors of one name");
  }
  const support::SafetensorsFile verified(path);
}

// The length of the header, which ends with the last brace.
static void mend_safetensors(std::span<uint8_t> input) {
  constexpr size_t kLengthBytes = 8;
  size_t end = input.size();
  while (end > kLengthBytes && input[end - 1] != '}') --end;
  if (end <= kLengthBytes) return;
  for (size_t i = 0; i < kLengthBytes; ++i) input[i] = static_cast<uint8_t>((end - kLengthBytes) >> (8 * i));
}

const Target target_safetensors{"safetensors", &safetensors_target, &mend_safetensors};

}  // namespace hinge::fuzz
