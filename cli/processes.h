// A command that runs as one of several processes.
#pragma once

#include <fmt/format.h>

#include <string>

#include "distributed/process_group.h"
#include "ops/error_text.h"
#include "train/processes.h"

namespace hinge::cli {

// Meets the others, agrees with them on a SIMD target and calls body(group, target). Tells the others of an error, and waits for them at
// the end.
template <class Body> auto with_processes(const distributed::Environment& environment, const Body& body) {
  distributed::ProcessGroup group(environment, fmt::format("hinge {}", HINGE_VERSION));
  try {
    const std::string target = train::Processes(&group).agree_on_simd_target();
    auto result = body(group, target);
    group.leave();
    return result;
  } catch (const distributed::PeerError&) {
    throw;
  } catch (const std::exception& error) {
    group.fail(error_text(error));
    throw;
  }
}

}  // namespace hinge::cli
