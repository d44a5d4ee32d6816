// Loads the module with SentencePiece in it, or calls it where it is linked (builds without LibTorch).
#include "text/pieces.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

namespace hinge::text {

#ifdef HINGE_SENTENCEPIECE_LINKED

const PieceLibrary& piece_library() { return *hinge_piece_library(); }

#else
namespace {

// RTLD_LOCAL keeps the module's symbols from everybody else, RTLD_DEEPBIND everybody else's from the module.
const PieceLibrary* load_module() {
  namespace fs = std::filesystem;
  constexpr const char* kName = "hinge_sentencepiece.so";
  const fs::path beside_program = fs::read_symlink("/proc/self/exe").parent_path();
  std::string reasons;
  for (const fs::path& path : {beside_program / kName, beside_program.parent_path() / "lib" / "hinge" / kName}) {
    void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (module == nullptr) {
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", ::dlerror());
      continue;
    }
    using Entry = decltype(&hinge_piece_library);
    const auto entry = reinterpret_cast<Entry>(::dlsym(module, "hinge_piece_library"));
    if (entry != nullptr) return entry();
    reasons += fmt::format("{}{} is no module of Hinge", reasons.empty() ? "" : "; ", path.string());
  }
  throw std::runtime_error(
      fmt::format("SentencePiece cannot be loaded: {}; build Hinge again, and keep {} next to the program", reasons, kName));
}

}  // namespace

const PieceLibrary& piece_library() {
  static const PieceLibrary* const library = load_module();
  return *library;
}
#endif

}  // namespace hinge::text
