// Memory of CPU tensors that is kept for the next tensor of its size. glibc gives large blocks back to the system and gets them anew, page
// fault by page fault, in every training step; that costs a tenth of the time of a small model. No torch in this header.
#pragma once

#include <cstddef>

namespace hinge {

// From now on LibTorch takes the memory of CPU tensors from here. Once in a program, before the first tensor; a program's own choice, so
// only the hinge command calls it.
void keep_tensor_memory();

struct TensorMemory {
  size_t live_bytes = 0;  // in tensors
  size_t kept_bytes = 0;  // free, waiting for the next tensor of their size
};
TensorMemory tensor_memory();

// Gives all that is kept back to the system, as if the program began with the tensors it has now.
void drop_kept_tensor_memory();

}  // namespace hinge
