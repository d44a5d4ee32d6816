// Who works on what, where several processes, perhaps on several machines, share a folder. A claim is a file that names its owner; the
// owner touches it every few seconds. A claim whose owner is gone can be taken over.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace hinge::experiment {

class Claims {
 public:
  // An owner on another machine that has not touched its claim for `patience` seconds is taken for gone. One on this machine is gone when
  // its process is.
  static constexpr double kPatience = 120;
  explicit Claims(std::string folder, double patience = kPatience);
  ~Claims();  // releases all
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // False if another has it. Throws std::runtime_error if the folder cannot be written to.
  bool take(const std::string& name);
  void release(const std::string& name);
  // Touches all that are held; to be called at least every few seconds.
  void keep();

 private:
  std::string path(const std::string& name) const;
  std::optional<bool> is_alive(const std::string& owner) const;
  bool take_over(const std::string& claim, const std::string& owner, const std::string& fresh) const;

  std::string folder_;
  double patience_;
  std::string owner_;  // this process, as its claims name it
  std::set<std::string> held_;
};

}  // namespace hinge::experiment
