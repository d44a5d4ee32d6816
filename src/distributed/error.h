// Errors between the processes of a run.
#pragma once

#include <stdexcept>

namespace hinge::distributed {

// The processes cannot meet, or do not answer each other.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Another process of the run has ended, which is why this one must: what it says names that process.
struct PeerError : Error {
  using Error::Error;
};

}  // namespace hinge::distributed
