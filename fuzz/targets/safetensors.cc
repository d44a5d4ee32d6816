// Weights from elsewhere: the header, and data that lie where it says.
#include "support/safetensors.h"

#include <cstring>
#include <stdexcept>

#include "../target.h"

namespace hinge::fuzz {

void safetensors_target(Input input) {
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

}  // namespace hinge::fuzz
