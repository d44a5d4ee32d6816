// Whether a limited address space (ulimit -v) has room for what the shared libraries allocate in their constructors. Without it, OpenBLAS
// asks for its buffers for ever, and LibTorch aborts. So this runs before them.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace hinge::cli {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kBuffer = 128 * kMegabyte;    // OpenBLAS takes one for each thread
constexpr size_t kLibTorch = 128 * kMegabyte;  // its operators, and a small model

// The environment is given, because the C library's own variable is not there yet.
size_t threads_of_blas(char** environment) {
  for (const std::string_view name : {"OPENBLAS_NUM_THREADS=", "OMP_NUM_THREADS="})
    for (char** variable = environment; *variable != nullptr; ++variable)
      if (std::string_view(*variable).starts_with(name))
        if (const int threads = std::atoi(*variable + name.size()); threads > 0) return static_cast<size_t>(threads);
  cpu_set_t processors;
  return ::sched_getaffinity(0, sizeof processors, &processors) == 0 ? static_cast<size_t>(CPU_COUNT(&processors)) : 1;
}

void require_address_space(int /*argc*/, char** /*argv*/, char** environment) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const bool openblas = ::dlsym(RTLD_DEFAULT, "openblas_get_config") != nullptr;
  const size_t wanted = kLibTorch + (openblas ? threads_of_blas(environment) * kBuffer : 0);
  void* const trial = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial != MAP_FAILED) {
    ::munmap(trial, wanted);
    return;
  }
  char text[200];
  const int length =
      std::snprintf(text, sizeof text,
                    "hinge: less than %zu MB of address space is left of the limit of %zu MB (ulimit -v): raise the limit, or set a "
                    "lower OMP_NUM_THREADS\n",
                    wanted / kMegabyte, static_cast<size_t>(limit.rlim_cur) / kMegabyte);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<size_t>(length));
  ::_exit(1);
}

// Of a program alone, and called before the constructors of its libraries.
[[gnu::used, gnu::section(".preinit_array")]] void (*before_all)(int, char**, char**) = &require_address_space;

}  // namespace
}  // namespace hinge::cli
