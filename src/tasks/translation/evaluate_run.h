// hinge eval of a translation run: loss, perplexity and accuracy of its predictions of a text, token by token.
#pragma once

#include "tasks/task.h"

namespace hinge::translation {

tasks::EvalReport evaluate_run(const tasks::EvalRequest& request);

}  // namespace hinge::translation
