// A pass of a model over images.
#pragma once

#include <functional>

#include "data/loader.h"

namespace hinge::eval {

// Calls `body` for each batch of a single pass, side by side (ops/parallel.h). Ends when `goes_on`, asked before each batch, says no. Both
// are called on several threads at once, or, with `in_order`, on the calling one. Gradients are off in them.
void for_each_batch(data::Loader& loader, const std::function<bool()>& goes_on, const std::function<void(data::Batch&)>& body,
                    bool in_order = false);

}  // namespace hinge::eval
